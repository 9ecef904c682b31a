"""Facts of operators for emulation: which are exact, and which inputs a conversion leaves in float32."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from paritygate.models.onnx.graph import OWN_DOMAINS, UniqueNames, attribute_of, schema_of, stored_tensors, subgraphs_of
from paritygate.models.onnx.weights import FLOAT

if TYPE_CHECKING:
    import onnx

# Operators whose results are values of their inputs, moved, selected, negated or stripped of their sign: where the
# inputs are rounded, so are the results. If, Loop and Scan hand on what the nodes inside them made.
_EXACT = frozenset(
    {"Abs", "Clip", "Compress", "Concat", "ConcatFromSequence", "DepthToSpace", "Expand", "Flatten", "Gather",
     "GatherElements", "GatherND", "GlobalMaxPool", "Identity", "If", "Loop", "Max", "MaxPool", "Min", "Neg",
     "Optional", "OptionalGetElement", "Pad", "ReduceMax", "ReduceMin", "Relu", "Reshape", "ReverseSequence", "Scan",
     "SequenceAt", "SequenceErase", "SequenceInsert", "SequenceMap", "Slice", "SpaceToDepth", "Split",
     "SplitToSequence", "Squeeze", "Tile", "TopK", "Transpose", "Trilu", "Unsqueeze", "Where"}
)  # fmt: skip
# Inputs by position that hold coordinates or counts: a converter leaves them in float32, for float16 has no 2049.
_COORDINATES = frozenset({("OneHot", 0), ("OneHot", 1), ("Resize", 1)})
# Operators that a device may run as several, with values between them that it rounds and this emulation does not.
_WITH_VALUES_INSIDE = frozenset({"Attention", "GRU", "GroupQueryAttention", "LSTM", "MultiHeadAttention", "RNN"})
_Constants = dict[str, tuple["onnx.GraphProto", "onnx.TensorProto"]]


def is_exact(node: onnx.NodeProto) -> bool:
    """Return whether the node's float results are values of its float inputs, up to the sign."""
    # A float among the attributes, such as the bounds of an old Clip, is not a rounded value.
    return (
        node.domain in OWN_DOMAINS
        and node.op_type in _EXACT
        and not any(attribute.type in {attribute.FLOAT, attribute.FLOATS} for attribute in node.attribute)
    )


def keeps_values_inside(node: onnx.NodeProto) -> bool:
    """Return whether a device rounds values inside the operator that are not seen from outside."""
    return node.op_type in _WITH_VALUES_INSIDE


def _float32_only_inputs(node: onnx.NodeProto, opset: int) -> list[int]:
    """Return the positions of inputs that stay float32: ONNX has no float16 for them, or they are coordinates."""
    schema = schema_of(node.op_type, opset) if node.domain in OWN_DOMAINS else None
    formal = () if schema is None else schema.inputs
    positions = []
    for index in range(len(node.input) if formal else 0):
        types = formal[min(index, len(formal) - 1)].types
        is_float32_only = "tensor(float)" in types and "tensor(float16)" not in types
        if is_float32_only or (node.op_type, index) in _COORDINATES:
            positions.append(index)
    return positions


def spare_float32_only_inputs(
    graph: onnx.GraphProto, opset: int, names: UniqueNames, raw_inputs: Mapping[str, str]
) -> frozenset[str]:
    """Let each such operator input use its constant or graph input unrounded, in place; return the new constants.

    Rounded, the scales of a Resize would change shapes, and the boxes of a NonMaxSuppression the selection.
    `raw_inputs` maps each graph input that is to be rounded to the name of the raw one.
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
        constants = outer | {name: (graph, tensor) for name, tensor in float_constants(graph).items()}
        for node in graph.node:
            for index in _float32_only_inputs(node, self._opset):
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


def float_constants(graph: onnx.GraphProto) -> dict[str, onnx.TensorProto]:
    """Return the FP32 constants of this graph by name: weights, and values of Constant nodes."""
    import onnx

    plain = {
        node.output[0]: onnx.numpy_helper.from_array(np.asarray(value, dtype=np.float32))
        for node in graph.node
        if node.op_type == "Constant" and node.domain in OWN_DOMAINS
        for name in ("value_float", "value_floats")
        if (value := attribute_of(node, name)) is not None
    }
    return plain | {name: tensor for name, tensor in stored_tensors(graph).items() if tensor.data_type == FLOAT}
