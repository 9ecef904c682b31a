"""Find the normalisations of a graph: single operators, and those that an exporter wrote in parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from paritygate.models.onnx.graph import graphs_in, makers_of, nodes_in, readers_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    import onnx

_WHOLE = frozenset({"GroupNormalization", "LayerNormalization", "RMSNormalization"})
# In parts: a mean of squares and a tiny constant, its root, and a division by that.
_TO_THE_ROOT = ("Add", "Sqrt")
_BY_THE_ROOT = (("Div",), ("Reciprocal", "Mul"))
# Weights may then scale and shift the quotient.
_BY_WEIGHTS = ("Mul", "Add")


def normalising_nodes(graph: onnx.GraphProto) -> Iterator[str]:
    """Yield the names of the nodes that normalise, also inside nodes."""
    for node in nodes_in(graph):
        if node.op_type in _WHOLE and not node.domain:
            yield node.name
    for each in graphs_in(graph):
        flow = _Flow(each)
        for node in each.node:
            if node.op_type == "ReduceMean":
                yield from (part.name for part in flow.normalisation(node))


class _Flow:
    def __init__(self, graph: onnx.GraphProto) -> None:
        self._makers = makers_of(graph)
        self._readers = readers_of(graph)
        self._weights = {tensor.name for tensor in graph.initializer}

    def normalisation(self, mean: onnx.NodeProto) -> list[onnx.NodeProto]:
        """Return the nodes of the normalisation that a mean belongs to, if any."""
        square = self._makers.get(mean.input[0])
        if square is None or not _is_square(square):
            return []
        root = self._followed([square, mean], _TO_THE_ROOT)
        for operators in _BY_THE_ROOT:
            divided = self._followed(root, operators)
            if divided:
                return self._scaled(divided)
        return []

    def _followed(self, nodes: list[onnx.NodeProto], operators: tuple[str, ...]) -> list[onnx.NodeProto]:
        """Return the nodes with one of each operator after them; none where one is missing."""
        for operator in operators:
            following = self._reading(nodes[-1], operator) if nodes else None
            if following is None:
                return []
            nodes = [*nodes, following]
        return nodes

    def _scaled(self, nodes: list[onnx.NodeProto]) -> list[onnx.NodeProto]:
        for operator in _BY_WEIGHTS:
            following = self._reading(nodes[-1], operator)
            if following is not None and self._weights & set(following.input):
                nodes = [*nodes, following]
        return nodes

    def _reading(self, node: onnx.NodeProto, operator: str) -> onnx.NodeProto | None:
        return next((each for each in self._readers.get(node.output[0], []) if each.op_type == operator), None)


def _is_square(node: onnx.NodeProto) -> bool:
    return node.op_type == "Pow" or (node.op_type == "Mul" and node.input[0] == node.input[1])
