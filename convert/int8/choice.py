"""Choose the nodes of an ONNX graph to quantize: those that integers make faster, and nodes between convolutions.

Quantizing every possible operator makes transformers slower than FP32, and far less exact. Around an operator without
an integer kernel, each value is only rounded, and converted back and forth.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from paritygate.errors import NotAvailableError
from paritygate.models.onnx.graph import OWN_DOMAINS, graphs_in, names_used_inside, nodes_in
from paritygate.text import first_of

if TYPE_CHECKING:
    import onnx

# These are quantized if all their inputs are integers already, which then pass from convolution to convolution.
_BETWEEN = frozenset(
    {"Add", "AveragePool", "Clip", "Concat", "Flatten", "GlobalAveragePool", "MaxPool", "Relu", "Reshape", "Squeeze",
     "Transpose", "Unsqueeze"}
)  # fmt: skip
_MATRIX_RANK = 2
_PRODUCTS = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
_SHOWN = 5


def has_products(graph: onnx.GraphProto) -> bool:
    """Return whether the model has a convolution or a product of matrices with any factor."""
    return any(node.op_type in _PRODUCTS for node in nodes_in(graph))


def nothing_to_quantize(graph: onnx.GraphProto) -> NotAvailableError:
    """Return the error of a model that INT8 makes no faster, which names the operators that it has."""
    operators = sorted({f"{node.domain}::{node.op_type}" if node.domain else node.op_type for node in nodes_in(graph)})
    msg = (
        "no node of the model has constant weights that INT8 would make faster (Conv, MatMul, Gemm); its operators "
        f"are: {first_of(operators, _SHOWN) or 'none'}"
    )
    return NotAvailableError(msg, hint="remove the int8 target")


def nodes_to_quantize(graph: onnx.GraphProto, besides: Collection[str] = ()) -> tuple[str, ...]:
    """Return the names of the nodes to quantize: products with constant weights, and nodes between convolutions.

    The nodes `besides` stay in float, and so do nodes between convolutions that would read from them.

    Products of two activations, such as attention scores, stay in float. So does every node with a value that a graph
    inside an If, Loop or Scan uses, because its values must not change. Nodes need names, and weights must be
    initializers.
    """
    weights = {tensor.name: len(tensor.dims) for tensor in graph.initializer if tensor.data_type == tensor.FLOAT}
    constants = {tensor.name for tensor in graph.initializer}
    captured = {name for node in graph.node for name in names_used_inside(node)}
    chosen = []
    integers: set[str] = set()
    for node in graph.node:
        is_captured = captured.intersection((*node.input, *node.output))
        if is_captured or node.domain not in OWN_DOMAINS or node.name in besides:
            continue
        is_convolution = node.op_type == "Conv" and _has_constant_weights(node, weights)
        if is_convolution or (node.op_type in _BETWEEN and _works_on(node, integers, constants)):
            integers.update(node.output)
        elif not _is_product(node, weights):
            continue
        chosen.append(node.name)
    return tuple(chosen)


def _has_constant_weights(node: onnx.NodeProto, weights: dict[str, int]) -> bool:
    return all(name in weights for name in node.input[1:] if name)


def _is_product(node: onnx.NodeProto, weights: dict[str, int]) -> bool:
    if node.op_type == "MatMul":
        # In a stack of matrices, axis 1 does not hold the output's channels.
        return weights.get(node.input[1]) == _MATRIX_RANK and node.input[0] not in weights
    return node.op_type == "Gemm" and node.input[0] not in weights and _has_constant_weights(node, weights)


def _works_on(node: onnx.NodeProto, integers: set[str], constants: set[str]) -> bool:
    names = [name for name in node.input if name]
    if node.op_type in {"Add", "Concat"}:
        return all(name in integers for name in names)
    # The other inputs are sizes, axes or bounds.
    return names[0] in integers and all(name in constants for name in names[1:])


def inner_nodes(graph: onnx.GraphProto) -> int:
    """Return how many nodes are inside of If, Loop and Scan."""
    return sum(len(each.node) for each in graphs_in(graph)) - len(graph.node)


def has_attention(graph: onnx.GraphProto) -> bool:
    """Return whether the graph is a transformer's, with a product of two activations and a softmax."""
    constants = {tensor.name for tensor in graph.initializer}
    products = (node for node in graph.node if node.op_type == "MatMul")
    has_product = any(not constants.intersection(node.input) for node in products)
    return has_product and any(node.op_type == "Softmax" for node in graph.node)
