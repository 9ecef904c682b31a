"""Prove that places of the candidate, and nothing else in it, make its outputs differ."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from paritygate.validate.divergence.forcing import Forcing
from paritygate.validate.divergence.region import Region
from paritygate.validate.divergence.same_values import passed_on
from paritygate.validate.divergence.sketch import Sketch, error_between, sketch_of
from paritygate.validate.tensors.inner_values import Feed, read_inner
from paritygate.validate.tensors.meter import BudgetSpentError
from paritygate.validate.tensors.tensor_graph import TensorGraph


class Proof:
    """Proves places by runs of the candidate.

    The places are proven if three things hold. The outputs agree once the reference's values are put in all of them,
    and nowhere else. What they read is right then. And none of them computes the reference's values from the
    reference's inputs, so each is wrong by itself.
    """

    def __init__(
        self,
        graph: TensorGraph,
        feeds: Sequence[Feed],
        forcing: Forcing,
        sketches: tuple[Mapping[str, Sketch], Mapping[str, Sketch]],
        limits: tuple[float, float],
    ) -> None:
        """Take the candidate, its feeds, both models' sketches, and the limits of outputs and of inner tensors."""
        self._graph, self._feeds, self._forcing = graph, feeds, forcing
        self._sketches, self._wanted = sketches
        self._limit, self._inner_limit = limits

    def needed(self, forced: Mapping[str, str], places: Mapping[str, Region]) -> dict[str, str]:
        """Return the forced tensors without those that need not be forced.

        Forcing a place hides what is wrong before it, so what the other places read must be right as well.
        """
        needed = dict(forced)
        for name in list(needed):
            others = {each: other for each, other in needed.items() if each != name}
            if others and self._is_right(others, [places[each] for each in others]):
                needed = others
        return needed

    def holds(self, forced: Mapping[str, str], places: Mapping[str, Region]) -> bool:
        """Return whether the places of the forced tensors are proven."""
        regions = {name: places[name] for name in forced}
        if not all(self._can_be_proven(name, regions, forced) for name in regions):
            return False
        if not self._is_right(forced, regions.values()):
            return False
        for name, region in regions.items():
            others = {each: other for each, other in forced.items() if each != name}
            read = {each: other for each, other in region.inputs.items() if each in self._graph.producers}
            if self._is_right({**read, **others}, [regions[each] for each in others]):
                return False
        return True

    def _can_be_proven(self, name: str, regions: Mapping[str, Region], forced: Mapping[str, str]) -> bool:
        """Return whether forcing the tensor can be a proof, because the nodes on both sides are known.

        Forcing an output always corrects it, so a node that makes one has to read what its partner does. Between
        two places that adjoin nothing matches, so only some partners are sure.
        """
        region = regions[name]
        if region.edges is None:
            return False
        start = {each for each, _ in region.start}
        for each in self._passed_to(region) & forced.keys():
            if not _are_sure(regions[each], region) or (each in start and forced[each] not in region.read):
                return False
        return not self._is_output(name) or set(region.inputs.values()) <= region.read

    def _passed_to(self, region: Region) -> set[str]:
        """Return the tensors that the place reads, and those whose values are only passed on to these."""
        names = {name for name, _ in region.start}
        waiting = list(names)
        while waiting:
            node = self._graph.producers.get(waiting.pop())
            before = None if node is None else passed_on(node, self._graph, self._sketches)
            if before is not None and before not in names:
                names.add(before)
                waiting.append(before)
        return names

    def _is_output(self, name: str) -> bool:
        """Return whether the tensor is an output, or only passed on to one, such as by a Cast."""
        readers = self._graph.consumers.get(name, ())
        following = [each.output[0] for each in readers if passed_on(each, self._graph, self._sketches) == name]
        return name in self._graph.outputs or any(self._is_output(each) for each in following)

    def _is_right(self, pairs: Mapping[str, str], places: Iterable[Region]) -> bool:
        """Return whether outputs and what the places read are the reference's, with these tensors forced."""
        return self._forcing.error_with(pairs) <= self._limit and self._reads_right(places, pairs)

    def _reads_right(self, places: Iterable[Region], pairs: Mapping[str, str]) -> bool:
        partners: dict[str, list[str]] = {}
        for name, other in (pair for place in places for pair in place.start if pair[0] in self._graph.producers):
            partners.setdefault(name, []).append(other)
        try:
            read = read_inner(self._graph, list(partners), self._feeds, self._forcing.values_of(pairs))
            sketches = {name: sketch_of(arrays) for name, arrays in read}
        except BudgetSpentError:
            return False
        return all(
            any(error_between(sketches[name], self._wanted[other]) <= self._inner_limit for other in others)
            for name, others in partners.items()
        )


def _are_sure(one: Region, other: Region) -> bool:
    """Return whether places that adjoin are pairs of nodes, or lack the same nodes of the reference."""
    lost = [[node.name for node in region.reference] for region in (one, other)]
    return (_is_pair(one) and _is_pair(other)) or (bool(lost[0]) and lost[0] == lost[1])


def _is_pair(region: Region) -> bool:
    operators = [[node.op_type for node in side] for side in (region.candidate, region.reference)]
    return len(operators[0]) == 1 and operators[0] == operators[1]
