"""The constants of a graph: the shape of each, and the values of the small ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct

from paritygate.models.onnx.graph import attribute_of, stored_tensors

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

# Larger constants are weights.
_SMALL = 4096
_KEEPING = frozenset({"Cast", "DequantizeLinear", "Identity"})
_RESHAPING = frozenset({"Reshape", "Squeeze", "Unsqueeze"})


class Constants(Struct, frozen=True, kw_only=True):
    """The shapes of a graph's constants, and the values of those that are small and in the file itself."""

    sizes: Mapping[str, tuple[int, ...]]
    values: Mapping[str, NDArray[Any]]

    def whole(self, name: str) -> int | None:
        """Return the constant if it is a single whole number."""
        value = self.values.get(name)
        return int(value.reshape(-1)[0]) if value is not None and value.size == 1 and value.dtype.kind in "iu" else None


def constants_of(graph: onnx.GraphProto) -> Constants:
    """Return the constants of the main graph; weights need not be present."""
    sizes: dict[str, tuple[int, ...]] = {}
    values: dict[str, NDArray[Any]] = {}
    for name, tensor in stored_tensors(graph).items():
        sizes[name] = tuple(tensor.dims)
        _keep(values, name, tensor)
    for node in graph.node:
        name = node.input[0] if node.input else ""
        if node.op_type == "Constant":
            for item in node.attribute:
                if item.name in {"value_float", "value_floats", "value_int", "value_ints"}:
                    value = np.asarray(attribute_of(node, item.name))
                    values[node.output[0]] = value.astype(np.float32) if value.dtype.kind == "f" else value
                    sizes[node.output[0]] = value.shape
        elif node.op_type in _KEEPING and name in sizes:
            # A table stored in lower precision is still a table.
            sizes[node.output[0]] = sizes[name]
        if name in values and node.op_type in {"Cast", "Identity"} | _RESHAPING:
            values[node.output[0]] = _changed(node, values[name])
    return Constants(sizes=sizes, values=values)


def _keep(values: dict[str, NDArray[Any]], name: str, tensor: onnx.TensorProto) -> None:
    from onnx import numpy_helper

    if tensor.external_data or int(np.prod(tensor.dims, dtype=np.int64)) > _SMALL:
        return
    value = numpy_helper.to_array(tensor)
    if value.dtype.kind in "fiub":
        values[name] = value


def _changed(node: onnx.NodeProto, value: NDArray[Any]) -> NDArray[Any]:
    """Return a constant after a cast or reshape; reshaped constants are flattened."""
    if node.op_type != "Cast":
        return value.reshape(-1) if node.op_type in _RESHAPING and value.ndim else value
    from onnx import helper

    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(attribute_of(node, "to")))
    with np.errstate(all="ignore"):
        return value.astype(dtype) if dtype.kind in "fiub" else value
