"""What an ONNX graph does with each of its inputs: the strongest sign of what the input is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx

__all__ = ["GraphUse", "uses_of_inputs"]

# The values of a tensor are the same, or shifted by a constant, after these.
_PASSING = frozenset(
    {"Cast", "Clip", "Expand", "Flatten", "Identity", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze"}
)
_COMPARING = frozenset({"And", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Not", "Or", "Where"})
_MULTIPLYING = frozenset({"Add", "Div", "Mul", "Sub", "ReduceSum"})
_CONVOLVING = frozenset({"AveragePool", "Conv", "ConvInteger", "GlobalAveragePool", "MaxPool", "QLinearConv"})
_GATHERS = frozenset({"Gather", "GatherElements", "GatherND"})


@dataclass(frozen=True, kw_only=True, slots=True)
class GraphUse:
    """What is done with one input, as far as it goes through casts and changes of shape.

    Attributes:
        table_rows: It indexes a constant table with this many rows; None if it indexes none.
        is_compared: It goes into a comparison, a negation or the condition of a selection.
        is_multiplied: It goes into arithmetic.
        is_convolved: It goes into a convolution or a pooling.
    """

    table_rows: int | None = None
    is_compared: bool = False
    is_multiplied: bool = False
    is_convolved: bool = False


def uses_of_inputs(model: onnx.ModelProto) -> Mapping[str, GraphUse]:
    """Return what the main graph does with each input, by name; weights need not be there."""
    sizes = _sizes_of_constants(model.graph)
    consumers: dict[str, list[onnx.NodeProto]] = {}
    for node in model.graph.node:
        for name in node.input:
            consumers.setdefault(name, []).append(node)
    return {value.name: _use(value.name, consumers, sizes) for value in model.graph.input if value.name not in sizes}


def _sizes_of_constants(graph: onnx.GraphProto) -> dict[str, tuple[int, ...]]:
    sizes = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    for node in graph.node:
        for attribute in node.attribute if node.op_type == "Constant" else ():
            if attribute.name == "value":
                sizes[node.output[0]] = tuple(attribute.t.dims)
        if node.op_type in {"DequantizeLinear", "Cast", "Identity"} and node.input[0] in sizes:
            # A table stored in lower precision is still a table.
            sizes[node.output[0]] = sizes[node.input[0]]
    return sizes


def _use(name: str, consumers: Mapping[str, list[onnx.NodeProto]], sizes: Mapping[str, tuple[int, ...]]) -> GraphUse:
    use = GraphUse()
    waiting, seen = [name], {name}
    while waiting:
        tensor = waiting.pop()
        for node in consumers.get(tensor, ()):
            use = _with_node(use, node, tensor, sizes)
            for output in _carried(node, tensor):
                if output not in seen:
                    seen.add(output)
                    waiting.append(output)
    return use


def _carried(node: onnx.NodeProto, tensor: str) -> Iterator[str]:
    if node.op_type in _PASSING and node.input[0] == tensor:
        yield node.output[0]


def _with_node(use: GraphUse, node: onnx.NodeProto, tensor: str, sizes: Mapping[str, tuple[int, ...]]) -> GraphUse:
    if node.op_type in _GATHERS and len(node.input) > 1 and node.input[1] == tensor:
        rows = _table_rows(node, sizes)
        known = [count for count in (use.table_rows, rows) if count is not None]
        # An id that indexes several tables has to be in all of them.
        return replace(use, table_rows=min(known) if known else None)
    return replace(
        use,
        is_compared=use.is_compared or node.op_type in _COMPARING,
        is_multiplied=use.is_multiplied or node.op_type in _MULTIPLYING,
        is_convolved=use.is_convolved or node.op_type in _CONVOLVING,
    )


def _table_rows(node: onnx.NodeProto, sizes: Mapping[str, tuple[int, ...]]) -> int | None:
    shape = sizes.get(node.input[0])
    if not shape:
        return None
    axis = next((attribute.i for attribute in node.attribute if attribute.name == "axis"), 0)
    return shape[axis] if -len(shape) <= axis < len(shape) else None
