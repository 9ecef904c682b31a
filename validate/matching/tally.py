"""What is counted of pictures: of all of them, and of those of one stratum."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

__all__ = ["MatchFigures", "PictureMatch", "Tally"]


@dataclass(frozen=True, kw_only=True, slots=True)
class MatchFigures:
    """How detections compare; counts are those of one pass, the worst.

    Attributes:
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
    """

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


@dataclass(frozen=True, kw_only=True, slots=True)
class PictureMatch:
    """The same of one picture; infinite IoU without pairs."""

    expected: int
    actual: int
    matched: int
    missing: int
    extra: int
    near_floor: int
    below_floor: int
    non_finite: int
    min_iou: float = math.inf
    box_diff: float = 0.0
    score_diff: float = 0.0


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


_COUNTED = tuple(item.name for item in fields(_Counts))


class Tally:
    """Adds up pictures, pass by pass."""

    def __init__(self) -> None:
        self._now = _Counts()
        self._worst: _Counts | None = None
        self._min_iou = math.inf
        self._box_diff = self._score_diff = 0.0

    def add_row(self) -> None:
        """Count a picture, whether anything in it can be matched or not."""
        self._now.rows += 1

    def add(self, picture: PictureMatch) -> None:
        """Take in what was matched in a picture."""
        for name in _COUNTED[1:]:
            setattr(self._now, name, getattr(self._now, name) + getattr(picture, name))
        self._min_iou = min(self._min_iou, picture.min_iou)
        self._box_diff = max(self._box_diff, picture.box_diff)
        self._score_diff = max(self._score_diff, picture.score_diff)

    def end_pass(self) -> None:
        """Mark the end of the sequence of batches; what follows repeats the same rows."""
        if self._worst is None or self._now.badness > self._worst.badness:
            self._worst = self._now
        self._now = _Counts()

    def finish(self) -> MatchFigures:
        """Return the figures: counts of the worst pass, extremes over all."""
        counts = self._worst or self._now
        return MatchFigures(
            **{name: getattr(counts, name) for name in _COUNTED},
            min_iou=self._min_iou if math.isfinite(self._min_iou) else math.nan,
            max_box_diff=self._box_diff,
            max_score_diff=self._score_diff,
        )
