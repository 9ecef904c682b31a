"""Detections of candidate and reference matched picture by picture, and what is left over on either side."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from paritygate.errors import UsageError
from paritygate.validate.matching.boxes import Detections, corners_of, is_turned, match_detections
from paritygate.validate.matching.rule import MatchRule

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from paritygate.batch import Batch

    Outputs = Mapping[str, NDArray[np.generic]]

__all__ = ["MatchComparison", "MatchStatistics", "check_match_rules"]

# Of two lists this long every pair is looked at; of longer ones that would take gigabytes.
_MOST_DETECTIONS = 4000
_EXAMPLES = 5
_BOX_RANK = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class MatchStatistics:
    """How the detections compare; counts are those of one pass, the worst.

    Attributes:
        rule: What was matched.
        rows: Pictures looked at.
        expected: Detections of the reference, at or above the floor less the tolerance.
        actual: Those of the candidate.
        matched: Pairs that are the same detection.
        missing: Detections of the reference that the candidate lacks.
        extra: Detections of the candidate that the reference lacks.
        near_floor: Left over on either side so near the floor that they may be: not counted above.
        below_floor: Of the reference, below the floor: not looked at.
        non_finite: Detections of the candidate with a box or score that is NaN or infinite.
        min_iou: The smallest IoU of a pair; NaN without pairs.
        max_box_diff: The largest difference of a coordinate of a pair, in the unit of the boxes.
        max_score_diff: The largest difference of the scores of a pair.
        violations: Breaches of contract: a dtype or shape that holds no detections.
        examples: The first pictures with a detection left over, in words.
    """

    rule: MatchRule
    rows: int
    expected: int
    actual: int
    matched: int
    missing: int
    extra: int
    near_floor: int
    below_floor: int
    non_finite: int
    min_iou: float
    max_box_diff: float
    max_score_diff: float
    violations: tuple[str, ...]
    examples: tuple[str, ...]


def check_match_rules(rules: Sequence[MatchRule], known: Sequence[str], taken: Mapping[str, str]) -> None:
    """Do nothing if every output that is matched is there, and is asked for nothing else.

    Args:
        rules: What is matched.
        known: The reference's outputs that are compared.
        taken: Outputs that a decision or the like is on, with what that is.

    Raises:
        UsageError: It is not.
    """
    seen: dict[str, str] = {}
    if len({rule.name for rule in rules}) < len(rules):
        msg = f"two matches have one name ({', '.join(rule.name for rule in rules)})"
        raise UsageError(msg, hint="give each a name of its own")
    for rule in rules:
        for output in rule.outputs:
            if output not in known:
                msg = f"match {rule.name!r} names {output!r}, which is no output that is compared"
                raise UsageError(msg, hint=f"outputs compared are: {', '.join(known) or 'none'}")
            if output in taken:
                msg = f"match {rule.name!r} names {output!r}, and {taken[output]} is on it too"
                raise UsageError(msg, hint="an output that is matched is not compared otherwise")
            if seen.setdefault(output, rule.name) != rule.name:
                msg = f"matches {seen[output]!r} and {rule.name!r} both name {output!r}"
                raise UsageError(msg, hint="an output belongs to one list of detections")


@dataclass(kw_only=True, slots=True)
class _Counts:
    """What one pass counted."""

    rows: int = 0
    expected: int = 0
    actual: int = 0
    matched: int = 0
    missing: int = 0
    extra: int = 0
    near_floor: int = 0
    below_floor: int = 0
    non_finite: int = 0

    @property
    def badness(self) -> tuple[int, int, int]:
        return self.missing + self.extra, self.non_finite, -self.matched


@dataclass(kw_only=True, slots=True)
class _Largest:
    """Extremes over all passes, and what is said in words."""

    min_iou: float = math.inf
    box_diff: float = 0.0
    score_diff: float = 0.0
    violations: list[str] = field(default_factory=list)
    examples: list[str] = field(default_factory=list)


class MatchComparison:
    """Takes in batch after batch of both sides' detections. Memory does not grow with the number of rows."""

    def __init__(self, rule: MatchRule) -> None:
        self._rule = rule
        self._now = _Counts()
        self._worst: _Counts | None = None
        self._seen = _Largest()

    def add(self, batch: Batch, actual: Outputs, expected: Outputs) -> None:
        """Take in one batch.

        Raises:
            UsageError: The reference's outputs hold no detections, or too many to match.
        """
        rule = self._rule
        self._now.rows += batch.rows
        if any(name not in actual for name in rule.outputs):
            # The missing name is reported once, by the check of names.
            return
        for name in rule.outputs:
            if actual[name].dtype != expected[name].dtype:
                both = f"{actual[name].dtype}, the reference's {expected[name].dtype}"
                self._violate(f"the candidate's dtype of {name!r} is {both}")
        wanted = _pictures(rule, expected, batch.rows)
        if isinstance(wanted, str):
            msg = f"match {rule.name!r}: the reference's outputs hold no detections: {wanted}"
            raise UsageError(msg, hint="boxes are (rows, N, 4); scores and classes (rows, N); num (rows,)")
        found = _pictures(rule, actual, batch.rows)
        if isinstance(found, str):
            self._violate(f"the candidate's outputs hold no detections: {found}")
            return
        for row_id, candidate, reference in zip(batch.ids, found, wanted, strict=True):
            self._add_picture(row_id, candidate, reference)

    def _violate(self, detail: str) -> None:
        if detail not in self._seen.violations and len(self._seen.violations) < _EXAMPLES:
            self._seen.violations.append(detail)

    def _add_picture(self, row_id: str, actual: Detections, expected: Detections) -> None:
        rule, now, seen = self._rule, self._now, self._seen
        # What is not finite is in no list: the candidate's is a fault of its own, the reference's was declared.
        actual, broken = _finite(actual)
        expected, _ = _finite(expected)
        there = len(expected.scores)
        actual, expected = (_reported(side, rule) for side in (actual, expected))
        now.below_floor += there - len(expected.scores)
        for side in (actual, expected):
            if len(side.scores) > _MOST_DETECTIONS:
                msg = f"match {rule.name!r}: row {row_id} holds {len(side.scores)} detections"
                msg += f" (allowed: {_MOST_DETECTIONS})"
                raise UsageError(msg, hint="match what is left after NMS, or say where scores begin: score_floor")
        at, of, overlap = match_detections(actual, expected, iou=rule.iou)
        extra, missing = np.ones(len(actual.scores), dtype=bool), np.ones(len(expected.scores), dtype=bool)
        extra[at] = missing[of] = False
        near = [side.scores <= rule.score_floor + rule.score_tolerance for side in (actual, expected)]
        now.near_floor += int((extra & near[0]).sum() + (missing & near[1]).sum())
        extra, missing = extra & ~near[0], missing & ~near[1]
        now.expected += len(expected.scores)
        now.actual += len(actual.scores)
        now.matched += len(at)
        now.extra += int(extra.sum())
        now.missing += int(missing.sum())
        now.non_finite += broken
        if len(at):
            seen.min_iou = min(seen.min_iou, float(overlap.min()))
            seen.box_diff = max(seen.box_diff, float(np.abs(actual.boxes[at] - expected.boxes[of]).max()))
            seen.score_diff = max(seen.score_diff, float(np.abs(actual.scores[at] - expected.scores[of]).max()))
        if (extra.any() or missing.any()) and len(seen.examples) < _EXAMPLES:
            seen.examples.append(f"row {row_id}: {_left_over(actual, extra, expected, missing)}")

    def end_pass(self) -> None:
        """Mark the end of the sequence of batches; what follows repeats the same rows."""
        if self._worst is None or self._now.badness > self._worst.badness:
            self._worst = self._now
        self._now = _Counts()

    def finish(self) -> MatchStatistics:
        """Return all that was measured."""
        counts, seen = self._worst or self._now, self._seen
        return MatchStatistics(
            rule=self._rule,
            rows=counts.rows,
            expected=counts.expected,
            actual=counts.actual,
            matched=counts.matched,
            missing=counts.missing,
            extra=counts.extra,
            near_floor=counts.near_floor,
            below_floor=counts.below_floor,
            non_finite=counts.non_finite,
            min_iou=seen.min_iou if math.isfinite(seen.min_iou) else math.nan,
            max_box_diff=seen.box_diff,
            max_score_diff=seen.score_diff,
            violations=tuple(seen.violations),
            examples=tuple(seen.examples),
        )


def _pictures(rule: MatchRule, outputs: Outputs, rows: int) -> list[Detections] | str:
    """Return the detections of each row, or why the outputs hold none."""
    arrays = {name: outputs[name] for name in rule.outputs}
    for name, array in arrays.items():
        if array.dtype.kind not in "fiubV":
            return f"{name!r} is of dtype {array.dtype}"
    boxes = _by_row(arrays[rule.boxes], _BOX_RANK, rows)
    lists = {
        name: _by_row(arrays[name], _BOX_RANK - 1, rows) for name in (rule.scores, rule.classes) if name is not None
    }
    if boxes is None or boxes.shape[2] != 4:  # noqa: PLR2004 - the numbers of a box
        return f"{rule.boxes!r} has shape {list(arrays[rule.boxes].shape)} for {rows} rows"
    for name, listed in lists.items():
        if listed is None or listed.shape != boxes.shape[:2]:
            return f"{name!r} has shape {list(arrays[name].shape)} beside boxes of {list(arrays[rule.boxes].shape)}"
    counts = np.full(rows, boxes.shape[1])
    if rule.num is not None:
        counts = arrays[rule.num].astype(np.int64).reshape(-1)
        if counts.shape != (rows,) or (counts < 0).any() or (counts > boxes.shape[1]).any():
            return f"{rule.num!r} is {counts.tolist()[:8]} for {rows} rows of at most {boxes.shape[1]} detections"
    scores = lists[rule.scores]
    classes = np.zeros(boxes.shape[:2]) if rule.classes is None else lists[rule.classes]
    assert scores is not None  # noqa: S101 - looked at above
    assert classes is not None  # noqa: S101 - looked at above
    return [
        Detections(
            boxes=boxes[row, :count],
            corners=corners_of(boxes[row, :count], rule.format),
            is_turned=is_turned(boxes[row, :count], rule.format),
            scores=scores[row, :count],
            classes=classes[row, :count],
        )
        for row, count in enumerate(counts)
    ]


def _by_row(array: NDArray[np.generic], rank: int, rows: int) -> NDArray[np.float64] | None:
    """Return the array with its rows along axis 0; a picture alone may come without that axis."""
    wide = array.astype(np.float64)
    if wide.ndim == rank - 1 and rows == 1:
        wide = wide[np.newaxis]
    return wide if wide.ndim == rank and wide.shape[0] == rows else None


def _chosen(side: Detections, chosen: NDArray[np.bool_]) -> Detections:
    return Detections(
        boxes=side.boxes[chosen],
        corners=side.corners[chosen],
        is_turned=side.is_turned[chosen],
        scores=side.scores[chosen],
        classes=side.classes[chosen],
    )


def _finite(side: Detections) -> tuple[Detections, int]:
    is_finite = np.isfinite(side.boxes).all(axis=1) & np.isfinite(side.scores) & np.isfinite(side.classes)
    if is_finite.all():
        return side, 0
    return _chosen(side, is_finite), int(np.count_nonzero(~is_finite))


def _reported(side: Detections, rule: MatchRule) -> Detections:
    return _chosen(side, side.scores >= rule.score_floor - rule.score_tolerance)


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
