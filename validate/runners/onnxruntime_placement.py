"""Finds which provider of ONNX Runtime runs which node: those that a GPU provider lacks go to the CPU silently.

Some go there on purpose, because shapes and indices are faster on the CPU. So a node on the CPU is judged by its
values: floats that depend on the model's inputs are an error.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from paritygate.models.onnx.functions import inline_functions
from paritygate.models.onnx.graph import NOT_A_TENSOR, element_types, infer_value_types, subgraphs_of

if TYPE_CHECKING:
    import onnx
    import onnxruntime

# They read the shape of a tensor, not its values.
_SHAPES_ALONE = frozenset({"Shape", "Size"})
# They run other nodes, which are judged themselves.
_CONTROL_FLOW = frozenset({"If", "Loop", "Scan", "SequenceMap"})
# They compute nothing anywhere.
_NEVER_FLOATS = _SHAPES_ALONE | _CONTROL_FLOW | {"MemcpyToHost", "MemcpyFromHost"}
_DEFAULT_DOMAINS = frozenset({"", "ai.onnx"})
_NAMED = 3


class GraphNode(Struct, frozen=True, kw_only=True):
    """A node of the file; `operator` has its domain and a dot before it unless that is the default.

    `computes_floats` is true if it takes or returns floats that depend on values of the model's inputs, not on their
    shapes alone. A value of unknown type counts as one.
    """

    operator: str
    name: str
    computes_floats: bool


class PlacedNode(Struct, frozen=True, kw_only=True):
    """A node of the session, with its provider."""

    provider: str
    operator: str
    name: str


class Placement(Struct, frozen=True, kw_only=True):
    """The places of a session's nodes: `counts` by provider, and nodes on the CPU by what they compute.

    `computing` nodes compute floats. `undecided` ones have no name, and some of their operator in the file compute
    floats. `arithmetic` counts those of shapes and indices.
    """

    counts: Mapping[str, int]
    computing: tuple[PlacedNode, ...]
    undecided: tuple[PlacedNode, ...]
    arithmetic: int


def placed_nodes(session: onnxruntime.InferenceSession) -> tuple[PlacedNode, ...] | None:
    """Return the nodes of a session by provider; None where this ONNX Runtime does not report them.

    The session has to be opened with `session.record_ep_graph_assignment_info` at 1.
    """
    if not hasattr(session, "get_provider_graph_assignment_info"):
        return None
    return tuple(
        PlacedNode(provider=part.ep_name, operator=_operator(node.domain, node.op_type), name=node.name)
        for part in session.get_provider_graph_assignment_info()
        for node in part.get_nodes()
    )


def nodes_of(model: onnx.ModelProto) -> tuple[GraphNode, ...]:
    """Return the nodes of a model, also inside of nodes and local functions; it inlines and infers types in place."""
    inline_functions(model)
    infer_value_types(model)
    return tuple(_Walk().through(model.graph, {value.name for value in model.graph.input}, {}))


def _operator(domain: str, operator: str) -> str:
    return operator if domain in _DEFAULT_DOMAINS else f"{domain}.{operator}"


class _Walk:
    """One walk over a graph in its order, in which every value comes before its users."""

    def through(
        self, graph: onnx.GraphProto, fed: Iterable[str], outer: Mapping[str, int], seen: set[str] | None = None
    ) -> Iterator[GraphNode]:
        """Yield the nodes of a graph.

        The values `fed` depend on the model's inputs from the start. `outer` are the types of the values around the
        graph. `seen` are all values that depend on the inputs; those of this graph are added.
        """
        types = {**outer, **element_types(graph)}
        fed = set(fed) - {tensor.name for tensor in graph.initializer}
        seen = set() if seen is None else seen
        seen |= fed
        for node in graph.node:
            operator = _operator(node.domain, node.op_type)
            is_fed = operator not in _SHAPES_ALONE and any(name in seen for name in node.input)
            inside: list[GraphNode] = []
            for inner in subgraphs_of(node):
                own = {value.name for value in inner.input} if is_fed else ()
                inside += self.through(inner, own, types, seen)
                is_fed = is_fed or any(value.name in seen for value in inner.output)
            if is_fed:
                seen.update(node.output)
            computes = is_fed and operator not in _CONTROL_FLOW and _has_floats(node, types, seen)
            yield GraphNode(operator=operator, name=node.name, computes_floats=computes)
            yield from inside


def _has_floats(node: onnx.NodeProto, types: Mapping[str, int], seen: set[str]) -> bool:
    values = [name for name in (*node.input, *node.output) if name and name in seen]
    return any(types.get(name, NOT_A_TENSOR) not in _exact_types() for name in values)


def _exact_types() -> frozenset[int]:
    from onnx import TensorProto

    names = ("BOOL", "INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64", "STRING")
    return frozenset(TensorProto.DataType.Value(name) for name in names)


def judge(
    placed: Sequence[PlacedNode],
    nodes: Sequence[GraphNode],
    *,
    cpu: str,
    optimised: Callable[[], Iterable[GraphNode]] = tuple,
) -> Placement:
    """Return where nodes run, and what those on the CPU compute.

    A node is found by operator and name in the file, or else in the graph that ONNX Runtime optimised (`optimised`,
    called only if needed). Of a shape of a transposed tensor, for example, it makes a `Gather` of a shape. Any other
    node is judged by the file's other nodes of its operator. If all or none compute floats, it does or does not. If
    some do, only as many can be harmless as the file has harmless ones. An operator that the file lacks is a merger of
    others, and counts as computing floats.
    """
    named = _by_name(nodes)
    here = [node for node in placed if node.provider == cpu and node.operator not in _NEVER_FLOATS]
    own = Counter(node.operator for node in here if (node.operator, node.name) not in named)
    if own:
        named = {**_by_name(optimised()), **named}
    matched = [node for node in here if (node.operator, node.name) in named]
    computing = [node for node in matched if named[node.operator, node.name]]
    undecided: list[PlacedNode] = []
    taken = {(node.operator, node.name) for node in placed}
    for operator, unknown in _by_operator(node for node in here if (node.operator, node.name) not in named).items():
        others = [
            node.computes_floats
            for node in nodes
            if node.operator == operator and (not node.name or (operator, node.name) not in taken)
        ]
        if others and not any(others):
            continue
        # A node found in the optimised graph may have been one of the harmless ones.
        harmless = max(0, others.count(False) - (own[operator] - len(unknown)))
        computing += unknown[harmless:]
        undecided += unknown[:harmless]
    return Placement(
        counts=Counter(node.provider for node in placed),
        computing=tuple(computing),
        undecided=tuple(undecided),
        arithmetic=sum(node.provider == cpu for node in placed) - len(computing) - len(undecided),
    )


def _by_name(nodes: Iterable[GraphNode]) -> dict[tuple[str, str], bool]:
    named: dict[tuple[str, str], bool] = {}
    for node in nodes:
        if node.name:
            key = node.operator, node.name
            named[key] = named.get(key, False) or node.computes_floats
    return named


def _by_operator(nodes: Iterable[PlacedNode]) -> dict[str, list[PlacedNode]]:
    groups: dict[str, list[PlacedNode]] = {}
    for node in nodes:
        groups.setdefault(node.operator, []).append(node)
    return groups


def say_nodes(nodes: Iterable[PlacedNode]) -> str:
    """Return the operators of nodes with their count and first names, the most frequent first."""
    parts = []
    for operator, some in sorted(_by_operator(nodes).items(), key=lambda item: (-len(item[1]), item[0])):
        names = [node.name for node in some if node.name]
        more = ", ..." if len(names) > _NAMED else ""
        parts.append(f"{len(some)} {operator}" + (f" ({', '.join(names[:_NAMED])}{more})" if names else ""))
    return ", ".join(parts)
