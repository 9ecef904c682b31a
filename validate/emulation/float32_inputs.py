"""What feeds operator inputs that ONNX has in float32 only: a conversion leaves it as it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from paritygate.models.onnx.graph import UniqueNames, subgraphs_of
from paritygate.validate.emulation.operators import float32_only_inputs
from paritygate.validate.emulation.rounding import FLOAT

if TYPE_CHECKING:
    import onnx

__all__ = ["spare_float32_only_inputs"]

_Constants = dict[str, tuple["onnx.GraphProto", "onnx.TensorProto"]]


def spare_float32_only_inputs(
    graph: onnx.GraphProto, opset: int, names: UniqueNames, raw_inputs: Mapping[str, str]
) -> frozenset[str]:
    """Let each such operator input take a constant or an input of the graph as it is, in place.

    Rounded, the scales of a Resize would change shapes, and the boxes of a NonMaxSuppression what is selected.

    Args:
        graph: The outermost graph; those inside it are changed as well.
        opset: The version of the default operator set.
        names: Gives the constants their new names.
        raw_inputs: For each input of the graph that is to be rounded, the name of what is fed.

    Returns:
        The names of the constants that were added and are not to be rounded.
    """
    sparing = _Sparing(opset, names, dict(raw_inputs))
    sparing.spare(graph, {})
    return frozenset(sparing.added)


class _Sparing:
    def __init__(self, opset: int, names: UniqueNames, unrounded: dict[str, str]) -> None:
        self._opset = opset
        self._names = names
        self._unrounded = unrounded
        self.added: list[str] = []

    def spare(self, graph: onnx.GraphProto, outer: _Constants) -> None:
        constants = {**outer, **_constants_of(graph)}
        for node in graph.node:
            for index in float32_only_inputs(node, self._opset):
                name = node.input[index]
                if name in constants and name not in self._unrounded:
                    self._add(name, *constants[name])
                node.input[index] = self._unrounded.get(name, name)
            for inner in subgraphs_of(node):
                self.spare(inner, constants)

    def _add(self, name: str, owner: onnx.GraphProto, tensor: onnx.TensorProto) -> None:
        self._unrounded[name] = self._names.new(f"{name}_unrounded")
        self.added.append(self._unrounded[name])
        copy = owner.initializer.add()
        copy.CopyFrom(tensor)
        copy.name = self._unrounded[name]


def _constants_of(graph: onnx.GraphProto) -> _Constants:
    import onnx

    found = {tensor.name: (graph, tensor) for tensor in graph.initializer if tensor.data_type == FLOAT}
    for node in graph.node:
        values: Mapping[str, onnx.AttributeProto] = {each.name: each for each in node.attribute}
        if node.op_type != "Constant":
            continue
        if "value" in values and values["value"].t.data_type == FLOAT:
            found[node.output[0]] = (graph, values["value"].t)
        for name in ("value_float", "value_floats"):
            if name in values:
                plain = onnx.helper.get_attribute_value(values[name])
                tensor = onnx.numpy_helper.from_array(np.asarray(plain, dtype=np.float32))
                found[node.output[0]] = (graph, tensor)
    return found
