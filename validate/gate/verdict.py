"""Judge a measurement: each check, without side effects. A number that was not measured never passes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from paritygate.precision import Precision
from paritygate.signature import is_number_dtype
from paritygate.validate.gate.rules import FLOORS, GateRules
from paritygate.validate.measure.bounds import (
    COVERED_ROWS,
    mean_interval_95,
    mismatch_rate_upper_95,
    rows_for_upper_95,
    upper_bound_text,
)
from paritygate.validate.measure.check import Check, Kind, Status
from paritygate.validate.measure.figures import DecisionStatistics
from paritygate.validate.measure.limits import Limits
from paritygate.validate.measure.measurement import Measurement, Violation
from paritygate.validate.measure.precision_steps import Step, below_steps
from paritygate.validate.measure.profile import OutputProfile
from paritygate.validate.measure.statistics import DiffStatistics
from paritygate.validate.words.sentence import Words, joined, say

# Above this many values, the largest correct rounding error exceeds the limit by chance. So the 99.99 % quantile has
# the limit, and the maximum has ten times as much.
_MANY_VALUES = 1_000_000
_MANY_VALUES_FACTOR = 10.0
# Flips inside the band that count as noise: at least so many, and this share of the decisions. 8 bits, or 8 bits of
# mantissa, flip more decisions next to the boundary.
_IN_BAND = (1, 0.005)
_IN_BAND_COARSE = (2, 0.02)
_COARSE = frozenset({Precision.BF16, Precision.INT8})
# The largest share of whole numbers that rounding may flip, as choices between near ties.
_TIPPED = 0.01
# A side of a decision with a smaller share of the rows is not covered.
_COVERED_SHARE = 0.05


@dataclass(frozen=True, kw_only=True, slots=True)
class JudgePlan:
    """The rules for a measurement, with the limits and the reference's profiles by output."""

    rules: GateRules
    limits: Mapping[str, Limits]
    profiles: Mapping[str, OutputProfile]
    left_out: int = 0  # rows that are not compared, because the candidate was calibrated on them


def judge(measured: Measurement, plan: JudgePlan) -> tuple[Check, ...]:
    """Return every check of a measurement."""
    return tuple(replace(check, rows=_rows_of(check, measured)) for check in _checks(measured, plan))


def failed_checks(measured: Measurement, plan: JudgePlan) -> tuple[Check, ...]:
    """Return the checks that fail, of those that `judge` returns."""
    failed = (check for check in _checks(measured, plan) if check.status is Status.FAIL)
    return tuple(replace(check, rows=_rows_of(check, measured)) for check in failed)


def _checks(measured: Measurement, plan: JudgePlan) -> list[Check]:
    checks = [_check_rows(measured, plan), *map(_check_violation, measured.violations)]
    if not measured.violations:
        checks.append(Check(name="contract", status=Status.PASS, words=say("contract")))
    checks.append(_check_accepts(measured))
    for name, statistics in measured.statistics.items():
        if plan.limits[name].is_exact:
            checks.append(_check_exact(name, statistics, plan))
        else:
            checks += _check_quantity(name, statistics, plan)
    for name, decision in measured.decisions.items():
        checks += _check_decision(name, decision, plan)
    checks += [_check_floor(rule, name, least, measured, plan) for rule, name, least in plan.rules.floors()]
    return checks + _check_repeats(measured)


def _rows_of(check: Check, measured: Measurement) -> int:
    of_output = measured.statistics.get(check.output or "")
    return measured.rows if of_output is None else of_output.rows


def _check_rows(measured: Measurement, plan: JudgePlan) -> Check:
    rows, least = measured.rows, plan.rules.min_rows
    if rows == 0:
        words = say("rows.none") + (say("rows.none_left", left_out=plan.left_out) if plan.left_out else ())
        return Check(name="rows", status=Status.ERROR, kind=Kind.NOT_MEASURED, words=words, measured=0, limit=least)
    status = Status.PASS if rows >= least else Status.INCONCLUSIVE
    words = say("rows", rows=rows, batches=measured.batches)
    bound = mismatch_rate_upper_95(0, rows)
    if measured.passes > 1:
        words += say("rows.passes", passes=measured.passes)
    if status is Status.INCONCLUSIVE:
        words += say("rows.few", least=least, rows=rows, share=bound)
    elif rows < COVERED_ROWS:
        status = Status.WARNING
        words += say("rows.little", rows=rows, bound=upper_bound_text(bound))
    if plan.left_out:
        words += say("rows.left_out", left_out=plan.left_out, total=rows + plan.left_out)
        if status is Status.INCONCLUSIVE:
            words += say("rows.own_calibration")
    return Check(name="rows", status=status, words=words, measured=rows, limit=least)


def _check_violation(violation: Violation) -> Check:
    words = joined(violation.details, "; ")
    if violation.count > 1:
        words += say("contract.times", batches=violation.count)
    return Check(name=f"contract.{violation.check}", status=Status.FAIL, words=words, output=violation.output)


def _check_accepts(measured: Measurement) -> Check:
    if not measured.refused_count:
        return Check(name="accepts_inputs", status=Status.PASS, words=say("accepts_inputs"))
    count = measured.refused_count
    refused = (
        say("accepts_inputs.batch", first_row=item.first, last_row=item.last, reason=item.reason)
        for item in measured.refused
    )
    words = say("accepts_inputs.refused", count=count) + joined(refused, "; ")
    # The long message of the first batch is below it.
    below = measured.refused[0].below
    words += say("below", text=below) if below else ()
    return Check(name="accepts_inputs", status=Status.FAIL, words=words, measured=count, limit=0)


def _check_exact(name: str, statistics: DiffStatistics, plan: JudgePlan) -> Check:
    if statistics.values == 0:
        return _nothing_measured(name, plan)
    words = say("exact", mismatches=statistics.mismatches, values=statistics.values)
    is_rounded = plan.rules.precision not in {Precision.FP32, Precision.TF32}
    is_number = bool(statistics.mismatches) and is_number_dtype(plan.profiles[name].dtype)
    if is_number and is_rounded and statistics.mismatches <= max(1, _TIPPED * statistics.values):
        words += say("exact.tipped", output=name)
    words += say("exact.quantity", output=name) if is_number else ()
    return _none_wrong("exact", name, statistics.mismatches, words)


def _nothing_measured(name: str, plan: JudgePlan) -> Check:
    words = say("measured.nothing", output=name)
    if plan.profiles[name].values == 0:
        words += say("measured.no_entries", output=name)
    return Check(name="measured", status=Status.ERROR, kind=Kind.NOT_MEASURED, words=words, output=name)


def _check_quantity(name: str, statistics: DiffStatistics, plan: JudgePlan) -> list[Check]:
    limits = plan.limits[name]
    if statistics.values == 0:
        return [_nothing_measured(name, plan)]
    checks = [_check_finite(name, statistics, plan), *_check_fills(name, statistics, limits)]
    if statistics.compared == 0:
        return [*checks, _nothing_measured(name, plan)]
    profile = plan.profiles[name]
    of_bulk = profile.bulk_abs
    step = Step(precision=plan.rules.precision, dtype=profile.dtype)

    def below(check: str, difference: float, magnitude: float) -> Words:
        is_own = check in plan.rules.tolerance.declared
        return below_steps(step, difference, magnitude, is_own_limit=is_own) if profile.is_float else ()

    checks += _check_max(name, statistics, limits, below)
    checks.append(
        _worst_channel(
            "mean_abs_diff",
            name,
            statistics.mean_abs_by_channel,
            limits.mean_abs_diff + limits.of_few / np.maximum(statistics.count_by_channel, 1.0),
            of_failure=lambda channel, mean: below("mean_abs_diff", mean, float(of_bulk[channel])),
        )
    )
    pooled = statistics.mean_abs_diff_of_columns
    if checks[-1].status is Status.PASS and pooled > limits.mean_of_columns:
        remark = say("over_columns") + below("mean_abs_diff", pooled, float(of_bulk.max()))
        checks[-1] = _within("mean_abs_diff", name, pooled, limits.mean_of_columns, remark)
    if limits.rms_diff.size:
        checks.append(_worst_channel("rms_diff", name, statistics.rms_by_channel, limits.rms_diff))
    is_bounded = all(check.status is not Status.FAIL for check in checks)
    checks.append(_check_row(name, statistics, limits, is_bounded=is_bounded))
    checks.append(_check_bias(name, statistics, limits))
    return checks


def _check_row(name: str, statistics: DiffStatistics, limits: Limits, *, is_bounded: bool) -> Check:
    """Return the check of the row nearest to its limit, or furthest beyond it.

    If every value is within its own limit (`is_bounded`), channels within [-1, 1] have the floor of a bounded function.
    Its rounding is absolute, and the row may be small.
    """
    row = statistics.nearest_bounded_row if is_bounded else statistics.nearest_row
    if row is None:
        return _within("max_row_rel_diff", name, statistics.max_row_rel_diff, limits.max_row_rel_diff)
    where = say("worst_row", row=row.row_id) if row.row_id and row.max_row_rel_diff else ()
    check = _within("max_row_rel_diff", name, row.max_row_rel_diff, row.limit, where)
    # As for values, the division by the limit decides.
    return replace(check, status=Status.PASS if row.in_limits <= 1 else Status.FAIL)


def _check_floor(rule: str, name: str, least: float, measured: Measurement, plan: JudgePlan) -> Check:
    statistics = measured.statistics.get(name)
    if statistics is None or statistics.compared == 0 or not plan.profiles[name].is_float:
        words = say("floor.nothing", output=name, check=rule, least=least)
        return Check(name=rule, status=Status.ERROR, kind=Kind.NOT_MEASURED, words=words, output=name, limit=least)
    figure: float = getattr(statistics, FLOORS[rule].figure)
    # `>=` does not hold for NaN, which is never enough.
    status = Status.PASS if figure >= least else Status.FAIL
    if math.isinf(figure):
        words = say("floor.equal" if status is Status.PASS else "floor.zeros", check=rule, least=least)
    else:
        words = say("at_least" if status is Status.PASS else "below_limit", measured=figure, limit=least)
    if FLOORS[rule].row:
        words += say("lowest_row", row=getattr(statistics, FLOORS[rule].row))
    return Check(name=rule, status=status, words=words, output=name, measured=figure, limit=least)


def _check_finite(name: str, statistics: DiffStatistics, plan: JudgePlan) -> Check:
    bad = statistics.non_finite + statistics.non_finite_mismatches
    where = say("in_rows", in_rows=statistics.non_finite_rows, row=statistics.first_non_finite_id)
    if statistics.non_finite:
        words = say("finite.broken", count=statistics.non_finite) + where
    elif statistics.non_finite_mismatches:
        words = say("finite.other", count=statistics.non_finite_mismatches) + where
    else:
        words = say("finite")
        if statistics.non_finite_matches and plan.rules.is_non_finite_declared:
            words += say("finite.declared", count=statistics.non_finite_matches)
    return _none_wrong("finite", name, bad, words)


def _check_fills(name: str, statistics: DiffStatistics, limits: Limits) -> list[Check]:
    if not statistics.fill_values:
        return []
    wrong = statistics.fill_mismatches
    values = {"values": statistics.fill_values, "fills": list(limits.fills)}
    words = say("fill_values.wrong", count=wrong, **values) if wrong else say("fill_values", **values)
    if wrong and statistics.first_wrong_fill is not None:
        row, actual = statistics.first_wrong_fill
        words += say("fill_values.first" if wrong > 1 else "fill_values.only", actual=actual, row=row)
    if statistics.fill_substitutes:
        substitutes = list(dict.fromkeys(limits.substitutes))
        words += say("fill_values.nearest", count=statistics.fill_substitutes, substitutes=substitutes)
    return [_none_wrong("fill_values", name, wrong, words)]


def _none_wrong(check: str, output: str, wrong: int, words: Words) -> Check:
    status = Status.FAIL if wrong else Status.PASS
    return Check(name=check, status=status, words=words, output=output, measured=wrong, limit=0)


def _within(check: str, output: str, measured: float, limit: float, remark: Words = ()) -> Check:
    # `<=` does not hold for NaN, which is never within a limit.
    status = Status.PASS if measured <= limit else Status.FAIL
    words = say("at_most" if status is Status.PASS else "above", measured=measured, limit=limit)
    return Check(name=check, status=status, words=words + remark, output=output, measured=measured, limit=limit)


def _worst_channel(
    check: str,
    output: str,
    measured: NDArray[np.float64],
    limits: NDArray[np.float64],
    *,
    of_failure: Callable[[int, float], Words] = lambda *_: (),
) -> Check:
    """Return the check of the channel nearest to its limit, or furthest beyond it.

    `of_failure(channel, value)` returns the remark of a failure.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        badness = np.where(np.isnan(measured), np.inf, np.where(measured == 0, 0.0, measured / limits))
    at = int(badness.argmax())
    value = float(measured[at])
    remark = say("worst_channel", channel=at, channels=len(measured)) if len(measured) > 1 else ()
    result = _within(check, output, value, float(limits[at]), remark)
    if result.status is Status.PASS:
        return result
    return replace(result, words=result.words + of_failure(at, value))


def _check_max(
    name: str, statistics: DiffStatistics, limits: Limits, below: Callable[[str, float, float], Words]
) -> list[Check]:
    if statistics.compared <= _MANY_VALUES:
        return [_check_nearest(name, statistics, limits, 1.0, below)]
    quantile = statistics.p9999_in_limits
    is_within = quantile <= 1
    return [
        Check(
            name="p9999_abs_diff",
            status=Status.PASS if is_within else Status.FAIL,
            words=say("p9999" if is_within else "p9999.beyond", values=statistics.compared, quantile=quantile),
            output=name,
            measured=quantile,
            limit=1.0,
        ),
        _check_nearest(name, statistics, limits, _MANY_VALUES_FACTOR, below),
    ]


def _check_nearest(
    name: str, statistics: DiffStatistics, limits: Limits, factor: float, below: Callable[[str, float, float], Words]
) -> Check:
    """Return the check of the value nearest to its own limit, or furthest beyond it."""
    nearest = statistics.nearest
    if nearest is None or nearest.max_abs_diff is None or nearest.expected is None or nearest.limit is None:
        return _within("max_abs_diff", name, statistics.max_abs_diff, float(limits.max_abs_diff.min()) * factor)
    channels = limits.max_abs_diff.size
    remark = say("worst_channel", channel=nearest.channel, channels=channels) if channels > 1 else ()
    check = _within("max_abs_diff", name, nearest.max_abs_diff, nearest.limit * factor, remark)
    if check.status is Status.PASS:
        return check
    where = say("worst_value", row=nearest.row_id, actual=nearest.actual, expected=nearest.expected)
    step = below(check.name, nearest.max_abs_diff, abs(nearest.expected))
    return replace(check, words=check.words + where + step)


def _check_bias(name: str, statistics: DiffStatistics, limits: Limits) -> Check:
    """Return the check that warns if a channel's signed mean difference is above half its mean limit."""
    bars = np.minimum(limits.mean_abs_diff, limits.mean_of_columns) / 2
    with np.errstate(divide="ignore", invalid="ignore"):
        parts = np.where(statistics.bias_by_channel == 0, 0.0, np.abs(statistics.bias_by_channel) / bars)
    at = int(np.where(np.isnan(parts), np.inf, parts).argmax())
    bias, bar, count = (float(part[at]) for part in (statistics.bias_by_channel, bars, statistics.count_by_channel))
    rms = float(statistics.rms_by_channel[at])
    # A product of floats may be infinite, where a power raises.
    variance = max(0.0, rms * rms - bias * bias)
    low, high = mean_interval_95(bias, variance, int(count)) if count else (math.nan, math.nan)
    is_large = not abs(bias) <= bar
    words = say("bias.above" if is_large else "bias", bias=bias, bar=bar)
    if limits.mean_abs_diff.size > 1:
        words += say("bias.channel", channel=at, channels=limits.mean_abs_diff.size)
    words += say("bias.half", low=low, high=high)
    # An interval around 0 shows no bias.
    is_none = math.isfinite(bias) and low <= 0 <= high
    if is_large and is_none:
        words += say("bias.none")
    return Check(
        name="bias",
        status=Status.WARNING if is_large and not is_none else Status.PASS,
        words=words,
        output=name,
        measured=bias,
        limit=bar,
    )


def _check_decision(name: str, decision: DecisionStatistics, plan: JudgePlan) -> list[Check]:
    words = say(
        "decisions",
        mismatches=decision.mismatches,
        decisions=decision.decisions,
        in_band=decision.inside_band,
        out_of_band=decision.outside_band,
        rows_mismatched=decision.rows_mismatched,
        rows=decision.rows,
        bound=upper_bound_text(decision.mismatch_rate_upper_95),
    )
    allowed = plan.rules.tolerance.decision_mismatches
    if decision.outside_band:
        examples = list(decision.examples[:3])
        words += say("decisions.outside", ids=examples, count=len(examples))
        status, measured, limit = Status.FAIL, decision.outside_band, 0.0
    elif allowed is not None:
        words += say("decisions.allowed", allowed=allowed)
        status = Status.PASS if decision.mismatches <= allowed else Status.FAIL
        measured, limit = decision.mismatches, float(allowed)
    else:
        least, share = flips_allowed(plan.rules.precision)
        cap = max(least, math.floor(share * decision.decisions))
        words += say("decisions.cap", cap=cap)
        status = Status.PASS if decision.inside_band <= cap else Status.FAIL
        measured, limit = decision.inside_band, float(cap)
    checks = [
        Check(name="decision_mismatches", status=status, words=words, output=name, measured=measured, limit=limit)
    ]
    if plan.rules.tolerance.mismatch_rate_upper_95 is not None:
        checks.append(_check_rate(name, decision, plan.rules.tolerance.mismatch_rate_upper_95))
    checks.append(_check_coverage(name, decision, plan))
    return checks


def flips_allowed(precision: Precision) -> tuple[int, float]:
    """Return the flips next to the boundary that are allowed: a number, and a share of the decisions."""
    return _IN_BAND_COARSE if precision in _COARSE else _IN_BAND


def _check_rate(name: str, decision: DecisionStatistics, allowed: float) -> Check:
    bound = decision.mismatch_rate_upper_95
    status = Status.PASS
    words = say("rate", bound=upper_bound_text(bound), allowed=allowed)
    if not bound <= allowed:
        # Without a mismatch, so few rows could not show it either.
        is_too_few = mismatch_rate_upper_95(0, decision.rows) > allowed
        status = Status.INCONCLUSIVE if is_too_few else Status.FAIL
        if is_too_few:
            needed = rows_for_upper_95(allowed) if 0 < allowed < 1 else "no number of"
            words += say("rate.few", rows=decision.rows, needed=needed)
    return Check(name="mismatch_rate_upper_95", status=status, words=words, output=name, measured=bound, limit=allowed)


def _check_coverage(name: str, decision: DecisionStatistics, plan: JudgePlan) -> Check:
    total = max(1, sum(decision.classes.values()))
    # The rule is after the last colon, because an output's name can have colons.
    is_yes_or_no = not decision.rule.rpartition(":")[2].startswith(("argmax", "top_k"))
    counts = {"0": 0, "1": 0, **decision.classes} if is_yes_or_no else dict(decision.classes)
    if is_yes_or_no:
        words = say("coverage.sides", positive=counts["1"], negative=counts["0"])
    else:
        words = say("coverage.classes", count=len(counts))
    status = Status.PASS
    if decision.constant:
        words += say("coverage.constant", declared=decision.constant)
        if not decision.is_constant:
            status = Status.WARNING
            words += say("coverage.not_constant")
    elif decision.is_constant and name not in plan.rules.argmax_of and plan.rules.precision is not Precision.FP32:
        status = Status.INCONCLUSIVE
        words += say(
            "coverage.one_answer",
            answer=_one_answer(decision, is_yes_or_no=is_yes_or_no),
            precision=plan.rules.precision,
            output=name,
        )
    elif is_yes_or_no and min(counts.values()) < _COVERED_SHARE * total:
        status = Status.WARNING
        words += say("coverage.positive" if counts["1"] < counts["0"] else "coverage.negative", share=_COVERED_SHARE)
    elif not is_yes_or_no and decision.is_constant:
        status = Status.WARNING
        words += say("coverage.others")
    return Check(name="decision_coverage", status=status, words=words, output=name)


def _one_answer(decision: DecisionStatistics, *, is_yes_or_no: bool) -> Words:
    if is_yes_or_no:
        return say("answer.positive" if "1" in decision.classes else "answer.negative")
    return say("answer.classes", count=len(decision.classes), labels=list(decision.classes))


def _check_repeats(measured: Measurement) -> list[Check]:
    return [
        Check(
            name="repeat_max_abs_diff",
            status=Status.PASS if ratio <= 1 else Status.FAIL,
            words=say("repeats", passes=measured.passes, difference=largest, ratio=ratio),
            output=name,
            measured=largest,
        )
        for name, ratio in measured.repeat_ratio.items()
        for largest in (measured.repeat_max_abs_diff[name],)
    ]
