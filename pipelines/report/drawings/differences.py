"""The histogram of an output's differences on logarithmic scales, with its limit."""

from __future__ import annotations

import math
from dataclasses import dataclass

from paritygate.pipelines.compare.result import LimitRange, OutputResult
from paritygate.pipelines.report.drawings.plot import TOP, Frame, Label, Path, Plot, box, line
from paritygate.pipelines.report.figures import number
from paritygate.text import one_or_many
from paritygate.validate.measure.figures import Drawing

_HEIGHT = 150.0
# Powers of two in the drawing; smaller differences count with the first of them.
_MOST_OCTAVES = 56
_TICKS = 6
_COUNT_TICKS = 4
_TEN = math.log2(10)
_ROOM = 1.5


@dataclass(frozen=True, kw_only=True, slots=True)
class _Bar:
    """Differences from `2 ** exponent` up to twice that, or equal values."""

    exponent: float
    count: int
    words: str


def differences_plot(output: OutputResult, drawing: Drawing) -> Plot | None:
    """Return the drawing; None where there is no limit, or no difference."""
    limit = output.limits.get("max_abs_diff")
    if limit is None or limit.lowest <= 0 or not drawing.counts:
        return None
    ends = math.log2(limit.lowest), math.log2(limit.highest)
    last = max(drawing.first_exponent + len(drawing.counts), math.ceil(ends[1] + _ROOM))
    first = max(min(drawing.first_exponent, math.floor(ends[0] - _ROOM)), last - _MOST_OCTAVES)
    # Equal values get their own place, left of a gap.
    equal_at = first - 3.0
    bars = [*_bars(drawing, first)]
    if drawing.equal:
        bars.append(_Bar(exponent=equal_at, count=drawing.equal, words="equal, or nearly"))
    most = max(bar.count for bar in bars)
    frame = Frame(
        height=_HEIGHT,
        x_low=equal_at if drawing.equal else first,
        x_high=last,
        y_low=0.0,
        y_high=1.0 + math.log10(most),
    )
    step = max(1, math.ceil((last - first) / _TEN / _TICKS))
    ticks = [
        (power * _TEN, f"1e{power}")
        for power in range(math.ceil(first / _TEN), math.floor(last / _TEN) + 1)
        if power % step == 0
    ]
    if drawing.equal:
        ticks.insert(0, (equal_at + 0.5, "0"))
    x_marks, x_labels = frame.x_ticks(ticks, "|actual - expected|")
    y_marks, y_labels = frame.y_ticks(_count_ticks(most))
    shapes = [_shape(bar, frame, ends[1]) for bar in bars]
    places = [frame.x(end) for end in dict.fromkeys(ends)]
    lines = [Path(d=line(at, TOP - 6, at, frame.bottom), kind="limit") for at in places]
    beyond = Path(d=box(frame.x(ends[0]), TOP, frame.right, frame.bottom), kind="beyond-area")
    return Plot(
        title="Differences by size",
        words=_words(output, drawing, limit),
        height=frame.full_height,
        paths=(beyond, *y_marks, *shapes, frame.axes(), *x_marks, *lines),
        labels=(*x_labels, *y_labels, _limit_label(frame, ends[0], is_one=limit.lowest == limit.highest)),
    )


def _bars(drawing: Drawing, first: int) -> list[_Bar]:
    counts: dict[int, int] = {}
    for at, count in enumerate(drawing.counts, drawing.first_exponent):
        counts[max(at, first)] = counts.get(max(at, first), 0) + count
    return [
        _Bar(exponent=at, count=count, words=f"{number(2.0**at)} to {number(2.0 ** (at + 1))}")
        for at, count in counts.items()
        if count
    ]


def _shape(bar: _Bar, frame: Frame, limit: float) -> Path:
    left, right = frame.x(bar.exponent), frame.x(bar.exponent + 1)
    top = frame.y(1 + math.log10(bar.count))
    values = one_or_many(bar.count, "value", "values")
    return Path(
        d=box(left + 0.5, top, right - 0.5, frame.bottom),
        kind="column beyond" if bar.exponent >= limit else "column",
        words=f"{bar.words}: {number(bar.count)} {values}",
    )


def _count_ticks(most: int) -> list[tuple[float, str]]:
    """Return powers of ten as counts; a bar's height is one more than the logarithm of its count."""
    highest = int(math.log10(most))
    step = max(1, math.ceil((highest + 1) / _COUNT_TICKS))
    return [(1.0 + power, _short_count(10**power)) for power in range(0, highest + 1, step)]


def _short_count(count: int) -> str:
    for unit, factor in (("G", 10**9), ("M", 10**6), ("k", 10**3)):
        if count >= factor:
            return f"{count // factor}{unit}"
    return str(count)


def _limit_label(frame: Frame, limit: float, *, is_one: bool) -> Label:
    at = frame.x(limit)
    anchor = "end" if at > frame.right - 30 else "middle"
    return Label(x=at, y=TOP - 10, text="limit" if is_one else "limits", kind="limit-label", anchor=anchor)


def _words(output: OutputResult, drawing: Drawing, limit: LimitRange) -> str:
    total = drawing.equal + sum(drawing.counts)
    beyond = (
        f"{number(drawing.beyond)} of {number(total)} {one_or_many(drawing.beyond, 'is', 'are')} beyond the limit"
        if drawing.beyond
        else f"None of {number(total)} is beyond its limit"
    )
    words = f"{beyond}; half are at most {number(output.p50_abs_diff)}, the largest is {number(output.max_abs_diff)}."
    if limit.lowest == limit.highest:
        return f"{words} The limit is {number(limit.lowest)}."
    return f"{words} The limits are {number(limit.lowest)} to {number(limit.highest)}, by channel."
