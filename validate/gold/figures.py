"""Figures of a metric of both sides against gold, as results hold them."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field


class GoldStratum(Struct, frozen=True, kw_only=True):
    """The metric over the rows of one stratum; None where it is not defined."""

    rows: int
    reference: float | None
    candidate: float | None


class GoldStatistics(Struct, frozen=True, kw_only=True):
    """A metric of both sides; None for figures that are not defined or not known.

    `metric` is a name or `module:callable`. Of all rows, `rows` carry gold, and `rows_without` are left out.
    `difference` is the candidate's metric less the reference's. `limit` is the least metric of the candidate. The
    interval of the margin is that of the candidate's metric less the limit. `ratio` is the least share of the
    reference's metric, `max_drop` the largest drop below it. Gold above `gold_above` is positive; None where gold is
    not made a label. `digest` is that of the gold, row by row, NaN for none. `strata` are by stratum and value.
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
        """Return the name of the metric in checks and reports."""
        return self.metric.rpartition(":")[2]
