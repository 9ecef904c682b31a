"""Group the nodes of a graph that do the same in it: layers repeat, and so does what rounding does to them.

One run measures a group, where one run a node would be too many. Nodes are alike if their operators are, and those that
make what they read and that read what they make.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from paritygate.validate.tensors.tensor_graph import TensorGraph

_CONSTANT, _OUTPUT = "constant", "output"
# These pass on what they read, so they are looked through.
_MOVING = frozenset({"Identity", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Cast"})


def groupings(graph: TensorGraph) -> list[dict[str, str]]:
    """Return groupings of the nodes, the finest first: each has the name of a group by the name of a node."""

    def made_by(name: str) -> str:
        maker = graph.producers.get(name)
        while maker is not None and maker.op_type in _MOVING and maker.input:
            name = maker.input[0]
            maker = graph.producers.get(name)
        if maker is not None:
            return maker.op_type
        return name if name in graph.inputs else _CONSTANT

    def read_by(name: str) -> set[str]:
        kinds = {node.op_type for node in graph.consumers.get(name, ())}
        return kinds | {_OUTPUT} if name in graph.outputs else kinds

    by_operator = {node.name: node.op_type for node in graph.nodes}
    by_makers = {node.name: " ".join([node.op_type, *map(made_by, node.input)]) for node in graph.nodes}
    finest = {
        node.name: " ".join([by_makers[node.name], ">", *sorted(set().union(*map(read_by, node.output)))])
        for node in graph.nodes
    }
    return [finest, by_makers, by_operator]
