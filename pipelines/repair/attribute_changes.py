"""Find attributes of a converted file's operators that may have to take the reference's values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from paritygate.convert.onnx.changes import ChangedAttribute, ChangedWeight, Changes, attribute_type
from paritygate.pipelines.repair.weight_changes import numbers_read
from paritygate.validate.divergence.node_differences import attributes_of
from paritygate.validate.tensors.tensor_graph import TensorGraph

if TYPE_CHECKING:
    import onnx

_PLAIN = (int, float, str, bytes)


def attribute_changes(
    ours: TensorGraph, nodes: Sequence[str], theirs: TensorGraph, others: Sequence[str]
) -> Iterator[Changes]:
    """Yield changes of the attributes of nodes at one place to those that the reference has there.

    The arguments of an operator of PyTorch have no names of ONNX, so each number is tried in each attribute of its
    type, and in each constant of one number.
    """
    mine = [node for node in ours.nodes if node.name in nodes]
    wanted = [node for node in theirs.nodes if node.name in others]
    for node in mine:
        for other in wanted:
            if theirs.framework:
                yield from _from_arguments(ours, node, other)
            elif node.op_type == other.op_type and node.domain == other.domain:
                yield from _from_node(ours, node, theirs, other)
    if theirs.framework:
        numbers = {value for other in wanted for value in _arguments(other) if isinstance(value, float)}
        for name in numbers_read(ours, nodes):
            held = float(ours.weights[name].load().reshape(-1)[0])
            for value in sorted(numbers - {held}):
                yield Changes(weights=(ChangedWeight(name=name, value=value, was=f"is {held:.6g}"),))


def _from_node(
    ours: TensorGraph, node: onnx.NodeProto, theirs: TensorGraph, other: onnx.NodeProto
) -> Iterator[Changes]:
    held, wanted = attributes_of(node, ours), attributes_of(other, theirs)
    changed = tuple(
        ChangedAttribute(node=node.name, name=name, value=_data(wanted.get(name)), was=_data(held.get(name)))
        for name in sorted(held.keys() | wanted.keys())
        if held.get(name) != wanted.get(name) and _is_plain(held.get(name)) and _is_plain(wanted.get(name))
    )
    if len(changed) > 1:
        yield Changes(attributes=changed)
    yield from Changes(attributes=changed).parts()


def _from_arguments(ours: TensorGraph, node: onnx.NodeProto, other: onnx.NodeProto) -> Iterator[Changes]:
    opset = next((item.version for item in ours.model.opset_import if item.domain == node.domain), 1)
    for name, held in sorted(attributes_of(node, ours).items()):
        kind = attribute_type(node, name, opset)
        for value in _arguments(other):
            for fitting in _fitting(kind, value, held):
                yield Changes(attributes=(ChangedAttribute(node=node.name, name=name, value=fitting, was=_data(held)),))


def _arguments(node: onnx.NodeProto) -> list[Any]:
    """Return the numbers, texts and lists that an operator of PyTorch was called with."""
    from onnx.helper import get_attribute_value

    values = [get_attribute_value(item) for item in node.attribute]
    return list({repr(value): value for value in map(_data, values)}.values())


def _fitting(kind: int | None, value: Any, held: Any) -> Iterator[Any]:  # noqa: ANN401 - the value of an attribute
    """Yield the values of an attribute of this type that an argument may mean."""
    import onnx

    types = onnx.AttributeProto
    ways: list[Any] = []
    if (kind, type(value)) in {(types.FLOAT, float), (types.INT, int), (types.STRING, str)}:
        ways = [value]
    elif kind == types.INTS and isinstance(value, list) and all(isinstance(item, int) for item in value):
        # ONNX has pads for both ends.
        ways = [way for way in (value, value + value) if held is None or len(way) == len(held)]
    yield from (way for way in ways if way != _data(held))


def _is_plain(value: Any) -> bool:  # noqa: ANN401 - the value of an attribute
    return (
        value is None
        or isinstance(value, _PLAIN)
        or (isinstance(value, tuple) and all(isinstance(item, _PLAIN) for item in value))
    )


def _data(value: Any) -> Any:  # noqa: ANN401 - the value of an attribute
    """Return the value as JSON has it, a float in the fewest digits that are equal in FP32."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, float):
        return float(str(np.float32(value)))
    return [_data(item) for item in value] if isinstance(value, (tuple, list)) else value
