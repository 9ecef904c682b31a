"""Find the constant tables that the values of an input index, by which column and with which values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from paritygate.models.onnx.graph import attribute_of
from paritygate.validate.probes.graph.constants import Constants
from paritygate.validate.probes.graph.flow import InputFlow

if TYPE_CHECKING:
    import onnx

_Range = tuple[int, int]


class Lookup(Struct, frozen=True, kw_only=True):
    """A table that values of an input index.

    `low` and `high` are the values for its first and last row. `columns` is None for all features, or unknown ones;
    `width` is None if open. `is_shifted`: a number is added first. `reach`: the values for the first and last row of a
    table that several features share by parts; None for a table of its own.
    """

    low: int
    high: int
    columns: tuple[int, ...] | None
    width: int | None
    is_shifted: bool = False
    reach: _Range | None = None


def lookups_in(graph: onnx.GraphProto, carried: Mapping[str, InputFlow], constants: Constants) -> tuple[Lookup, ...]:
    """Return the tables that the whole numbers of an input index, as they are or shifted."""
    indexing = [
        (node, at, carried[tensor])
        for node in graph.node
        for at, tensor in enumerate(node.input)
        if tensor in carried and carried[tensor].is_whole and not carried[tensor].is_rounded
    ]
    starts = _starts(indexing)
    return tuple(
        lookup
        for node, at, indices in indexing
        for lookup in _lookups(node, at, indices, constants, starts.get(node.input[0], ()))
    )


def _starts(indexing: Sequence[tuple[onnx.NodeProto, int, InputFlow]]) -> dict[str, tuple[int, ...]]:
    """Return where the parts of a table begin, by table, if added numbers lead features to different parts."""
    added: dict[str, set[int]] = {}
    is_known: dict[str, bool] = {}
    for node, at, indices in indexing:
        if not node.op_type.startswith("Gather") or at != 1:
            continue
        name = node.input[0]
        numbers = {indices.after} if isinstance(indices.after, int) else {number for _, number in indices.after}
        added[name] = added.get(name, set()) | numbers
        # One number added to all features moves the table but does not divide it.
        is_known[name] = is_known.get(name, True) and (
            not isinstance(indices.after, int) or (indices.columns is not None and len(indices.columns) == 1)
        )
    return {
        name: tuple(sorted(numbers))
        for name, numbers in added.items()
        if is_known[name] and len(numbers) > 1 and min(numbers) >= 0
    }


def rows_indexed(node: onnx.NodeProto, at: int, constants: Constants) -> tuple[int, ...]:
    """Return how many rows of a constant table an input of a node chooses from, for each indexed axis."""
    if node.op_type == "OneHot" and at == 0:
        depth = constants.whole(node.input[1])
        return () if depth is None else (depth,)
    shape = constants.sizes.get(node.input[0]) if node.op_type.startswith("Gather") and at == 1 else None
    if not shape:
        return ()
    if node.op_type == "GatherND":
        return shape if not attribute_of(node, "batch_dims", 0) else ()
    axis = int(attribute_of(node, "axis", 0))
    return (shape[axis],) if -len(shape) <= axis < len(shape) else ()


def _lookups(
    node: onnx.NodeProto, at: int, carried: InputFlow, constants: Constants, starts: Sequence[int]
) -> Iterator[Lookup]:
    rows, features = rows_indexed(node, at, constants), carried.features()
    if node.op_type == "GatherND" and len(rows) > 1:
        # The last axis of the indices addresses the axes of the table.
        for size, feature in zip(rows, features or (), strict=False):
            yield from _shifted(size, replace(carried, columns=(feature,)), ())
        if features is None:
            yield from _shifted(rows[0], carried, ())
    elif rows:
        yield from _shifted(rows[0], carried, starts)


def _shifted(rows: int, carried: InputFlow, starts: Sequence[int]) -> Iterator[Lookup]:
    if isinstance(carried.after, int) and not starts:
        yield Lookup(
            low=-carried.after,
            high=rows - 1 - carried.after,
            columns=carried.columns,
            width=carried.width,
            is_shifted=carried.after != 0,
        )
        return
    if not starts or starts[-1] >= rows:
        return
    # Features share one table: each part ends where the next begins.
    ends = dict(zip(starts, (*starts[1:], rows), strict=True))
    columns = carried.columns or ()
    added = dict.fromkeys(columns, carried.after) if isinstance(carried.after, int) else dict(carried.after)
    for column, start in added.items():
        if carried.columns is None or column in columns:
            yield Lookup(
                low=0,
                high=ends[start] - start - 1,
                columns=(column,),
                width=carried.width,
                is_shifted=True,
                reach=(-start, rows - 1 - start),
            )


def widest_range(lookups: Sequence[Lookup]) -> _Range | None:
    """Return the first and the last number that every table has a row for; None where there is none."""
    if not lookups:
        return None
    # An id that indexes several tables has to be in all of them.
    low, high = max(lookup.low for lookup in lookups), min(lookup.high for lookup in lookups)
    return (low, high) if low <= high else None


def column_ranges(lookups: Sequence[Lookup]) -> tuple[_Range | None, ...]:
    """Return the range of each column; empty where all have the same, or columns are unknown."""
    width = next((lookup.width for lookup in lookups if lookup.width is not None), None)
    if width is None or all(lookup.columns is None for lookup in lookups):
        return ()
    ranges = tuple(
        widest_range([lookup for lookup in lookups if lookup.columns is None or column in lookup.columns])
        for column in range(width)
    )
    return () if len(set(ranges)) == 1 else ranges


def reaches(lookups: Sequence[Lookup]) -> tuple[_Range | None, ...]:
    """Return for each column the first and the last number that its shared table has a row for; empty without one."""
    width = next((lookup.width for lookup in lookups if lookup.width is not None), None)
    if width is None or not any(lookup.reach for lookup in lookups):
        return ()
    ranges: list[_Range | None] = []
    for column in range(width):
        of = [lookup for lookup in lookups if lookup.columns is None or column in lookup.columns]
        if not any(lookup.reach for lookup in of):
            ranges.append(None)
            continue
        # A column's own table also limits its values.
        whole = [item if item.reach is None else replace(item, low=item.reach[0], high=item.reach[1]) for item in of]
        ranges.append(widest_range(whole))
    return tuple(ranges)
