"""The open dims of a model's inputs, and other sizes that they may take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from paritygate.validate.probes.probe import ProbeContext
from paritygate.validate.probes.survey import Rows

__all__ = ["OpenDim", "batch_sizes", "open_dims"]

# The largest batch of a wide declared range, and the one where none is declared: where rows are small, and where not.
_LARGEST_DECLARED = (256, 64)
_LARGEST_UNDECLARED = (33, 17)
_SMALL_ROW_BYTES = 4096
# An open dim is not tried beyond so many times the largest size seen, unless that is declared.
_LARGEST_FACTOR = 64


@dataclass(frozen=True, kw_only=True, slots=True)
class OpenDim:
    """One size that the model leaves open, but for the rows.

    Attributes:
        name: The symbolic dim, or in words which dim it is.
        places: Where it stands: `(input, axis)` each.
        size: What it is in the rows at hand.
        others: Other sizes to try, in order.
    """

    name: str
    places: tuple[tuple[str, int], ...]
    size: int
    others: tuple[int, ...]


def batch_sizes(context: ProbeContext) -> tuple[int, ...]:
    """Return the numbers of rows to try, the largest first: what follows a large batch is a case of its own."""
    seen_high = context.survey.batch_sizes[1]
    if not any(seen.has_rows for seen in context.survey.inputs.values()):
        return (1,)
    symbols = set()
    for spec in context.signature.inputs:
        if context.survey.inputs[spec.name].has_rows and spec.shape:
            symbols.add(spec.shape[0])
    fixed = {size for size in symbols if isinstance(size, int)}
    if fixed:
        return (min(fixed),)
    declared = next((context.dims[size] for size in symbols if isinstance(size, str) and size in context.dims), None)
    at = 0 if _row_bytes(context) <= _SMALL_ROW_BYTES else 1
    # Larger than any seen: what goes wrong in large batches alone is found in one.
    low, high = (declared.min, declared.max) if declared else (1, max(2 * seen_high, _LARGEST_UNDECLARED[at]))
    high = min(high, max(_LARGEST_DECLARED[at], low))
    wanted = {low, high, 1, 2, 3, _odd(high // 2)}
    return tuple(sorted((size for size in wanted if low <= size <= high), reverse=True))


def _row_bytes(context: ProbeContext) -> int:
    group = context.survey.groups[0]
    return max(sum(group.inputs[name].nbytes // len(group.ids) for name in group.with_rows), 1)


def open_dims(context: ProbeContext, rows: Rows) -> tuple[OpenDim, ...]:
    """Return every open dim but that of the rows.

    Dims without a name are one dim where they have one size, but for two of the same input: the sides of a picture.
    """
    places: dict[str, list[tuple[str, int]]] = {}
    sizes: dict[str, int] = {}
    for spec in context.signature.inputs:
        array = rows.inputs[spec.name]
        first = 1 if spec.name in rows.with_rows else 0
        shape = spec.shape if spec.shape is not None else (None,) * array.ndim
        for axis in range(first, array.ndim):
            dim = shape[axis]
            if isinstance(dim, int):
                continue
            key = dim or _unnamed(array.shape, axis, first)
            places.setdefault(key, []).append((spec.name, axis))
            sizes[key] = int(array.shape[axis])
    return tuple(
        OpenDim(name=name, places=tuple(found), size=sizes[name], others=_others(name, found, sizes, context))
        for name, found in places.items()
    )


def _unnamed(shape: tuple[int, ...], axis: int, first: int) -> str:
    before = shape[first:axis].count(shape[axis])
    return f"the {'next ' * before}dim of size {shape[axis]}"


def _others(
    name: str, places: list[tuple[str, int]], sizes: Mapping[str, int], context: ProbeContext
) -> tuple[int, ...]:
    declared = context.dims.get(name)
    size = sizes[name]
    if declared is not None:
        middle = _odd((declared.min + declared.max) // 2)
        wanted = {declared.min, declared.max, middle, min(declared.max, _odd(size + 1))}
        return tuple(sorted(item for item in wanted if declared.min <= item <= declared.max and item != size))
    seen = {shape[axis] for name, axis in places for shape in context.survey.inputs[name].shapes if axis < len(shape)}
    low, high = min(seen | {size}), max(seen | {size})
    wanted = {1, max(1, low // 2), _odd((low + high) // 2), _odd(high + 1), 2 * high, *_by_tables(places, context)}
    return tuple(sorted(item for item in wanted - {size} if item <= _LARGEST_FACTOR * high))


def _by_tables(places: list[tuple[str, int]], context: ProbeContext) -> set[int]:
    """Return the most positions that the tables of the model hold, and one less."""
    roles = [context.roles[name] for name, axis in places if axis == 1 and name in context.roles]
    return {size for role in roles if role.positions for size in (role.positions, role.positions - 1) if size > 0}


def _odd(size: int) -> int:
    return size | 1
