"""Compare the weights that two models of different frameworks read in one place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from paritygate.validate.divergence.operators import Difference, are_alike
from paritygate.validate.divergence.weights import constants_of, difference
from paritygate.validate.tensors.tensor_graph import TENSORFLOW, TFLITE, TensorGraph
from paritygate.validate.words.sentence import say

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

_Side = tuple[TensorGraph, Sequence["onnx.NodeProto"]]
# A converter may fold one weight into another, and then these say nothing.
_OF_FOLDED = frozenset({"weight.other_checkpoint", "weight.close", "weight.factor", "weight.shape", "weight.scalar"})
_MATRIX = 2
# Weights of one checkpoint differ by less, relative to their size.
_OTHER = 0.9


def weights_that_differ(candidate: _Side, reference: _Side) -> list[Difference]:
    """Return the weights of the candidate's nodes that surely differ from those of the reference's."""
    theirs = [
        (node, values) for node in reference[1] for values in constants_of(reference[0], node).values() if values.shape
    ]
    found = []
    for node in candidate[1]:
        for at, values in constants_of(candidate[0], node).items():
            near = _nearest(node, values, theirs) if values.shape else None
            if near is None:
                continue
            words = difference(values, near[1])
            is_folded = len(reference[1]) > 1 or not are_alike(node.op_type, near[0].op_type)
            if words and not (is_folded and words[0].key in _OF_FOLDED):
                what = say("divergence.constant", number=at, input=node.input[at], difference=words)
                right = node.input[at], near[1].astype(values.dtype)
                found.append(Difference(node=node, others=[near[0]], words=what, constant=right))
    return found


def _nearest(
    node: onnx.NodeProto, values: NDArray[Any], theirs: Sequence[tuple[onnx.NodeProto, NDArray[Any]]]
) -> tuple[onnx.NodeProto, NDArray[Any]] | None:
    """Return the reference's weight that the candidate's is nearest to, in its layout."""
    found: list[tuple[float, int, onnx.NodeProto, NDArray[Any]]] = []
    for at, (other, wanted) in enumerate(theirs):
        for way in _layouts(node, other, wanted):
            if way.shape == values.shape and way.dtype.kind == values.dtype.kind:
                size = float(np.linalg.norm(way.astype(np.float64))) or 1.0
                off = float(np.linalg.norm(values.astype(np.float64) - way.astype(np.float64))) / size
                found.append((off, at, other, way))
    best = min(found, key=lambda each: each[:2], default=None)
    if best is None or (best[0] > _OTHER and len(found) > 1):
        return None
    return best[2], best[3]


def _layouts(node: onnx.NodeProto, other: onnx.NodeProto, wanted: NDArray[Any]) -> list[NDArray[Any]]:
    """Return the weight as the candidate may store it: frameworks order the axes of a weight in their own way."""
    if wanted.ndim == _MATRIX:
        turned = _is_turned(node), _is_turned(other)
        return [wanted, wanted.T] if None in turned else [wanted if turned[0] == turned[1] else wanted.T]
    if wanted.ndim > _MATRIX:
        # TensorFlow has the channels last, in and then out; ONNX and PyTorch have them first, out and then in. TFLite
        # has one of them at each end.
        spatial, inner = range(wanted.ndim - 2), range(1, wanted.ndim - 1)
        last, before = wanted.ndim - 1, wanted.ndim - 2
        orders = ((last, before, *spatial), (before, last, *spatial), (0, last, *inner), (last, 0, *inner))
        return [wanted, *(wanted.transpose(order) for order in orders)]
    return [wanted]


def _is_turned(node: onnx.NodeProto) -> bool | None:
    """Return whether a product reads its weight with the output's columns first; None if unknown."""
    if node.op_type not in {"MatMul", "Gemm"} or node.domain in {TENSORFLOW, TFLITE}:
        return True if node.op_type == "linear" else None
    return any(item.name in {"transB", "transpose_b"} and item.i for item in node.attribute)
