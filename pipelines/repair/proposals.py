"""Search the changes of a converted file with which it gives the outputs of its source.

Weights, attributes and nodes come from the source alone: none is fitted. So a change that repairs the rows of the
search is the source's own value, and the gate shows on other rows whether it was the fault.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from paritygate.convert.onnx.changes import ChangedWeight, Changes, Origin, change
from paritygate.convert.onnx.grafts import Graft, nodes_between
from paritygate.errors import BackendError, ConversionError
from paritygate.pipelines.process.child import Progress
from paritygate.pipelines.repair.attribute_changes import attribute_changes
from paritygate.pipelines.repair.weight_changes import Weights
from paritygate.validate.divergence.locate import AGREE, locate_in
from paritygate.validate.divergence.matching import pairs_of
from paritygate.validate.divergence.result import LOCATED, Divergence, Located
from paritygate.validate.divergence.sketch import Sketch, error_between, sketch_of
from paritygate.validate.tensors.inner_values import Feed, read_outputs
from paritygate.validate.tensors.onnx_values import tensor_graph_of
from paritygate.validate.tensors.tensor_graph import TensorGraph

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

# A change is kept if it leaves at most this share of the error.
_BETTER = 0.5
# Faults at so many places are repaired one after the other.
_ROUNDS = 4
# So many changes are tried one by one, and left out again one by one.
_MOST_TRIALS, _MOST_LEFT_OUT = 120, 16
# More batches than these show no other fault.
_BATCHES = 16


class Proposal(Struct, frozen=True, kw_only=True):
    """The changes that were found.

    Errors are the largest relative ones of the outputs on the search rows, before and after; None if it is not finite.
    `places` are what the two models have where they part.
    """

    changes: Changes
    before: float | None
    after: float | None
    trials: int
    places: tuple[str, ...] = ()


class Proposer:
    """The search for one file."""

    def __init__(
        self, model: onnx.ModelProto, candidate: TensorGraph, reference: TensorGraph, feeds: Sequence[Feed]
    ) -> None:
        """Take the model that `read_to_change` returned, its graph, that of the source, and the source's inputs.

        Raises:
            BackendError: The source cannot run.
        """
        self._model, self._graph, self._theirs = model, candidate, reference
        self._trials = 0
        self._feeds = list(feeds)
        inputs, outputs = (
            pairs_of(candidate.inputs, reference.inputs),
            pairs_of(candidate.outputs, reference.outputs),
        )
        self._outputs: Mapping[str, str] = outputs or {}
        own = [{name: feed[other] for name, other in (inputs or {}).items()} for feed in feeds]
        expected = [_sketched(feed) for feed in read_outputs(reference, feeds)]
        errors = [self._error_of(candidate, [feed], [wanted]) for feed, wanted in zip(own, expected, strict=True)]
        worst = sorted(range(len(own)), key=lambda at: -errors[at])[:_BATCHES]
        self._own, self._expected = [own[at] for at in worst], [expected[at] for at in worst]
        self._feeds = [self._feeds[at] for at in worst]
        self._before = max(errors, default=0.0)

        self._inputs = inputs or {}
        self.origin = origin_of(reference)

    def propose(self, report: Progress) -> Proposal:
        """Return the fewest changes that lessen the error; none if no change does."""
        changes, error = Changes(), self._before
        places: tuple[str, ...] = ()
        for _ in range(_ROUNDS):
            if error <= AGREE:
                break
            report("trying changes of weights and attributes", self._trials, _MOST_TRIALS)
            graph = self._changed(changes)
            found = locate_in(self._theirs, graph, self._feeds)
            places = (*places, *(f"{', '.join(place.candidate_nodes)}: {place.what}" for place in found.located))
            better, left = self._best(graph, found, changes, error)
            if not len(better) or left > _BETTER * error:
                break
            changes, error = changes + better, left
        if error <= AGREE:
            changes, error = self._fewest(changes, error)
        return Proposal(
            changes=changes,
            before=_finite(self._before),
            after=_finite(error),
            trials=self._trials,
            places=tuple(dict.fromkeys(places)),
        )

    def _best(self, graph: TensorGraph, found: Divergence, made: Changes, error: float) -> tuple[Changes, float]:
        """Return the change that leaves the least error, the first that leaves none."""
        weights = Weights(graph, self._theirs)
        everywhere = weights.changed()
        best, least = Changes(), error
        tried = set[str]()
        for option in self._options(graph, found, weights, everywhere):
            if repr(option) in tried or len(tried) >= _MOST_TRIALS:
                continue
            tried.add(repr(option))
            left = self._left(made + option)
            if left < least:
                best, least = option, left
            if least <= AGREE:
                return best, least
        # Of each weight the likeliest: a fault of all weights shows in none alone.
        likeliest = {item.name: item for item in reversed(everywhere)}
        if len(likeliest) > 1:
            together = Changes(weights=tuple(likeliest.values()))
            left = self._left(made + together)
            if left < least:
                best, least = together, left
        return best, least

    def _options(
        self, graph: TensorGraph, found: Divergence, weights: Weights, elsewhere: Sequence[ChangedWeight]
    ) -> Iterator[Changes]:
        """Yield changes at the places that differ, and then those of weights anywhere."""
        places = found.located if found.outcome == LOCATED else ()
        for place in places:
            yield from (Changes(weights=(item,)) for item in weights.at(place.candidate_nodes, place.reference_nodes))
            yield from attribute_changes(graph, place.candidate_nodes, self._theirs, place.reference_nodes)
        yield from (Changes(weights=(item,)) for item in elsewhere)
        grafts = [self._graft(graph, place) for place in places if self.origin.model is not None]
        yield from (each for each in grafts if len(each))
        if len(grafts) > 1:
            yield _together(grafts)

    def _graft(self, graph: TensorGraph, place: Located) -> Changes:
        """Return the graft of the source's nodes at a place; none where its tensors are not known."""
        if place.makes is None:
            return Changes()
        own = {other: name for name, other in self._inputs.items()}
        reads = {pair.reference: pair.candidate for pair in place.reads}
        nodes = nodes_between(self._theirs.model.graph, place.makes.reference, [*own, *reads])
        read = {name for node in nodes or () for name in node.input}
        reads = {name: other for name, other in {**own, **reads}.items() if name in read}
        was = f"{graph.operator(place.makes.candidate)}, not {self._theirs.operator(place.makes.reference)}"
        made = Graft(name=place.makes.candidate, source=place.makes.reference, reads=reads, was=was)
        return Changes(grafts=(made,)) if nodes else Changes()

    def _fewest(self, changes: Changes, error: float) -> tuple[Changes, float]:
        """Return the changes without those that are not needed."""
        parts = changes.parts()
        if not 1 < len(parts) <= _MOST_LEFT_OUT:
            return changes, error
        for part in list(parts):
            rest = [other for other in parts if other is not part]
            left = self._left(_together(rest))
            if rest and left <= AGREE:
                parts, error = rest, left
        return _together(parts), error

    def _left(self, changes: Changes) -> float:
        """Return the error that is left; infinity if the file does not run with the changes."""
        self._trials += 1
        try:
            return self._error_of(self._changed(changes), self._own, self._expected)
        except (BackendError, ConversionError):
            return float("inf")

    def _changed(self, changes: Changes) -> TensorGraph:
        if not len(changes):
            return self._graph
        copy = type(self._model)()
        copy.CopyFrom(self._model)
        change(copy, changes, self.origin)
        return tensor_graph_of(copy, self._graph.path, self._graph.meter)

    def _error_of(self, graph: TensorGraph, feeds: Sequence[Feed], expected: Sequence[Mapping[str, Sketch]]) -> float:
        errors = [
            error_between(sketch_of([actual[name]]), wanted[other])
            for actual, wanted in zip(read_outputs(graph, feeds), expected, strict=True)
            for name, other in self._outputs.items()
        ]
        return max(errors, default=float("inf"))


def origin_of(source: TensorGraph) -> Origin:
    """Return the source of changes, by the names that its graph has."""

    def weight_of(name: str) -> NDArray[Any] | None:
        return source.weights[name].load() if name in source.weights else None

    if source.framework:
        return Origin(weight_of=weight_of)
    return Origin(weight_of=weight_of, model=source.model, folder=source.path.parent)


def _sketched(feed: Feed) -> dict[str, Sketch]:
    return {name: sketch_of([array]) for name, array in feed.items()}


def _together(parts: Sequence[Changes]) -> Changes:
    total = Changes()
    for part in parts:
        total = total + part
    return total


def _finite(error: float) -> float | None:
    return error if error < float("inf") else None
