"""Rounds float32 values to a lower precision and back, as the constants of an emulated graph need."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from paritygate.models.onnx.weights import DTYPES, ELEMENT_TYPES, FLOAT, load_external, load_tensor, stored_in
from paritygate.precision import Precision

if TYPE_CHECKING:
    import onnx

# Weights from this size on travel beside the graph, which may not be larger than 2 GiB.
LARGE_ELEMENTS = 1024
_HANDED_OVER = frozenset(
    {"bool", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"}
)


def precision_of_element(element: int) -> Precision | None:
    """Return the precision of an ONNX element type if it is float16 or bfloat16, else None."""
    return next((precision for precision, low in ELEMENT_TYPES.items() if low == element), None)


def round_values(values: NDArray[Any], precision: Precision) -> NDArray[np.float32]:
    """Return float32 values of any shape rounded to `fp16` or `bf16`, in float32.

    IEEE 754 applies: to nearest, ties to even, subnormal numbers, infinity beyond the largest number. NaN and infinity
    stay.
    """
    with np.errstate(over="ignore"):
        rounded: NDArray[np.float32] = values.astype(DTYPES[precision]).astype(np.float32)
    return rounded


def drop_data(tensor: onnx.TensorProto, element: int) -> None:
    """Remove the data of a weight, in place, which the runtime gets beside the graph in this element type."""
    left = type(tensor)(name=tensor.name, data_type=element, dims=tensor.dims, data_location=tensor.EXTERNAL)
    left.external_data.add(key="location", value="handed over beside the graph")
    tensor.CopyFrom(left)


def drop_default_inputs(graph: onnx.GraphProto) -> None:
    """Remove the inputs that have a default, in place: it is a weight, and nothing feeds it here."""
    weights = {tensor.name for tensor in graph.initializer}
    inputs = [value for value in graph.input if value.name not in weights]
    del graph.input[:]
    graph.input.extend(inputs)


class Constants:
    """Rewrites the constants of one model; raises InputFileError where the data of one is corrupt.

    `weights` holds the data of large weights, which leave the graph. `clamped` counts values brought into range, by
    tensor. `converted` maps element types to the precision that their tensors get; it is empty for an artifact, whose
    tensors stay as stored. Weights in `spared` are not rounded. `folder` holds external data.
    """

    def __init__(self, folder: Path, converted: Mapping[int, Precision], spared: frozenset[str]) -> None:
        self._folder = folder
        self._converted = converted
        self._spared = spared
        self.weights: dict[str, NDArray[np.generic]] = {}
        self.clamped: dict[str, int] = {}

    def rewrite_initializers(self, graph: onnx.GraphProto, *, is_outermost: bool) -> None:
        """Rewrite the weights of the graph, in place; only those of the outermost one can be passed to the runtime."""
        for tensor in graph.initializer:
            if is_outermost and np.prod(tensor.dims) >= LARGE_ELEMENTS:
                self._hand_over(tensor)
            else:
                self._rewrite(tensor, tensor.name)
        for sparse in graph.sparse_initializer:
            self._rewrite_sparse(sparse, sparse.values.name)

    def rewrite_attributes(self, node: onnx.NodeProto) -> None:
        """Rewrite the tensors among the attributes of the node, in place."""
        name = next(iter(node.output), node.name)
        for attribute in node.attribute:
            if attribute.HasField("t"):
                self._rewrite(attribute.t, name)
            for tensor in attribute.tensors:
                self._rewrite(tensor, name)
            if attribute.HasField("sparse_tensor"):
                self._rewrite_sparse(attribute.sparse_tensor, name)
            for sparse in attribute.sparse_tensors:
                self._rewrite_sparse(sparse, name)
            if node.op_type == "Constant" and FLOAT in self._converted:
                self._rewrite_plain(attribute, name)

    def _rewrite_plain(self, attribute: onnx.AttributeProto, name: str) -> None:
        if attribute.name == "value_float":
            attribute.f = float(self._rounded(np.array([attribute.f], np.float32), self._converted[FLOAT], name)[0])
        elif attribute.name == "value_floats":
            values = np.asarray(attribute.floats, dtype=np.float32)
            attribute.floats[:] = self._rounded(values, self._converted[FLOAT], name).tolist()

    def _rewrite_sparse(self, sparse: onnx.SparseTensorProto, name: str) -> None:
        self._rewrite(sparse.values, name)
        load_external(sparse.indices, self._folder)

    def _rewrite(self, tensor: onnx.TensorProto, name: str) -> None:
        import onnx

        if self._precision_of(tensor) is None:
            load_external(tensor, self._folder)
        else:
            tensor.CopyFrom(onnx.numpy_helper.from_array(self._values(tensor, name), tensor.name))

    def _hand_over(self, tensor: onnx.TensorProto) -> None:
        """Move the data of a weight out of the graph, where NumPy has its dtype."""
        import onnx

        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
        if self._precision_of(tensor) is None and dtype.name not in _HANDED_OVER:
            load_external(tensor, self._folder)
            return
        values = np.ascontiguousarray(self._values(tensor, tensor.name))
        self.weights[tensor.name] = values
        drop_data(tensor, onnx.helper.np_dtype_to_tensor_dtype(values.dtype))

    def _precision_of(self, tensor: onnx.TensorProto) -> Precision | None:
        if tensor.name in self._spared:
            return None
        return self._converted.get(tensor.data_type) or precision_of_element(tensor.data_type)

    def _values(self, tensor: onnx.TensorProto, name: str) -> NDArray[Any]:
        values = load_tensor(tensor, self._folder)
        precision = self._precision_of(tensor)
        return values if precision is None else self._rounded(values.astype(np.float32, copy=False), precision, name)

    def _rounded(self, values: NDArray[Any], precision: Precision, name: str) -> NDArray[np.float32]:
        if not self._converted:
            return round_values(values, precision)
        stored, beyond, _ = stored_in(precision, values)
        if beyond.any():
            self.clamped[name] = int(np.count_nonzero(beyond))
        return stored.astype(np.float32)
