"""Figures of an output as results hold them: a row that differs most, how its decisions compare, and its drawing."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from paritygate.codec import unwritten

# The exponent of 2 where the second octave begins; the first one holds zero and all that is smaller.
FIRST_OCTAVE = -126
# The number of octaves from there on.
OCTAVES = 255
# Cells of a grid in one direction; a row below and one above hold actual values beyond the range.
CELLS = 64
# Bins of rows, and of lengths.
MOST_BINS = 128
_CELLS = re.compile(r"\d{1,2},\d{1,2},\d{1,18}(?: \d{1,2},\d{1,2},\d{1,18}){0,5000}", re.ASCII)


@dataclass(frozen=True, kw_only=True, slots=True)
class WorstRow:
    """A row, and the difference in it that is furthest beyond its limit, or nearest to it.

    `in_limits` is the difference divided by its limit, infinite where finiteness or a fill value differs. In finished
    statistics, all other values that are not finite are None. `index` is the position in the row. `actual` and
    `expected` are None for text, which counts as 1 where it differs. `limit` is 0 for an exact comparison.
    """

    row_id: str
    max_abs_diff: float | None
    index: tuple[int, ...]
    actual: float | None
    expected: float | None
    limit: float | None = None
    in_limits: float = unwritten(default=0.0)
    channel: int = unwritten(default=0)


@dataclass(frozen=True, kw_only=True, slots=True)
class DecisionStatistics:
    """Compare the decisions on one output.

    Above rank 2, there are more `decisions` than `rows`, and `mismatches` are decisions, else rows. A difference within
    the limit explains those `inside_band`. `mismatch_rate_upper_95` bounds the rate of rows with any mismatch.
    `classes` count the reference's decisions, by texts as in JSON. `examples` are ids of the first rows that
    mismatched. `constant` is the declared reason why all rows may have the same answer; empty without one.
    """

    rule: str
    rows: int
    decisions: int
    mismatches: int
    inside_band: int
    outside_band: int
    rows_mismatched: int
    mismatch_rate_upper_95: float
    classes: Mapping[str, int]
    examples: tuple[str, ...]
    constant: str = ""
    is_constant: bool = unwritten(default=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class DrawnGrid:
    """Counts of values by expected value (across) and actual value (up).

    `low` to `high` is the range of both sides, cut into `size` cells. `cells` with values, and `flips` with flipped
    decisions, are `X,Y,COUNT` with spaces between them: X from 0, Y from 1. Y is 0 below the range, and `size` + 1
    above it. `not_finite` counts values that are finite in the reference alone.
    """

    low: float
    high: float
    size: int
    cells: str
    flips: str
    not_finite: int = 0

    def __post_init__(self) -> None:
        is_range = self.low < self.high and math.isfinite(self.high - self.low) and 1 <= self.size <= CELLS
        if not is_range or not all(_are_cells(cells, self.size) for cells in (self.cells, self.flips)):
            raise ValueError("the drawing of actual against expected values is not a grid of counts")


@dataclass(frozen=True, kw_only=True, slots=True)
class DrawnMaxima:
    """The largest part of its limit that a difference has, to six digits, in bins of `width` positions each from 0.

    Null is a bin without a row, or one that is in `not_finite`, where a difference is NaN or beyond any limit.
    """

    width: int
    largest: list[float | None]
    not_finite: list[int]

    def __post_init__(self) -> None:
        bins = len(self.largest)
        is_sound = self.width >= 1 and bins <= MOST_BINS and all(at in range(bins) for at in self.not_finite)
        if not is_sound or any(value is not None and value < 0 for value in self.largest):
            raise ValueError("the drawing of the largest differences is not a list")


@dataclass(frozen=True, kw_only=True, slots=True)
class Drawing:
    """The drawing of an output, of the first pass.

    `counts` are of differences from `2 ** first_exponent` on; each entry begins at twice the start of the one before.
    `equal` counts those of 0, or too small for float32, and `beyond` those beyond their own max limit. `boundary` is
    the decision's threshold. An output without an axis of rows has no `by_row`; without different lengths, no
    `by_length`.
    """

    equal: int
    beyond: int
    first_exponent: int
    counts: list[int]
    boundary: float | None = None
    grid: DrawnGrid | None = None
    by_row: DrawnMaxima | None = None
    by_length: DrawnMaxima | None = None

    def __post_init__(self) -> None:
        last = self.first_exponent + len(self.counts)
        is_in_float32 = self.first_exponent >= FIRST_OCTAVE and last <= FIRST_OCTAVE + OCTAVES
        if not is_in_float32 or min([self.equal, self.beyond, *self.counts]) < 0:
            raise ValueError("the drawing of the differences by size is not a list of counts")


def _are_cells(text: str, size: int) -> bool:
    """Return whether a text names cells of a grid, each with a count."""
    if text and not _CELLS.fullmatch(text):
        return False
    cells = [tuple(map(int, cell.split(","))) for cell in text.split()]
    return all(x < size and y <= size + 1 and count > 0 for x, y, count in cells)
