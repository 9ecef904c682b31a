"""Raise a model to the opset in which more of its operators take bfloat16.

onnx.version_converter converts each node as a separate model, which leaves names, subgraphs, sequences and weights
alone. A whole model would lose some of them or be refused. If a node cannot be converted, the model is raised less.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from paritygate.convert.onnx.precision.low_dtype import LowDtype, support_of
from paritygate.models.onnx.file import opset_of
from paritygate.models.onnx.graph import (
    NOT_A_TENSOR,
    UniqueNames,
    element_of,
    names_in,
    nodes_in,
    schema_of,
    subgraphs_of,
)
from paritygate.models.onnx.weights import FLOAT

if TYPE_CHECKING:
    import onnx

# Brought bfloat16 to convolutions, poolings and recurrent layers. Later additions (TopK in opset 24, Range in 27) are
# not worth the runtimes that cannot read such a model.
_HIGHEST = 22
# The oldest one whose Cast makes bfloat16.
_LOWEST = 13
# It has one scale a group before opset 21 and one a channel since, which the converter ignores.
_NOT_RAISED = frozenset({"GroupNormalization"})


class _TypedNode(Struct, frozen=True, kw_only=True):
    """A node with its graph, and the types of the values it can see."""

    graph: onnx.GraphProto
    node: onnx.NodeProto
    types: Mapping[str, onnx.TypeProto]

    def elements(self, names: list[str]) -> list[int | None]:
        return [(element_of(self.types[name]) or None) if name in self.types else None if name else 0 for name in names]


def raise_opset(model: onnx.ModelProto, dtype: LowDtype) -> tuple[str, ...]:
    """Raise the model's opset, in place, just far enough for the most nodes in the lower precision; return notes.

    The types of its values must be in the graph.
    """
    opset = opset_of(model)
    nodes = list(_typed_nodes(model.graph, {}))
    counts = {each: _count(nodes, each, dtype) for each in _candidates(opset)}
    notes: list[str] = []
    for candidate in sorted(counts, key=lambda each: (-counts[each], each)):
        if candidate == opset:
            break
        replacements, blocking = _replacements(nodes, opset, candidate, model)
        if blocking is None:
            _apply(model, replacements, candidate)
            return (*notes, f"the opset was raised from {opset} to {candidate}")
        if not notes:
            node = f"{blocking.op_type} node {blocking.name!r}"
            notes.append(
                f"more nodes would take {dtype.precision} in opset {candidate}, but {node} cannot be raised to it"
            )
    return tuple(notes)


def _candidates(opset: int) -> list[int]:
    import onnx

    highest = min(_HIGHEST, onnx.defs.onnx_opset_version())
    return [opset, *range(max(opset + 1, _LOWEST), highest + 1)]


def _typed_nodes(graph: onnx.GraphProto, outer: Mapping[str, onnx.TypeProto]) -> Iterator[_TypedNode]:
    import onnx

    types = dict(outer)
    types.update((value.name, value.type) for value in (*graph.value_info, *graph.input, *graph.output))
    for tensor in graph.initializer:
        types[tensor.name] = onnx.helper.make_tensor_type_proto(tensor.data_type, list(tensor.dims))
    for node in graph.node:
        yield _TypedNode(graph=graph, node=node, types=types)
        for inner in subgraphs_of(node):
            yield from _typed_nodes(inner, types)


def _count(nodes: list[_TypedNode], opset: int, dtype: LowDtype) -> int:
    """Return how many nodes could compute in the lower precision in that opset."""
    if opset < _LOWEST:
        return 0
    count = 0
    for each in nodes:
        inputs, outputs = each.elements(list(each.node.input)), each.elements(list(each.node.output))
        if FLOAT in outputs and not any(subgraphs_of(each.node)):
            count += bool(support_of(each.node, inputs, outputs, opset=opset, dtype=dtype).low_outputs)
    return count


def _replacements(
    nodes: list[_TypedNode], opset: int, target: int, model: onnx.ModelProto
) -> tuple[dict[int, list[onnx.NodeProto]], onnx.NodeProto | None]:
    """Return the replacements of changed nodes, by position; or the node that cannot be converted."""
    values = UniqueNames(names_in(model.graph))
    names = UniqueNames(node.name for node in nodes_in(model.graph))
    replacements: dict[int, list[onnx.NodeProto]] = {}
    for position, each in enumerate(nodes):
        if each.node.domain not in {"", "ai.onnx"} or _is_same(each.node.op_type, opset, target):
            continue
        converted = _converted(each, opset, target)
        if converted is None:
            return {}, each.node
        if converted:
            replacements[position] = _renamed(each.node, converted, values, names)
    return replacements, None


def _is_same(operator: str, opset: int, target: int) -> bool:
    schemas = [schema_of(operator, each) for each in (opset, target)]
    since = [schema.since_version if schema else 0 for schema in schemas]
    return since[0] == since[1]


def _takes_more_dtypes(operator: str, opset: int, target: int) -> bool:
    """Return whether the operator differs only in the dtypes that it takes."""
    before, after = schema_of(operator, opset), schema_of(operator, target)
    return before is not None and after is not None and not after.deprecated and _form(before) == _form(after)


def _form(schema: onnx.defs.OpSchema) -> tuple[object, ...]:
    parameters = [(each.name, each.option, each.is_homogeneous) for each in (*schema.inputs, *schema.outputs)]
    attributes = {
        name: (each.type, each.required, each.default_value.SerializeToString(deterministic=True))
        for name, each in schema.attributes.items()
    }
    return parameters, attributes, len(schema.inputs)


def _converted(typed: _TypedNode, opset: int, target: int) -> list[onnx.NodeProto] | None:
    """Return the nodes that replace the node in the other opset, none if it stays; None if that is unknown."""
    node = typed.node
    if _takes_more_dtypes(node.op_type, opset, target):
        return []
    elements = typed.elements([*node.input, *node.output])
    if node.op_type in _NOT_RAISED or any(subgraphs_of(node)) or None in elements or NOT_A_TENSOR in elements:
        return None
    return _by_version_converter(typed, opset, target)


def _by_version_converter(typed: _TypedNode, opset: int, target: int) -> list[onnx.NodeProto] | None:
    import onnx

    node = typed.node
    values = {
        name: onnx.helper.make_value_info(name, typed.types[name]) for name in (*node.input, *node.output) if name
    }
    graph = onnx.helper.make_graph(
        [node],
        "node",
        [values[name] for name in dict.fromkeys(node.input) if name],
        [values[name] for name in node.output if name],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)])
    try:
        converted = onnx.version_converter.convert_version(model, target)
    except (RuntimeError, ValueError):
        return None
    return [*map(_constant_node, converted.graph.initializer), *converted.graph.node]


def _constant_node(tensor: onnx.TensorProto) -> onnx.NodeProto:
    import onnx

    return onnx.helper.make_node("Constant", [], [tensor.name], value=tensor)


def _renamed(
    node: onnx.NodeProto, converted: list[onnx.NodeProto], values: UniqueNames, names: UniqueNames
) -> list[onnx.NodeProto]:
    """Give new nodes and values new names; a node of the old operator keeps its name."""
    mapping = {name: name for name in ("", *node.input, *node.output)}
    for each in converted:
        is_same = each.op_type == node.op_type and each.domain == node.domain
        each.name = node.name if is_same else names.new(f"{node.name}/{each.op_type}")
        for side in (each.input, each.output):
            for name in side:
                if name not in mapping:
                    mapping[name] = values.new(f"{node.name}/{name}")
            side[:] = [mapping[name] for name in side]
    return converted


def _apply(model: onnx.ModelProto, replacements: dict[int, list[onnx.NodeProto]], target: int) -> None:
    """Replace the old nodes, counted in the order in which graphs are walked."""
    position = 0

    def replaced(graph: onnx.GraphProto) -> None:
        nonlocal position
        nodes: list[onnx.NodeProto] = []
        for node in graph.node:
            mine = replacements.get(position, [node])
            position += 1
            for inner in subgraphs_of(node):
                replaced(inner)
            nodes.extend(mine)
        del graph.node[:]
        graph.node.extend(nodes)

    replaced(model.graph)
    for entry in model.opset_import:
        if entry.domain in {"", "ai.onnx"}:
            entry.version = target
