"""Match the nodes of two ONNX models by the values that they compute."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import force_setattr

from paritygate.errors import UsageError
from paritygate.validate.divergence.frontier import Frontier
from paritygate.validate.divergence.matching import Matching, check_feeds, match, pairs_of, sketches_of
from paritygate.validate.divergence.node_differences import Sides
from paritygate.validate.divergence.region import region_at
from paritygate.validate.tensors.inner_values import Feed
from paritygate.validate.tensors.meter import Meter
from paritygate.validate.tensors.onnx_values import read_tensor_graph
from paritygate.validate.tensors.tensor_graph import TensorGraph
from paritygate.validate.words.sentence import Words, render

if TYPE_CHECKING:
    import onnx


class GraphNode(Struct, frozen=True, kw_only=True):
    """A node that depends on the inputs, as its file names it."""

    name: str
    op_type: str
    outputs: tuple[str, ...]


class MatchedNode(Struct, frozen=True, kw_only=True):
    """A node of the first model, the node of the second that computes the same, and their largest relative error."""

    a: GraphNode
    b: GraphNode
    error: float


class FirstDivergence(Struct, frozen=True, kw_only=True):
    """The first node of the second model that reads equal values and computes another one; `what` renders `words`."""

    a: tuple[GraphNode, ...]
    b: tuple[GraphNode, ...]
    words: Words
    what: str = ""

    def __post_init__(self) -> None:
        force_setattr(self, "what", render(self.words))


class GraphDiff(Struct, frozen=True, kw_only=True):
    """The nodes that both models have, and those of one alone, in the order in which they run; constants are left out.

    Values within `tolerance` are equal; the error is relative to a value plus the root mean square of its tensor.
    """

    tolerance: float
    matched: tuple[MatchedNode, ...]
    only_in_a: tuple[GraphNode, ...]
    only_in_b: tuple[GraphNode, ...]
    first: FirstDivergence | None

    @property
    def is_equal(self) -> bool:
        """Whether each node of one model has a node in the other."""
        return not (self.only_in_a or self.only_in_b)


def graph_diff(a: Path, b: Path, feeds: Sequence[Feed], tolerance: float) -> GraphDiff:
    """Return the nodes of the two models that compute equal values, and the others.

    Args:
        a: An ONNX file.
        b: An ONNX file.
        feeds: Inputs by the names of `a`, for each batch.
        tolerance: The relative error of equal values.

    Raises:
        InputFileError: A file is not an ONNX model.
        UsageError: The feeds lack an input, or the models have different numbers of inputs.
        BackendError: ONNX Runtime cannot run one of the models.
    """
    first, second = (read_tensor_graph(path, Meter()) for path in (a, b))
    inputs = pairs_of(second.inputs, first.inputs)
    if inputs is None:
        msg = f"the models have different inputs (got {', '.join(second.inputs)}; expected {', '.join(first.inputs)})"
        raise UsageError(msg, hint="give two files of one model")
    check_feeds(first, feeds)
    own = [{name: feed[other] for name, other in inputs.items()} for feed in feeds]
    sketches = sketches_of(first, feeds, {}), sketches_of(second, own, {})
    of_first = match((first, second), sketches, [(other, name) for name, other in inputs.items()])
    of_second = match((second, first), (sketches[1], sketches[0]), inputs.items())
    return GraphDiff(
        tolerance=tolerance,
        matched=tuple(_matched(first, second, of_first, tolerance)),
        only_in_a=tuple(_node(node) for node in _unmatched(first, of_first, tolerance)),
        only_in_b=tuple(_node(node) for node in _unmatched(second, of_second, tolerance)),
        first=_first(first, second, (of_first, of_second), tolerance),
    )


def _node(node: onnx.NodeProto) -> GraphNode:
    return GraphNode(name=node.name, op_type=node.op_type, outputs=tuple(name for name in node.output if name))


def _outputs(graph: TensorGraph, node: onnx.NodeProto) -> list[str]:
    return [name for name in node.output if name and name not in graph.constants]


def _unmatched(graph: TensorGraph, matching: Matching, tolerance: float) -> list[onnx.NodeProto]:
    return [
        node for node in graph.nodes if any(not matching.matched(name, tolerance) for name in _outputs(graph, node))
    ]


def _matched(first: TensorGraph, second: TensorGraph, matching: Matching, tolerance: float) -> list[MatchedNode]:
    found = []
    left_out = {node.name for node in _unmatched(first, matching, tolerance)}
    for node in first.nodes:
        outputs = _outputs(first, node)
        if not outputs or node.name in left_out:
            continue
        partner = matching.partners[outputs[0]][0]
        other = _likeliest(node, second, matching.matched(outputs[0], tolerance))
        if other is not None:
            found.append(MatchedNode(a=_node(node), b=_node(other), error=partner.error))
    return found


def _likeliest(node: onnx.NodeProto, graph: TensorGraph, names: Sequence[str]) -> onnx.NodeProto | None:
    """Return the node that computes one of these tensors, best of the same operator; None if they are inputs."""
    nodes = [graph.producers[name] for name in names if name in graph.producers]
    return next((each for each in nodes if each.op_type == node.op_type), next(iter(nodes), None))


def _first(
    first: TensorGraph, second: TensorGraph, matchings: tuple[Matching, Matching], tolerance: float
) -> FirstDivergence | None:
    edges = [
        [node for node in _unmatched(graph, matching, tolerance) if _reads_matched(graph, node, matching, tolerance)]
        for graph, matching in zip((first, second), matchings, strict=True)
    ]
    if not edges[1]:
        return None
    sides = Sides(
        candidate=second, reference=first, partners=matchings[1], their_partners=matchings[0], tolerance=tolerance
    )
    region = region_at(edges[1][0], sides, Frontier(nodes=edges[0], visited=frozenset()))
    return FirstDivergence(
        a=tuple(_node(node) for node in region.reference),
        b=tuple(_node(node) for node in region.candidate),
        words=region.words,
    )


def _reads_matched(graph: TensorGraph, node: onnx.NodeProto, matching: Matching, tolerance: float) -> bool:
    return all(matching.matched(name, tolerance) for name in graph.data_inputs(node))
