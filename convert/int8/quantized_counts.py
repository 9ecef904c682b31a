"""Count the quantized nodes of an ONNX graph, read back from it, and check their scales."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct

from paritygate.errors import ConversionError, NotAvailableError

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

_INT8, _UINT8 = "int8", "uint8"
# Weights have two dims and more; biases and constants have fewer.
_MATRIX_RANK = 2
_INTEGER_PRODUCTS = frozenset({"MatMulInteger", "ConvInteger"})


class QuantizedCounts(Struct, frozen=True, kw_only=True):
    """Counts of what is quantized."""

    nodes: Mapping[str, int]  # those with integer weights, by operator
    weights: int  # in int8
    weights_by_channel: int  # those with a scale for each channel
    activations: Mapping[str, int]  # by dtype
    is_symmetric: bool  # all zero points are 0

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON data."""
        return {
            "nodes": dict(self.nodes),
            "weights": self.weights,
            "weights_by_channel": self.weights_by_channel,
            "activations": dict(self.activations),
            "zero_points": "0" if self.is_symmetric else "any",
        }

    def __str__(self) -> str:
        return ", ".join(f"{count} {operator}" for operator, count in self.nodes.items())


def count_quantized(model: onnx.ModelProto) -> QuantizedCounts:
    """Return the counts of the model's own graph, weights loaded."""
    tensors = {tensor.name: tensor for tensor in model.graph.initializer}
    weights: dict[str, bool] = {}
    activations: Counter[str] = Counter()
    zero_points = []
    for node in model.graph.node:
        if node.op_type not in {"QuantizeLinear", "DequantizeLinear"}:
            continue
        scales = _values(tensors, node.input[1])
        _check_scales(node, scales)
        zero = _values(tensors, node.input[2]) if len(node.input) > _MATRIX_RANK and node.input[2] else None
        zero_points.append(zero)
        stored = tensors.get(node.input[0])
        if node.op_type == "QuantizeLinear":
            activations[_UINT8 if zero is None else zero.dtype.name] += 1
        elif stored is not None and stored.data_type == stored.INT8 and len(stored.dims) >= _MATRIX_RANK:
            weights[node.output[0]] = scales.size > 1
    nodes = Counter(node.op_type for node in model.graph.node if len(node.input) > 1 and node.input[1] in weights)
    products = [node for node in model.graph.node if node.op_type in _INTEGER_PRODUCTS]
    nodes.update(node.op_type for node in products)
    if not nodes:
        msg = "nothing was quantized, because no node of the model has integer weights"
        raise NotAvailableError(msg, hint="remove the int8 target, or choose another calibration.tool")
    return QuantizedCounts(
        nodes=dict(sorted(nodes.items())),
        weights=len(weights) + len(products),
        weights_by_channel=sum(weights.values()) + sum(_has_channels(node, tensors) for node in products),
        activations=dict(sorted(activations.items())),
        is_symmetric=not products and all(zero is None or not zero.any() for zero in zero_points),
    )


def _has_channels(node: onnx.NodeProto, tensors: Mapping[str, onnx.TensorProto]) -> bool:
    # The last input is the zero point of the weights, one a channel.
    return len(node.input) > 3 and _values(tensors, node.input[3]).size > 1  # noqa: PLR2004 - its place


def _values(tensors: Mapping[str, onnx.TensorProto], name: str) -> NDArray[Any]:
    import onnx

    if name not in tensors:
        return np.ones(1, dtype=np.float32)
    return onnx.numpy_helper.to_array(tensors[name])


def _check_scales(node: onnx.NodeProto, scales: NDArray[Any]) -> None:
    values = scales.astype(np.float64)
    if not (np.isfinite(values) & (values > 0)).all():
        msg = f"the scale of {node.input[0]!r} is {values.min()} to {values.max()} (expected positive and finite)"
        raise ConversionError(msg, hint="look for NaN, infinity or overflow in the calibration rows and in the weights")
