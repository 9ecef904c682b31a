"""Describe the nodes of each model at the place where the two part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field
from msgspec.structs import replace

from paritygate.validate.divergence.frontier import Frontier
from paritygate.validate.divergence.node_differences import Sides, differences_of_nodes
from paritygate.validate.divergence.same_values import constant_words, passed_on, passing_before
from paritygate.validate.tensors.tensor_graph import TensorGraph, reads_of
from paritygate.validate.words.sentence import Words, joined, say

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

# More nodes of the reference are no place.
_MOST_NODES = 12


class Region(Struct, frozen=True, kw_only=True):
    """Hold a place at which the candidate parts from the reference.

    `reference` has its nodes between the same tensors; it is empty where the candidate has one too many. `start` has
    the shared tensors, each by the candidate's name and the reference's. `is_clear` means that the files show the
    difference. `end` is the tensor that is forced, and the reference's in its place. `edges` are the tensors that the
    reference reads here, each by the candidate's name and its own; None if not all nodes are known. `rest` has
    the other nodes that `end` corrects, which may be wrong as well; `constants` are the right values of those here.
    """

    candidate: Sequence[onnx.NodeProto]
    reference: Sequence[onnx.NodeProto]
    words: Words
    start: Sequence[tuple[str, str]] = ()
    is_clear: bool = True
    end: tuple[str, str] | None = None
    edges: Sequence[tuple[str, str]] | None = None
    rest: Region | None = None
    constants: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    @property
    def read(self) -> set[str]:
        """The reference's tensors that it reads here, or that is replaced."""
        return {other for _, other in [*(self.edges or ()), *([self.end] if self.end else [])]}

    @property
    def inputs(self) -> dict[str, str]:
        """The reference's tensor for each shared one of the candidate: best one that the reference reads here."""
        likeliest = sorted(self.start, key=lambda pair: pair[1] not in self.read)
        return dict(reversed(likeliest))


def region_at(node: onnx.NodeProto, sides: Sides, reference_frontier: Frontier) -> Region:
    """Return what the candidate has at a node of its frontier, and what the reference has there."""
    start = sides.start_of(node)
    shared = {other for _, other in start}
    same = [each for each in _readers(sides.reference, shared) if _are_comparable(each, node)]
    parted = [each for each in reference_frontier.nodes if shared.intersection(reads_of(each))]
    # Several nodes of one operator may read the same tensor, such as queries and keys: the most similar is the partner.
    alike = [each for each in parted if _are_comparable(each, node)] or same
    found = ((differences_of_nodes(node, each, sides), each) for each in sorted(alike, key=lambda each: each.name))
    for differences, other in sorted(found, key=lambda item: len(item[0])):
        if differences:
            region = Region(candidate=[node], reference=[other], start=start, words=joined(differences, "; "))
            return _other_input_before(node, other, sides) or region
    if not parted:
        words = say("divergence.no_partner", operator=node.op_type)
        return Region(candidate=[node], reference=[], start=start, words=words, is_clear=False)
    return _neutral_here(node, parted, sides) or _of_other_operators(node, parted[0], sides)


def _are_comparable(node: onnx.NodeProto, other: onnx.NodeProto) -> bool:
    return node.op_type == other.op_type and node.domain == other.domain


def _neutral_here(node: onnx.NodeProto, parted: Sequence[onnx.NodeProto], sides: Sides) -> Region | None:
    """Return the node before this one that only here passes on its input, such as an addition of 0."""
    for passing in passing_before(node, sides.candidate, sides.partners.sketches):
        for other in (each for each in parted if each.op_type == passing.op_type):
            differences = differences_of_nodes(passing, other, sides)
            if differences:
                words = joined(differences, "; ")
                return Region(candidate=[passing], reference=[other], start=sides.start_of(passing), words=words)
    return None


def _other_input_before(node: onnx.NodeProto, other: onnx.NodeProto, sides: Sides) -> Region | None:
    """Return the node before this one that reads another tensor than its partner, and passes it on."""
    for name, wanted in zip(node.input, other.input, strict=False):
        passing, partner = sides.candidate.producers.get(name), sides.reference.producers.get(wanted)
        is_other = name not in sides.candidate.constants and wanted not in sides.partners.matched(name, sides.tolerance)
        if not is_other or passing is None or partner is None or passing.op_type != partner.op_type:
            continue
        differences = differences_of_nodes(passing, partner, sides)
        if differences and passed_on(passing, sides.candidate, sides.partners.sketches) is not None:
            words = joined(differences, "; ")
            return Region(candidate=[passing], reference=[partner], start=sides.start_of(passing), words=words)
    return None


def _of_other_operators(node: onnx.NodeProto, first: onnx.NodeProto, sides: Sides) -> Region:
    start = sides.start_of(node)
    other_operator = say("divergence.operator", operator=node.op_type, other_operator=first.op_type)
    if _following(node, sides.candidate) == _following(first, sides.reference) and node.op_type != first.op_type:
        return Region(candidate=[node], reference=[first], start=start, words=other_operator)
    lost = _until(first, node.op_type, sides.reference)[:-1]
    if lost:
        return Region(candidate=[node], reference=lost, start=start, words=_lost(lost, node, sides))
    added = _until(node, first.op_type, sides.candidate)[:-1]
    if added:
        words = constant_words(added, sides.candidate, is_candidate=True) or say(
            "divergence.added", operators=[each.op_type for each in added], operator=first.op_type
        )
        return Region(candidate=added, reference=[], start=start, words=words)
    is_clear = first.op_type != node.op_type
    words = other_operator if is_clear else say("divergence.equal_nodes", operator=node.op_type)
    return Region(candidate=[node], reference=[first], start=start, words=words, is_clear=is_clear)


def _lost(nodes: Sequence[onnx.NodeProto], before: onnx.NodeProto, sides: Sides) -> Words:
    return constant_words(nodes, sides.reference, is_candidate=False) or say(
        "divergence.lost", operators=[each.op_type for each in nodes], operator=before.op_type
    )


def whole_region(region: Region, end: str, stand_in: str, sides: Sides) -> Region:
    """Return the region with all nodes of the reference from shared tensors to the one that is forced.

    Nodes that pass on the values of their input are never named.
    """
    behind = _unmatched_behind(stand_in, sides)
    # A tensor that the candidate has too, and that is not read here, shows nothing of the nodes here.
    if behind is None or not (behind or stand_in in {other for _, other in region.start}):
        return region
    made = {name for node in behind for name in node.output}
    read = dict.fromkeys(name for node in behind for name in sides.reference.data_inputs(node) if name not in made)
    theirs = sides.their_partners
    edges = [(partner, name) for name in read for partner in theirs.matched(name, sides.tolerance)[:1]]
    region = replace(region, end=(end, stand_in), edges=edges)
    sketches = sides.their_partners.sketches
    nodes = [node for node in behind if passed_on(node, sides.reference, sketches) is None]
    if {node.name for node in nodes} == {node.name for node in region.reference}:
        return region
    last = region.candidate[-1]
    if not nodes:
        words = constant_words(region.candidate, sides.candidate, is_candidate=True) or say(
            "divergence.no_partner", operator=last.op_type
        )
        return replace(region, reference=[], words=words)
    if nodes[-1].op_type != last.op_type or len(region.candidate) > 1:
        words = say(
            "divergence.operator",
            operator=[node.op_type for node in region.candidate],
            other_operator=[node.op_type for node in nodes],
        )
        return replace(region, reference=nodes, words=words, is_clear=True)
    return _of_one_operator(region, nodes, behind, sides)


def _of_one_operator(
    region: Region, nodes: Sequence[onnx.NodeProto], behind: Sequence[onnx.NodeProto], sides: Sides
) -> Region:
    """Return the region of one node, and of nodes of the reference that end in one of its operator.

    `behind` has those too that pass on values.
    """
    node, lost = region.candidate[0], nodes[:-1]
    differences = differences_of_nodes(node, nodes[-1], sides)
    if not lost:
        words = joined(differences, "; ") or say("divergence.equal_nodes", operator=node.op_type)
        return replace(region, reference=nodes, words=words, is_clear=bool(differences))
    made = {name for each in behind for name in each.output}
    read = {name for each in behind if each is not nodes[-1] for name in reads_of(each)}
    # Where the candidate reads what the lost nodes read, that input is no other one.
    if any(other in read for _, other in region.start):
        others = [name if name not in made else "" for name in nodes[-1].input]
        differences = differences_of_nodes(node, nodes[-1], sides, others)
    words = joined([_lost(lost, node, sides), *differences], "; ")
    return replace(region, reference=nodes if differences else lost, words=words, is_clear=True)


def merged(regions: Sequence[Region]) -> list[Region]:
    """Return the regions, as one where several nodes lack the same nodes of the reference before them."""
    groups: dict[tuple[object, ...], list[Region]] = {}
    for region in regions:
        lacks = len(region.words) == 1 and region.words[0].key in {"divergence.lost", "divergence.constant_there"}
        names = tuple(node.name for node in region.reference)
        groups.setdefault(names if lacks else (id(region),), []).append(region)
    return [each[0] if len(each) == 1 else _as_one(each) for each in groups.values()]


def _as_one(regions: Sequence[Region]) -> Region:
    nodes = [node for region in regions for node in region.candidate]
    words = regions[0].words
    if words[0].key == "divergence.lost":
        operators = [node.op_type for node in regions[0].reference]
        words = say("divergence.lost", operators=operators, operator=sorted({node.op_type for node in nodes}))
    return replace(regions[0], candidate=nodes, words=words)


def with_same_nodes(region: Region, sides: Sides) -> Region:
    """Return a region of what the candidate lacks as the nodes of equal names that differ, if it has them after all.

    A mask of zeros passes on values, as if its nodes were lost. Names alone show nothing, as numbers may be names.
    """
    if region.words[0].key not in {"divergence.lost", "divergence.constant_there"}:
        return region
    named = {node.name: node for node in region.reference}
    pairs = [(each, named[each.name]) for each in sides.candidate.nodes if each.name in named]
    if len(pairs) < len(named) or not all(_are_comparable(*pair) for pair in pairs):
        return region
    changed = [(*pair, words) for pair in pairs if (words := differences_of_nodes(*pair, sides))]
    if len(changed) != 1:
        return region
    node, other, words = changed[0]
    start = [pair for pair in sides.start_of(node) if pair[1] in reads_of(other)]
    end = (node.output[0], other.output[0])
    here = Region(candidate=[node], reference=[other], words=joined(words, "; "), start=start, end=end)
    return here if start else region


def _unmatched_behind(name: str, sides: Sides) -> list[onnx.NodeProto] | None:
    """Return the reference's nodes from shared tensors to this one, in order; None if they are many."""
    waiting, found = [name], set[str]()
    while waiting:
        tensor = waiting.pop()
        node = sides.reference.producers.get(tensor)
        if node is None or node.name in found or sides.their_partners.matched(tensor, sides.tolerance):
            continue
        found.add(node.name)
        if len(found) > _MOST_NODES:
            return None
        waiting += sides.reference.data_inputs(node)
    return [node for node in sides.reference.nodes if node.name in found]


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
