"""Find correct nodes that ONNX Runtime crashes on in FP16, which stay in FP32.

Its optimizer fuses a Transpose, which moves the first axis behind the other batch axes, with the MatMul after it. Its
CPU provider has no FP16 kernel of the fused node. Its fallback to FP32 ends with a segmentation fault when the other
factor is an FP16 weight of rank 2. Measured with 1.31, where disabling the optimizer
`FuseFp16InitializerToFp32NodeTransformer` avoids it. Servers use default optimisations, so the file itself must avoid
it: a Transpose in FP32 is followed by a Cast, and not fused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from paritygate.models.onnx.graph import graphs_in, nodes_in

if TYPE_CHECKING:
    import onnx

_REASON = "ONNX Runtime crashes on it in FP16, fused with the MatMul after it"
_LEAST_RANK = 3
_MATRIX = 2


def crashing_transposes(graph: onnx.GraphProto) -> dict[str, str]:
    """Return the names of the nodes to keep in FP32, also inside nodes, each with the reason."""
    weights = {tensor.name for each in graphs_in(graph) for tensor in each.initializer if len(tensor.dims) == _MATRIX}
    same: dict[str, str] = {}
    for node in nodes_in(graph):
        if node.op_type == "Identity":
            same[node.output[0]] = same.get(node.input[0], node.input[0])
        # Values computed from weights alone are weights by the time nodes are fused.
        if node.output and (_is_matrix(node) or (node.input and all(name in weights for name in node.input))):
            weights.add(node.output[0])
    products = [node for node in nodes_in(graph) if node.op_type == "MatMul" and node.input[1] in weights]
    fused = {same.get(node.input[0], node.input[0]) for node in products}
    return {
        node.name: _REASON
        for node in nodes_in(graph)
        if node.op_type == "Transpose" and node.output[0] in fused and _moves_first_axis(node)
    }


def _is_matrix(node: onnx.NodeProto) -> bool:
    return node.op_type == "Constant" and any(
        item.name == "value" and len(item.t.dims) == _MATRIX for item in node.attribute
    )


def _moves_first_axis(node: onnx.NodeProto) -> bool:
    """Return whether a Transpose moves the first axis behind all others, or all except the last."""
    order = next((list(item.ints) for item in node.attribute if item.name == "perm"), [])
    rank = len(order)
    others = list(range(1, rank - 1))
    return rank >= _LEAST_RANK and order in ([*others, 0, rank - 1], [*others, rank - 1, 0])
