"""What the metrics against gold mean for the verdict.

The rule decides on the metrics as measured, as MLPerf's does. The interval does not turn a pass into a fail, nor a fail
into a pass: where it reaches below the limit, that these rows do not bear the claim out is a warning beside the pass.
"""

from __future__ import annotations

import math

from paritygate.validate.gold.bootstrap import Interval
from paritygate.validate.gold.measurement import GoldStatistics
from paritygate.validate.measure.check import Check, Kind, Status
from paritygate.validate.words.sentence import Words, say

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
    interval = measured.interval
    words = say(
        "gold",
        candidate=_number(measured.candidate),
        reference=_number(measured.reference),
        difference=_number(measured.difference),
        interval=say("gold.no_interval")
        if interval is None
        else say("gold.interval", low=interval.low, high=interval.high),
        rows=measured.rows,
        without=say("gold.without", rows=measured.rows_without) if measured.rows_without else say("nothing"),
    )
    return Check(
        name=f"gold_{rule.name}",
        status=status,
        words=words + remark,
        kind=Kind.MEASURED if math.isfinite(measured.reference) else Kind.NOT_MEASURED,
        output=rule.output,
        rows=measured.rows,
        measured=measured.candidate,
        limit=measured.limit,
    )


def _status(measured: GoldStatistics, min_rows: int) -> tuple[Status, Words]:
    is_defined = math.isfinite(measured.reference)
    if measured.limit is None:
        is_known = is_defined and math.isfinite(measured.candidate)
        return (Status.PASS, say("gold.no_limit")) if is_known else (Status.WARNING, say("gold.undefined"))
    if not is_defined:
        return Status.INCONCLUSIVE, say("gold.reference_undefined")
    if measured.rule.ratio is not None and measured.reference <= 0:
        return Status.INCONCLUSIVE, say("gold.ratio_of_nothing")
    limit = {"limit": measured.limit, "rule": _of_what(measured)}
    # `not >=` rather than `<`: NaN is never enough.
    if not measured.candidate >= measured.limit:
        return Status.FAIL, say("gold.below", **limit)
    if measured.rows < max(min_rows, LEAST_GOLD_ROWS):
        key, needed = ("gold.few", min_rows) if measured.rows < min_rows else ("gold.least", LEAST_GOLD_ROWS)
        return Status.INCONCLUSIVE, say(key, rows=measured.rows, needed=needed)
    status, remark = _supported(measured.margin)
    return status, say("gold.at_least", **limit) + remark


def _supported(margin: Interval | None) -> tuple[Status, Words]:
    if margin is None:
        return Status.WARNING, say("gold.few_resamples")
    if margin.low < 0:
        return Status.WARNING, say("gold.may_be_below", difference=-margin.low)
    return Status.PASS, ()


def _of_what(measured: GoldStatistics) -> Words:
    rule = measured.rule
    return say("gold.drop", least=rule.max_drop) if rule.ratio is None else say("gold.ratio", ratio=100 * rule.ratio)


def _number(value: float) -> float | str:
    return value if math.isfinite(value) else "not defined"
