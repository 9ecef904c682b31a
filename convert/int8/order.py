"""The order of the nodes of a quantized ONNX graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

from paritygate.convert.int8.choice import names_used_inside

if TYPE_CHECKING:
    import onnx

__all__ = ["sort_nodes"]


def sort_nodes(graph: onnx.GraphProto) -> None:
    """Put the nodes in an order in which values are made before they are used, in place; else the order is kept.

    Quantizers sort them by the inputs that nodes list, and an If or Loop uses values that it does not list.
    """
    left = {name for node in graph.node for name in node.output if name}
    waiting = [(node, {*node.input, *names_used_inside(node)} & left) for node in graph.node]
    nodes: list[onnx.NodeProto] = []
    while waiting:
        ready = next((index for index, (_, needs) in enumerate(waiting) if not needs & left), None)
        if ready is None:
            # A cycle: which the check of the written file has better words for.
            nodes.extend(node for node, _ in waiting)
            break
        node, _ = waiting.pop(ready)
        left.difference_update(node.output)
        nodes.append(node)
    copies = [type(node).FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    graph.node.extend(copies)
