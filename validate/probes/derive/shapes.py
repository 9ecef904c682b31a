"""Shapes: the smallest, odd and largest sizes of every open dim, alone and all together, and then far larger ones."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from paritygate.signature import is_float_dtype
from paritygate.validate.probes.derive.longer_rows import of_size, real_at_both_ends, real_throughout
from paritygate.validate.probes.derive.sizes import OpenDim, batch_sizes, coherent, open_dims
from paritygate.validate.probes.inputs.probe import ProbeBatch, ProbeContext
from paritygate.validate.probes.inputs.roles import Role
from paritygate.validate.probes.inputs.survey import Rows

_NAME = "shapes"
_ROWS = 3
# Limits of far larger sizes: bytes of one call, and work in rows of the largest size seen, as a share of the rows of a
# probe. From the last number of positions on, attention dominates the cost.
_FAR_BYTES = 4 << 20
_FAR_SHARE = 0.5
_FAR_LEAST_WORK = 96
_QUADRATIC_FROM = 512


def derive(context: ProbeContext) -> Iterator[ProbeBatch]:
    """Yield real rows cut or continued to other sizes; the largest come last."""
    for rows in context.survey.groups[:1]:
        dims = open_dims(context, rows)
        sizes = batch_sizes(context)
        count = max(min(_ROWS, max(sizes)), min(sizes)) if rows.with_rows else 1
        at = [int(row) for row in np.resize(context.random(_NAME).permutation(len(rows.ids)), count)]
        for chosen in _combinations(dims):
            if _is_declared(context, coherent(dims, chosen)):
                batch = _batch(context, rows, at, chosen)
                # Long rows may run one by one where there is no time for three.
                few = functools.partial(_batch, context, rows, at[: min(sizes)], chosen)
                yield replace(batch, fewer=few) if min(sizes) < count else batch
        yield from _far(context, rows, dims, at[: min(sizes)])


def _batch(
    context: ProbeContext, rows: Rows, at: list[int], chosen: Mapping[OpenDim, int], *, is_far: bool = False
) -> ProbeBatch:
    others = {dim: size for dim, size in chosen.items() if size != dim.size}
    inputs = resized(context, rows, at, others, places_of=real_at_both_ends if is_far else real_throughout)
    is_made_up = is_far or any(not dim.size for dim in chosen)
    has_floats = any(is_float_dtype(spec.dtype) for spec in context.signature.inputs)
    return ProbeBatch(
        inputs=inputs,
        rows=len(at),
        about=", ".join(f"{dim.name} of {size}" for dim, size in chosen.items()),
        is_unlike_seen=any(not _is_seen(context, dim, size) for dim, size in chosen.items()),
        is_invented=is_made_up and has_floats,
    )


def _is_declared(context: ProbeContext, sizes: Mapping[OpenDim, int]) -> bool:
    """Return whether the sizes are within the declared ranges; a sum may outgrow its own."""
    declared = [(context.dims[dim.name], size) for dim, size in sizes.items() if dim.name in context.dims]
    return all(dim.min <= size <= dim.max for dim, size in declared)


def _is_seen(context: ProbeContext, dim: OpenDim, size: int) -> bool:
    """Return whether the size is between two sizes of the samples."""
    name, axis = dim.places[0]
    seen = [shape[axis] for shape in context.survey.inputs[name].shapes if axis < len(shape)]
    return min(seen) <= size <= max(seen)


def _combinations(dims: tuple[OpenDim, ...]) -> Iterator[dict[OpenDim, int]]:
    for dim in dims:
        for size in dim.others:
            yield {dim: size}
    several = [dim for dim in dims if dim.others and dim.sum is None]
    if len(several) > 1:
        for pick in (min, max):
            yield {dim: pick((*dim.others, dim.size)) for dim in several}


def _far(context: ProbeContext, rows: Rows, dims: tuple[OpenDim, ...], at: list[int]) -> Iterator[ProbeBatch]:
    """Yield few rows of sizes far beyond those seen, the smallest first, as far as bytes and work allow."""
    left = max(_FAR_LEAST_WORK, context.max_rows * _FAR_SHARE)
    wanted = [(size, dim) for dim in dims for size in dim.far]
    for size, dim in sorted(wanted, key=lambda item: item[0]):
        left -= len(at) * size / dim.largest * (1 + size / _QUADRATIC_FROM)
        grown = coherent(dims, {dim: size})
        if left >= 0 and _is_declared(context, grown) and len(at) * _bytes_of_row(rows, grown) <= _FAR_BYTES:
            yield _batch(context, rows, at, {dim: size}, is_far=True)


def _bytes_of_row(rows: Rows, sizes: Mapping[OpenDim, int]) -> int:
    total = 0
    for name, array in rows.inputs.items():
        shape = list(array.shape)
        if name in rows.with_rows:
            shape[0] = 1
        for dim, size in sizes.items():
            for axis in [axis for place, axis in dim.places if place == name]:
                shape[axis] = size
        total += int(np.prod(shape)) * array.dtype.itemsize
    return total


def resized(
    context: ProbeContext,
    rows: Rows,
    at: list[int],
    sizes: Mapping[OpenDim, int],
    *,
    places_of: Callable[[int], NDArray[np.intp]] = real_throughout,
) -> dict[str, NDArray[np.generic]]:
    """Return the rows with some dims of other sizes, continued with other real rows, with all masks set.

    Lengths and sums of dims follow the new sizes. An input that is always empty, such as the first cache of a decoder,
    gets normal random numbers, or zeros where it holds whole numbers.
    """
    if not sizes:
        return rows.take(at)
    # All inputs use one order, so that values of a row stay together.
    order = [int(row) for row in context.random(f"{_NAME}/going on").permutation(len(rows.ids))]
    whole = rows.take(order)
    sizes = coherent(open_dims(context, rows), sizes)
    for dim, size in sizes.items():
        for name, axis in dim.places:
            elsewhere = [group.inputs[name] for group in context.survey.groups if group is not rows]
            longer = of_size(whole[name], axis, places_of(size), has_rows=name in rows.with_rows, elsewhere=elsewhere)
            whole[name] = _made(context, name, whole[name], axis, size) if longer is None else longer
    places = [order.index(row) for row in at]
    inputs = {name: array[places] if name in rows.with_rows else array for name, array in whole.items()}
    _set_masks_and_lengths(context, inputs, sizes)
    return inputs


def _set_masks_and_lengths(
    context: ProbeContext, inputs: dict[str, NDArray[np.generic]], sizes: Mapping[OpenDim, int]
) -> None:
    for name, role in context.roles.items():
        if role.role is Role.MASK and any(name == place for dim in sizes for place, _ in dim.places):
            inputs[name] = np.ones_like(inputs[name])
            _fill_padding(context, inputs, role.of)
        longest = [size for dim, size in sizes.items() for place in dim.places if place == (role.of, 1)]
        if role.role is Role.LENGTH and longest:
            inputs[name] = np.full_like(inputs[name], longest[0])


def _fill_padding(context: ProbeContext, inputs: dict[str, NDArray[np.generic]], name: str | None) -> None:
    """Replace padding ids by other ids of the row, because no sample has padding where the mask is set."""
    role = context.roles.get(name) if name is not None else None
    if name is None or role is None or role.role is not Role.ID or role.pad is None:
        return
    filled = inputs[name].copy()
    for row in filled:
        is_padding = row == role.pad
        if not is_padding.all():
            row[is_padding] = np.resize(row[~is_padding], int(is_padding.sum()))
    inputs[name] = filled


def _made(context: ProbeContext, name: str, array: NDArray[np.generic], axis: int, size: int) -> NDArray[np.generic]:
    shape = (*array.shape[:axis], size, *array.shape[axis + 1 :])
    if array.dtype.kind not in "fV":
        return np.zeros(shape, dtype=array.dtype)
    drawn: NDArray[np.generic] = context.random(f"{_NAME}/{name}").standard_normal(shape).astype(array.dtype)
    return drawn
