"""Weights of the candidate that are the reference's, rounded: a difference that is everywhere at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from paritygate.validate.divergence.weights import ROUNDED, difference, is_near
from paritygate.validate.tensors.tensor_graph import TensorGraph, Weight
from paritygate.validate.words.sentence import Words, render, say

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Fewer are a fault of their nodes.
_LEAST = 3


def changed_weights(candidate: TensorGraph, reference: TensorGraph) -> tuple[Words, dict[str, str]]:
    """Return how weights of the candidate were rounded, and their names with the reference's; empty if few were."""
    theirs: dict[tuple[int, ...], list[tuple[str, Weight]]] = {}
    for name, weight in _weights(reference):
        theirs.setdefault(weight.shape, []).append((name, weight))
    kinds: Counter[str] = Counter()
    pairs: dict[str, str] = {}
    total = 0
    for name, weight in _weights(candidate):
        values = weight.load()
        near = _nearest(values, theirs.get(weight.shape, []))
        total += near is not None
        words = () if near is None else difference(values, near[1])
        if near is not None and words:
            kinds[render(words) if words[0].key == ROUNDED else ""] += 1
            pairs[name] = near[0]
    if len(pairs) < _LEAST:
        return (), {}
    (rounded, count), *_ = kinds.most_common(1)
    key = "divergence.rounded_weights" if rounded else "divergence.changed_weights"
    return say(key, count=len(pairs), total=total, most=count, difference=rounded), pairs


def _weights(graph: TensorGraph) -> Iterator[tuple[str, Weight]]:
    return ((name, weight) for name, weight in graph.weights.items() if weight.shape and weight.is_float)


def _nearest(values: NDArray[Any], weights: list[tuple[str, Weight]]) -> tuple[str, NDArray[Any]] | None:
    for name, weight in weights:
        other = weight.load()
        if is_near(values, other):
            return name, other
    return None
