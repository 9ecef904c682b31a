"""Walk back from wrong outputs to the nodes whose inputs still match and whose outputs do not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from paritygate.validate.divergence.matching import Matching
from paritygate.validate.tensors.tensor_graph import TensorGraph

if TYPE_CHECKING:
    import onnx


class Frontier(Struct, frozen=True, kw_only=True):
    """Where two models part, seen from one of them.

    Attributes:
        nodes: Nodes with an unmatched output and no unmatched input, in the order in which they run.
        visited: The unmatched tensors between the frontier and the wrong outputs.
    """

    nodes: Sequence[onnx.NodeProto]
    visited: frozenset[str]


def frontier_of(graph: TensorGraph, matching: Matching, outputs: Iterable[str], tolerance: float) -> Frontier:
    """Return the frontier behind the outputs, which are taken as unmatched.

    Unmatched regions that come together again in a matched tensor are never visited, so a fused operator is not blamed.
    """
    waiting = list(outputs)
    visited: set[str] = set()
    names: set[str] = set()
    while waiting:
        tensor = waiting.pop()
        if tensor in visited or tensor not in graph.producers:
            continue
        visited.add(tensor)
        node = graph.producers[tensor]
        before = [name for name in graph.data_inputs(node) if not matching.matched(name, tolerance)]
        before = [name for name in before if name in graph.producers]
        # The shape of a tensor is often computed otherwise: it is followed only if no values explain the difference.
        floats = [name for name in before if matching.sketches[name].kind == "f"]
        waiting += floats or before
        if not before:
            names.add(node.name)
    return Frontier(nodes=[node for node in graph.nodes if node.name in names], visited=frozenset(visited))
