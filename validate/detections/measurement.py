"""Matches detections of candidate and reference picture by picture, and counts those left over on either side."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from paritygate.batch import Arrays, Batch
from paritygate.codec import read_as, to_data, with_finite
from paritygate.errors import UsageError
from paritygate.text import row_name
from paritygate.validate.detections.boxes import Detections, match_detections
from paritygate.validate.detections.figures import MatchStatistics
from paritygate.validate.detections.lists import DetectionLists, lists_of
from paritygate.validate.detections.pictures import counted_of, finite_of, lowest_of, pictures_of, reported_of
from paritygate.validate.detections.rule import MatchRule
from paritygate.validate.detections.tally import PictureMatch, Tally
from paritygate.validate.words.sentence import Words, say

if TYPE_CHECKING:
    from numpy.typing import NDArray


# Of two lists this long every pair is looked at; of longer ones that would take gigabytes.
_MOST_DETECTIONS = 4000
_EXAMPLES = 5
_SHAPES = "boxes are (rows, N, 4); scores and classes (rows, N); num (rows,)"
_SHAPES_OF_ONE = (
    "one output is (rows, N, numbers) or (rows, numbers, N), with axis=1 or 2 where the shape does not tell; of one "
    "list for the whole batch, name the column with the place of the row: picture=0"
)


class MatchComparison:
    """Match both sides' detections batch by batch; memory does not grow with the number of rows.

    `strata` are counted apart: every batch has them, with few values each.
    """

    def __init__(self, rule: MatchRule, strata: Sequence[str] = ()) -> None:
        self._rule = rule
        self._all = Tally()
        self._apart: dict[str, dict[str, Tally]] = {name: {} for name in strata}
        self._violations: list[Words] = []
        self._examples: list[str] = []
        # Pictures whose only left-overs are at the end of a full list: the end of the pass shows whether these are
        # excused.
        self._end_examples: list[tuple[int, str]] = []
        self._most_places = 0
        self._numbers: int | None = None

    def add(self, batch: Batch, actual: Arrays, expected: Arrays) -> None:
        """Add one batch; raise UsageError if the reference's outputs hold no detections, or too many to match."""
        rule = self._rule
        tallies = [self._tallies(batch, row) for row in range(batch.rows)]
        for tally in itertools.chain.from_iterable(tallies):
            tally.add_row()
        if any(name not in actual for name in rule.outputs):
            # The missing name is reported once, by the check of names.
            return
        for name in rule.outputs:
            if actual[name].dtype != expected[name].dtype:
                dtypes = {"actual_dtype": str(actual[name].dtype), "expected_dtype": str(expected[name].dtype)}
                self._violate(say("match.dtype", output=name, **dtypes))
        reference = lists_of(rule, expected, batch.rows)
        wanted = _pictures(rule, reference, reference, batch.rows)
        if isinstance(wanted, str) or isinstance(reference, str):
            msg = f"match {rule.name!r}: the reference's outputs hold no detections: {wanted}"
            raise UsageError(msg, hint=_SHAPES if rule.output is None else _SHAPES_OF_ONE)
        self._check_numbers(reference)
        candidate = lists_of(rule, actual, batch.rows, like=reference)
        detections = _pictures(rule, candidate, reference, batch.rows)
        if isinstance(detections, str) or isinstance(candidate, str):
            self._violate(say("match.broken", cause=detections))
            return
        if candidate.numbers != reference.numbers:
            # Whoever reads the output by its shape reads something else, whatever the order of the detections.
            shapes = [str(list(side[rule.outputs[0]].shape)) for side in (actual, expected)]
            self._violate(say("match.shape", output=rule.output, actual_shape=shapes[0], expected_shape=shapes[1]))
            return
        # Where lists are as long as their detections, the longer one shows that the shorter one was not cut off.
        places = max(candidate.places, reference.places)
        self._most_places = max(self._most_places, places)
        for row_id, of_candidate, of_reference, counted in zip(batch.ids, detections, wanted, tallies, strict=True):
            picture = self._match(row_id, of_candidate, of_reference, places)
            for tally in counted:
                tally.add(picture)

    def _check_numbers(self, reference: DetectionLists) -> None:
        """Check that a detection has as many numbers in every batch: otherwise the other axis holds them."""
        if self._numbers is None:
            self._numbers = reference.numbers
        elif self._numbers != reference.numbers:
            both = f"{self._numbers} numbers in one batch and {reference.numbers} in another"
            msg = f"match {self._rule.name!r}: axis {reference.axis} of {self._rule.output!r} holds {both}"
            other = 3 - (reference.axis or 1)
            raise UsageError(msg, hint=f"the numbers of a detection lie along the other axis: add axis={other}")

    def _tallies(self, batch: Batch, row: int) -> list[Tally]:
        apart = [values.setdefault(str(batch.strata[name][row]), Tally()) for name, values in self._apart.items()]
        return [self._all, *apart]

    def _violate(self, words: Words) -> None:
        if words not in self._violations and len(self._violations) < _EXAMPLES:
            self._violations.append(words)

    def _match(self, row_id: str, actual: Detections, expected: Detections, places: int) -> PictureMatch:
        rule = self._rule
        # Detections that are not finite are in no list: the candidate's are a fault of their own, the reference's were
        # declared.
        actual, broken = finite_of(actual)
        expected, _ = finite_of(expected)
        there = len(expected.scores)
        actual, expected = (reported_of(side, rule) for side in (actual, expected))
        for side in (actual, expected):
            if len(side.scores) > _MOST_DETECTIONS:
                msg = f"match {rule.name!r}: {row_name(row_id)} holds {len(side.scores)} detections"
                msg += f" (allowed: {_MOST_DETECTIONS})"
                raise UsageError(
                    msg, hint=("match the outputs after NMS, or declare the lowest score that matters: score_floor")
                )
        at, of, overlap = match_detections(actual, expected, iou=rule.iou)
        extra, missing = np.ones(len(actual.scores), dtype=bool), np.ones(len(expected.scores), dtype=bool)
        extra[at] = missing[of] = False
        near = [side.scores <= rule.score_floor + rule.score_tolerance for side in (actual, expected)]
        near_floor = int((extra & near[0]).sum() + (missing & near[1]).sum())
        extra, missing = extra & ~near[0], missing & ~near[1]
        # The last place of a full list goes to one of those that score alike, and the others are cut off.
        is_end = not (extra & (actual.scores > lowest_of(expected, rule, places) + rule.score_tolerance)).any()
        is_end &= not (missing & (expected.scores > lowest_of(actual, rule, places) + rule.score_tolerance)).any()
        counted = {"missing": int(missing.sum()), "extra": int(extra.sum())}
        if any(counted.values()):
            self._explain(places, f"{row_name(row_id)}: {_left_over(actual, extra, expected, missing)}", is_end=is_end)
        return PictureMatch(
            expected=len(expected.scores),
            actual=len(actual.scores),
            matched=len(at),
            **({f"end_{what}": count for what, count in counted.items()} if is_end else counted),
            near_floor=near_floor,
            below_floor=there - len(expected.scores),
            non_finite=broken,
            places=places,
            min_iou=float(overlap.min(initial=math.inf)),
            box_diff=float(np.abs(actual.boxes[at] - expected.boxes[of]).max(initial=0.0)),
            score_diff=float(np.abs(actual.scores[at] - expected.scores[of]).max(initial=0.0)),
            other_diff=float(np.abs(actual.others[at] - expected.others[of]).max(initial=0.0)),
        )

    def _explain(self, places: int, words: str, *, is_end: bool) -> None:
        if is_end:
            self._add_examples([], [(places, words)])
        else:
            self._add_examples([words], [])

    def _add_examples(self, examples: Sequence[str], at_end: Sequence[tuple[int, str]]) -> None:
        self._examples = list(dict.fromkeys([*self._examples, *examples]))[:_EXAMPLES]
        ends = dict.fromkeys([*self._end_examples, *at_end])
        self._end_examples = sorted(ends, key=lambda item: item[0])[:_EXAMPLES]

    def end_pass(self) -> None:
        """Mark the end of a pass; later batches repeat the same rows."""
        for tally in (self._all, *(tally for values in self._apart.values() for tally in values.values())):
            tally.end_pass()

    def take_in(self, other: MatchComparison) -> None:
        """Add the figures of the rows that come next, by the same rule, from ended passes."""
        if None not in {self._numbers, other._numbers} and self._numbers != other._numbers:
            raise ValueError(f"detections of {self._numbers} and of {other._numbers} numbers")
        self._numbers = self._numbers or other._numbers
        self._all.take_in(other._all)
        for name, values in other._apart.items():
            for value, tally in values.items():
                self._apart[name].setdefault(value, Tally()).take_in(tally)
        for words in other._violations:
            self._violate(words)
        self._add_examples(other._examples, other._end_examples)
        self._most_places = max(self._most_places, other._most_places)

    def to_data(self) -> dict[str, Any]:
        """Return the figures of ended passes as JSON data."""
        return {
            "all": self._all.to_data(),
            "strata": {
                name: {value: tally.to_data() for value, tally in values.items()}
                for name, values in self._apart.items()
            },
            "violations": to_data(self._violations),
            "examples": self._examples,
            "end_examples": self._end_examples,
            "places": self._most_places,
            "numbers": self._numbers,
        }

    def read(self, data: Mapping[str, Any]) -> None:
        """Become the comparison whose `to_data` these are; raise ValueError or KeyError for anything else."""
        self._all.read(data["all"])
        for name, values in self._apart.items():
            for value in data["strata"][name]:
                values[value] = Tally()
                values[value].read(data["strata"][name][value])
        self._violations = read_as(list[Words], data["violations"])
        self._add_examples(read_as(list[str], data["examples"]), read_as(list[tuple[int, str]], data["end_examples"]))
        self._most_places, self._numbers = read_as(int, data["places"]), read_as(int | None, data["numbers"])

    def finish(self) -> MatchStatistics:
        """Return all figures."""
        # Equal scores explain a pass, or they do not: beside other left-overs, they are no excuse.
        longest = self._all.longest(self._most_places)
        figures = self._all.finish(longest)
        is_excused = not figures.missing + figures.extra
        more = [] if is_excused else [words for _, words in self._end_examples]
        rule = self._rule
        return MatchStatistics(
            **{name: getattr(figures, name) for name in figures.__struct_fields__},
            name=rule.name,
            outputs=tuple(rule.outputs),
            iou=rule.iou,
            score_tolerance=rule.score_tolerance,
            score_floor=rule.score_floor,
            most_box_diff=rule.max_box_diff,
            most_other_diff=None if rule.output is None else rule.other_tolerance,
            violations=tuple(self._violations),
            examples=tuple([*self._examples, *more][:_EXAMPLES]),
            strata={
                name: {value: with_finite(tally.finish(longest)) for value, tally in sorted(values.items())}
                for name, values in self._apart.items()
            },
        )


def _pictures(
    rule: MatchRule, lists: DetectionLists | str, reference: DetectionLists | str, rows: int
) -> list[Detections] | str:
    """Return the detections of each row that count, or why the outputs hold none."""
    if isinstance(lists, str) or isinstance(reference, str):
        return lists if isinstance(lists, str) else str(reference)
    pictures = pictures_of(rule, lists, rows)
    return pictures if isinstance(pictures, str) else counted_of(pictures, lists, reference)


def _left_over(actual: Detections, extra: NDArray[np.bool_], expected: Detections, missing: NDArray[np.bool_]) -> str:
    words = []
    for what, side, left in (("missing", expected, missing), ("extra", actual, extra)):
        if left.any():
            at = int(np.argmax(np.where(left, side.scores, -np.inf)))
            box = ", ".join(f"{number:.4g}" for number in side.boxes[at])
            words.append(
                f"{int(left.sum())} {what}, such as [{box}] of class {side.classes[at]:g}, score {side.scores[at]:.4g}"
            )
    return "; ".join(words)
