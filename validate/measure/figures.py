"""Figures of an output as results hold them: a row that differs most, and how its decisions compare."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from msgspec import Struct


class WorstRow(Struct, frozen=True, kw_only=True):
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
    in_limits: float = 0.0
    channel: int = 0

    unwritten: ClassVar = ("in_limits", "channel")  # left out of JSON data


class DecisionStatistics(Struct, frozen=True, kw_only=True):
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
    is_constant: bool = False

    unwritten: ClassVar = ("is_constant",)
