"""Which dtypes an ONNX model has anywhere, in ONNX's words and in the library's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from paritygate.models.onnx.graph import graphs_in

if TYPE_CHECKING:
    import onnx

__all__ = ["has_double", "low_dtypes"]

_LOW = {"FLOAT16": "HALF", "BFLOAT16": "BF16", "FLOAT8E4M3FN": "FP8", "FLOAT4E2M1": "FP4"}
# Attributes of ONNX's operators that name the dtype of a result.
_NAMING = frozenset({"to", "dtype", "output_dtype"})


def low_dtypes(model: onnx.ModelProto) -> frozenset[str]:
    """Return the float dtypes lower than float32 that the model has anywhere, in the library's words."""
    return frozenset(_LOW[name] for name in _dtypes(model) if name in _LOW)


def has_double(model: onnx.ModelProto) -> bool:
    """Return whether the model has float64 anywhere."""
    return "DOUBLE" in _dtypes(model)


def _dtypes(model: onnx.ModelProto) -> set[str]:
    """Return the dtypes of weights, constants, casts, inputs and outputs."""
    import onnx

    names = {number: name for name, number in onnx.TensorProto.DataType.items()}
    found: set[int] = set()
    nodes = [node for function in model.functions for node in function.node]
    for graph in graphs_in(model.graph):
        nodes += graph.node
        found |= {tensor.data_type for tensor in graph.initializer}
        found |= {value.type.tensor_type.elem_type for value in (*graph.input, *graph.output)}
    for node in nodes:
        found |= {item.t.data_type for item in node.attribute if item.HasField("t")}
        found |= {item.i for item in node.attribute if item.name in _NAMING}
    return {names[number] for number in found if number in names}
