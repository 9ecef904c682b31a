"""Actual against expected values: counts by cell, the boundary, and changed decisions."""

from __future__ import annotations

import math
from collections.abc import Iterable

from paritygate.pipelines.report.drawings.plot import LEFT, TOP, Frame, Label, Path, Plot, line, nice_steps
from paritygate.pipelines.report.figures import number
from paritygate.text import one_or_many
from paritygate.validate.measure.figures import Drawing, DrawnGrid

_HEIGHT = 250.0
_TICKS = 7
# Shades of cells by powers of ten; the last one is for all larger counts.
_SHADES = 4
# Values beyond the range are in a strip of this height, after a gap.
_STRIP, _GAP = 5.0, 3.0
_CROSS = 3.5

_Cell = tuple[int, int, int]


def scatter_plot(drawing: Drawing) -> Plot | None:
    """Return the drawing; None where nothing was counted."""
    grid = drawing.grid
    if grid is None or not grid.cells:
        return None
    cells, flips = _parsed(grid.cells), _parsed(grid.flips)
    frame = Frame(height=_HEIGHT, x_low=grid.low, x_high=grid.high, y_low=grid.low, y_high=grid.high)
    steps = [(step, _step_text(step, grid)) for step in nice_steps(grid.low, grid.high, _TICKS)]
    x_marks, x_labels = frame.x_ticks(steps, "expected")
    y_marks, y_labels = frame.y_ticks(steps)
    shapes = [
        Path(d="".join(_cell_path(cell, grid, frame) for cell in group), kind=f"cell-{shade}")
        for shade in range(1, _SHADES + 1)
        if (group := [cell for cell in cells if _shade(cell[2]) == shade])
    ]
    crosses = [Path(d="".join(_cross(cell, grid, frame) for cell in flips), kind="flip")] if flips else []
    diagonal = Path(d=line(LEFT, frame.bottom, frame.right, TOP), kind="diagonal")
    boundary, boundary_labels = _boundary(drawing.boundary, grid, frame)
    above = Label(x=LEFT, y=TOP - 10, text="actual", kind="title", anchor="start")
    return Plot(
        title="Actual against expected",
        words=_words(drawing, cells, flips),
        height=frame.full_height,
        paths=(*y_marks, *shapes, diagonal, frame.axes(), *x_marks, *boundary, *crosses),
        labels=(*x_labels, *y_labels, above, *boundary_labels),
    )


def _parsed(cells: str) -> list[_Cell]:
    parsed = (tuple(map(int, cell.split(","))) for cell in cells.split())
    return [(x, y, count) for x, y, count in parsed]


def _shade(count: int) -> int:
    return min(_SHADES, 1 + int(math.log10(count)))


def _step_text(step: float, grid: DrawnGrid) -> str:
    # A zero that rounding made a small number.
    return number(0.0 if abs(step) < (grid.high - grid.low) * 1e-9 else step)


def _cell_top(y: int, grid: DrawnGrid, frame: Frame) -> tuple[float, float]:
    """Return upper edge and height of a cell; cells beyond the range are strips at the edges."""
    if y == 0:
        return frame.bottom + _GAP, _STRIP
    if y > grid.size:
        return TOP - _GAP - _STRIP, _STRIP
    height = frame.height / grid.size
    return frame.bottom - y * height, height


def _cell_path(cell: _Cell, grid: DrawnGrid, frame: Frame) -> str:
    width = (frame.right - LEFT) / grid.size
    top, height = _cell_top(cell[1], grid, frame)
    return f"M{LEFT + cell[0] * width:.1f} {top:.1f}h{width:.1f}v{height:.1f}h-{width:.1f}z"


def _cross(cell: _Cell, grid: DrawnGrid, frame: Frame) -> str:
    width = (frame.right - LEFT) / grid.size
    top, height = _cell_top(cell[1], grid, frame)
    x, y = LEFT + (cell[0] + 0.5) * width, top + height / 2
    side = 2 * _CROSS
    return f"M{x - _CROSS:.1f} {y - _CROSS:.1f}l{side:g} {side:g}m0-{side:g}l-{side:g} {side:g}"


def _boundary(boundary: float | None, grid: DrawnGrid, frame: Frame) -> tuple[tuple[Path, ...], tuple[Label, ...]]:
    if boundary is None or not grid.low <= boundary <= grid.high:
        return (), ()
    x, y = frame.x(boundary), frame.y(boundary)
    lines = Path(d=line(x, TOP, x, frame.bottom) + line(LEFT, y, frame.right, y), kind="boundary")
    anchor = "end" if x > frame.right - 40 else "start" if x < LEFT + 60 else "middle"
    return (lines,), (Label(x=x, y=TOP - 10, text=f"boundary {number(boundary)}", kind="strong", anchor=anchor),)


def _words(drawing: Drawing, cells: list[_Cell], flips: list[_Cell]) -> str:
    grid = drawing.grid
    if grid is None:
        return ""
    return " ".join(_sentences(drawing, grid, cells, flips))


def _sentences(drawing: Drawing, grid: DrawnGrid, cells: list[_Cell], flips: list[_Cell]) -> Iterable[str]:
    total = sum(count for *_, count in cells)
    values = f"{number(total)} {one_or_many(total, 'value', 'values')}"
    yield f"{values}, darker where there are more; equal ones lie on the diagonal."
    beyond = sum(count for _, y, count in cells if not 0 < y <= grid.size)
    if beyond:
        yield f"{number(beyond)} {one_or_many(beyond, 'is', 'are')} beyond all that is expected, at the edge."
    if grid.not_finite:
        yield f"{number(grid.not_finite)} more {one_or_many(grid.not_finite, 'is', 'are')} not finite."
    flipped = sum(count for *_, count in flips)
    if flipped and drawing.boundary is not None:
        crosses = one_or_many(flipped, "A cross is", "Crosses are")
        yield f"{crosses} what is decided otherwise: {number(flipped)} {one_or_many(flipped, 'value', 'values')}."
    elif flipped:
        rows = one_or_many(flipped, "one decision that differs", f"{number(flipped)} decisions that differ")
        yield f"{one_or_many(flipped, 'A cross is', 'Crosses are')} {rows}, at the score of the right class."
    elif drawing.boundary is not None:
        yield "No decision differs."
