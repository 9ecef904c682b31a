"""Weights of the candidate that are the reference's, rounded: a difference that is everywhere at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from paritygate.models.onnx.weights import load_tensor
from paritygate.validate.divergence.tensor_graph import TensorGraph
from paritygate.validate.divergence.weights import ROUNDED, difference, is_near
from paritygate.validate.words.sentence import Words, render, say

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

# Fewer are a fault of their nodes.
_LEAST = 3


def changed_weights(candidate: TensorGraph, reference: TensorGraph) -> tuple[Words, dict[str, str]]:
    """Return how weights of the candidate were rounded, and their names with the reference's; empty if few were."""
    theirs: dict[tuple[int, ...], list[onnx.TensorProto]] = {}
    for tensor in _weights(reference):
        theirs.setdefault(tuple(tensor.dims), []).append(tensor)
    kinds: Counter[str] = Counter()
    pairs: dict[str, str] = {}
    total = 0
    for tensor in _weights(candidate):
        values = load_tensor(tensor, candidate.path.parent)
        near = _nearest(values, theirs.get(tuple(tensor.dims), []), reference)
        total += near is not None
        words = () if near is None else difference(values, near[1])
        if near is not None and words:
            kinds[render(words) if words[0].key == ROUNDED else ""] += 1
            pairs[tensor.name] = near[0]
    if len(pairs) < _LEAST:
        return (), {}
    (rounded, count), *_ = kinds.most_common(1)
    key = "divergence.rounded_weights" if rounded else "divergence.changed_weights"
    return say(key, count=len(pairs), total=total, most=count, difference=rounded), pairs


def _weights(graph: TensorGraph) -> Iterator[onnx.TensorProto]:
    return (tensor for tensor in graph.model.graph.initializer if tensor.dims and tensor.data_type in _FLOATS)


# onnx.TensorProto.DataType: float, float16, double and bfloat16.
_FLOATS = frozenset({1, 10, 11, 16})


def _nearest(
    values: NDArray[Any], tensors: list[onnx.TensorProto], graph: TensorGraph
) -> tuple[str, NDArray[Any]] | None:
    for tensor in tensors:
        other = load_tensor(tensor, graph.path.parent)
        if is_near(values, other):
            return tensor.name, other
    return None
