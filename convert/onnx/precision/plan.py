"""Decides for every node and value of a model in which dtype it is computed; nothing is changed yet.

One pass in the order of the graph settles which nodes compute in the lower precision and in which dtype
each value is made. Nodes that the caller names stay in FP32. Along the way every reader says in which dtype
it wants a value; `writing` then makes each wanted dtype once.

What crosses the border of a subgraph (the outputs of a branch, what a loop carries) stays FP32: a
node inside that is kept in FP32 would otherwise be fed rounded values.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING, NoReturn

from paritygate.convert.onnx.precision.low_dtype import FLOAT, LowDtype, Support, support_of
from paritygate.errors import UsageError
from paritygate.models.onnx.graph import element_types, nodes_in, subgraphs_of

if TYPE_CHECKING:
    import onnx

_READ_AS_IS = "it makes no FP32 values of its own and reads them as they are"
_SIZES = "it computes with sizes of tensors, or positions in them, that the lower precision would round"
_CONSTANT, _SIZE = "constant", "size"
_BOOL = 9
_SIZE_OPERATORS = frozenset({"Shape", "Size"})
_BORDER = "what crosses the border of a subgraph stays FP32; the nodes inside are looked at one by one"


@dataclass(frozen=True, kw_only=True, slots=True)
class Keeping:
    """Which nodes stay in FP32, with all that is inside them.

    Attributes:
        names: Names of nodes as the model has them now.
        operators: Operators, each meaning all its nodes.
        unasked: Names of nodes that stay so without being asked for, each with the reason.
    """

    names: frozenset[str] = frozenset()
    operators: frozenset[str] = frozenset()
    unasked: Mapping[str, str] = field(default_factory=dict)

    def asked(self, node: onnx.NodeProto) -> str:
        """Return by what the node was asked to be kept, as a part of a sentence; empty if it was not."""
        if node.name in self.names:
            return "kept as asked, by its name"
        if node.op_type in self.operators:
            return "kept as asked, by its operator"
        return ""


def keeping_of(
    graph: onnx.GraphProto,
    names: Collection[str],
    operators: Collection[str],
    *,
    renamed: Mapping[str, str],
    origins: Mapping[str, tuple[str, ...]],
) -> Keeping:
    """Return what the caller's names mean in the graph.

    A name means the nodes that have it, or had it before those that shared it got names of their own;
    else those inside the function call of that name; else those that have it inside their function.

    Args:
        graph: The graph, its nodes named and its functions inlined.
        names: Names of nodes.
        operators: Operators such as `Softmax`, of any domain.
        renamed: The name a node had, by the one it has now, as `name_nodes` says.
        origins: As `inline_functions` says.

    Raises:
        UsageError: The graph has no such node or operator.
    """
    there = {node.name for node in nodes_in(graph)}
    calls: dict[str, set[str]] = {}
    bodies: dict[str, set[str]] = {}
    before: dict[str, set[str]] = {}
    for name, old in renamed.items():
        before.setdefault(old, {old} & there).add(name)
    for name, (*outer, own) in origins.items():
        if name in there:
            for call in outer:
                calls.setdefault(call, set()).add(name)
            bodies.setdefault(own, set()).add(name)
    found: set[str] = set()
    for name in names:
        meant = before.get(name) or {name} & there or calls.get(name) or bodies.get(name)
        if not name or not meant:
            _refuse("node", name, there | calls.keys())
        found |= meant
    known = {node.op_type for node in nodes_in(graph)}
    for operator in operators:
        if operator not in known:
            _refuse("operator", operator, known)
    return Keeping(names=frozenset(found), operators=frozenset(operators))


def _refuse(what: str, name: str, known: Collection[str]) -> NoReturn:
    near = get_close_matches(name, known, n=3)
    hint = f"did you mean {' or '.join(near)}?" if near else f"name one of the model's {what}s exactly as it has it"
    msg = f"the model has no {what} {name!r} to keep in fp32"
    raise UsageError(msg, hint=hint)


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
        keeping: The nodes that stay in FP32.
        opset: Version of the default operator set.
        keep_io: Whether the model's inputs and outputs stay FP32.
        declared: For each graph of the model, in the order of `graphs_in`, the values whose types it
            has to say still.
    """

    def __init__(
        self, *, dtype: LowDtype, keeping: Keeping, opset: int, keep_io: bool, declared: Iterable[frozenset[str]]
    ) -> None:
        self._dtype = dtype
        self._keeping = keeping
        self._opset = opset
        self._keep_io = keep_io
        self._declared = iter(declared)

    def plan(self, graph: onnx.GraphProto) -> GraphPlan:
        """Return the plan of the model's graph."""
        plan = self._graph(graph, None, "", FLOAT if self._keep_io else self._dtype.element)
        for value in graph.input:
            if value.name in plan.values:
                plan.values[value.name].pinned = plan.values[value.name].native
        for _, output, element in plan.outputs:
            output.pinned = element
        return plan

    def _graph(self, graph: onnx.GraphProto, outer: _Scope | None, reason: str, border: int) -> GraphPlan:
        """Plan a graph whose FP32 inputs and outputs have the element type `border`."""
        plan = GraphPlan(graph=graph, declared=next(self._declared))
        scope = _Scope(graph, plan.values, outer)
        for item in graph.input:
            if scope.element(item.name) == FLOAT:
                plan.values[item.name] = Value(name=item.name, native=border)
        for tensor in graph.initializer:
            if tensor.data_type == FLOAT:
                plan.values[tensor.name] = Value(name=tensor.name, constant=tensor)
        for node in graph.node:
            plan.nodes.append(self._node(node, scope, plan.values, reason))
        for position, item in enumerate(graph.output):
            value = scope.value(item.name)
            if value is not None:
                value.wanted.add(border)
                plan.outputs.append((position, value, border))
        return plan

    def _node(self, node: onnx.NodeProto, scope: _Scope, values: dict[str, Value], reason: str) -> NodePlan:
        reason = reason or self._keeping.asked(node)
        step = NodePlan(node=node)
        for inner in subgraphs_of(node):
            step.inner.append(self._graph(inner, scope, reason, FLOAT))
        computes_sizes = scope.computes_sizes(node)
        reads = [(position, value) for position, name in enumerate(node.input) if (value := scope.value(name))]
        makes = [position for position, name in enumerate(node.output) if name and scope.element(name) == FLOAT]
        if not reads and not makes:
            return step
        if makes and _is_constant(node):
            values[node.output[0]] = Value(name=node.output[0], constant=node)
            step.makes.append((0, values[node.output[0]]))
            return step
        if computes_sizes and node.op_type != "Cast":
            reason = reason or _SIZES
        reason = reason or self._keeping.unasked.get(node.name, "")
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
