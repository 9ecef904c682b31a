"""Decide the dtype of every node and value of a model, without changing it.

One pass in the order of the graph settles which nodes compute in the lower precision, and the dtype that each value is
made in. Every reader notes the dtype that it needs, and `writing` then makes each of them once.

Values that cross the border of a subgraph (outputs of a branch, a loop's state) stay FP32. Otherwise a node inside that
is kept in FP32 would read rounded values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct, field

from paritygate.convert.onnx.precision.low_dtype import LowDtype, Support, support_of
from paritygate.models.onnx.graph import element_types, subgraphs_of
from paritygate.models.onnx.weights import FLOAT

if TYPE_CHECKING:
    import onnx

_READ_AS_IS = "it makes no FP32 values itself and reads them unchanged"
_SIZES = "it computes with sizes of tensors, or positions in them, that the lower precision would round"
_CONSTANT, _SIZE = "constant", "size"
_BOOL = 9
_SIZE_OPERATORS = frozenset({"Shape", "Size"})
_BORDER = "values that cross the border of a subgraph stay FP32; the nodes inside are checked one by one"


class Value(Struct, eq=False):
    """A value that was FP32."""

    name: str  # its old name
    native: int = FLOAT  # the element type it is made in
    constant: onnx.TensorProto | onnx.NodeProto | None = None  # a tensor, or a node without computed inputs
    cast: onnx.NodeProto | None = None  # its Cast node, if that may make the lower precision instead
    pinned: int = 0  # the element type that keeps its name, for the model's inputs and outputs
    wanted: set[int] = field(default_factory=set)  # by readers
    names: dict[int, str] = field(default_factory=dict)  # by element type, once settled


class NodePlan(Struct, eq=False):
    """A node, the FP32 values it reads and makes, and the graphs inside it."""

    node: onnx.NodeProto
    reads: list[tuple[int, Value, int]] = field(default_factory=list)
    makes: list[tuple[int, Value]] = field(default_factory=list)
    inner: list[GraphPlan] = field(default_factory=list)
    reason: str = ""  # why it stays in FP32; empty for others and nodes without FP32

    @property
    def is_constant(self) -> bool:
        """Whether the node makes a constant."""
        return any(value.constant is self.node for _, value in self.makes)


class GraphPlan(Struct, eq=False):
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
    """Facts on the names in a graph and in those around it."""

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
        """Return the value of that name if it was FP32."""
        if name in self._own or self._outer is None:
            return self._values.get(name)
        return self._outer.value(name)

    def computes_sizes(self, node: onnx.NodeProto) -> bool:
        """Return whether the node only computes sizes of tensors, or positions in them; note its outputs.

        Values made of constants in a computed shape, such as a mask, are none of them.
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
    """Plans a whole model, whose graph has the types of its values.

    `kept` has reasons by the names of nodes that stay in FP32. `declared` has, for each graph in the order of
    `graphs_in`, the values whose types it must still have.
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
            # Its output's dtype is settled once the dtypes of its readers are known.
            return Support(low_inputs=frozenset({0}) if is_low else frozenset(), reason=_READ_AS_IS)
        inputs = [scope.element(name) for name in node.input]
        outputs = [scope.element(name) for name in node.output]
        support = support_of(node, inputs, outputs, opset=self._opset, dtype=self._dtype)
        # Rounding the inputs of a comparison or an index gains nothing.
        if support.reason or FLOAT in outputs or is_low:
            return support
        return Support(reason=_READ_AS_IS)


def _is_constant(node: onnx.NodeProto) -> bool:
    return node.domain in {"", "ai.onnx"} and node.op_type in {"Constant", "ConstantOfShape"}
