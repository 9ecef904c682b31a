"""Describe the places of a result, each with the graphs around it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from paritygate.validate.divergence.matching import Matching
from paritygate.validate.divergence.region import Region
from paritygate.validate.divergence.result import PROVEN, DrawnNode, Located, Step, TensorPair
from paritygate.validate.tensors.tensor_graph import FRAMEWORKS, TensorGraph

if TYPE_CHECKING:
    import onnx

# Nodes of a place and around it that are drawn, and how far they are from it.
_DRAWN, _STEPS = 10, 3


def located_at(region: Region, certainty: str) -> Located:
    """Return a region as a place of the result."""
    return Located(
        candidate_nodes=tuple(node.name for node in region.candidate),
        reference_nodes=tuple(node.name for node in region.reference),
        op_types=tuple(node.op_type for node in region.candidate),
        reference_op_types=tuple(node.op_type for node in region.reference),
        reference_code=tuple(node.doc_string if node.domain in FRAMEWORKS else "" for node in region.reference),
        words=region.words,
        proven=certainty == PROVEN,
        certainty=certainty,
        reads=tuple(TensorPair(candidate=name, reference=other) for name, other in _reads(region)),
        makes=None if region.end is None else TensorPair(candidate=region.end[0], reference=region.end[1]),
    )


def _reads(region: Region) -> list[tuple[str, str]]:
    """Return the equal tensors that the nodes of either side read, each once; none if not all nodes are known."""
    pairs = dict.fromkeys((*region.inputs.items(), *(region.edges or ())))
    return list(pairs) if region.end is not None else []


def growth_of(graph: TensorGraph, partners: Matching) -> Iterator[Step]:
    """Yield how far each inner tensor is from its nearest partner."""
    for name in graph.inner():
        nearest = next(iter(partners.partners.get(name, ())), None)
        yield Step(
            tensor=name,
            node=graph.producers[name].name,
            partner=None if nearest is None else nearest.name,
            error=None if nearest is None else nearest.error,
        )


def with_graphs(place: Located, ours: TensorGraph, theirs: TensorGraph) -> Located:
    """Return a place with the nodes of both models there and around it."""
    return replace(
        place,
        candidate_graph=_drawn(ours, place.candidate_nodes, [pair.candidate for pair in place.reads]),
        reference_graph=_drawn(theirs, place.reference_nodes, [pair.reference for pair in place.reads]),
    )


def _drawn(graph: TensorGraph, names: Sequence[str], reads: Iterable[str]) -> tuple[DrawnNode, ...]:
    """Return the nodes of these names and the nearest ones, in order; without names, those around what is read."""
    here = set(names)
    front = [node for node in graph.nodes if node.name in here]
    if not front:
        tensors = [graph.layouts.get(name, name) for name in reads]
        made = [graph.producers[name] for name in tensors if name in graph.producers]
        front = made or [node for name in tensors for node in graph.readers(name)]
    shown = {node.name: node for node in front[:_DRAWN]}
    for _ in range(_STEPS):
        near = [each for node in front for each in _near(graph, node)]
        front = list({node.name: node for node in near if node.name not in shown}.values())[: _DRAWN - len(shown)]
        shown |= {node.name: node for node in front}
    return tuple(
        DrawnNode(
            name=node.name,
            op_type=node.op_type,
            reads=tuple(dict.fromkeys(each.name for each in _before(graph, node) if each.name in shown)),
            is_here=node.name in here,
        )
        for node in graph.nodes
        if node.name in shown
    )


def _near(graph: TensorGraph, node: onnx.NodeProto) -> list[onnx.NodeProto]:
    return [*_before(graph, node), *(reader for name in node.output for reader in graph.consumers.get(name, ()))]


def _before(graph: TensorGraph, node: onnx.NodeProto) -> list[onnx.NodeProto]:
    return [graph.producers[name] for name in graph.data_inputs(node) if name in graph.producers]
