"""Shapes: the smallest, odd and largest sizes of every open dim, one at a time and all together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from paritygate.validate.probes.probe import ProbeBatch, ProbeContext
from paritygate.validate.probes.roles import Role
from paritygate.validate.probes.sizes import OpenDim, batch_sizes, open_dims
from paritygate.validate.probes.survey import Rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["derive", "resized"]

_NAME = "shapes"
_ROWS = 3


def derive(context: ProbeContext) -> Iterator[ProbeBatch]:
    """Yield real rows, brought to other sizes by cutting them or going on with them from their beginning."""
    for rows in context.survey.groups[:1]:
        dims = open_dims(context, rows)
        sizes = batch_sizes(context)
        count = max(min(_ROWS, max(sizes)), min(sizes)) if rows.with_rows else 1
        at = [int(row) for row in np.resize(context.random(_NAME).permutation(len(rows.ids)), count)]
        for chosen in _combinations(dims):
            inputs = resized(context, rows, at, {dim: size for dim, size in chosen.items() if size != dim.size})
            about = ", ".join(f"{dim.name} of {size}" for dim, size in chosen.items())
            is_unlike = any(not _is_seen(context, dim, size) for dim, size in chosen.items())
            yield ProbeBatch(inputs=inputs, rows=len(at), about=about, is_unlike_seen=is_unlike)


def _is_seen(context: ProbeContext, dim: OpenDim, size: int) -> bool:
    """Return whether the size lies between sizes that the samples have."""
    name, axis = dim.places[0]
    seen = [shape[axis] for shape in context.survey.inputs[name].shapes if axis < len(shape)]
    return min(seen) <= size <= max(seen)


def _combinations(dims: tuple[OpenDim, ...]) -> Iterator[dict[OpenDim, int]]:
    for dim in dims:
        for size in dim.others:
            yield {dim: size}
    several = [dim for dim in dims if dim.others]
    if len(several) > 1:
        for pick in (min, max):
            yield {dim: pick((*dim.others, dim.size)) for dim in several}


def resized(
    context: ProbeContext, rows: Rows, at: list[int], sizes: Mapping[OpenDim, int]
) -> dict[str, NDArray[np.generic]]:
    """Return the rows with some dims of other sizes: what is real starts over at its end, and every mask is full.

    Lengths of what was resized are the new size. What was empty, as the cache of a model that begins, holds normal
    numbers, and zeros where it is of whole numbers.
    """
    inputs = rows.take(at)
    for dim, size in sizes.items():
        for name, axis in dim.places:
            inputs[name] = _of_size(context, name, inputs[name], axis, size)
    if not sizes:
        return inputs
    for name, role in context.roles.items():
        if role.role is Role.MASK and any(name == place for dim in sizes for place, _ in dim.places):
            inputs[name] = np.ones_like(inputs[name])
        longest = [size for dim, size in sizes.items() for place in dim.places if place == (role.of, 1)]
        if role.role is Role.LENGTH and longest:
            inputs[name] = np.full_like(inputs[name], longest[0])
    return inputs


def _of_size(context: ProbeContext, name: str, array: NDArray[np.generic], axis: int, size: int) -> NDArray[np.generic]:
    before = array.shape[axis]
    if before:
        return np.take(array, np.arange(size) % before, axis=axis)
    shape = (*array.shape[:axis], size, *array.shape[axis + 1 :])
    if array.dtype.kind not in "fV":
        return np.zeros(shape, dtype=array.dtype)
    drawn: NDArray[np.generic] = context.random(f"{_NAME}/{name}").standard_normal(shape).astype(array.dtype)
    return drawn
