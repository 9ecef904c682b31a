"""What has to be known of single operators to emulate a precision."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx

__all__ = ["float32_only_inputs", "is_exact", "keeps_values_inside"]

_DOMAINS = frozenset({"", "ai.onnx"})
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


def is_exact(node: onnx.NodeProto) -> bool:
    """Return whether the node's float results are values of its float inputs, up to the sign."""
    # A float among the attributes, such as the bounds of an old Clip, is no rounded value.
    return (
        node.domain in _DOMAINS
        and node.op_type in _EXACT
        and not any(attribute.type in {attribute.FLOAT, attribute.FLOATS} for attribute in node.attribute)
    )


def keeps_values_inside(node: onnx.NodeProto) -> bool:
    """Return whether a device rounds values inside the operator that are not seen from outside."""
    return node.op_type in _WITH_VALUES_INSIDE


def float32_only_inputs(node: onnx.NodeProto, opset: int) -> list[int]:
    """Return the positions of inputs that stay float32 in a conversion, such as the scales of a Resize.

    They are those that ONNX does not have in float16, and those that are coordinates.

    Args:
        node: A node of any domain; for those that are not ONNX's own, nothing is returned.
        opset: The version of the default operator set.
    """
    import onnx

    if node.domain not in _DOMAINS:
        return []
    try:
        formal = onnx.defs.get_schema(node.op_type, opset, "").inputs
    except onnx.defs.SchemaError:
        return []
    found = []
    for index in range(len(node.input)):
        if formal:
            types = formal[min(index, len(formal) - 1)].types
            is_float32_only = "tensor(float)" in types and "tensor(float16)" not in types
            if is_float32_only or (node.op_type, index) in _COORDINATES:
                found.append(index)
    return found
