"""Draw part of a graph: a box for each node, below those that it reads."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from paritygate.pipelines.report.drawings.plot import WIDTH, Label, Path, Plot, box

if TYPE_CHECKING:
    from paritygate.validate.divergence.result import DrawnNode

_HEIGHT, _BETWEEN, _BESIDE, _EDGE = 36.0, 30.0, 10.0, 2.0
# The width of a letter.
_LETTER = 6.4


def graph_plot(title: str, nodes: Sequence[DrawnNode]) -> Plot:
    """Return the drawing of nodes in their order; those of the place have a thick outline."""
    levels = _levels(nodes)
    rows: dict[int, list[DrawnNode]] = defaultdict(list)
    for node in nodes:
        rows[levels[node.name]].append(node)
    tops = {node.name: (node, *_place(row, at, level)) for level, row in rows.items() for at, node in enumerate(row)}
    lines = [_line(tops[name][1:], tops[node.name][1:]) for node in nodes for name in node.reads if name in levels]
    boxes = [
        Path(
            d=box(x - width / 2, y, x + width / 2, y + _HEIGHT),
            kind="box here" if node.is_here else "box",
            words=f"{node.op_type} {node.name}",
        )
        for node, x, y, width in tops.values()
    ]
    labels = [label for node, x, y, width in tops.values() for label in _labels(node, x, y, width)]
    here = ", ".join(f"{node.op_type} {node.name}" for node in nodes if node.is_here)
    return Plot(
        title=title,
        words=f"At the place: {here}." if here else "This model has nothing at the place.",
        height=_EDGE + len(rows) * (_HEIGHT + _BETWEEN),
        paths=(*lines, *boxes),
        labels=tuple(labels),
    )


def _levels(nodes: Sequence[DrawnNode]) -> dict[str, int]:
    """Return the row of each node: as near as possible above the first that reads it."""
    levels: dict[str, int] = {}
    for node in nodes:
        levels[node.name] = 1 + max((levels[name] for name in node.reads if name in levels), default=-1)
    for node in reversed(nodes):
        readers = [levels[each.name] for each in nodes if node.name in each.reads]
        levels[node.name] = min(readers) - 1 if readers else levels[node.name]
    return levels


def _place(row: Sequence[DrawnNode], at: int, level: int) -> tuple[float, float, float]:
    """Return the middle, the top and the width of a box."""
    step = WIDTH * len(row) ** -1
    return step * (at + 0.5), _EDGE + level * (_HEIGHT + _BETWEEN), min(step - _BESIDE, WIDTH / 2)


def _line(start: tuple[float, float, float], end: tuple[float, float, float]) -> Path:
    """Return the arrow between two boxes, around those between them."""
    (x, y, _), (x2, y2, width) = start, end
    y += _HEIGHT
    aside = 0.0 if y2 - y <= _BETWEEN else 1.4 * (width / 2 + _BESIDE) * (1 if x2 <= WIDTH / 2 else -1)
    # The line stays within the drawing, because it does not reach the points that draw it aside.
    first, second = (min(max(at + aside, -_BESIDE), WIDTH + _BESIDE) for at in (x, x2))
    middle = f"C{first:.1f} {y + _BETWEEN:.1f} {second:.1f} {y2 - _BETWEEN:.1f} "
    return Path(d=f"M{x:.1f} {y:.1f}{middle}{x2:.1f} {y2:.1f}l-3.5 -6m3.5 6l3.5 -6", kind="edge")


def _labels(node: DrawnNode, x: float, y: float, width: float) -> tuple[Label, Label]:
    length = max(3, int(width / _LETTER))
    return (
        Label(x=x, y=y + 15, text=_end_of(node.op_type, length), kind="strong"),
        Label(x=x, y=y + 29, text=_end_of(node.name, length)),
    )


def _end_of(name: str, length: int) -> str:
    """Return the end of a name, because names of one module begin alike."""
    return name if len(name) <= length else f"\N{HORIZONTAL ELLIPSIS}{name[1 - length :]}"
