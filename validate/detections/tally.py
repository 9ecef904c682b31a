"""Counts of pictures: of all of them, and of those of one stratum."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from paritygate.codec import finite_or_none, read_as
from paritygate.validate.detections.figures import MatchFigures
from paritygate.validate.measure.parts.state_data import Number, spelled


class PictureMatch(Struct, frozen=True, kw_only=True):
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


class _Counts(Struct, kw_only=True):
    """The counts of one pass; `at_end` and `end_rows` are set when all passes are over.

    `ends` count what is left over at the end of full lists, by their length: pictures, missing and extra ones.
    """

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
    ends: dict[int, tuple[int, int, int]] = field(default_factory=dict)

    @property
    def badness(self) -> tuple[int, int, int]:
        return self.missing + self.extra, self.non_finite, -self.matched

    def add(self, other: _Counts | PictureMatch, names: Sequence[str]) -> None:
        for name in names:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def add_end(self, places: int, more: tuple[int, int, int]) -> None:
        rows, missing, extra = self.ends.get(places, (0, 0, 0))
        self.ends[places] = rows + more[0], missing + more[1], extra + more[2]

    def judged(self, most_places: float) -> _Counts:
        """Return the counts where a list shorter than `most_places` has no end that excuses."""
        counts = replace(self)
        for places, (rows, missing, extra) in self.ends.items():
            if places < most_places:
                counts.missing += missing
                counts.extra += extra
            else:
                counts.near_floor += missing + extra
                counts.at_end += missing + extra
                counts.end_rows += rows
        return counts


_COUNTED = tuple(name for name in _Counts.__struct_fields__ if name != "ends")
_OF_PICTURE = tuple(name for name in _COUNTED if name not in {"rows", "at_end", "end_rows"})
_EXTREMES = ("min_iou", "box_diff", "score_diff", "other_diff")
_Pass = tuple[dict[str, int], list[tuple[int, tuple[int, int, int]]]]


class Tally:
    """Adds up pictures, pass by pass."""

    def __init__(self) -> None:
        self._now = _Counts()
        self._passes: list[_Counts] = []
        self._extremes = dict.fromkeys(_EXTREMES, 0.0) | {"min_iou": math.inf}

    def add_row(self) -> None:
        """Count a picture, whether anything in it can be matched or not."""
        self._now.rows += 1

    def add(self, picture: PictureMatch) -> None:
        """Add the matches of a picture."""
        self._now.add(picture, _OF_PICTURE)
        if picture.end_missing or picture.end_extra:
            self._now.add_end(picture.places, (1, picture.end_missing, picture.end_extra))
        self._add_extremes({name: getattr(picture, name) for name in _EXTREMES})

    def _add_extremes(self, others: Mapping[str, float]) -> None:
        self._extremes = {
            name: (min if name == "min_iou" else max)(own, others[name]) for name, own in self._extremes.items()
        }

    def end_pass(self) -> None:
        """Mark the end of a pass; one without pictures is none."""
        if self._now.rows:
            self._passes.append(self._now)
        self._now = _Counts()

    def longest(self, most_places: int) -> list[float]:
        """Return by pass the length of lists whose end excuses: infinity where others are left over."""
        passes = (counts.judged(most_places) for counts in self._passes)
        return [math.inf if counts.missing + counts.extra else most_places for counts in passes]

    def take_in(self, other: Tally) -> None:
        """Add other pictures of ended passes."""
        for at, more in enumerate(other._passes):
            self._passes += [_Counts()] if at == len(self._passes) else []
            self._passes[at].add(more, _COUNTED)
            for places, end in more.ends.items():
                self._passes[at].add_end(places, end)
        self._add_extremes(other._extremes)

    def to_data(self) -> dict[str, Any]:
        """Return the counts of ended passes as JSON data."""
        passes = [({name: getattr(one, name) for name in _COUNTED}, list(one.ends.items())) for one in self._passes]
        return {"passes": passes, "extremes": spelled(self._extremes)}

    def read(self, data: Mapping[str, Any]) -> None:
        """Become the tally whose `to_data` these are; raise ValueError or KeyError for anything else."""
        passes = read_as(list[_Pass], data["passes"])
        self._passes = [
            _Counts(**{name: counts[name] for name in _COUNTED}, ends=dict(ends)) for counts, ends in passes
        ]
        self._add_extremes(read_as(dict[str, Number], data["extremes"]))

    def finish(self, longest: Sequence[float]) -> MatchFigures:
        """Return the figures: counts of the worst pass, extremes over all; `longest` is that of all pictures."""
        passes = [counts.judged(most_places) for counts, most_places in zip(self._passes, longest, strict=False)]
        counts = max(passes or [_Counts()], key=lambda counts: counts.badness)
        extremes: dict[str, Any] = {
            f"max_{name}": self._extremes[name] if counts.matched else None for name in _EXTREMES[1:]
        }
        return MatchFigures(
            **{name: getattr(counts, name) for name in _COUNTED},
            min_iou=finite_or_none(self._extremes["min_iou"]),
            **extremes,
        )
