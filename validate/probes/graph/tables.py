"""Which constant tables the values of an input index, in which column, and by which numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from paritygate.validate.probes.graph.constants import Constants, attribute_of
from paritygate.validate.probes.graph.flow import InputFlow

if TYPE_CHECKING:
    import onnx

__all__ = ["Lookup", "column_ranges", "lookups_in", "rows_indexed", "widest_range"]

_Range = tuple[int, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class Lookup:
    """One table that values of an input index.

    Attributes:
        low: The value that takes its first row.
        high: The value that takes its last row.
        columns: The features that index it; None for all, or where they are not known.
        width: How many features the input has; None where that is open.
        is_shifted: Whether a number is added to the value before.
    """

    low: int
    high: int
    columns: tuple[int, ...] | None
    width: int | None
    is_shifted: bool = False


def lookups_in(graph: onnx.GraphProto, carried: Mapping[str, InputFlow], constants: Constants) -> tuple[Lookup, ...]:
    """Return the tables that the whole numbers of an input index as they are, or shifted."""
    return tuple(
        found
        for node in graph.node
        for at, tensor in enumerate(node.input)
        if tensor in carried and carried[tensor].is_whole and not carried[tensor].is_rounded
        for found in _lookups(node, at, carried[tensor], constants)
    )


def rows_indexed(node: onnx.NodeProto, at: int, constants: Constants) -> tuple[int, ...]:
    """Return how many rows of a constant table an input of a node may choose from; of several axes, each of them."""
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


def _lookups(node: onnx.NodeProto, at: int, carried: InputFlow, constants: Constants) -> Iterator[Lookup]:
    rows, features = rows_indexed(node, at, constants), carried.features()
    if node.op_type == "GatherND" and len(rows) > 1:
        # The last axis of the indices goes through the axes of the table.
        for size, feature in zip(rows, features or (), strict=False):
            yield from _shifted(size, replace(carried, columns=(feature,)))
        if features is None:
            yield from _shifted(rows[0], carried)
    elif rows:
        yield from _shifted(rows[0], carried)


def _shifted(rows: int, carried: InputFlow) -> Iterator[Lookup]:
    if isinstance(carried.after, int):
        yield Lookup(
            low=-carried.after,
            high=rows - 1 - carried.after,
            columns=carried.columns,
            width=carried.width,
            is_shifted=carried.after != 0,
        )
        return
    # Every column has a part of one table: it begins where the column before ends.
    starts = carried.after
    if starts[0] != 0 or any(one >= two for one, two in zip(starts, (*starts[1:], rows), strict=True)):
        return
    for column, (start, end) in enumerate(zip(starts, (*starts[1:], rows), strict=True)):
        if carried.columns is None or column in carried.columns:
            yield Lookup(low=0, high=end - start - 1, columns=(column,), width=carried.width, is_shifted=True)


def widest_range(lookups: Sequence[Lookup]) -> _Range | None:
    """Return the first and the last number that every table has a row for; None where there is none."""
    if not lookups:
        return None
    # An id that indexes several tables has to be in all of them.
    low, high = max(lookup.low for lookup in lookups), min(lookup.high for lookup in lookups)
    return (low, high) if low <= high else None


def column_ranges(lookups: Sequence[Lookup]) -> tuple[_Range | None, ...]:
    """Return the range of each column; empty where all have the same, or where columns are not told apart."""
    width = next((lookup.width for lookup in lookups if lookup.width is not None), None)
    if width is None or all(lookup.columns is None for lookup in lookups):
        return ()
    found = tuple(
        widest_range([lookup for lookup in lookups if lookup.columns is None or column in lookup.columns])
        for column in range(width)
    )
    return () if len(set(found)) == 1 else found
