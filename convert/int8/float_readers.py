"""What nodes that stay in float read of a quantized ONNX graph."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx

__all__ = ["read_unrounded"]

_PAIR = ("QuantizeLinear", "DequantizeLinear")


def read_unrounded(graph: onnx.GraphProto, quantized: Collection[str]) -> None:
    """Let nodes that stay in float read values as they were made in float, not rounded for somebody else, in place.

    ONNX Runtime's tool rounds a value once for all its readers: an ArgMax beside a quantized product would then
    answer otherwise, and gain nothing. What a quantized node made stays rounded: with another reader before its
    QuantizeLinear, ONNX Runtime would compute that node in float.

    Args:
        graph: The quantized graph.
        quantized: Names of the nodes that were to be quantized.
    """
    maker = {name: node for node in graph.node for name in node.output}
    for node in graph.node:
        if node.op_type in _PAIR or node.name in quantized:
            continue
        for index, name in enumerate(node.input):
            unrounded = _before_the_pair(name, maker)
            if unrounded is not None and not _is_made_by(unrounded, maker, quantized):
                node.input[index] = unrounded


def _before_the_pair(name: str, maker: dict[str, onnx.NodeProto]) -> str | None:
    """Return what was quantized and dequantized into `name`; None if that is not how it was made."""
    dequantize = maker.get(name)
    if dequantize is None or dequantize.op_type != _PAIR[1]:
        return None
    quantize = maker.get(dequantize.input[0])
    return quantize.input[0] if quantize is not None and quantize.op_type == _PAIR[0] else None


def _is_made_by(name: str, maker: dict[str, onnx.NodeProto], nodes: Collection[str]) -> bool:
    return name in maker and maker[name].name in nodes
