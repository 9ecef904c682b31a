"""Labels beside points so that they lie neither on each other nor on what else is drawn."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

__all__ = ["Box", "Label", "LabelWish", "place_labels"]

# Right, left, and the diagonals before straight above and below, where intervals are drawn.
_DIRECTIONS = ((1, 0), (-1, 0), (1, -1), (1, 1), (-1, -1), (-1, 1), (0, -1), (0, 1))
_DISTANCES = (0.0, 10.0, 22.0, 36.0, 52.0, 70.0, 90.0)
# From here on a line leads from the point to its label.
_NEAR = 10.0
_GAP = 4.0
_DIAGONAL = 6.0
_PARTS_OF_LINE = (0.4, 0.55, 0.7, 0.85, 1.0)


@dataclass(frozen=True, kw_only=True, slots=True)
class Box:
    """An area that is taken, in user units from the top left."""

    left: float
    top: float
    right: float
    bottom: float

    def overlap(self, other: Box) -> float:
        """Return the area that both cover."""
        width = min(self.right, other.right) - max(self.left, other.left)
        height = min(self.bottom, other.bottom) - max(self.top, other.top)
        return max(0.0, width) * max(0.0, height)

    def outside(self, bounds: Box) -> float:
        """Return the area that is not within `bounds`."""
        return (self.right - self.left) * (self.bottom - self.top) - self.overlap(bounds)


@dataclass(frozen=True, kw_only=True, slots=True)
class Label:
    """A label: its text, the point where it starts, ends or has its middle, and the line to what it is about.

    Attributes:
        text: What it says.
        x: From the left.
        y: Its vertical middle, from the top.
        align: `left`, `right` or `center`: which part of the text is at `x`.
        line: From where to where a line leads to the point, `(x, y, x2, y2)`; None where it stands close by.
        box: What it covers.
    """

    text: str
    x: float
    y: float
    align: str
    line: tuple[float, float, float, float] | None
    box: Box


@dataclass(frozen=True, kw_only=True, slots=True)
class LabelWish:
    """A label that needs a place.

    Attributes:
        text: What it says.
        x: Of the point it is about, from the left.
        y: Of the point, from the top.
        width: Of the text.
        height: Of the text.
        radius: Of the point: the text keeps clear of it.
    """

    text: str
    x: float
    y: float
    width: float
    height: float
    radius: float


def place_labels(wishes: Sequence[LabelWish], *, taken: Iterable[Box], bounds: Box) -> tuple[Label, ...]:
    """Return a label for each wish: greedily the nearest place that covers least of what is there.

    Args:
        wishes: The labels.
        taken: What else must not be covered.
        bounds: What the labels must stay within.
    """
    obstacles = [*taken, *(_around(wish.x, wish.y, wish.radius) for wish in wishes)]
    found: dict[int, Label] = {}
    # From the top down, so that a crowd of points gets its labels in the order in which they stand.
    for index in sorted(range(len(wishes)), key=lambda at: (wishes[at].y, wishes[at].x)):
        label = min(_places(wishes[index]), key=lambda place: _cost(place, obstacles, bounds))
        obstacles += [label.box, *_along(label)]
        found[index] = label
    return tuple(found[index] for index in range(len(wishes)))


def _around(x: float, y: float, radius: float) -> Box:
    return Box(left=x - radius, top=y - radius, right=x + radius, bottom=y + radius)


def _along(label: Label) -> list[Box]:
    """Return the line of a label as small areas, but for its start, which lies among the points anyway."""
    if label.line is None:
        return []
    x, y, x2, y2 = label.line
    return [_around(x + (x2 - x) * part, y + (y2 - y) * part, 2.0) for part in _PARTS_OF_LINE]


def _cost(label: Label, obstacles: Sequence[Box], bounds: Box) -> float:
    covered = sum(label.box.overlap(obstacle) for obstacle in obstacles)
    # A line through a label is worse than a longer one around it.
    crossed = sum(step.overlap(obstacle) for step in _along(label) for obstacle in obstacles)
    length = 0.0 if label.line is None else abs(label.line[2] - label.line[0]) + abs(label.line[3] - label.line[1])
    # Outside the drawing a label is cut off, which is worse than lying on something.
    return 10 * label.box.outside(bounds) + covered + 2 * crossed + length / 2


def _places(wish: LabelWish) -> Iterable[Label]:
    for distance in _DISTANCES:
        for across, down in _DIRECTIONS:
            # On a diagonal the text begins nearer to the point, and stands higher or lower instead.
            reach = distance * 0.7 + _DIAGONAL if down else wish.radius + _GAP + distance
            x = wish.x + across * reach
            y = wish.y + down * (wish.radius + wish.height / 2 + distance)
            align = {1: "left", -1: "right", 0: "center"}[across]
            left = x - {1: 0.0, -1: wish.width, 0: wish.width / 2}[across]
            box = Box(left=left, top=y - wish.height / 2, right=left + wish.width, bottom=y + wish.height / 2)
            line = None if distance < _NEAR else (wish.x, wish.y, x - across * 2, y - down * wish.height / 2)
            yield Label(text=wish.text, x=x, y=y, align=align, line=line, box=box)
