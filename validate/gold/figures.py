"""A metric of both sides against gold, as results hold it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True, slots=True)
class GoldStratum:
    """The metric over the rows of one stratum; None where it is not defined."""

    rows: int
    reference: float | None
    candidate: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class GoldStatistics:
    """A metric of both sides. None is what is not defined, or not known.

    Attributes:
        metric: The metric, by its name or as `module:callable`.
        output: The output that it reads.
        rows: Rows that carry gold.
        rows_without: Rows that carry none: they are left out.
        reference: The metric of the reference.
        candidate: That of the candidate.
        difference: The candidate's less the reference's.
        difference_low_95: Where the interval of that begins.
        difference_high_95: Where it ends.
        limit: The least that the candidate may have; None without a limit.
        margin_low_95: Where the interval of the candidate's less the limit begins.
        margin_high_95: Where it ends.
        ratio: The least share of the reference's metric; None for no such limit.
        max_drop: The largest drop below the reference's metric; None for no such limit.
        gold_above: Gold above this is positive; None where it is not made a label.
        digest: Digest of the gold, row by row, NaN for none.
        strata: By stratum and value.
    """

    metric: str
    output: str
    rows: int
    rows_without: int
    reference: float | None
    candidate: float | None
    difference: float | None
    difference_low_95: float | None
    difference_high_95: float | None
    limit: float | None
    margin_low_95: float | None
    margin_high_95: float | None
    ratio: float | None
    max_drop: float | None
    gold_above: float | None
    digest: str
    strata: Mapping[str, Mapping[str, GoldStratum]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """What the metric is called in checks and reports."""
        return self.metric.rpartition(":")[2]
