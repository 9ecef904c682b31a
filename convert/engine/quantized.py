"""Adapt a quantized ONNX model to TensorRT: int8 with zero points of 0, and biases in float."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from paritygate.errors import ConversionError
from paritygate.models.onnx.graph import all_nodes, graphs_in

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

_QUANTIZE, _DEQUANTIZE = "QuantizeLinear", "DequantizeLinear"
_ZERO_POINT = 2
_HINT = "write calibration: {tool: onnxruntime, activations: int8}"


def check_quantization(model: onnx.ModelProto, *, title: str) -> None:
    """Raise ConversionError for a zero point that is uint8 or not 0, which the library does not compute.

    The parser reads uint8 as int8 with only a warning, which would clip everything above the middle.
    """
    constants = _constants(model)
    nodes = [node for node in all_nodes(model) if node.op_type in {_QUANTIZE, _DEQUANTIZE}]
    unsigned = [node for node in nodes if _is_unsigned(node, constants)]
    shifted = [node for node in nodes if _is_shifted(node, constants)]
    for faulty, what in ((unsigned, "in uint8"), (shifted, "with zero points other than 0")):
        if faulty:
            msg = (
                f"{title} computes int8 only with zero points of 0, but {len(faulty)} of {len(nodes)} "
                f"quantizing nodes are {what}, such as {faulty[0].input[0]!r}"
            )
            raise ConversionError(msg, hint=_HINT)


def has_integer_biases(model: onnx.ModelProto) -> bool:
    """Return whether biases are stored in int32."""
    constants = _constants(model)
    return any(_is_integer_bias(node, constants) for node in model.graph.node)


def fold_integer_biases(model: onnx.ModelProto) -> int:
    """Make float constants, in place, of biases in int32, which TensorRT does not dequantize; return their number.

    Their values are the dequantized ones. Only the model's own graph has them, because quantizers ignore the nodes
    inside If, Loop and Scan.
    """
    import onnx

    constants = _constants(model)
    biases = [node for node in model.graph.node if _is_integer_bias(node, constants)]
    for node in biases:
        stored, scale, *zero = (_values(constants[name]) for name in node.input if name)
        # In int64, because a difference of two int32 values may not fit into int32.
        steps = stored.astype(np.int64) - (_along(zero[0], stored, node).astype(np.int64) if zero else 0)
        value = steps.astype(np.float32) * _along(scale, stored, node).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(value.astype(np.float32), node.output[0]))
        model.graph.node.remove(node)
    return len(biases)


def _constants(model: onnx.ModelProto) -> dict[str, onnx.TensorProto]:
    constants = {tensor.name: tensor for graph in graphs_in(model.graph) for tensor in graph.initializer}
    for node in all_nodes(model):
        value = next((item for item in node.attribute if item.name == "value"), None)
        if node.op_type == "Constant" and value is not None:
            constants[node.output[0]] = value.t
    return constants


def _zero_point(node: onnx.NodeProto, constants: dict[str, onnx.TensorProto]) -> onnx.TensorProto | None:
    has_one = len(node.input) > _ZERO_POINT and node.input[_ZERO_POINT]
    return constants.get(node.input[_ZERO_POINT]) if has_one else None


def _is_unsigned(node: onnx.NodeProto, constants: dict[str, onnx.TensorProto]) -> bool:
    import onnx

    zero = _zero_point(node, constants)
    if zero is not None:
        return bool(zero.data_type == onnx.TensorProto.UINT8)
    if node.op_type == _DEQUANTIZE:
        stored = constants.get(node.input[0])
        return stored is not None and bool(stored.data_type == onnx.TensorProto.UINT8)
    # ONNX's rule for a QuantizeLinear with neither a zero point nor an output_dtype.
    dtype = next((item.i for item in node.attribute if item.name == "output_dtype"), 0)
    has_one = len(node.input) > _ZERO_POINT and bool(node.input[_ZERO_POINT])
    return not has_one and dtype in {0, onnx.TensorProto.UINT8}


def _is_shifted(node: onnx.NodeProto, constants: dict[str, onnx.TensorProto]) -> bool:
    zero = _zero_point(node, constants)
    return zero is not None and zero.data_location != zero.EXTERNAL and bool(_values(zero).any())


def _is_integer_bias(node: onnx.NodeProto, constants: dict[str, onnx.TensorProto]) -> bool:
    import onnx

    stored = constants.get(node.input[0]) if node.op_type == _DEQUANTIZE else None
    return (
        stored is not None
        and stored.data_type == onnx.TensorProto.INT32
        and all(name in constants for name in node.input if name)
    )


def _values(tensor: onnx.TensorProto) -> NDArray[np.generic]:
    import onnx

    return onnx.numpy_helper.to_array(tensor)


def _along(values: NDArray[np.generic], stored: NDArray[np.generic], node: onnx.NodeProto) -> NDArray[np.generic]:
    """Return scales or zero points, one for all or one a channel, in a shape that broadcasts to the stored values."""
    if values.size == 1 or values.ndim == 0:
        return values.reshape(())
    axis = next((item.i for item in node.attribute if item.name == "axis"), 1) % max(stored.ndim, 1)
    return values.reshape([-1 if dim == axis else 1 for dim in range(stored.ndim)])
