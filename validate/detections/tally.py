"""Counts of pictures: of all of them, and of those of one stratum."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from paritygate.codec import finite_or_none
from paritygate.validate.detections.figures import MatchFigures


@dataclass(frozen=True, kw_only=True, slots=True)
class PictureMatch:
    """The figures of one picture; the IoU is infinite without pairs.

    `places` is the length of the longer list. `end_missing` and `end_extra` are left over at the end of a full list;
    they are missing and extra where longer lists are seen.
    """

    expected: int
    actual: int
    matched: int
    near_floor: int
    below_floor: int
    non_finite: int
    places: int
    missing: int = 0
    extra: int = 0
    end_missing: int = 0
    end_extra: int = 0
    min_iou: float = math.inf
    box_diff: float = 0.0
    score_diff: float = 0.0
    other_diff: float = 0.0


@dataclass(kw_only=True, slots=True)
class _End:
    """Detections left over at the end of full lists of one length."""

    rows: int = 0
    missing: int = 0
    extra: int = 0


@dataclass(kw_only=True, slots=True)
class _Counts:
    """The counts of one pass; `at_end` and `end_rows` are set when it is over."""

    rows: int = 0
    expected: int = 0
    actual: int = 0
    matched: int = 0
    missing: int = 0
    extra: int = 0
    near_floor: int = 0
    at_end: int = 0
    end_rows: int = 0
    below_floor: int = 0
    non_finite: int = 0

    @property
    def badness(self) -> tuple[int, int, int]:
        return self.missing + self.extra, self.non_finite, -self.matched


_COUNTED = tuple(item.name for item in fields(_Counts))
_OF_PICTURE = tuple(name for name in _COUNTED if name not in {"rows", "at_end", "end_rows"})


class Tally:
    """Adds up pictures, pass by pass."""

    def __init__(self) -> None:
        self._now = _Counts()
        self._worst: _Counts | None = None
        self._ends: dict[int, _End] = {}
        self._min_iou = math.inf
        self._box_diff = self._score_diff = self._other_diff = 0.0

    def add_row(self) -> None:
        """Count a picture, whether anything in it can be matched or not."""
        self._now.rows += 1

    def add(self, picture: PictureMatch) -> None:
        """Add the matches of a picture."""
        for name in _OF_PICTURE:
            setattr(self._now, name, getattr(self._now, name) + getattr(picture, name))
        if picture.end_missing or picture.end_extra:
            end = self._ends.setdefault(picture.places, _End())
            end.rows += 1
            end.missing += picture.end_missing
            end.extra += picture.end_extra
        self._min_iou = min(self._min_iou, picture.min_iou)
        self._box_diff = max(self._box_diff, picture.box_diff)
        self._score_diff = max(self._score_diff, picture.score_diff)
        self._other_diff = max(self._other_diff, picture.other_diff)

    def left_over(self, most_places: int) -> int:
        """Return how many detections of the pass have no pair and no excuse in a list end of this length."""
        shorter = (end.missing + end.extra for places, end in self._ends.items() if places < most_places)
        return self._now.missing + self._now.extra + sum(shorter)

    def end_pass(self, most_places: float) -> None:
        """Mark the end of a pass; a list shorter than `most_places` has no end that excuses (infinity: none has)."""
        counts = self._now
        for places, end in self._ends.items():
            if places < most_places:
                counts.missing += end.missing
                counts.extra += end.extra
            else:
                counts.near_floor += end.missing + end.extra
                counts.at_end += end.missing + end.extra
                counts.end_rows += end.rows
        if self._worst is None or counts.badness > self._worst.badness:
            self._worst = counts
        self._now, self._ends = _Counts(), {}

    def finish(self) -> MatchFigures:
        """Return the figures: counts of the worst pass, extremes over all."""
        counts = self._worst or self._now
        return MatchFigures(
            **{name: getattr(counts, name) for name in _COUNTED},
            min_iou=finite_or_none(self._min_iou),
            max_box_diff=self._box_diff if counts.matched else None,
            max_score_diff=self._score_diff if counts.matched else None,
            max_other_diff=self._other_diff if counts.matched else None,
        )
