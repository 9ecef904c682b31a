"""A drawing before it is SVG: paths and labels in user units, and a description.

All drawings have one width, so that their letters have one size and stay readable on a phone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from msgspec import Struct

WIDTH = 360.0
# Left of the axes there is room for seven letters.
LEFT, RIGHT, TOP, BOTTOM = 52.0, 10.0, 22.0, 40.0
_TICK = 4.0
_TALL = 280.0
# Half the height of a letter, and the distances from the axis to a label and to the title.
_LETTER, _BELOW, _TITLE_BELOW = 4.0, 16.0, 33.0


class Path(Struct, frozen=True, kw_only=True):
    """A shape: SVG's `d`, the class of its look, and its description or an empty text."""

    d: str
    kind: str
    words: str = ""


class Label(Struct, frozen=True, kw_only=True):
    """A text whose start, middle or end (`anchor`) is at `x`; `kind` is the class of its look."""

    x: float
    y: float
    text: str
    kind: str = "tick"
    anchor: str = "middle"


class Plot(Struct, frozen=True, kw_only=True):
    """A drawing of width `WIDTH`; paths come from back to front, below the labels, and `words` describe it."""

    title: str
    words: str
    height: float
    paths: tuple[Path, ...]
    labels: tuple[Label, ...]

    @property
    def is_tall(self) -> bool:
        """True for a drawing as tall as two others."""
        return self.height > _TALL


class Frame(Struct, frozen=True, kw_only=True):
    """The area between the axes of a drawing, with the numbers at their ends."""

    height: float
    x_low: float
    x_high: float
    y_low: float
    y_high: float

    @property
    def bottom(self) -> float:
        """The place of the lower axis."""
        return TOP + self.height

    @property
    def right(self) -> float:
        """The right end of the axes."""
        return WIDTH - RIGHT

    @property
    def full_height(self) -> float:
        """The height with labels."""
        return self.bottom + BOTTOM

    def x(self, number: float) -> float:
        """Return the place of a number from the left, at most at the ends of the axis."""
        part = (number - self.x_low) / (self.x_high - self.x_low)
        return LEFT + min(1.0, max(0.0, part)) * (self.right - LEFT)

    def y(self, number: float) -> float:
        """Return the place of a number from the top, at most at the ends of the axis."""
        part = (number - self.y_low) / (self.y_high - self.y_low)
        return self.bottom - min(1.0, max(0.0, part)) * self.height

    def axes(self) -> Path:
        """Return both axes."""
        return Path(d=f"M{LEFT:g} {TOP:g}V{self.bottom:g}H{self.right:g}", kind="axis")

    def x_ticks(self, ticks: Iterable[tuple[float, str]], title: str) -> tuple[tuple[Path, ...], tuple[Label, ...]]:
        """Return marks and labels of numbers below the lower axis, and the title of the axis."""
        places = [(self.x(number), text) for number, text in ticks]
        marks = "".join(f"M{at:.1f} {self.bottom:g}v{_TICK:g}" for at, _ in places)
        labels = [Label(x=at, y=self.bottom + _BELOW, text=text, anchor=_anchor(at, self.right)) for at, text in places]
        title_label = Label(x=(LEFT + self.right) / 2, y=self.bottom + _TITLE_BELOW, text=title, kind="title")
        return (Path(d=marks, kind="axis"),), (*labels, title_label)

    def y_ticks(self, ticks: Iterable[tuple[float, str]]) -> tuple[tuple[Path, ...], tuple[Label, ...]]:
        """Return lines across and labels of numbers beside the left axis."""
        places = [(self.y(number), text) for number, text in ticks]
        lines = "".join(f"M{LEFT:g} {at:.1f}H{self.right:g}" for at, _ in places)
        labels = tuple(Label(x=LEFT - 5, y=at + _LETTER, text=text, anchor="end") for at, text in places)
        return (Path(d=lines, kind="grid"),), labels


def _anchor(at: float, right: float) -> str:
    """Return the anchor of a label that keeps it from being cut off at the right."""
    return "end" if at > right - 2 * RIGHT else "middle"


def box(left: float, top: float, right: float, bottom: float) -> str:
    """Return the outline of a rectangle."""
    return f"M{left:.1f} {top:.1f}H{right:.1f}V{bottom:.1f}H{left:.1f}z"


def line(x: float, y: float, x2: float, y2: float) -> str:
    """Return a line."""
    return f"M{x:.1f} {y:.1f}L{x2:.1f} {y2:.1f}"


def nice_steps(low: float, high: float, most: int) -> list[float]:
    """Return at most `most` round numbers from `low` to `high`, in equal steps of 1, 2 or 5 times a power of ten."""
    span = high - low
    power = 10.0 ** math.floor(math.log10(span / most))
    step = next(power * factor for factor in (1, 2, 5, 10, 20) if span / (power * factor) <= most - 1)
    first, last = math.ceil(low / step), math.floor(high / step)
    return [step * at for at in range(first, last + 1)]
