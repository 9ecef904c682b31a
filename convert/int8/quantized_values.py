"""Read from a quantized copy of a model how each of its nodes would read and make values in INT8."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct

from paritygate.models.onnx.lowering import Lowering

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

# The operators whose results are not rounded, because other readers use them in float.
_UNROUNDED_RESULTS = frozenset({"MatMul", "Gemm"})


class Range(Struct, frozen=True, kw_only=True):
    """Scale and zero point of a value, one of each."""

    scale: NDArray[np.float32]
    zero: NDArray[Any]


class QuantizedValues(Struct, frozen=True, kw_only=True):
    """The quantized nodes by name, and by value and by place what they read and make, in names of the FP32 model."""

    lowered: Mapping[str, Lowering]
    ranges: Mapping[str, Range]
    constants: Mapping[tuple[str, int], NDArray[np.float32]]


def quantized_values(model: onnx.ModelProto, quantized: onnx.ModelProto) -> QuantizedValues:
    """Return how nodes of the prepared FP32 model are quantized; both models have their weights inside."""
    return _Reader(model, quantized).read()


class _Reader:
    def __init__(self, model: onnx.ModelProto, quantized: onnx.ModelProto) -> None:
        self._originals = {node.name: node for node in model.graph.node}
        self._nodes = quantized.graph.node
        self._makers = {name: node for node in quantized.graph.node for name in node.output}
        self._tensors = {tensor.name: tensor for tensor in quantized.graph.initializer}
        self._quantizers = {node.input[0]: node for node in self._nodes if node.op_type == "QuantizeLinear"}
        self._ranges: dict[str, Range] = {}
        self._constants: dict[tuple[str, int], NDArray[np.float32]] = {}

    def read(self) -> QuantizedValues:
        lowered = {}
        for node in self._nodes:
            original = self._originals.get(node.name)
            if original is None or original.op_type != node.op_type:
                continue
            inputs = frozenset(self._inputs(node, original))
            if inputs:
                lowered[node.name] = Lowering(inputs=inputs, outputs=frozenset(self._outputs(node, original)))
        return QuantizedValues(lowered=lowered, ranges=self._ranges, constants=self._constants)

    def _inputs(self, node: onnx.NodeProto, original: onnx.NodeProto) -> Iterator[int]:
        """Yield the positions of quantized inputs, and note their ranges or values."""
        for position, name in enumerate(node.input):
            dequantizer = self._makers.get(name)
            if dequantizer is None or dequantizer.op_type != "DequantizeLinear":
                continue
            stored = self._tensors.get(dequantizer.input[0])
            if stored is not None:
                self._constants[node.name, position] = self._dequantized(dequantizer)
            else:
                self._ranges[original.input[position]] = self._range(dequantizer)
            yield position

    def _outputs(self, node: onnx.NodeProto, original: onnx.NodeProto) -> Iterator[int]:
        for position, name in enumerate(node.output):
            if name in self._quantizers and node.op_type not in _UNROUNDED_RESULTS:
                self._ranges.setdefault(original.output[position], self._range(self._quantizers[name]))
                yield position

    def _range(self, node: onnx.NodeProto) -> Range:
        return Range(scale=self._values(node.input[1]), zero=self._values(node.input[2]))

    def _values(self, name: str) -> NDArray[Any]:
        import onnx

        return onnx.numpy_helper.to_array(self._tensors[name])

    def _dequantized(self, node: onnx.NodeProto) -> NDArray[np.float32]:
        stored, scale = self._values(node.input[0]).astype(np.float64), self._values(node.input[1])
        zero = self._values(node.input[2]) if len(node.input) > 2 and node.input[2] else np.zeros((), np.int64)  # noqa: PLR2004 - scale, zero
        axis = next((attribute.i for attribute in node.attribute if attribute.name == "axis"), 1)
        shape = [1] * stored.ndim
        if scale.size > 1:
            shape[axis] = scale.size
        else:
            zero, scale = zero.reshape(-1)[:1], scale.reshape(-1)[:1]
        values: NDArray[np.float64] = (stored - zero.astype(np.float64).reshape(shape)) * scale.reshape(shape)
        return values.astype(np.float32)
