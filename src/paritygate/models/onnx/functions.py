"""Inline the local functions of an ONNX model, so that every node has types and can be treated on its own.

onnx.inliner gives the nodes no names and loses an output that is an input as well. It inlines no function of another
opset whose operators are the same there, and takes no model above 2 GiB.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import deepcopy
from typing import TYPE_CHECKING

from paritygate.errors import ConversionError
from paritygate.models.onnx.graph import (
    UniqueNames,
    graphs_in,
    name_nodes,
    names_in,
    nodes_in,
    replace_nodes,
    schema_of,
    subgraphs_of,
)

if TYPE_CHECKING:
    import onnx

_Key = tuple[str, str, str]


def inline_functions(model: onnx.ModelProto) -> None:
    """Replace every call of a local function by the function's nodes, in place, and drop uncalled functions.

    Nodes are named `CALL/NODE`, after nodes without a name got one. A call stays if one of the function's operators has
    another version in the model's operator set. A recursive function raises ConversionError.
    """
    if not model.functions:
        return
    name_nodes(model.graph)
    inliner = _Inliner(model)
    # Inner graphs first: expanding a graph copies its nodes, and what is inside them.
    for graph in reversed(list(graphs_in(model.graph))):
        inliner.expand(graph)
    _drop_uncalled(model)


class _Inliner:
    def __init__(self, model: onnx.ModelProto) -> None:
        self._model = model
        self._functions: dict[_Key, onnx.FunctionProto] = {_key_of(each): each for each in model.functions}
        self._values = UniqueNames(names_in(model.graph))
        self._nodes = UniqueNames(node.name for node in nodes_in(model.graph))

    def expand(self, graph: onnx.GraphProto) -> None:
        nodes = [inlined for node in graph.node for inlined in self._expanded(node, ())]
        replace_nodes(graph, nodes)

    def _expanded(self, node: onnx.NodeProto, stack: tuple[_Key, ...]) -> Iterable[onnx.NodeProto]:
        """Return the nodes that replace one, or a copy if it is not a call; `stack` has the functions around it."""
        key = _call_key(node)
        function = self._functions.get(key)
        if key in stack:
            msg = f"function {key[1]!r} of domain {key[0]!r} calls itself"
            raise ConversionError(msg, hint="export the model again, because ONNX has no recursive functions")
        if function is None or not self._fits(function):
            return [deepcopy(node)]
        nodes: list[onnx.NodeProto] = []
        for body_node in self._body(node, function):
            body_node.name = self._nodes.new(f"{node.name}/{body_node.name or body_node.op_type}")
            for inner in subgraphs_of(body_node):
                for each in reversed(list(graphs_in(inner))):
                    self._expand_inside(each, node.name, (*stack, key))
            nodes.extend(self._expanded(body_node, (*stack, key)))
        return nodes

    def _expand_inside(self, graph: onnx.GraphProto, call: str, stack: tuple[_Key, ...]) -> None:
        nodes = []
        for node in graph.node:
            node.name = self._nodes.new(f"{call}/{node.name or node.op_type}")
            nodes.extend(list(self._expanded(node, stack)))
        replace_nodes(graph, nodes)

    def _body(self, call: onnx.NodeProto, function: onnx.FunctionProto) -> list[onnx.NodeProto]:
        """Return copies of the function's nodes, on the values and attributes of the call."""
        import onnx

        inputs = list(call.input) + [""] * (len(function.input) - len(call.input))
        mapping = dict(zip(function.input, inputs, strict=False))
        passed = []
        for formal, actual in zip(function.output, call.output, strict=False):
            if not actual:
                continue
            if formal in mapping:
                passed.append(onnx.helper.make_node("Identity", [mapping[formal]], [actual]))
            else:
                mapping[formal] = actual
        attributes = {attribute.name: attribute for attribute in function.attribute_proto}
        attributes.update((attribute.name, attribute) for attribute in call.attribute)
        return [self._instance(node, mapping, attributes) for node in function.node] + passed

    def _instance(
        self, node: onnx.NodeProto, mapping: dict[str, str], attributes: Mapping[str, onnx.AttributeProto]
    ) -> onnx.NodeProto:
        copy = deepcopy(node)
        copy.input[:] = [self._renamed(name, mapping) for name in node.input]
        copy.output[:] = [self._renamed(name, mapping) for name in node.output]
        del copy.attribute[:]
        for attribute in node.attribute:
            wanted = attributes.get(attribute.ref_attr_name) if attribute.ref_attr_name else attribute
            if wanted is None:
                continue
            placed = copy.attribute.add()
            placed.CopyFrom(wanted)
            placed.name = attribute.name
        for inner in subgraphs_of(copy):
            self._instance_graph(inner, mapping, attributes)
        return copy

    def _instance_graph(
        self, graph: onnx.GraphProto, mapping: dict[str, str], attributes: Mapping[str, onnx.AttributeProto]
    ) -> None:
        for item in (*graph.input, *graph.output, *graph.value_info, *graph.initializer):
            item.name = self._renamed(item.name, mapping)
        for sparse in graph.sparse_initializer:
            sparse.values.name = self._renamed(sparse.values.name, mapping)
        nodes = [self._instance(node, mapping, attributes) for node in graph.node]
        replace_nodes(graph, nodes)

    def _renamed(self, name: str, mapping: dict[str, str]) -> str:
        if name and name not in mapping:
            mapping[name] = self._values.new(name)
        return mapping.get(name, "")

    def _fits(self, function: onnx.FunctionProto) -> bool:
        """Return whether the model's operator sets have the function's operators; import new sets."""
        versions = {_domain(entry.domain): entry.version for entry in self._model.opset_import}
        wanted = {_domain(entry.domain): entry.version for entry in function.opset_import}
        operators = {(_domain(node.domain), node.op_type) for node in nodes_in(function)}
        for domain, operator in operators:
            mine, its = versions.get(domain), wanted.get(domain)
            if its is None or mine is None or mine == its:
                continue
            is_local = any(key[:2] == (domain, operator) for key in self._functions)
            if not is_local and not _is_same_operator(domain, operator, mine, its):
                return False
        for domain in {domain for domain, _ in operators} - versions.keys():
            if domain in wanted:
                self._model.opset_import.add(domain=domain, version=wanted[domain])
        return True


def _is_same_operator(domain: str, operator: str, version: int, other: int) -> bool:
    one, another = (schema_of(operator, each, domain) for each in (version, other))
    return one is not None and another is not None and one.since_version == another.since_version


def _drop_uncalled(model: onnx.ModelProto) -> None:
    functions = {_key_of(function): function for function in model.functions}
    called: set[_Key] = set()
    pending = [_call_key(node) for node in nodes_in(model.graph)]
    while pending:
        key = pending.pop()
        if key in functions and key not in called:
            called.add(key)
            pending.extend(_call_key(node) for node in nodes_in(functions[key]))
    called_functions = [function for key, function in functions.items() if key in called]
    del model.functions[:]
    model.functions.extend(called_functions)


def _key_of(function: onnx.FunctionProto) -> _Key:
    return _domain(function.domain), function.name, function.overload


def _call_key(node: onnx.NodeProto) -> _Key:
    return _domain(node.domain), node.op_type, node.overload


def _domain(name: str) -> str:
    return "" if name == "ai.onnx" else name
