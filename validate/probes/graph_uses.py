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
    {"Cast", "Clip", "Expand", "Flatten", "Gather", "Identity", "Reshape", "Slice", "Split", "Squeeze", "Transpose",
     "Unsqueeze"}
)  # fmt: skip
_COMPARING = frozenset({"And", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Not", "Or", "Where"})
_MULTIPLYING = frozenset({"Add", "Div", "Mul", "Sub", "ReduceSum"})
_CONVOLVING = frozenset({"AveragePool", "Conv", "ConvInteger", "GlobalAveragePool", "MaxPool", "QLinearConv"})
_TESTING = frozenset({"IsInf", "IsNaN"})
_GATHERS = frozenset({"Gather", "GatherElements", "GatherND"})


@dataclass(frozen=True, kw_only=True, slots=True)
class GraphUse:
    """What is done with one input, as far as it goes through casts and changes of shape.

    Attributes:
        table_rows: It indexes a constant table with this many rows; None if it indexes none.
        is_compared: It goes into a comparison, a negation or the condition of a selection.
        is_multiplied: It goes into arithmetic.
        is_convolved: It goes into a convolution or a pooling.
        is_tested: It is looked at for NaN or infinity.
        equals: A whole number that it is compared with for equality, such as the id of padding; None if with none.
        positions: Sizes of constant tables that no input indexes: how many positions a row may have, if it has any.
    """

    table_rows: int | None = None
    is_compared: bool = False
    is_multiplied: bool = False
    is_convolved: bool = False
    is_tested: bool = False
    equals: int | None = None
    positions: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class _Constants:
    sizes: Mapping[str, tuple[int, ...]]
    whole: Mapping[str, int]


def uses_of_inputs(model: onnx.ModelProto) -> Mapping[str, GraphUse]:
    """Return what the main graph does with each input, by name; weights need not be there."""
    constants = _Constants(sizes=_sizes_of_constants(model.graph), whole=_whole_numbers(model.graph))
    sizes = constants.sizes
    consumers: dict[str, list[onnx.NodeProto]] = {}
    for node in model.graph.node:
        for name in node.input:
            consumers.setdefault(name, []).append(node)
    inputs = [value.name for value in model.graph.input if value.name not in sizes]
    carried = {tensor for name in inputs for tensor in _carried_from(name, consumers)}
    positions = _positions(model.graph, sizes, carried)
    return {name: replace(_use(name, consumers, constants), positions=positions) for name in inputs}


def _whole_numbers(graph: onnx.GraphProto) -> dict[str, int]:
    """Return the constants that are one whole number."""
    from onnx import numpy_helper

    tensors = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        for attribute in node.attribute if node.op_type == "Constant" else ():
            if attribute.name == "value":
                tensors[node.output[0]] = attribute.t
    found = {}
    for name, tensor in tensors.items():
        if tensor.external_data or any(size != 1 for size in tensor.dims):
            continue
        value = numpy_helper.to_array(tensor).reshape(-1)[0]
        if value.dtype.kind in "iu":
            found[name] = int(value)
    return found


def _positions(
    graph: onnx.GraphProto, sizes: Mapping[str, tuple[int, ...]], carried: frozenset[str] | set[str]
) -> tuple[int, ...]:
    """Return sizes of constants of which a part is taken, by something else than the values of an input."""
    found: set[int] = set()
    for node in graph.node:
        shape = sizes.get(node.input[0]) if node.op_type in {"Gather", "Slice"} else None
        if shape is None or len(shape) < 2 or node.input[1] in carried:  # noqa: PLR2004 - positions and features
            continue
        found.update(shape[:1] if node.op_type == "Gather" else shape[:-1])
    return tuple(sorted(size for size in found if size > 1))


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


def _use(name: str, consumers: Mapping[str, list[onnx.NodeProto]], constants: _Constants) -> GraphUse:
    use = GraphUse()
    for tensor in _carried_from(name, consumers):
        for node in consumers.get(tensor, ()):
            use = _with_node(use, node, tensor, constants)
    return use


def _carried_from(name: str, consumers: Mapping[str, list[onnx.NodeProto]]) -> Iterator[str]:
    """Yield the input and every tensor that holds its values, or some of them."""
    waiting, seen = [name], {name}
    while waiting:
        tensor = waiting.pop()
        yield tensor
        for node in consumers.get(tensor, ()):
            for output in node.output if node.op_type in _PASSING and node.input[0] == tensor else ():
                if output not in seen:
                    seen.add(output)
                    waiting.append(output)


def _with_node(use: GraphUse, node: onnx.NodeProto, tensor: str, constants: _Constants) -> GraphUse:
    rows = _rows_indexed(node, tensor, constants)
    if rows is not None or _is_index(node, tensor):
        known = [count for count in (use.table_rows, rows) if count is not None]
        # An id that indexes several tables has to be in all of them.
        return replace(use, table_rows=min(known) if known else None)
    others = [constants.whole[name] for name in node.input if name != tensor and name in constants.whole]
    return replace(
        use,
        equals=others[0] if node.op_type == "Equal" and others else use.equals,
        is_compared=use.is_compared or node.op_type in _COMPARING,
        is_multiplied=use.is_multiplied or node.op_type in _MULTIPLYING,
        is_convolved=use.is_convolved or node.op_type in _CONVOLVING,
        is_tested=use.is_tested or node.op_type in _TESTING,
    )


def _is_index(node: onnx.NodeProto, tensor: str) -> bool:
    return node.op_type in _GATHERS and len(node.input) > 1 and node.input[1] == tensor


def _rows_indexed(node: onnx.NodeProto, tensor: str, constants: _Constants) -> int | None:
    if node.op_type == "OneHot" and node.input[0] == tensor:
        return constants.whole.get(node.input[1])
    return _table_rows(node, constants.sizes) if _is_index(node, tensor) else None


def _table_rows(node: onnx.NodeProto, sizes: Mapping[str, tuple[int, ...]]) -> int | None:
    shape = sizes.get(node.input[0])
    if not shape:
        return None
    axis = next((attribute.i for attribute in node.attribute if attribute.name == "axis"), 0)
    return shape[axis] if -len(shape) <= axis < len(shape) else None
