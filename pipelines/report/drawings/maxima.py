"""The largest differences by row and by length of the row, as parts of the limit."""

from __future__ import annotations

import math

from paritygate.pipelines.report.drawings.plot import LEFT, TOP, Frame, Label, Path, Plot, box, line, nice_steps
from paritygate.pipelines.report.figures import number, share
from paritygate.validate.measure.figures import DrawnMaxima

_HEIGHT = 150.0
_MOST_DECADES = 6
_TICKS = 5
# Larger powers of ten are too long to be written out.
_LONG_POWER = 3


def row_plot(maxima: DrawnMaxima, rows: int) -> Plot | None:
    """Return the largest differences by row; None without differences, or for one row."""
    if rows <= 1:
        return None
    return _plot(maxima, noun="row", axis="row, in the order of the samples from 0", last=rows)


def length_plot(maxima: DrawnMaxima) -> Plot | None:
    """Return the largest differences by the length of the row; None without differences."""
    return _plot(maxima, noun="length", axis="length of the row", last=len(maxima.largest) * maxima.width)


def _plot(maxima: DrawnMaxima, *, noun: str, axis: str, last: int) -> Plot | None:
    bars = {at: largest for at, largest in enumerate(maxima.largest) if largest}
    if not bars and not maxima.not_finite:
        return None
    numbers = [*bars.values(), 1.0]
    high = math.ceil(math.log10(max(numbers)) + 0.1)
    low = max(math.floor(math.log10(min(numbers)) - 0.1), high - _MOST_DECADES)
    frame = Frame(height=_HEIGHT, x_low=0.0, x_high=float(last), y_low=float(low), y_high=float(high))
    broken = "".join(
        box(frame.x(at * maxima.width), TOP, frame.x((at + 1) * maxima.width), frame.bottom) for at in maxima.not_finite
    )
    shapes = (
        Path(d=_bars(bars, frame, maxima.width, is_beyond=False), kind="column"),
        Path(d=_bars(bars, frame, maxima.width, is_beyond=True) + broken, kind="column beyond"),
    )
    limit = frame.y(0.0)
    ticks = [(step, number(int(step))) for step in nice_steps(0, last, _TICKS) if step == int(step)]
    x_marks, x_labels = frame.x_ticks(ticks, axis)
    y_marks, y_labels = frame.y_ticks([(float(power), _part(power)) for power in range(low, high + 1) if power])
    return Plot(
        title=f"Largest difference by {noun}",
        words=_words(maxima, bars, noun),
        height=frame.full_height,
        paths=(
            Path(d=box(LEFT, TOP, frame.right, limit), kind="beyond-area"),
            *y_marks,
            *(shape for shape in shapes if shape.d),
            frame.axes(),
            *x_marks,
            # Bars beyond the limit have its colour.
            Path(d=line(LEFT, limit, frame.right, limit), kind="halo"),
            Path(d=line(LEFT, limit, frame.right, limit), kind="limit"),
        ),
        labels=(
            *x_labels,
            *y_labels,
            Label(x=LEFT - 5, y=limit + 4, text="limit", kind="limit-label", anchor="end"),
            Label(x=LEFT, y=TOP - 10, text="part of the limit", kind="title", anchor="start"),
        ),
    )


def _bars(found: dict[int, float], frame: Frame, width: int, *, is_beyond: bool) -> str:
    return "".join(
        box(frame.x(at * width), frame.y(math.log10(largest)), frame.x((at + 1) * width), frame.bottom)
        for at, largest in found.items()
        if (largest > 1) is is_beyond
    )


def _part(power: int) -> str:
    if power > _LONG_POWER:
        return f"1e{power}x"
    if power < -_LONG_POWER:
        return f"1e{power + 2} %"
    return f"{10**power:,}x" if power > 0 else f"{number(10.0 ** (power + 2))} %"


def _words(maxima: DrawnMaxima, found: dict[int, float], noun: str) -> str:
    if maxima.not_finite:
        places = sorted({*maxima.not_finite, *(at for at, largest in found.items() if largest > 1)})
        more = f"; not finite at {_place(maxima.not_finite[0], maxima.width, noun)}"
    else:
        places = [at for at, largest in found.items() if largest > 1]
        more = ""
    if found:
        at = max(found, key=lambda place: found[place])
        most = f"The largest difference is {_of_limit(found[at])}, at {_place(at, maxima.width, noun)}{more}."
    else:
        most = f"No difference is a number{more}."
    used = sum(largest is not None for largest in maxima.largest) + len(maxima.not_finite)
    beyond = f" {number(len(places))} of {number(used)} bars are beyond the limit." if places else ""
    each = noun if maxima.width == 1 else f"{number(maxima.width)} {noun}s"
    return f"{most}{beyond} A bar is the largest of each {each}."


def _of_limit(part: float) -> str:
    words = share(part, 1.0)
    return f"{words} its limit" if words.endswith("times") else f"{words} of its limit"


def _place(at: int, width: int, noun: str) -> str:
    first, last = at * width, (at + 1) * width - 1
    return f"{noun} {number(first)}" if width == 1 else f"{noun}s {number(first)} to {number(last)}"
