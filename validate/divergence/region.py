"""Describe the nodes of each model at the place where the two part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from paritygate.validate.divergence.frontier import Frontier
from paritygate.validate.divergence.matching import Matching
from paritygate.validate.divergence.tensor_graph import TensorGraph, reads_of
from paritygate.validate.divergence.weights import constants_of, difference
from paritygate.validate.words.sentence import Words, joined, say

if TYPE_CHECKING:
    import onnx


@dataclass(frozen=True, kw_only=True, slots=True)
class Region:
    """Hold a place at which the candidate parts from the reference.

    `reference` has its nodes between the same tensors; it is empty where the candidate has one too many. `start` has
    the shared tensors, each by the candidate's name and the reference's. `is_clear` means that the files show the
    difference.
    """

    candidate: Sequence[onnx.NodeProto]
    reference: Sequence[onnx.NodeProto]
    start: Sequence[tuple[str, str]]
    words: Words
    is_clear: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class Sides:
    """Both graphs, and the partners of the tensors of each in the other, within one tolerance."""

    candidate: TensorGraph
    reference: TensorGraph
    partners: Matching
    tolerance: float

    def start_of(self, node: onnx.NodeProto) -> list[tuple[str, str]]:
        """Return each data input of the candidate's node with its partners in the reference."""
        return [
            (name, other)
            for name in self.candidate.data_inputs(node)
            for other in self.partners.matched(name, self.tolerance)
        ]


def region_at(node: onnx.NodeProto, sides: Sides, reference_frontier: Frontier) -> Region:
    """Return what the candidate has at a node of its frontier, and what the reference has there."""
    start = sides.start_of(node)
    shared = {other for _, other in start}
    same = [each for each in _readers(sides.reference, shared) if each.op_type == node.op_type]
    parted = [each for each in reference_frontier.nodes if shared.intersection(reads_of(each))]
    # Several nodes of one operator may read the same tensor, such as queries and keys: the most similar is the partner.
    alike = [each for each in parted if each.op_type == node.op_type] or same
    found = ((_differences_of_nodes(node, each, sides), each) for each in sorted(alike, key=lambda each: each.name))
    for differences, other in sorted(found, key=lambda item: len(item[0])):
        if differences:
            return Region(candidate=[node], reference=[other], start=start, words=joined(differences, "; "))
    if not parted:
        words = say("divergence.no_partner", operator=node.op_type)
        return Region(candidate=[node], reference=[], start=start, words=words, is_clear=False)
    first = parted[0]
    other_operator = say("divergence.operator", operator=node.op_type, other_operator=first.op_type)
    if _following(node, sides.candidate) == _following(first, sides.reference) and node.op_type != first.op_type:
        return Region(candidate=[node], reference=[first], start=start, words=other_operator)
    lost = _until(first, node.op_type, sides.reference)[:-1]
    if lost:
        words = say("divergence.lost", operators=[each.op_type for each in lost], operator=node.op_type)
        return Region(candidate=[node], reference=lost, start=start, words=words)
    added = _until(node, first.op_type, sides.candidate)[:-1]
    if added:
        words = say("divergence.added", operators=[each.op_type for each in added], operator=first.op_type)
        return Region(candidate=added, reference=[], start=start, words=words)
    is_clear = first.op_type != node.op_type
    words = other_operator if is_clear else say("divergence.equal_nodes", operator=node.op_type)
    return Region(candidate=[node], reference=[first], start=start, words=words, is_clear=is_clear)


def _following(node: onnx.NodeProto, graph: TensorGraph) -> list[str]:
    """Return the operators that read the node's outputs."""
    return sorted(each.op_type for name in node.output for each in graph.consumers.get(name, ()))


# So many nodes are followed in search of an operator that one side lacks.
_STEPS = 3


def _until(node: onnx.NodeProto, op_type: str, graph: TensorGraph) -> list[onnx.NodeProto]:
    """Return the nodes from this one to the next of the operator, along single readers; empty if there is none near."""
    chain = [node]
    for _ in range(_STEPS):
        readers = [each for name in chain[-1].output for each in graph.consumers.get(name, ())]
        if not readers:
            return []
        following = next((each for each in readers if each.op_type == op_type), readers[0])
        chain.append(following)
        if following.op_type == op_type:
            return chain
    return []


def _readers(graph: TensorGraph, names: set[str]) -> list[onnx.NodeProto]:
    return [node for node in graph.nodes if names.intersection(reads_of(node))]


def _differences_of_nodes(node: onnx.NodeProto, other: onnx.NodeProto, sides: Sides) -> list[Words]:
    """Return how two nodes of one operator differ in attributes, constants and inputs, one sentence each."""
    ours, theirs = _attributes(node, sides.candidate), _attributes(other, sides.reference)
    words = [
        say("divergence.attribute", name=name, candidate=_shown(ours.get(name)), reference=_shown(theirs.get(name)))
        for name in sorted(ours.keys() | theirs.keys())
        if ours.get(name) != theirs.get(name)
    ]
    mine, wanted = constants_of(sides.candidate, node), constants_of(sides.reference, other)
    for at in sorted(mine.keys() & wanted.keys()):
        change = difference(mine[at], wanted[at])
        if change:
            words.append(say("divergence.constant", number=at, input=node.input[at], difference=change))
    for at, (name, wanted_name) in enumerate(zip(node.input, other.input, strict=False)):
        is_constant, is_wanted_constant = name in sides.candidate.constants, wanted_name in sides.reference.constants
        partners = sides.partners.matched(name, sides.tolerance)
        if name and wanted_name and is_constant != is_wanted_constant:
            key = "divergence.is_constant" if is_constant else "divergence.is_computed"
            words.append(say(key, number=at, input=name))
        elif not is_constant and partners and wanted_name not in partners:
            words.append(say("divergence.other_input", number=at, input=name))
    return words


def _attributes(node: onnx.NodeProto, graph: TensorGraph) -> dict[str, Any]:
    """Return the attributes of the node, defaults of its operator included, without graphs and tensors."""
    import onnx

    version = next((item.version for item in graph.model.opset_import if item.domain == node.domain), 0)
    values: dict[str, Any] = {}
    try:
        schema = onnx.defs.get_schema(node.op_type, version, node.domain)
    except onnx.defs.SchemaError:
        schema = None
    for name, attribute in () if schema is None else schema.attributes.items():
        if attribute.default_value.name:
            values[name] = onnx.helper.get_attribute_value(attribute.default_value)
    for item in node.attribute:
        if item.type not in {item.GRAPH, item.GRAPHS, item.TENSOR, item.TENSORS}:
            values[item.name] = onnx.helper.get_attribute_value(item)
    return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}


def _shown(value: Any) -> str:  # noqa: ANN401 - the value of an attribute
    if value is None:
        return "not set"
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(list(value)) if isinstance(value, tuple) else str(value)
