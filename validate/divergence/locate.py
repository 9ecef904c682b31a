"""Locate the operators at which a candidate parts from its reference, without equal names."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from paritygate.text import first_of
from paritygate.validate.divergence.forcing import Forcing
from paritygate.validate.divergence.frontier import frontier_of
from paritygate.validate.divergence.matching import Matching, check_feeds, match, pairs_of, sketches_of
from paritygate.validate.divergence.node_differences import Sides
from paritygate.validate.divergence.overflow import LARGEST, first_overflow
from paritygate.validate.divergence.places import growth_of, located_at, with_graphs
from paritygate.validate.divergence.proof import Proof
from paritygate.validate.divergence.region import Region, merged, region_at, whole_region, with_same_nodes
from paritygate.validate.divergence.result import (
    CANNOT_TELL,
    CONTRACT,
    EQUAL,
    LIKELY,
    LOCATED,
    POSSIBLE,
    PROVEN,
    TRAIN_MODE,
    Divergence,
    Located,
)
from paritygate.validate.divergence.rounded_weights import changed_weights
from paritygate.validate.divergence.sketch import Sketch, error_between, kind_of, sketch_of
from paritygate.validate.divergence.span import Spans
from paritygate.validate.tensors.inner_values import Arrays, Feed, read_inner, read_outputs
from paritygate.validate.tensors.meter import BudgetSpentError, Meter
from paritygate.validate.tensors.onnx_values import read_tensor_graph
from paritygate.validate.tensors.tensor_graph import FUSED, TensorGraph
from paritygate.validate.words.sentence import Words, say

if TYPE_CHECKING:
    import numpy as np
    import onnx
    from numpy.typing import NDArray

# Relative errors up to which inner tensors match, the tightest first. At the first ones rounding alone may part
# tensors: then forcing does not prove the place.
_TOLERANCES = (1e-5, 1e-4, 1e-3, 1e-2)
# The tightest for candidates of lower precision, in which rounding alone parts all tensors at a tighter one.
_TIGHTEST = {"float16": 1e-2, "bfloat16": 1e-1, "int8": 1e-1}
# Outputs of correct conversions differ by rounding up to this relative error; up to the other one they surely do.
AGREE, _SURELY_AGREE = 5e-5, 5e-6
# Inner tensors of correct conversions differ by rounding up to this one.
_ROUNDING = 1e-4
# The batches in which the outputs differ most.
_BATCHES = 3
# So many places are named; more than a few are no place.
_MOST_REGIONS, _FEW = 8, 3
# A place with more nodes than this on both sides has too many innocent ones.
_WIDE = 4
# After forcing what parts first, what parts next is looked for: so often.
_ROUNDS = 6
# A proof leaves no more of the difference than this share, nor more than the candidate's rounding.
_LEFT = 0.1
_NOTHING: Mapping[str, Arrays] = {}


def locate(reference: Path, candidate: Path, feeds: Sequence[Feed], *, most_tensors: int | None = None) -> Divergence:
    """Return the operators at which the candidate parts from the reference.

    Args:
        reference: An ONNX file.
        candidate: An ONNX file.
        feeds: Inputs by the reference's names, for each batch.
        most_tensors: Of all runs, until the search ends.

    Raises:
        InputFileError: A file is not an ONNX model.
        UsageError: The feeds lack an input of the reference.
        BackendError: ONNX Runtime cannot run one of the models.
    """
    meter = Meter(most_tensors)
    return locate_in(read_tensor_graph(reference, meter), read_tensor_graph(candidate, meter), feeds)


def locate_in(theirs: TensorGraph, ours: TensorGraph, feeds: Sequence[Feed]) -> Divergence:
    """Return the operators at which `ours` parts from the reference `theirs`, which have one meter; see `locate`."""
    meter = ours.meter
    inputs = pairs_of(ours.inputs, theirs.inputs)
    outputs = pairs_of(ours.outputs, theirs.outputs)
    if inputs is None or outputs is None:
        what = "inputs" if inputs is None else "outputs"
        return Divergence(outcome=CONTRACT, words=say("divergence.other_number", names=what))
    check_feeds(theirs, feeds)
    try:
        worst = _worst_feeds(ours, theirs, inputs, outputs, feeds)
        if isinstance(worst, tuple):
            return Divergence(outcome=CONTRACT, words=worst)
        found = _Search(ours, theirs, inputs, outputs, worst).result()
    except BudgetSpentError:
        return Divergence(
            outcome=CANNOT_TELL, words=say("divergence.no_budget"), error=None, computed=meter.count, is_partial=True
        )
    return replace(found, computed=meter.count, is_partial=meter.is_spent)


class _Search:
    """One search: both models, run on the batches in which they differ most."""

    def __init__(
        self,
        ours: TensorGraph,
        theirs: TensorGraph,
        inputs: Mapping[str, str],
        outputs: Mapping[str, str],
        feeds: Sequence[Feed],
    ) -> None:
        self._ours, self._theirs, self._inputs, self._outputs = ours, theirs, inputs, outputs
        self._feeds = [{name: feed[other] for name, other in inputs.items()} for feed in feeds]
        self._wanted = {**sketches_of(theirs, feeds, {}), **_outputs_of(theirs, feeds)}
        self._sketches = self._sketched({})
        self._partners, self._their_partners = self._matched(self._sketches)
        self._errors = self._errors_of(self._sketches)
        self._lowered = self._lowered_to()
        self._forcing = Forcing(ours, theirs, (self._sketches, self._wanted), (self._feeds, feeds), self._error_with)

    @property
    def _error(self) -> float:
        return max(self._errors.values(), default=0.0)

    @property
    def _limit(self) -> float:
        """The error that forcing leaves at most, as a proof."""
        return min(_TIGHTEST.get(self._lowered, AGREE), _LEFT * self._error)

    @property
    def _inner_limit(self) -> float:
        """The error up to which rounding parts inner tensors."""
        return _TIGHTEST.get(self._lowered, _ROUNDING)

    def result(self) -> Divergence:
        """Return the places of the tightest tolerance by which one is proven, else those of the best one."""
        if self._error <= AGREE:
            unknown = tuple(name for name in self._outputs if name not in self._errors)
            if not unknown and self._error > _SURELY_AGREE and not self._lowered:
                return replace(self._divergence((), AGREE), words=say("divergence.small"))
            return Divergence(
                outcome=CANNOT_TELL if unknown else EQUAL,
                words=say("divergence.unknown", outputs=unknown) if unknown else (),
                error=self._error,
                tensors=len(self._ours.inner()),
                not_located=unknown,
            )
        if self._ours.in_training:
            words = say("cause.saved_in_train_mode", names=first_of(self._ours.in_training, _FEW))
            return replace(self._divergence((), AGREE), outcome=TRAIN_MODE, words=words)
        places = self._overflowed() or self._exchanged() or self._spread_over_weights()
        if places:
            return self._divergence(places, min(_TOLERANCES))
        tried: list[Divergence] = []
        for tolerance in self._tolerances():
            if self._error > tolerance:
                tried.append(self._divergence(self._places(tolerance), tolerance))
                if any(place.proven for place in tried[-1].located) or self._ours.meter.is_spent:
                    break
        if not tried:
            return replace(self._divergence((), _TIGHTEST[self._lowered]), words=say("divergence.rounding"))
        return min(tried, key=lambda each: (not any(place.proven for place in each.located), _places_of(each)))

    def _tolerances(self) -> Sequence[float]:
        lowered = self._lowered
        return (*(each for each in _TOLERANCES if each >= _TIGHTEST[lowered]), 1e-1) if lowered else _TOLERANCES

    def _lowered_to(self) -> str:
        """Return the precision to which the candidate rounds and the reference does not; empty for none."""
        ours, theirs = (
            {*(sketch.dtype for sketch in sketches.values()), *("int8" for node in graph.nodes if _is_quantizing(node))}
            for graph, sketches in ((self._ours, self._sketches), (self._theirs, self._wanted))
        )
        return next((name for name in reversed(_TIGHTEST) if name in ours - theirs), "")

    def _overflowed(self) -> list[Located]:
        """Return the first node of an FP16 candidate with values beyond the range, if in FP32 its outputs are right."""
        if self._lowered != "float16" or self._ours.framework:
            return []
        limit = _TIGHTEST[self._lowered]

        def is_right(sketches: Mapping[str, Sketch]) -> bool:
            errors = self._errors_of(sketches)
            floats = [name for name in errors if sketches[name].kind == "f"]
            return max((errors[name] for name in floats or errors), default=0.0) <= limit

        wrong = [name for name, error in self._errors.items() if error > limit]
        found = first_overflow(self._ours, self._partners, wrong, self._feeds, is_right)
        if found is None:
            return []
        errors = {
            other: error_between(found.values, sketch)
            for other, sketch in self._wanted.items()
            if other in self._theirs.producers
        }
        nearest = min(errors, key=errors.__getitem__, default="")
        others = [self._theirs.producers[nearest]] if nearest and errors[nearest] <= limit else []
        words = say("divergence.overflow", operator=found.node.op_type, largest=found.largest, limit=LARGEST)
        words += say("divergence.overflow_more", count=found.others) if found.others else ()
        return [located_at(Region(candidate=[found.node], reference=others, words=words), LIKELY)]

    def _exchanged(self) -> list[Located]:
        """Return the outputs with the values of another output of the reference, if that explains all differences."""
        wrong = [name for name, error in self._errors.items() if error > AGREE]
        places = []
        for name in wrong:
            equal = [
                other
                for other in self._outputs.values()
                if error_between(self._sketches[name], self._wanted[other]) <= AGREE
            ]
            node = self._ours.producers.get(name)
            if not equal or node is None:
                return []
            others = [self._theirs.producers[other] for other in equal if other in self._theirs.producers]
            words = say("divergence.exchanged", output=name, other=equal[0])
            places.append(located_at(Region(candidate=[node], reference=others[:1], words=words), PROVEN))
        return places

    def _spread_over_weights(self) -> list[Located]:
        """Return the nodes that read weights which were rounded, if that explains the difference."""
        words, pairs = changed_weights(self._ours, self._theirs)
        if not pairs or self._forcing.error_with(pairs) > self._limit:
            return []
        nodes = [node for node in self._ours.nodes if set(pairs).intersection(node.input)]
        others = [node for node in self._theirs.nodes if set(pairs.values()).intersection(node.input)]
        return [located_at(Region(candidate=nodes, reference=others, words=words), PROVEN)]

    def _places(self, tolerance: float) -> list[Located]:
        """Return where the models part at this tolerance: places are forced until the outputs agree."""
        forcing = self._forcing
        forcing.forced = {}
        partners, errors, left = (self._partners, self._their_partners), self._errors, self._error
        regions: list[Region] = []
        chosen: dict[str, Region] = {}
        for _ in range(_ROUNDS):
            sides = Sides(
                candidate=self._ours,
                reference=self._theirs,
                partners=partners[0],
                their_partners=partners[1],
                tolerance=tolerance,
            )
            parted = self._parted(sides, errors)
            regions += parted
            added = (
                self._spans(sides, errors).force(parted, forcing, left)
                if self._is_foreign
                else self._forced_by(parted, sides, left)
            )
            chosen.update(added)
            if not added:
                break
            left = forcing.error_with(forcing.forced)
            if left <= self._limit:
                break
            try:
                sketches = self._sketched(forcing.values_of(forcing.forced))
            except BudgetSpentError:
                break
            partners, errors = self._matched(sketches), self._errors_of(sketches)
        if left <= self._limit:
            limits = self._limit, self._inner_limit
            proof = Proof(self._ours, self._feeds, forcing, (self._sketches, self._wanted), limits)
            needed = proof.needed(forcing.forced, chosen)
            places = [self._alone(name, needed, chosen[name]) for name in needed]
            rest = [place.rest for place in places if place.rest is not None]
            # What was forced corrects the rest too, or what follows in the candidate, so it proves nothing.
            is_open = rest or any(FUSED in node.op_type for place in places for node in place.reference)
            is_wide = any(min(len(place.candidate), len(place.reference)) > _WIDE for place in places)
            is_proven = not is_open and not is_wide and proof.holds(needed, chosen)
            certainty = PROVEN if is_proven else POSSIBLE if is_wide else _certainty(len(needed))
            named = [located_at(with_same_nodes(region, sides), certainty) for region in merged(places)]
            return [*named, *(located_at(region, POSSIBLE) for region in rest)]
        # A place where the files show a difference is likelier than one where only values differ.
        first = list({tuple(node.name for node in region.candidate): region for region in regions}.values())
        first = sorted(first[:_MOST_REGIONS], key=lambda region: not region.is_clear)
        return [located_at(with_same_nodes(region, sides), _certainty(len(first))) for region in first]

    def _alone(self, name: str, needed: Mapping[str, str], place: Region) -> Region:
        """Return a place without its rest if its constants alone correct the outputs."""
        others = {each: other for each, other in needed.items() if each != name}
        is_alone = place.constants and self._forcing.error_with(others, place.constants) <= self._limit
        return replace(place, rest=None) if is_alone else place

    @property
    def _is_foreign(self) -> bool:
        """Whether the models are of two frameworks, whose operators differ."""
        return self._ours.framework != self._theirs.framework

    def _spans(self, sides: Sides, errors: Mapping[str, float]) -> Spans:
        wrong = [self._outputs[name] for name, error in errors.items() if error > sides.tolerance]
        behind = frontier_of(self._theirs, sides.their_partners, wrong, sides.tolerance).nodes
        return Spans(sides=sides, sketches=(self._sketches, self._wanted), behind=behind)

    def _parted(self, sides: Sides, errors: Mapping[str, float]) -> list[Region]:
        """Return the first regions of a frontier, for outputs with these errors."""
        wrong = [name for name, error in errors.items() if error > sides.tolerance]
        others = [self._outputs[name] for name in wrong]
        behind = frontier_of(self._theirs, sides.their_partners, others, sides.tolerance)
        nodes = frontier_of(self._ours, sides.partners, wrong, sides.tolerance).nodes[:_MOST_REGIONS]
        return [region_at(node, sides, behind) for node in nodes]

    def _forced_by(self, regions: Sequence[Region], sides: Sides, before: float) -> dict[str, Region]:
        """Force the region that explains most of the error alone, else all of them; return those by forced tensor."""
        forcing = self._forcing
        added: dict[str, Region] = {}
        pairs: dict[str, str] = {}
        for region in regions:
            other, left = forcing.best_of(region, sides)
            name = forcing.output_of(region)
            if other is None or name is None or name in forcing.forced:
                continue
            whole = whole_region(region, name, other, sides)
            if region.reference and not whole.reference and left > _LEFT * before:
                # No run shows that the reference has nothing here.
                whole = region
            if left <= _LEFT * before:
                forcing.forced[name] = other
                return {name: whole}
            pairs[name], added[name] = other, whole
        forcing.forced.update(pairs)
        return added

    def _sketched(self, values: Mapping[str, Arrays]) -> dict[str, Sketch]:
        return {**sketches_of(self._ours, self._feeds, values), **_outputs_of(self._ours, self._feeds, values)}

    def _matched(self, sketches: Mapping[str, Sketch]) -> tuple[Matching, Matching]:
        """Return the partners of the candidate's tensors, and of the reference's."""
        return (
            match((self._ours, self._theirs), (sketches, self._wanted), self._inputs.items()),
            match(
                (self._theirs, self._ours),
                (self._wanted, sketches),
                [(other, name) for name, other in self._inputs.items()],
            ),
        )

    def _errors_of(self, sketches: Mapping[str, Sketch]) -> dict[str, float]:
        pairs = {name: (sketches[name], self._wanted[other]) for name, other in self._outputs.items()}
        return {name: error_between(*pair) for name, pair in pairs.items() if not _are_unknown(pair)}

    def _error_with(self, values: Mapping[str, Arrays]) -> float:
        return max(self._errors_of(_outputs_of(self._ours, self._feeds, values)).values(), default=0.0)

    def _is_behind(self, output: str, places: Sequence[Located]) -> bool:
        named = {name for place in places for name in place.candidate_nodes}
        waiting, seen = [output], set[str]()
        while waiting:
            node = self._ours.producers.get(waiting.pop())
            if node is None or node.name in seen:
                continue
            if node.name in named:
                return True
            seen.add(node.name)
            waiting += self._ours.data_inputs(node)
        return False

    def _divergence(self, places: Sequence[Located], tolerance: float) -> Divergence:
        names = self._ours.inner()
        is_left = {name: self._errors.get(name, math.inf) > tolerance for name in self._outputs}
        return Divergence(
            outcome=LOCATED if places else CANNOT_TELL,
            words=() if places else say("divergence.all_matched"),
            not_located=tuple(
                name for name, is_wrong in is_left.items() if is_wrong and not self._is_behind(name, places)
            ),
            error=self._error if math.isfinite(self._error) else None,
            tolerance=tolerance,
            matched=sum(bool(self._partners.matched(name, tolerance)) for name in names),
            tensors=len(names),
            located=tuple(with_graphs(place, self._ours, self._theirs) for place in places),
            growth=tuple(growth_of(self._ours, self._partners)),
        )


def _certainty(places: int) -> str:
    """Return how certain places are that are not proven."""
    return LIKELY if places <= _FEW else POSSIBLE


def _is_quantizing(node: onnx.NodeProto) -> bool:
    return node.op_type in {"QuantizeLinear", "DynamicQuantizeLinear", "FakeQuantize", "QUANTIZE"}


def _are_unknown(pair: tuple[Sketch, Sketch]) -> bool:
    return pair[0].kind == pair[1].kind == "x"


def _places_of(divergence: Divergence) -> tuple[bool, int]:
    return not divergence.located, len(divergence.located)


def _outputs_of(
    graph: TensorGraph, feeds: Sequence[Feed], values: Mapping[str, Arrays] = _NOTHING
) -> dict[str, Sketch]:
    return {name: sketch_of(arrays) for name, arrays in read_inner(graph, graph.outputs, feeds, values)}


def _worst_feeds(
    ours: TensorGraph,
    theirs: TensorGraph,
    inputs: Mapping[str, str],
    outputs: Mapping[str, str],
    feeds: Sequence[Feed],
) -> list[Feed] | Words:
    """Return the feeds for which the outputs differ most, or why outputs cannot be compared."""
    errors = [0.0] * len(feeds)
    own = [{name: feed[other] for name, other in inputs.items()} for feed in feeds]
    # One batch after the other, so that memory does not grow with their number.
    for at, (actual, expected) in enumerate(zip(read_outputs(ours, own), read_outputs(theirs, feeds), strict=True)):
        for name, other in outputs.items():
            one, two = actual[name], expected[other]
            if one.shape != two.shape or kind_of(one) != kind_of(two):
                return say("divergence.other_output", output=name, actual=_form(one), expected=_form(two))
            errors[at] = max(errors[at], error_between(sketch_of([one]), sketch_of([two])))
    worst = sorted(range(len(feeds)), key=lambda at: -errors[at])[:_BATCHES]
    return [feeds[at] for at in worst]


def _form(array: NDArray[np.generic]) -> str:
    return f"{array.dtype.name}{list(array.shape)}"
