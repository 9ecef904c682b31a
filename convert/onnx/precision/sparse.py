"""Sparse constants, made dense: no operator takes a sparse tensor, and onnx.checker refuses what hands one over."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from paritygate.convert.onnx.precision.constants import load_tensor
from paritygate.errors import InputFileError
from paritygate.models.onnx.graph import graphs_in

if TYPE_CHECKING:
    import onnx

__all__ = ["make_dense"]


def make_dense(graph: onnx.GraphProto, folder: Path | None) -> None:
    """Replace the sparse constants of the graph and of those inside it by dense ones, in place.

    Args:
        graph: The graph.
        folder: Where external data is; None if there is none.

    Raises:
        InputFileError: The data of one cannot be read.
    """
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
    """Return the tensor; indices are linear, or one row of coordinates for each value."""
    import onnx

    values, indices = load_tensor(sparse.values, folder), load_tensor(sparse.indices, folder)
    dense = np.zeros(tuple(sparse.dims), values.dtype)
    try:
        dense[np.unravel_index(indices, dense.shape) if indices.ndim == 1 else tuple(indices.T)] = values
    except (ValueError, IndexError) as err:
        msg = f"the indices of sparse tensor {sparse.values.name!r} are not those of its shape {list(sparse.dims)}"
        raise InputFileError(msg, hint="export the model again; the file may be damaged") from err
    return onnx.numpy_helper.from_array(dense, sparse.values.name)
