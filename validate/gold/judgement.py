"""Judges metrics against gold.

The rule decides on the metrics as measured, as MLPerf's does. The interval never changes a pass or a fail. Where it
reaches below the limit, a warning next to the pass shows that these rows do not confirm it.
"""

from __future__ import annotations

from paritygate.validate.gold.figures import GoldStatistics
from paritygate.validate.measure.check import Check, Kind, Status
from paritygate.validate.words.sentence import Words, say

# Of fewer rows no metric is reliable, even if min_rows allows them.
LEAST_GOLD_ROWS = 30


def judge_gold(measured: GoldStatistics, *, min_rows: int) -> Check:
    """Return the check of one metric.

    It fails where the candidate's metric is below the limit, or undefined where the reference's is defined. It is
    inconclusive where the reference's is undefined, a ratio has a reference of 0 or less, or too few rows carry gold.
    Without a limit nothing fails, and an undefined metric is a warning.
    """
    status, remark = _status(measured, min_rows)
    low, high = measured.difference_low_95, measured.difference_high_95
    words = say(
        "gold",
        candidate=_number(measured.candidate),
        reference=_number(measured.reference),
        difference=_number(measured.difference),
        interval=say("gold.no_interval") if low is None else say("gold.interval", low=low, high=high),
        rows=measured.rows,
        without=say("gold.without", rows=measured.rows_without) if measured.rows_without else say("nothing"),
    )
    return Check(
        name=f"gold_{measured.name}",
        status=status,
        words=words + remark,
        kind=Kind.MEASURED if measured.reference is not None else Kind.NOT_MEASURED,
        output=measured.output,
        rows=measured.rows,
        measured=measured.candidate,
        limit=measured.limit,
    )


def _status(measured: GoldStatistics, min_rows: int) -> tuple[Status, Words]:
    reference, candidate, limit = measured.reference, measured.candidate, measured.limit
    if measured.ratio is None and measured.max_drop is None:
        is_known = reference is not None and candidate is not None
        return (Status.PASS, say("gold.no_limit")) if is_known else (Status.WARNING, say("gold.undefined"))
    if reference is None or limit is None:
        return Status.INCONCLUSIVE, say("gold.reference_undefined")
    if measured.ratio is not None and reference <= 0:
        return Status.INCONCLUSIVE, say("gold.ratio_of_nothing")
    values = {"limit": limit, "rule": _of_what(measured)}
    if candidate is None or candidate < limit:
        return Status.FAIL, say("gold.below", **values)
    if measured.rows < max(min_rows, LEAST_GOLD_ROWS):
        key, needed = ("gold.few", min_rows) if measured.rows < min_rows else ("gold.least", LEAST_GOLD_ROWS)
        return Status.INCONCLUSIVE, say(key, rows=measured.rows, needed=needed)
    status, remark = _supported(measured.margin_low_95)
    return status, say("gold.at_least", **values) + remark


def _supported(margin: float | None) -> tuple[Status, Words]:
    if margin is None:
        return Status.WARNING, say("gold.few_resamples")
    if margin < 0:
        return Status.WARNING, say("gold.may_be_below", difference=-margin)
    return Status.PASS, ()


def _of_what(measured: GoldStatistics) -> Words:
    if measured.ratio is None:
        return say("gold.drop", least=measured.max_drop)
    return say("gold.ratio", ratio=100 * measured.ratio)


def _number(value: float | None) -> float | str:
    return "not defined" if value is None else value
