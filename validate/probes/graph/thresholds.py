"""Find the numbers that a graph compares the values of an input with, and the buckets that it rounds them into."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from paritygate.models.onnx.graph import attribute_of
from paritygate.validate.probes.graph.constants import Constants
from paritygate.validate.probes.graph.discontinuity import Steadiness, Steps, is_trees, steadiness_of
from paritygate.validate.probes.graph.flow import InputFlow, is_to_whole
from paritygate.validate.probes.graph.tables import rows_indexed
from paritygate.validate.probes.inputs.thresholds import Buckets, Threshold

if TYPE_CHECKING:
    import onnx

_LIMITING = frozenset({"Clip", "Max", "Min"})
_MEETING = frozenset({"Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"}) | _LIMITING
_MOST = 64
# Larger numbers mean infinity.
_LARGEST = 1e15


def thresholds_in(
    graph: onnx.GraphProto, carried: Mapping[str, InputFlow], constants: Constants
) -> tuple[Threshold, ...]:
    """Return the numbers that the values of an input meet before any arithmetic, equality tests first."""
    by_number: dict[tuple[float, tuple[int, ...] | None], Threshold] = {}
    for node in graph.node if carried else ():
        for at, tensor in enumerate(node.input):
            if tensor not in carried or not (node.op_type in _MEETING or (is_trees(node) and at == 0)):
                continue
            meeting = _of_trees(node, carried[tensor]) if is_trees(node) else _met(node, at, carried[tensor], constants)
            for value, columns in meeting:
                before = by_number.get((value, columns))
                by_number[value, columns] = Threshold(
                    value=value,
                    columns=columns,
                    is_equality=node.op_type == "Equal" or (before is not None and before.is_equality),
                    is_limit=node.op_type in _LIMITING and (before is None or before.is_limit),
                )
    looked_for = [item for item in by_number.values() if item.is_equality][:_MOST]
    others = [item for item in by_number.values() if not item.is_equality]
    left = min(len(others), _MOST - len(looked_for))
    thresholds = [*looked_for, *(others[at * len(others) // left] for at in range(left))]
    if not thresholds:
        return ()
    steps = Steps(graph)
    found_by = {columns: steadiness_of(steps, carried, columns) for columns in {item.columns for item in thresholds}}
    return tuple(_with_steadiness(item, found_by[item.columns]) for item in thresholds)


def _with_steadiness(item: Threshold, steadiness: Steadiness) -> Threshold:
    return replace(item, is_exact=steadiness.is_exact, is_level=steadiness.is_exact and steadiness.is_level)


def _met(
    node: onnx.NodeProto, at: int, carried: InputFlow, constants: Constants
) -> Iterator[tuple[float, tuple[int, ...] | None]]:
    if carried.is_rounded or carried.scale != 1 or carried.shift != 0 or not isinstance(carried.after, int):
        return
    others = [
        constants.values[name] for place, name in enumerate(node.input) if place != at and name in constants.values
    ]
    if node.op_type == "Clip":
        limits = (attribute_of(node, "min"), attribute_of(node, "max"))
        others += [np.asarray(limit, dtype=np.float32) for limit in limits if limit is not None]
    features = carried.features()
    for other in others:
        by_feature = features is not None and other.size == len(features) and other.shape[-1:] == (len(features),)
        for place, value in enumerate(other.reshape(-1)[: 4 * _MOST].astype(np.float64).tolist()):
            if abs(value) <= _LARGEST:
                columns = (features[place],) if by_feature and features is not None else carried.columns
                yield value - carried.after, columns


def _of_trees(node: onnx.NodeProto, carried: InputFlow) -> Iterator[tuple[float, tuple[int, ...] | None]]:
    if not carried.is_raw or not carried.is_ordered:
        return
    features = carried.features()
    modes = attribute_of(node, "nodes_modes", [b"BRANCH_LEQ"] * len(attribute_of(node, "nodes_values", ())))
    for value, feature, mode in zip(
        attribute_of(node, "nodes_values", ()), attribute_of(node, "nodes_featureids", ()), modes, strict=False
    ):
        if mode != b"LEAF" and abs(value) <= _LARGEST and (features is None or feature < len(features)):
            yield float(value), (int(feature) if features is None else features[feature],)


def buckets_in(graph: onnx.GraphProto, carried: Mapping[str, InputFlow], constants: Constants) -> tuple[Buckets, ...]:
    """Return what the values of an input are rounded into, those that index a table first."""
    buckets: list[Buckets] = []
    steps = Steps(graph)
    for node in graph.node:
        for at, tensor in enumerate(node.input):
            flow = carried.get(tensor)
            if flow is None or not isinstance(flow.after, int):
                continue
            rows = rows_indexed(node, at, constants) if flow.is_rounded else ()
            if rows or (is_to_whole(node) and not flow.is_whole and flow.is_raw):
                half = 0.5 if node.op_type == "Round" and not rows else 0.0
                buckets.append(
                    Buckets(
                        scale=flow.scale,
                        shift=flow.shift + half,
                        after=flow.after,
                        rows=rows[0] if rows else None,
                        columns=flow.columns,
                        is_exact=flow.scale == 1
                        and flow.shift in {0.0, 0.5}
                        and steadiness_of(steps, carried, flow.columns).is_exact,
                    )
                )
    return tuple(dict.fromkeys(sorted(buckets, key=lambda item: item.rows is None)))[:_MOST]
