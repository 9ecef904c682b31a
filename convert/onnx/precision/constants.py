"""Round the constants of a model to a lower precision, clamp them into its range, and note the changes.

Infinities stay, because both dtypes have them, and a mask of -inf works in FP16 as in FP32. Rounding a mask of
finfo(float32).min would make it -inf, and 0 * -inf is NaN where 0 * finfo.min was 0. So finite values are clamped.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from paritygate.convert.onnx.precision.low_dtype import LowDtype
from paritygate.errors import InputFileError
from paritygate.models.onnx.graph import graphs_in
from paritygate.models.onnx.weights import load_tensor, stored_in

if TYPE_CHECKING:
    import onnx


class ConstantChange(Struct, frozen=True, kw_only=True):
    """Values of one constant that the lower precision cannot hold."""

    tensor: str  # the initializer, or the value that the constant node makes
    count: int  # of its changed elements
    before: float  # the value of the largest magnitude among them
    after: float  # the new value of that one

    def __str__(self) -> str:
        values = "value" if self.count == 1 else "values"
        return f"{self.tensor}: {self.count} {values}, {self.before:g} became {self.after:g}"


class ConstantRounding(Struct, kw_only=True):
    """Rounds constants to one dtype and collects those that did not fit."""

    dtype: LowDtype
    clamps: list[ConstantChange] = field(default_factory=list)
    flushes: list[ConstantChange] = field(default_factory=list)

    def rounded(self, name: str, values: NDArray[np.float32]) -> NDArray[Any]:
        """Return the values of a constant in the lower precision, and note the changes."""
        rounded, beyond, zeroed = stored_in(self.dtype.precision, values)
        for where, changes in ((beyond, self.clamps), (zeroed, self.flushes)):
            if where.any():
                changes.append(_change(name, values, rounded, where))
        return rounded

    def tensor(self, name: str, source: onnx.TensorProto, folder: Path | None) -> onnx.TensorProto:
        """Return the float32 tensor in the lower precision, under the same name; the report calls it `name`."""
        rounded = self.rounded(name, load_tensor(source, folder))
        return self.packed(source.name, rounded, list(source.dims))

    def packed(self, name: str, values: NDArray[Any], dims: list[int]) -> onnx.TensorProto:
        """Return values of the lower precision as a tensor."""
        import onnx

        # Older versions of onnx.numpy_helper.from_array lack bfloat16.
        raw = np.ascontiguousarray(values).view(np.uint16).astype("<u2", copy=False).tobytes()
        return onnx.TensorProto(name=name, data_type=self.dtype.element, dims=dims, raw_data=raw)


def _change(name: str, values: NDArray[np.float32], rounded: NDArray[Any], where: NDArray[np.bool_]) -> ConstantChange:
    index = int(np.argmax(np.where(where, np.abs(values), -1).reshape(-1)))
    return ConstantChange(
        tensor=name,
        count=int(np.count_nonzero(where)),
        before=float(values.reshape(-1)[index]),
        after=float(rounded.reshape(-1)[index]),
    )


def make_dense(graph: onnx.GraphProto, folder: Path | None) -> None:
    """Replace sparse constants of the graph and inner ones by dense ones, in place; `folder` has external data."""
    import onnx

    for each in graphs_in(graph):
        for sparse in each.sparse_initializer:
            each.initializer.append(_dense(sparse, folder))
        del each.sparse_initializer[:]
        for node in each.node:
            for attribute in node.attribute:
                if node.op_type == "Constant" and attribute.name == "sparse_value":
                    dense = onnx.helper.make_attribute("value", _dense(attribute.sparse_tensor, folder))
                    attribute.CopyFrom(dense)


def _dense(sparse: onnx.SparseTensorProto, folder: Path | None) -> onnx.TensorProto:
    """Return the dense tensor; indices are linear, or one row of coordinates for each value."""
    import onnx

    values, indices = load_tensor(sparse.values, folder), load_tensor(sparse.indices, folder)
    dense = np.zeros(tuple(sparse.dims), values.dtype)
    try:
        dense[np.unravel_index(indices, dense.shape) if indices.ndim == 1 else tuple(indices.T)] = values
    except (ValueError, IndexError) as err:
        msg = f"the indices of sparse tensor {sparse.values.name!r} do not fit its shape {list(sparse.dims)}"
        raise InputFileError(msg, hint="export the model again; the file may be corrupt") from err
    return onnx.numpy_helper.from_array(dense, sparse.values.name)
