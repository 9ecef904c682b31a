"""Compares the candidate's detections in repeated runs with its first ones, by the rule of the match."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from paritygate.batch import Arrays, Batch
from paritygate.codec import read_as, to_data
from paritygate.validate.detections.judgement import judge_matches
from paritygate.validate.detections.lists import lists_of
from paritygate.validate.detections.measurement import MatchComparison
from paritygate.validate.detections.pictures import pictures_of
from paritygate.validate.detections.rule import MatchRule
from paritygate.validate.measure.check import Check, Status
from paritygate.validate.words.sentence import Words, say

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def changed_detections(rule: MatchRule, batch: Batch, again: Arrays, first: Arrays) -> Words:
    """Return how the detections differ from the first ones of the same batch; nothing where they do not."""
    absent = [[name for name in rule.outputs if name not in side] for side in (again, first)]
    if any(absent):
        return () if absent[0] == absent[1] else say("match.without", output=(absent[0] or absent[1])[0])
    if all(_is_same(again[name], first[name]) for name in rule.outputs):
        return ()
    lists = lists_of(rule, first, batch.rows)
    broken = lists if isinstance(lists, str) else pictures_of(rule, lists, batch.rows)
    if isinstance(broken, str):
        return say("match.first_broken", cause=broken)
    comparison = MatchComparison(rule)
    comparison.add(batch, again, first)
    comparison.end_pass()
    failed = next((check for check in judge_matches(comparison.finish()) if check.status is Status.FAIL), None)
    return () if failed is None else say("of_check", check=failed.name, difference=failed.words)


def _is_same(again: NDArray[np.generic], first: NDArray[np.generic]) -> bool:
    # By bytes: NaN that comes again is no change.
    return again.dtype == first.dtype and again.shape == first.shape and again.tobytes() == first.tobytes()


class MatchRepeats:
    """Compare the candidate's outputs of later passes with those of its first one."""

    def __init__(self, rule: MatchRule) -> None:
        self._rule = rule
        self._batches = self._changed = 0
        self._example: Words = ()
        self._example_rows = ("", "")

    def add(self, batch: Batch, again: Arrays, first: Arrays) -> None:
        """Add one batch of a later pass."""
        self._batches += 1
        changed = changed_detections(self._rule, batch, again, first)
        self._changed += bool(changed)
        if changed and not self._example:
            self._example, self._example_rows = changed, (batch.ids[0], batch.ids[-1])

    def take_in(self, other: MatchRepeats) -> None:
        """Add the batches that come next."""
        self._batches += other._batches
        self._changed += other._changed
        if not self._example:
            self._example, self._example_rows = other._example, other._example_rows

    def to_data(self) -> dict[str, Any]:
        """Return the counts and the first example as JSON data."""
        counts = [self._batches, self._changed]
        return {"counts": counts, "example": to_data(self._example), "rows": self._example_rows}

    def read(self, data: Mapping[str, Any]) -> None:
        """Become the comparison whose `to_data` these are; raise ValueError or KeyError for anything else."""
        self._batches, self._changed = read_as(tuple[int, int], data["counts"])
        self._example, self._example_rows = read_as(Words, data["example"]), read_as(tuple[str, str], data["rows"])

    def finish(self) -> tuple[Check, ...]:
        """Return the check; none where there was one pass only."""
        if not self._batches:
            return ()
        status = Status.FAIL if self._changed else Status.PASS
        words = say("match.repeats", batches=self._batches)
        if self._changed:
            words = say(
                "match.changed",
                changed=self._changed,
                batches=self._batches,
                first_row=self._example_rows[0],
                last_row=self._example_rows[1],
                difference=self._example,
            )
        return (
            Check(
                name="repeat_detections",
                status=status,
                words=words,
                output=self._rule.name,
                measured=self._changed,
                limit=0,
            ),
        )
