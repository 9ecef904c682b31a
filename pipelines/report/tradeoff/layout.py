"""Positions in the chart of speed against difference, in user units from the top left of its plot.

The template draws. Labels are in a column next to the plot, each with a line to its point. Differences of exactly 0,
and those that are not finite, have places beside the logarithmic axis.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from paritygate.pipelines.report.figures import number
from paritygate.pipelines.report.tables.table import SYMBOLS
from paritygate.pipelines.report.tradeoff.tradeoff import TradeoffPoint

WIDTH, HEIGHT = 720.0, 320.0
# Width of the places for 0 and for values that are not finite, and their distance from the axis.
_SLOT, _BESIDE = 72.0, 24.0
_FIRST_DECADE, _LAST_DECADE = -6, 4
_MARGIN = 0.15
# Steps within a power of ten, from coarse to fine; the first with enough ticks is used.
_STEPS = ((1, 2, 5), (1, 1.5, 2, 3, 5, 7), (1, 1.2, 1.4, 1.6, 1.8, 2, 2.5, 3, 3.5, 4, 5, 6, 7, 8, 9))
_TICKS_WANTED = 4
# Upper bound of a letter's width in common page fonts, and the height of a line of labels.
_GLYPH, LINE = 7.3, 15.0
# Distance from the plot to its labels.
_BESIDE_PLOT = 40.0


class Mark(Struct, frozen=True, kw_only=True):
    """A variant's point, and the ends of its interval."""

    point: TradeoffPoint
    x: float
    y: float
    low: float
    high: float


class Label(Struct, frozen=True, kw_only=True):
    """The name of a point or line, with a line from `(at_x, at_y)` to the middle of the text's left side."""

    text: str
    at_x: float
    at_y: float
    y: float = 0.0
    is_marked: bool = False


class Layout(Struct, frozen=True, kw_only=True):
    """The chart; ticks are (position, text).

    `labels` come from the top, from `labels_left` to `right`. `bottom` is the lower end of plot and labels. `tolerance`
    is measured from the left, `source` (its speed) from the top. `slots` bound the places beside the logarithmic axis.
    """

    marks: tuple[Mark, ...]
    labels: tuple[Label, ...]
    right: float
    bottom: float
    tolerance: float
    source: float
    x_ticks: tuple[tuple[float, str], ...]
    y_ticks: tuple[tuple[float, str], ...]
    slots: tuple[float, ...]
    width: float = WIDTH
    height: float = HEIGHT
    labels_left: float = WIDTH + _BESIDE_PLOT


class _Differences(Struct, frozen=True, kw_only=True):
    """The axis of differences: `left` to `right` hold the decades from `first` to `last`."""

    first: int
    last: int
    left: float
    right: float

    def at(self, share: float) -> float:
        if share == 0:
            return _SLOT / 2
        if math.isinf(share):
            return WIDTH - _SLOT / 2
        part = (math.log10(share) - self.first) / (self.last - self.first)
        return self.left + min(1.0, max(0.0, part)) * (self.right - self.left)


class _Speeds(Struct, frozen=True, kw_only=True):
    """The axis of speed-ups, from `low` at the bottom to `high` at the top, logarithmic."""

    low: float
    high: float

    def at(self, ratio: float) -> float:
        part = math.log(ratio / self.low) / math.log(self.high / self.low)
        return HEIGHT * (1 - min(1.0, max(0.0, part)))


def layout_of(points: Sequence[TradeoffPoint]) -> Layout:
    """Return the layout of at least one point; speed-ups are above 0."""
    x, y = _differences(points), _speeds(points)
    marks = tuple(
        Mark(
            point=point,
            x=x.at(point.share),
            y=y.at(point.speedup.ratio),
            low=y.at(point.speedup.low),
            high=y.at(point.speedup.high),
        )
        for point in points
    )
    slots = [_SLOT] if x.left > 0 else []
    slots += [WIDTH - _SLOT] if x.right < WIDTH else []
    labels = [
        Label(text=_label_text(mark.point), at_x=mark.x, at_y=mark.y, is_marked=bool(mark.point.mark)) for mark in marks
    ]
    labels.append(Label(text="source", at_x=WIDTH, at_y=y.at(1.0)))
    return Layout(
        marks=marks,
        labels=_in_a_column(labels),
        right=WIDTH + _BESIDE_PLOT + _GLYPH * max(len(label.text) for label in labels),
        bottom=_column_bottom(labels),
        tolerance=x.at(1.0),
        source=y.at(1.0),
        x_ticks=tuple(_difference_ticks(x, points)),
        y_ticks=tuple((y.at(value), f"{value:g}x") for value in _speed_ticks(y)),
        slots=tuple(slots),
    )


def _differences(points: Iterable[TradeoffPoint]) -> _Differences:
    shares = [point.share for point in points]
    decades = [math.log10(share) for share in shares if 0 < share < math.inf]
    first = math.floor(min([*decades, -1.0]) - _MARGIN)
    last = math.ceil(max([*decades, 0.0]) + _MARGIN)
    return _Differences(
        first=max(first, _FIRST_DECADE),
        last=min(last, _LAST_DECADE),
        left=_SLOT + _BESIDE if 0 in shares else 0.0,
        right=WIDTH - _SLOT - _BESIDE if math.inf in shares else WIDTH,
    )


def _speeds(points: Iterable[TradeoffPoint]) -> _Speeds:
    ends = [1.0, *itertools.chain.from_iterable((point.speedup.low, point.speedup.high) for point in points)]
    # Room for labels, and a span at which noise does not look like a difference.
    low, high = min(ends) / 1.25, max(ends) * 1.25
    return _Speeds(low=low, high=max(high, low * 2))


def _difference_ticks(x: _Differences, points: Iterable[TradeoffPoint]) -> Iterable[tuple[float, str]]:
    shares = [point.share for point in points if 0 < point.share < math.inf]
    if x.left > 0:
        yield _SLOT / 2, "exactly 0"
    for decade in range(x.first, x.last + 1):
        value = 10.0**decade
        words = f"{value:,.0f} times" if value > 1 else f"{number(value * 100)} %"
        if decade == x.first and any(share < value for share in shares):
            words = f"\N{LESS-THAN OR EQUAL TO} {words}"
        if decade == x.last and any(share > value for share in shares):
            words = f"\N{GREATER-THAN OR EQUAL TO} {words}"
        yield x.at(value), words
    if x.right < WIDTH:
        yield WIDTH - _SLOT / 2, "not finite"


def _speed_ticks(y: _Speeds) -> list[float]:
    decades = range(math.floor(math.log10(y.low)), math.ceil(math.log10(y.high)) + 1)
    ticks: list[float] = []
    for steps in _STEPS:
        ticks = [step * 10.0**decade for decade in decades for step in steps if y.low <= step * 10.0**decade <= y.high]
        if len(ticks) >= _TICKS_WANTED:
            break
    return ticks


def _column_bottom(labels: Sequence[Label]) -> float:
    return max(HEIGHT, LINE * len(labels))


def _in_a_column(labels: Sequence[Label]) -> tuple[Label, ...]:
    """Return the labels in order, each as near to its height as those above allow."""
    ordered = sorted(labels, key=lambda label: (label.at_y, label.at_x))
    lowest = _column_bottom(labels) - LINE / 2
    placed, free = [], LINE / 2
    for index, label in enumerate(ordered):
        # Leave as many lines as labels follow.
        y = min(max(label.at_y, free), lowest - LINE * (len(ordered) - 1 - index))
        placed.append(replace(label, y=y))
        free = y + LINE
    return tuple(placed)


def _label_text(point: TradeoffPoint) -> str:
    mark = f", {point.mark}" if point.mark else ""
    return f"{SYMBOLS.get(point.verdict, '')} {point.name}{mark}".strip()
