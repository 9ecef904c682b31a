"""What the metrics against gold mean for the verdict.

The rule decides on the metrics as measured, as MLPerf's does. The interval does not turn a pass into a fail, nor a fail
into a pass: where it reaches below the limit, that these rows do not bear the claim out is a warning beside the pass.
"""

from __future__ import annotations

import math

from paritygate.validate.gate.verdict import Check, Status
from paritygate.validate.gold.bootstrap import Interval
from paritygate.validate.gold.measurement import GoldStatistics

__all__ = ["LEAST_GOLD_ROWS", "judge_gold"]

# Of fewer rows no metric says much, whatever min_rows asks for.
LEAST_GOLD_ROWS = 30


def judge_gold(measured: GoldStatistics, *, min_rows: int) -> Check:
    """Return the check of one metric.

    Fail: the candidate's metric is below the limit, or not defined where the reference's is. Inconclusive: the
    reference's is not defined, a ratio is asked of one that is not above 0, or too few rows carry gold. Without a
    limit nothing fails: a metric that is not defined is a warning.
    """
    rule = measured.rule
    status, remark = _status(measured, min_rows)
    without = f", {measured.rows_without} rows without gold left out" if measured.rows_without else ""
    words = (
        f"candidate {_number(measured.candidate)}, reference {_number(measured.reference)}, "
        f"difference {_difference(measured)} over {measured.rows} rows{without}"
    )
    return Check(
        name=f"gold_{rule.name}",
        status=status,
        detail=f"{words}{remark}",
        output=rule.output,
        measured=measured.candidate,
        limit=measured.limit,
    )


def _status(measured: GoldStatistics, min_rows: int) -> tuple[Status, str]:
    is_defined = math.isfinite(measured.reference)
    if measured.limit is None:
        is_known = is_defined and math.isfinite(measured.candidate)
        return (Status.PASS, "; no limit is declared") if is_known else (Status.WARNING, "; not defined of such rows")
    if not is_defined:
        return Status.INCONCLUSIVE, "; the reference's is not defined: its answers or gold are all the same here"
    if measured.rule.ratio is not None and measured.reference <= 0:
        return Status.INCONCLUSIVE, "; a ratio says nothing of a reference that is not above 0: use max_drop"
    limit = f"{measured.limit:.6g}{_of_what(measured)}"
    # `not >=` rather than `<`: NaN is never enough.
    if not measured.candidate >= measured.limit:
        return Status.FAIL, f"; below {limit}"
    if measured.rows < max(min_rows, LEAST_GOLD_ROWS):
        needed = f"min_rows asks for, {min_rows}" if measured.rows < min_rows else str(LEAST_GOLD_ROWS)
        return Status.INCONCLUSIVE, f"; {measured.rows} rows carry gold, fewer than {needed}"
    return _supported(measured.margin, limit)


def _supported(margin: Interval | None, limit: str) -> tuple[Status, str]:
    if margin is None:
        return Status.WARNING, f"; at least {limit}, and too few resamples have a metric to bear it out"
    if margin.low < 0:
        return Status.WARNING, f"; at least {limit}, and at 95 % it may be {-margin.low:.3g} below it"
    return Status.PASS, f"; at least {limit}"


def _of_what(measured: GoldStatistics) -> str:
    rule = measured.rule
    return (
        f" ({100 * rule.ratio:g} % of the reference's)"
        if rule.ratio is not None
        else f" (at most {rule.max_drop:g} less)"
    )


def _number(value: float) -> str:
    return f"{value:.6g}" if math.isfinite(value) else "not defined"


def _difference(measured: GoldStatistics) -> str:
    interval = measured.interval
    words = "not known" if interval is None else f"{interval.low:.3g} to {interval.high:.3g}"
    return f"{_number(measured.difference)} (95 %: {words})"
