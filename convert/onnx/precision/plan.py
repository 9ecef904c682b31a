"""Decides for every node and value of a model in which dtype it is computed; nothing is changed yet.

One pass in the order of the graph settles which nodes compute in the lower precision and in which dtype
each value is made. Along the way every reader says in which dtype it wants a value; `writing` then makes each
wanted dtype once.

What crosses the border of a subgraph (the outputs of a branch, what a loop carries) stays FP32: a
node inside that is kept in FP32 would otherwise be fed rounded values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from paritygate.convert.onnx.precision.low_dtype import LowDtype, Support, support_of
from paritygate.models.onnx.graph import element_types, subgraphs_of
from paritygate.models.onnx.weights import FLOAT

if TYPE_CHECKING:
    import onnx

_READ_AS_IS = "it makes no FP32 values of its own and reads them as they are"
_SIZES = "it computes with sizes of tensors, or positions in them, that the lower precision would round"
_CONSTANT, _SIZE = "constant", "size"
_BOOL = 9
_SIZE_OPERATORS = frozenset({"Shape", "Size"})
_BORDER = "what crosses the border of a subgraph stays FP32; the nodes inside are looked at one by one"


@dataclass(slots=True, eq=False)
class Value:
    """A value that was FP32.

    Attributes:
        name: Its name before.
        native: The element type it is made in.
        constant: What holds it, if it is a constant: a tensor, or a node that makes it of nothing but
            attributes and a shape.
        cast: The Cast node that makes it, where that may as well make the lower precision.
        pinned: The element type in which it has to keep its name, as an input or output of the model.
        wanted: The element types that readers want.
        names: Its name in each of the element types that it exists in, once that is settled.
    """

    name: str
    native: int = FLOAT
    constant: onnx.TensorProto | onnx.NodeProto | None = None
    cast: onnx.NodeProto | None = None
    pinned: int = 0
    wanted: set[int] = field(default_factory=set)
    names: dict[int, str] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class NodePlan:
    """A node, the FP32 values it reads and makes, and the graphs inside it.

    Attributes:
        reason: Why it stays in FP32; empty if it does not, or has nothing to do with FP32.
    """

    node: onnx.NodeProto
    reads: list[tuple[int, Value, int]] = field(default_factory=list)
    makes: list[tuple[int, Value]] = field(default_factory=list)
    inner: list[GraphPlan] = field(default_factory=list)
    reason: str = ""

    @property
    def is_constant(self) -> bool:
        """Whether the node makes a constant."""
        return any(value.constant is self.node for _, value in self.makes)


@dataclass(slots=True, eq=False)
class GraphPlan:
    """A graph, the values defined in it that were FP32, and its nodes in order."""

    graph: onnx.GraphProto
    declared: frozenset[str]
    values: dict[str, Value] = field(default_factory=dict)
    nodes: list[NodePlan] = field(default_factory=list)
    outputs: list[tuple[int, Value, int]] = field(default_factory=list)

    def all_nodes(self) -> Iterator[NodePlan]:
        """Yield the nodes of this graph and of those inside it."""
        for each in self.nodes:
            yield each
            for inner in each.inner:
                yield from inner.all_nodes()

    def all_values(self) -> Iterator[Value]:
        """Yield the values of this graph and of those inside it."""
        yield from self.values.values()
        for each in self.nodes:
            for inner in each.inner:
                yield from inner.all_values()


class _Scope:
    """What is known of names in a graph and in those around it."""

    def __init__(self, graph: onnx.GraphProto, values: dict[str, Value], outer: _Scope | None) -> None:
        self._types = element_types(graph)
        self._own = set(_defined_in(graph))
        self._values = values
        self._outer = outer
        self._kinds = {tensor.name: _CONSTANT for tensor in graph.initializer}

    def element(self, name: str) -> int | None:
        """Return the element type of the value; 0 for one left out, None for an unknown one."""
        if not name:
            return 0
        if name in self._own or self._outer is None:
            return self._types.get(name)
        return self._outer.element(name)

    def value(self, name: str) -> Value | None:
        """Return the value of that name if it is one that was FP32."""
        if name in self._own or self._outer is None:
            return self._values.get(name)
        return self._outer.value(name)

    def computes_sizes(self, node: onnx.NodeProto) -> bool:
        """Whether the node makes sizes of tensors, or positions in them, of other such; notes what it makes.

        What is made of constants in a shape that depends on sizes, such as a mask, is none of them.
        """
        sources = [(self.element(name), self.kind(name)) for name in node.input if name]
        kinds = {kind for _, kind in sources}
        is_made_of_sizes = kinds <= {_SIZE, _CONSTANT} and not any(subgraphs_of(node)) and not _is_constant(node)
        floats = {kind for element, kind in sources if element == FLOAT}
        for name in node.output:
            if node.op_type in _SIZE_OPERATORS:
                self._kinds[name] = _SIZE
            elif (is_made_of_sizes and _SIZE not in kinds) or _is_constant(node):
                self._kinds[name] = _CONSTANT
            elif is_made_of_sizes and floats != {_CONSTANT} and self.element(name) != _BOOL:
                self._kinds[name] = _SIZE
        return node.op_type not in _SIZE_OPERATORS and any(self._kinds.get(name) == _SIZE for name in node.output)

    def kind(self, name: str) -> str:
        """Return whether the value is a constant or made of sizes; empty if it is neither."""
        if name not in self._own and self._outer is not None:
            return self._outer.kind(name)
        return self._kinds.get(name, "")


def _defined_in(graph: onnx.GraphProto) -> Iterator[str]:
    for item in (*graph.input, *graph.initializer):
        yield item.name
    for node in graph.node:
        yield from node.output


class Planner:
    """Plans a whole model; its graph has the types of its values written in.

    Args:
        dtype: The lower precision.
        kept: The names of nodes that stay in FP32, each with the reason.
        opset: Version of the default operator set.
        declared: For each graph of the model, in the order of `graphs_in`, the values whose types it
            has to say still.
    """

    def __init__(
        self, *, dtype: LowDtype, kept: Mapping[str, str], opset: int, declared: Iterable[frozenset[str]]
    ) -> None:
        self._dtype = dtype
        self._kept = kept
        self._opset = opset
        self._declared = iter(declared)

    def plan(self, graph: onnx.GraphProto) -> GraphPlan:
        """Return the plan of the model's graph."""
        plan = self._graph(graph, None)
        for value in graph.input:
            if value.name in plan.values:
                plan.values[value.name].pinned = plan.values[value.name].native
        for _, output, element in plan.outputs:
            output.pinned = element
        return plan

    def _graph(self, graph: onnx.GraphProto, outer: _Scope | None) -> GraphPlan:
        plan = GraphPlan(graph=graph, declared=next(self._declared))
        scope = _Scope(graph, plan.values, outer)
        for item in graph.input:
            if scope.element(item.name) == FLOAT:
                plan.values[item.name] = Value(name=item.name)
        for tensor in graph.initializer:
            if tensor.data_type == FLOAT:
                plan.values[tensor.name] = Value(name=tensor.name, constant=tensor)
        for node in graph.node:
            plan.nodes.append(self._node(node, scope, plan.values))
        for position, item in enumerate(graph.output):
            value = scope.value(item.name)
            if value is not None:
                value.wanted.add(FLOAT)
                plan.outputs.append((position, value, FLOAT))
        return plan

    def _node(self, node: onnx.NodeProto, scope: _Scope, values: dict[str, Value]) -> NodePlan:
        step = NodePlan(node=node)
        for inner in subgraphs_of(node):
            step.inner.append(self._graph(inner, scope))
        computes_sizes = scope.computes_sizes(node)
        reads = [(position, value) for position, name in enumerate(node.input) if (value := scope.value(name))]
        makes = [position for position, name in enumerate(node.output) if name and scope.element(name) == FLOAT]
        if not reads and not makes:
            return step
        if makes and _is_constant(node):
            values[node.output[0]] = Value(name=node.output[0], constant=node)
            step.makes.append((0, values[node.output[0]]))
            return step
        is_of_sizes = computes_sizes and node.op_type != "Cast"
        reason = _SIZES if is_of_sizes else self._kept.get(node.name, "")
        support = self._support(node, scope, step, reads, reason)
        step.reason = support.reason
        for position, value in reads:
            element = self._dtype.element if position in support.low_inputs else FLOAT
            value.wanted.add(element)
            step.reads.append((position, value, element))
        for position in makes:
            element = self._dtype.element if position in support.low_outputs else FLOAT
            made = Value(name=node.output[position], native=element)
            made.cast = node if node.op_type == "Cast" and not reason else None
            values[made.name] = made
            step.makes.append((position, made))
        return step

    def _support(
        self, node: onnx.NodeProto, scope: _Scope, step: NodePlan, reads: list[tuple[int, Value]], reason: str
    ) -> Support:
        if reason:
            return Support(reason=reason)
        if step.inner:
            return Support(reason=_BORDER)
        varying = [value.native for _, value in reads if value.constant is None]
        is_low = bool(varying) and FLOAT not in varying
        if node.op_type == "Cast":
            # What it makes is settled once it is known in which dtype that is read.
            return Support(low_inputs=frozenset({0}) if is_low else frozenset(), reason=_READ_AS_IS)
        inputs = [scope.element(name) for name in node.input]
        outputs = [scope.element(name) for name in node.output]
        support = support_of(node, inputs, outputs, opset=self._opset, dtype=self._dtype)
        # Nothing is gained by rounding what a comparison or an index reads: it takes what there is.
        if support.reason or FLOAT in outputs or is_low:
            return support
        return Support(reason=_READ_AS_IS)


def _is_constant(node: onnx.NodeProto) -> bool:
    return node.domain in {"", "ai.onnx"} and node.op_type in {"Constant", "ConstantOfShape"}
