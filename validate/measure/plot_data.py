"""Drawings of one output: counts and maxima in bins, over any number of rows, in constant memory.

Counts and maxima are exact, however rows are cut into batches. The range of a grid is known before the first batch, and
bins of positions double in width when there are too many.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from paritygate.validate.measure.blocks import blocks_of_rows
from paritygate.validate.measure.figures import CELLS, FIRST_OCTAVE, MOST_BINS, Drawing, DrawnGrid, DrawnMaxima
from paritygate.validate.measure.valid_positions import left_out_of, not_a_number

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from paritygate.validate.measure.decisions import Decision
    from paritygate.validate.measure.flips import Flips
    from paritygate.validate.measure.profile import OutputProfile

# With more cells than this, four of them become one, to keep evidence small.
_MOST_CELLS = 1000
_DIGITS = 6
_LENGTH_BINS = 64
# Part of the range that is free at either end, so that rounding puts no value beyond it.
_MARGIN = 0.02


@dataclass(kw_only=True, slots=True)
class Maxima:
    """The largest numbers by position from 0, in at most `most` bins of one width.

    `width` is the smallest power of two that suffices. `largest` is by bin, up to the last one with a number; -inf for
    none.
    """

    most: int
    width: int = 1
    largest: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))

    def add(self, positions: NDArray[np.int64], numbers: NDArray[np.float64]) -> None:
        """Add numbers, each with its position; none of them is NaN."""
        if not positions.size:
            return
        last = int(positions.max())
        while last // self.width >= self.most:
            self._widen()
        bins = positions // self.width
        self._reach(int(bins.max()) + 1)
        np.maximum.at(self.largest, bins, numbers)

    def take_in(self, other: Maxima) -> None:
        """Add the numbers of others, which may be changed."""
        while self.width < other.width:
            self._widen()
        while other.width < self.width:
            other._widen()
        self._reach(other.largest.size)
        first = self.largest[: other.largest.size]
        np.maximum(first, other.largest, out=first)

    def _reach(self, bins: int) -> None:
        if bins > self.largest.size:
            self.largest = np.concatenate([self.largest, np.full(bins - self.largest.size, -np.inf)])

    def _widen(self) -> None:
        self.width *= 2
        self._reach(self.largest.size + self.largest.size % 2)
        self.largest = self.largest.reshape(-1, 2).max(axis=1)


@dataclass(kw_only=True, slots=True)
class Grid:
    """Counts of values by expected value (across) and actual value (up), in cells of one size from `low` to `high`.

    `values` and `flips`, those with flipped decisions, have the shape (CELLS, CELLS + 2): by expected, then by actual
    value. The first and last entry of the latter are below and above the range. `not_finite` counts values that are
    finite in the reference alone.
    """

    low: float
    high: float
    values: NDArray[np.int64] = field(default_factory=lambda: np.zeros((CELLS, CELLS + 2), dtype=np.int64))
    flips: NDArray[np.int64] = field(default_factory=lambda: np.zeros((CELLS, CELLS + 2), dtype=np.int64))
    not_finite: int = 0

    def add(self, actual: NDArray[np.float64], expected: NDArray[np.float64]) -> None:
        """Count values of both sides, of one shape; none where the reference is outside the range."""
        at, not_finite = self._cells(actual, expected)
        self.not_finite += not_finite
        self.values += np.bincount(at, minlength=self.values.size).reshape(self.values.shape)

    def add_flips(self, actual: NDArray[np.float64], expected: NDArray[np.float64]) -> None:
        """Count values again whose decision flipped."""
        at, _ = self._cells(actual, expected)
        self.flips += np.bincount(at, minlength=self.flips.size).reshape(self.flips.shape)

    def _cells(self, actual: NDArray[np.float64], expected: NDArray[np.float64]) -> tuple[NDArray[np.int64], int]:
        """Return the cell of each value that has one, and how many are finite in the reference alone."""
        x, y = self._in_cells(expected), self._in_cells(actual)
        not_finite = 0
        # Where all are within the range, as usual, no single value needs a look; NaN is not within.
        if not (x.size and all(side.min() >= 0 and side.max() < CELLS for side in (x, y))):
            is_in = (x >= 0) & (x <= CELLS)
            is_finite = np.isfinite(y)
            not_finite = int(np.count_nonzero(is_in & ~is_finite))
            is_in &= is_finite
            # The upper end belongs to the last cell; values far beyond the range have no number, and are clipped.
            last = np.nextafter(CELLS, 0)
            x = np.minimum(x[is_in], last)
            y = np.where(y[is_in] == CELLS, last, np.clip(np.floor(y[is_in]), -1, CELLS))
        cells = x.astype(np.int64)
        cells *= CELLS + 2
        cells += y.astype(np.int64)
        cells += 1
        return cells, not_finite

    def _in_cells(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return values in cells from the lower end of the range."""
        in_cells = values.ravel() - self.low
        in_cells *= CELLS / (self.high - self.low)
        return in_cells


@dataclass(kw_only=True, slots=True)
class Sketch:
    """The drawing of one float output so far.

    `grid` is None where the reference's range is unknown, `boundary` without a threshold. `by_row` and `by_length` hold
    the largest part of its limit that a difference has; the latter is empty where rows have no length.
    """

    grid: Grid | None
    boundary: float | None = None
    by_row: Maxima = field(default_factory=lambda: Maxima(most=MOST_BINS))
    by_length: Maxima = field(default_factory=lambda: Maxima(most=_LENGTH_BINS))

    def take_in(self, other: Sketch) -> None:
        """Add the drawing of other rows, which may be changed."""
        if self.grid is not None and other.grid is not None:
            self.grid.values += other.grid.values
            self.grid.flips += other.grid.flips
            self.grid.not_finite += other.grid.not_finite
        self.by_row.take_in(other.by_row)
        self.by_length.take_in(other.by_length)

    def add_values(self, actual: NDArray[np.generic], expected: NDArray[np.generic], rows: int) -> None:
        """Add one batch of both sides, of `rows` rows."""
        if self.grid is None:
            return
        for first, last in blocks_of_rows(expected.shape, rows):
            some = ... if last - first == rows else slice(first, last)
            left_out = left_out_of(expected[some])
            self.grid.add(not_a_number(actual[some], left_out), not_a_number(expected[some], left_out))

    def add_rows(
        self, largest: NDArray[np.float64], *, first_row: int, lengths: NDArray[np.float64] | None = None
    ) -> None:
        """Add rows from position `first_row` on, by the largest part of its limit that a difference has in each."""
        self.by_row.add(np.arange(first_row, first_row + len(largest)), largest)
        if lengths is not None:
            self.by_length.add(lengths.astype(np.int64), largest)

    def add_flips(
        self, decision: Decision, flips: Flips, actual: NDArray[np.generic], expected: NDArray[np.generic]
    ) -> None:
        """Add the decisions of one batch by the score that decides for the reference; of a set, by its smallest."""
        if self.grid is None or not flips.flipped.any():
            return
        left_out = left_out_of(expected)
        sides = [not_a_number(array, left_out) for array in (actual, expected)]
        if flips.flipped.shape != expected.shape:
            axis = -1 if decision.axis is None else decision.axis
            chosen = flips.classes if flips.classes.ndim == flips.flipped.ndim else flips.classes[..., -1]
            sides = [
                np.take_along_axis(np.moveaxis(side, axis, -1), chosen[..., np.newaxis], axis=-1)[..., 0]
                for side in sides
            ]
        self.grid.add_flips(sides[0][flips.flipped], sides[1][flips.flipped])


def empty_sketch(profile: OutputProfile, decision: Decision | None = None) -> Sketch:
    """Return the sketch before the first batch, by the reference's range and the decision on the output."""
    boundary = decision.threshold if decision is not None and decision.has_threshold else None
    if profile.low is None or profile.high is None:
        return Sketch(grid=None, boundary=boundary)
    low, high = profile.low, profile.high
    span = high - low
    if boundary is not None and low - span <= boundary <= high + span:
        low, high = min(low, boundary), max(high, boundary)
    # A constant has a range as well.
    room = _MARGIN * ((high - low) or abs(high) or 1.0)
    if not (math.isfinite(room) and low - room < high + room):
        return Sketch(grid=None, boundary=boundary)
    return Sketch(grid=Grid(low=low - room, high=high + room), boundary=boundary)


def drawn(sketch: Sketch, octaves: NDArray[np.int64], beyond: int) -> Drawing:
    """Return the drawing; `octaves` are those of `histogram.octaves`, `beyond` counts differences beyond limits."""
    equal, counts = int(octaves[0]), [int(count) for count in octaves[1:]]
    used = [at for at, count in enumerate(counts) if count]
    first, last = (used[0], used[-1] + 1) if used else (0, 0)
    # A single length shows nothing.
    has_lengths = (sketch.by_length.largest > -math.inf).sum() > 1
    return Drawing(
        equal=equal,
        beyond=beyond,
        first_exponent=FIRST_OCTAVE + first,
        counts=counts[first:last],
        boundary=sketch.boundary,
        grid=None if sketch.grid is None else _drawn_grid(sketch.grid),
        by_row=_drawn_maxima(sketch.by_row) if sketch.by_row.largest.size else None,
        by_length=_drawn_maxima(sketch.by_length) if has_lengths else None,
    )


def _drawn_grid(grid: Grid) -> DrawnGrid:
    values, flips = grid.values, grid.flips
    while (values > 0).sum() > _MOST_CELLS:
        values, flips = _coarser(values), _coarser(flips)
    return DrawnGrid(
        low=grid.low,
        high=grid.high,
        size=len(values),
        cells=_cells(values),
        flips=_cells(flips),
        not_finite=grid.not_finite,
    )


def _coarser(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the counts of cells twice as wide and high; those below and above the range stay apart."""
    import numpy as np

    half = len(counts) // 2
    across = counts.reshape(half, 2, -1).sum(axis=1)
    inner = across[:, 1:-1].reshape(half, half, 2).sum(axis=2)
    return np.concatenate([across[:, :1], inner, across[:, -1:]], axis=1)


def _cells(counts: NDArray[np.int64]) -> str:
    return " ".join(f"{x},{y},{counts[x, y]}" for x, y in zip(*counts.nonzero(), strict=True))


def _drawn_maxima(maxima: Maxima) -> DrawnMaxima:
    largest = maxima.largest.tolist()
    return DrawnMaxima(
        width=maxima.width,
        largest=[float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else None for value in largest],
        not_finite=[at for at, value in enumerate(largest) if value == math.inf],
    )
