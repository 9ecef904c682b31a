"""The open dims of a model's inputs, and other sizes that they may take."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct
from msgspec.structs import replace

from paritygate.validate.probes.derive.summed_dims import Sum, sums_of
from paritygate.validate.probes.inputs.probe import ProbeContext
from paritygate.validate.probes.inputs.roles import Role
from paritygate.validate.probes.inputs.survey import Rows

# Largest batch of a wide declared range, and of an undeclared one: for small rows, and for others.
_LARGEST_DECLARED = (256, 64)
_LARGEST_UNDECLARED = (33, 17)
_SMALL_ROW_BYTES = 4096
# Hundreds of rows this small, as of a table, cost about as much as one call.
_TINY_ROW_BYTES = 512
_ROWS_OF_TINY = 512
# One more than batch sizes that a model may be cut to.
_LARGE_BATCHES = (257, 129, 65)
# Largest multiple of the size seen, unless a larger one is declared.
_LARGEST_FACTOR = 64
# Far sizes, as least multiples of the largest seen, up to this many positions.
_FAR_FACTORS = (4, 8, 16)
_FAR_SIZE = 2048
# The only multiple where two dims are open, as in a picture.
_FAR_FACTOR_OF_TWO = 4
# Names that converters invent.
_NO_NAME = re.compile(r"\?.*|unk__\d+|unknown\w*|DynamicDimension\.\d+|dynamic_axes_\d+|None")


class OpenDim(Struct, frozen=True, kw_only=True):
    """An open dim of the inputs, other than that of the rows.

    - `is_named`: the model has a name for it that no tool invented.
    - `places`: `(input, axis)` each.
    - `size`: its size in the rows at hand. `largest`: the largest seen, or that of another dim where it is always 0.
    - `others`, `far`: sizes to try, and sizes far beyond those seen; `far` is empty where sizes are declared.
    - `sum`: the other dims that it is the sum of.
    """

    name: str
    is_named: bool
    places: tuple[tuple[str, int], ...]
    size: int
    others: tuple[int, ...]
    far: tuple[int, ...] = ()
    largest: int = 1
    sum: Sum | None = None


def batch_sizes(context: ProbeContext) -> tuple[int, ...]:
    """Return the batch sizes to try, the largest first because a small batch after a large one is a case of its own."""
    bounds = _batch_bounds(context)
    if bounds is None:
        return (_fixed_batch(context),)
    low, high = bounds
    wanted = {low, high, 1, 2, 3, _odd(high // 2)}
    return tuple(sorted((size for size in wanted if low <= size <= high), reverse=True))


def more_batch_sizes(context: ProbeContext, *, rows: int) -> tuple[int, ...]:
    """Return further batch sizes in order, of `rows` rows in all: the small ones, and some larger than any seen."""
    bounds = _batch_bounds(context)
    if bounds is None:
        return ()
    row_bytes = _row_bytes(context)
    is_declared = _declared_batch(context) is not None
    # Services use a declared range up to its end.
    low, high = bounds if is_declared else (1, max(_LARGE_BATCHES))
    of_rows = max(context.max_rows, _ROWS_OF_TINY) if row_bytes <= _TINY_ROW_BYTES else context.max_rows
    left = min(rows, of_rows if row_bytes <= _SMALL_ROW_BYTES else context.max_rows // 2)
    sizes = []
    for size in (*range(1, 10), *(_LARGE_BATCHES if row_bytes <= _SMALL_ROW_BYTES else ())):
        if low <= size <= high and size not in batch_sizes(context) and size <= left:
            sizes.append(size)
            left -= size
    return tuple(sorted(sizes))


def _batch_bounds(context: ProbeContext) -> tuple[int, int] | None:
    """Return the smallest and the largest batch to try; None where the batch is fixed."""
    if _fixed_batch(context):
        return None
    declared = _declared_batch(context)
    at = 0 if _row_bytes(context) <= _SMALL_ROW_BYTES else 1
    # Some faults show in large batches alone.
    seen_high = context.survey.batch_sizes[1]
    low, high = declared or (1, max(2 * seen_high, _LARGEST_UNDECLARED[at]))
    return low, min(high, max(_LARGEST_DECLARED[at], low))


def _batch_symbols(context: ProbeContext) -> set[int | str | None]:
    specs = [spec for spec in context.signature.inputs if context.survey.inputs[spec.name].has_rows and spec.shape]
    return {spec.shape[0] for spec in specs if spec.shape}


def _fixed_batch(context: ProbeContext) -> int:
    """Return the fixed number of rows, or 0 where it is open."""
    if not any(seen.has_rows for seen in context.survey.inputs.values()):
        return 1
    return min((size for size in _batch_symbols(context) if isinstance(size, int)), default=0)


def _declared_batch(context: ProbeContext) -> tuple[int, int] | None:
    ranges = [context.dims[dim] for dim in _batch_symbols(context) if isinstance(dim, str) and dim in context.dims]
    return (ranges[0].min, ranges[0].max) if ranges else None


def _row_bytes(context: ProbeContext) -> int:
    group = context.survey.groups[0]
    return max(sum(group.inputs[name].nbytes // len(group.ids) for name in group.with_rows), 1)


def open_dims(context: ProbeContext, rows: Rows) -> tuple[OpenDim, ...]:
    """Return every open dim except that of the rows.

    Dims without a name are one dim where they always have one size. Two of one input stay two: the sides of a picture.
    """
    by_key: dict[tuple[object, ...], tuple[str, list[tuple[str, int]]]] = {}
    for spec in context.signature.inputs:
        array = rows.inputs[spec.name]
        first = 1 if spec.name in rows.with_rows else 0
        shape = spec.shape if spec.shape is not None else (None,) * array.ndim
        for axis in range(first, array.ndim):
            dim, place = shape[axis], (spec.name, axis)
            if isinstance(dim, int):
                continue
            before = array.shape[first:axis].count(array.shape[axis])
            name = dim or f"the {'next ' * before}dim of size {array.shape[axis]}"
            key = (dim,) if dim else (before, array.shape[axis], *_sizes_of(place, context.survey.groups))
            by_key.setdefault(key, (name, []))[1].append(place)
    plain = [
        OpenDim(
            name=name,
            is_named=key[0] == name and _NO_NAME.fullmatch(name) is None,
            places=tuple(places),
            size=int(rows.inputs[places[0][0]].shape[places[0][1]]),
            others=(),
        )
        for key, (name, places) in by_key.items()
    ]
    sums = sums_of(
        {dim.places: (dim.name, _sizes_of(dim.places[0], context.survey.groups)) for dim in plain},
        masks=[name for name, role in context.roles.items() if role.role is Role.MASK],
    )
    return tuple(_with_others(replace(dim, sum=sums.get(dim.places)), plain, context) for dim in plain)


def _sizes_of(place: tuple[str, int], groups: Iterable[Rows]) -> tuple[int, ...]:
    """Return the size of a dim in every group of rows; 0 where the input has another rank there."""
    name, axis = place
    return tuple(
        int(array.shape[axis]) if axis < array.ndim else 0 for array in (group.inputs[name] for group in groups)
    )


def coherent(dims: Iterable[OpenDim], sizes: Mapping[OpenDim, int]) -> dict[OpenDim, int]:
    """Return the sizes, with all sums adapted: a mask over a cache and new tokens grows with either."""
    adapted = dict(sizes)
    by_places = {dim.places: adapted.get(dim, dim.size) for dim in dims}
    for dim in dims:
        if dim.sum is not None and dim not in sizes:
            size = dim.sum.plus + sum(by_places[part] for part in dim.sum.parts)
            if size != dim.size:
                adapted[dim] = size
    return adapted


def _with_others(dim: OpenDim, dims: list[OpenDim], context: ProbeContext) -> OpenDim:
    declared = context.dims.get(dim.name)
    size = dim.size
    if dim.sum is not None and dim.sum.is_sure:
        return dim
    if declared is not None:
        middle = _odd((declared.min + declared.max) // 2)
        wanted = {declared.min, declared.max, middle, min(declared.max, _odd(size + 1))}
        allowed = {item for item in wanted if declared.min <= item <= declared.max}
        return replace(dim, others=tuple(sorted(allowed - {size})))
    shapes = [(context.survey.inputs[name].shapes, axis) for name, axis in dim.places]
    seen = {shape[axis] for shapes_of_place, axis in shapes for shape in shapes_of_place if axis < len(shape)} | {size}
    # A dim that is always empty, such as a first cache, may grow to the size of another dim.
    low, high = min(seen), max(seen) or max(other.size for other in dims) or 1
    wanted = {1, max(1, low // 2), _odd((low + high) // 2), _odd(high + 1), 2 * high, *_by_tables(dim.places, context)}
    others = {item for item in wanted - {size} if item <= _LARGEST_FACTOR * high}
    far = {size for size in _far_sizes(dim, dims, high) if size <= _FAR_SIZE}
    return replace(dim, others=tuple(sorted(others)), far=tuple(sorted(far - others)), largest=high)


def _far_sizes(dim: OpenDim, dims: list[OpenDim], high: int) -> Iterator[int]:
    """Yield sizes far beyond the largest seen, well above a power of two because most cuts are at one."""
    inputs = {name for name, _ in dim.places}
    if any(inputs & {name for name, _ in other.places} for other in dims if other.places != dim.places):
        yield _FAR_FACTOR_OF_TWO * high
        return
    for factor in _FAR_FACTORS:
        power = 1 << (factor * high - 1).bit_length()
        yield power + power // 4


def _by_tables(places: Iterable[tuple[str, int]], context: ProbeContext) -> set[int]:
    """Return the number of positions in the model's tables, and one less."""
    roles = [context.roles[name] for name, axis in places if axis == 1 and name in context.roles]
    return {size for role in roles if role.positions for size in (role.positions, role.positions - 1) if size > 0}


def _odd(size: int) -> int:
    return size | 1
