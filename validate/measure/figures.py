"""Figures of an output as results hold them: a row that differs most, and how its decisions compare."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from paritygate.codec import unwritten


@dataclass(frozen=True, kw_only=True, slots=True)
class WorstRow:
    """A row, and the difference in it that is furthest beyond its limit, or nearest to it.

    What is not finite is None in the rows of finished statistics, but for `in_limits`.

    Attributes:
        row_id: The id of the row in the samples.
        max_abs_diff: That |actual - expected|; infinite where finiteness differs.
        index: Its position within the row.
        actual: The candidate's value there. Of text, which counts as 1 where it differs, it is None, and so is the
            reference's.
        expected: The reference's value there.
        limit: Its max limit; 0 where it is compared exactly.
        in_limits: That difference divided by its limit; infinite where finiteness or a fill value differs.
        channel: Its channel.
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
    """How the decisions on one output compare.

    Attributes:
        rule: The rule in words.
        rows: Rows looked at.
        decisions: Decisions looked at: as many as rows, or more above rank 2.
        mismatches: Rows that decide differently; above rank 2, decisions that do.
        inside_band: Of these, how many a difference within the limit explains.
        outside_band: The others.
        rows_mismatched: Rows with any mismatch.
        mismatch_rate_upper_95: Upper bound of the rate of rows with any mismatch.
        classes: How often the reference decided for each class; keys are texts, as JSON has them.
        examples: Ids of the first rows that mismatched.
        constant: Why all rows may have the same answer, as declared; empty where it is not said.
        is_constant: Whether the reference decided the same everywhere.
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
