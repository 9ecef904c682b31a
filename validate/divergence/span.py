"""Find what two models of different frameworks have between tensors that both compute.

One operator of a framework is several of another: `layer_norm` is nine nodes of an export. So the two
tensors of one meaning are looked for by runs of the candidate with the reference's values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from paritygate.validate.divergence.forcing import Forcing
from paritygate.validate.divergence.matching import Matching
from paritygate.validate.divergence.node_differences import Sides
from paritygate.validate.divergence.operators import Difference, are_alike, attributes_that_differ, epsilon_that_differs
from paritygate.validate.divergence.region import Region
from paritygate.validate.divergence.sketch import Sketch, error_between
from paritygate.validate.divergence.span_weights import weights_that_differ
from paritygate.validate.tensors.tensor_graph import TensorGraph
from paritygate.validate.words.sentence import Words, joined, say

if TYPE_CHECKING:
    import onnx

# What is left of an error of which a place is the cause, and how much better a later one has to be.
_LEFT, _FAR_BETTER, _RIGHT = 0.1, 0.1, 5e-5
# Nodes after the place at which the models part, on either side.
_OURS, _THEIRS = 16, 12


class Spans(Struct, frozen=True, kw_only=True):
    """Both models, the candidate's sketches and the reference's, and the reference's nodes at which it parts."""

    sides: Sides
    sketches: tuple[Mapping[str, Sketch], Mapping[str, Sketch]]
    behind: Sequence[onnx.NodeProto]

    def pairs(self, region: Region) -> Iterator[tuple[str, str]]:
        """Yield tensors of the candidate and of the reference that may have one meaning, in its order."""
        ours, theirs = self.sketches
        shared = list(dict.fromkeys(other for _, other in region.start))
        names = {each.name for name in shared for each in self.sides.reference.readers(name)}
        names |= {each.name for each in self.behind}
        behind = [node for node in self.sides.reference.nodes if node.name in names]
        near = self._after(self.sides.reference, self.sides.their_partners, behind, _THEIRS)
        for name in self._after(self.sides.candidate, self.sides.partners, region.candidate[:1], _OURS):
            fitting = [other for other in near if other in theirs and theirs[other].key == ours[name].key]
            nearest = sorted(fitting, key=lambda other: error_between(ours[name], theirs[other]))[:1]
            # Where the candidate has a node too many, its output has to be what it reads.
            before = [other for other in shared if theirs[other].key == ours[name].key]
            yield from ((name, other) for other in dict.fromkeys([*fitting[:2], *nearest, *before[:1]]))

    def region(self, region: Region, name: str, other: str, rank: int | None) -> Region:
        """Return the nodes of both models up to these two tensors, and how they differ; `rank` is the first one's."""
        ours = self._until(self.sides.candidate, self.sides.partners, name)
        # A tensor that the place reads is made before it.
        is_read = any(other == each for _, each in region.start)
        theirs = [] if is_read else self._until(self.sides.reference, self.sides.their_partners, other)
        sides = self.sides
        made = {each for node in theirs for each in node.output}
        read = dict.fromkeys(each for node in theirs for each in sides.reference.data_inputs(node) if each not in made)
        pairs = [
            (partner, each) for each in read for partner in sides.their_partners.matched(each, sides.tolerance)[:1]
        ]
        start = tuple(dict.fromkeys(pair for node in ours for pair in sides.start_of(node)))
        place = replace(region, start=start, end=(name, other), edges=pairs)
        both = (sides.candidate, ours), (sides.reference, theirs)
        attributes = attributes_that_differ(*both, rank) or epsilon_that_differs(*both)
        differences = [*weights_that_differ(*both), *attributes]
        if differences:
            return self._of_some(place, ours, theirs, differences)
        words, is_clear = _difference(ours, theirs)
        return replace(place, candidate=ours, reference=theirs, words=words, is_clear=is_clear)

    def _of_some(
        self,
        place: Region,
        ours: Sequence[onnx.NodeProto],
        theirs: Sequence[onnx.NodeProto],
        found: Sequence[Difference],
    ) -> Region:
        """Return the place with the nodes that show a difference; its `rest` has the others that forcing corrects too.

        The nodes of one operator of the reference are named together.
        """
        nodes = list({each.node.name: each.node for each in found}.values())
        partners = list({other.name: other for each in found for other in each.others}.values())
        words = joined([each.words for each in found], "; ")
        # Two sets, because a node of one model may have the name of another node of the other.
        shown, theirs_shown = {each.name for each in nodes}, {each.name for each in partners}
        others = [each for each in ours if each.name not in shown]
        if len(theirs) == 1 or not others:
            return replace(place, candidate=[*nodes, *others], reference=partners, words=words)
        first = list({other: name for name, other in place.start}.values()) or self.sides.candidate.inputs
        more = say("divergence.not_alone", names=first, end=place.end[0] if place.end else "")
        rest = Region(
            candidate=others, reference=[each for each in theirs if each.name not in theirs_shown], words=more
        )
        constants = [each.constant for each in found]
        # Constants alone prove nothing of a node that differs in an attribute.
        right = {} if None in constants else dict(each for each in constants if each is not None)
        return replace(place, candidate=nodes, reference=partners, words=words, rest=rest, constants=right)

    def force(self, regions: Sequence[Region], forcing: Forcing, before: float) -> dict[str, Region]:
        """Force the place that explains most of the error alone, else all of them; return those by forced tensor."""
        added: dict[str, Region] = {}
        pairs: dict[str, str] = {}
        for region in regions:
            name, other, left = self._best(region, forcing)
            if name in forcing.forced or not other:
                continue
            found = self.region(region, name, other, forcing.rank_of(name))
            if left <= _LEFT * before:
                forcing.forced[name] = other
                return {name: found}
            pairs[name], added[name] = other, found
        forcing.forced.update(pairs)
        return added

    def _best(self, region: Region, forcing: Forcing) -> tuple[str, str, float]:
        """Return the first two tensors of one meaning, and the error that is left."""
        best = "", "", float("inf")
        pairs = list(self.pairs(region))
        forcing.prepare(pairs)
        for name, other in pairs:
            left = forcing.error_with({**forcing.forced, name: other})
            # Tensors after the place correct the outputs as well, so only a far smaller error outweighs the first.
            if left < (_FAR_BETTER * best[2] if best[0] else float("inf")):
                best = name, other, left
            if left <= _RIGHT:
                break
        return best

    def _after(self, graph: TensorGraph, matching: Matching, nodes: Sequence[onnx.NodeProto], most: int) -> list[str]:
        """Return the outputs of these nodes and of those that follow, as far as they have no partner."""
        names = {node.name: None for node in nodes}
        found: list[str] = []
        waiting = list(nodes)
        order = {node.name: at for at, node in enumerate(graph.nodes)}
        while waiting and len(names) <= most + len(nodes):
            waiting.sort(key=lambda node: order[node.name])
            node = waiting.pop(0)
            own = [each for each in node.output if each in matching.sketches]
            own = [each for each in own if not matching.matched(each, self.sides.tolerance)]
            found += [other for each in own for other in graph.layouts_of(each)]
            readers = [reader for each in own for reader in graph.consumers.get(each, ()) if reader.name not in names]
            names.update({reader.name: None for reader in readers})
            waiting += {reader.name: reader for reader in readers}.values()
        return found

    def _until(self, graph: TensorGraph, matching: Matching, name: str) -> list[onnx.NodeProto]:
        names: set[str] = set()
        waiting = [name]
        while waiting:
            tensor = waiting.pop()
            node = graph.producers.get(graph.layouts.get(tensor, tensor))
            if node is None or node.name in names:
                continue
            names.add(node.name)
            before = [each for each in graph.data_inputs(node) if not matching.matched(each, self.sides.tolerance)]
            # The shape of a tensor is often computed otherwise.
            floats = [each for each in before if each in matching.sketches and matching.sketches[each].kind == "f"]
            waiting += floats or before
        return [node for node in graph.nodes if node.name in names]


def _difference(ours: Sequence[onnx.NodeProto], theirs: Sequence[onnx.NodeProto]) -> tuple[Words, bool]:
    """Return how the nodes differ, and whether it shows in their operators: several may only be written otherwise."""
    mine, wanted = ([node.op_type for node in nodes] for nodes in (ours, theirs))
    if not wanted:
        return say("divergence.added_here", operators=mine), True
    if len(mine) == len(wanted) == 1 and not are_alike(mine[0], wanted[0]):
        return say("divergence.operator", operator=mine[0], other_operator=wanted[0]), True
    return say("divergence.other_values", operators=mine, other_operators=wanted), False
