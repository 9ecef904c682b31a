"""The verdict: each check of a measurement, and the worst of them all.

Pure: what was measured goes in, what it means comes out. A number that could not be measured never
passes, whatever it compares like.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING

import numpy as np

from paritygate.errors import ExitCode
from paritygate.precision import Precision
from paritygate.text import counted, one_or_many, row_name, row_names
from paritygate.validate.gate.bounds import (
    COVERED_ROWS,
    mean_interval_95,
    mismatch_rate_upper_95,
    rows_for_upper_95,
    upper_bound_text,
)
from paritygate.validate.gate.decisions import DecisionStatistics
from paritygate.validate.gate.measurement import Measurement, Violation
from paritygate.validate.gate.precision_steps import Step, below_steps
from paritygate.validate.gate.rules import GateRules
from paritygate.validate.gate.statistics import DiffStatistics
from paritygate.validate.gate.tolerance import Limits
from paritygate.validate.reference.profile import OutputProfile

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Check", "JudgePlan", "Status", "Verdict", "exit_code_of", "flips_allowed", "judge", "verdict_of"]

# Above this many values the largest of honest rounding errors exceeds the limit by chance: the max limit
# then holds for the 99.99 % quantile, and ten times as much for the maximum.
_MANY_VALUES = 1_000_000
_MANY_VALUES_FACTOR = 10.0
# Flips inside the band that are taken as noise: so many at least, and this share of the decisions. What is rounded to
# 8 bits, or to 8 of mantissa, answers otherwise next to the boundary more often.
_IN_BAND = (1, 0.005)
_IN_BAND_COARSE = (2, 0.02)
_COARSE = frozenset({Precision.BF16, Precision.INT8})
# Whole numbers of which no larger share differs may be choices that rounding tips.
_TIPPED = 0.01
# A side of a decision with a smaller share of the rows than this is said to be not covered.
_COVERED_SHARE = 0.05


class Status(str, Enum):
    """The outcome of one check."""

    PASS = "pass"  # noqa: S105 - the linter takes it for a password
    WARNING = "warning"
    # Something differs where no sample is: it is told, and changes no verdict.
    EDGE = "edge"
    FAIL = "fail"
    ERROR = "error"
    INCONCLUSIVE = "inconclusive"

    def __str__(self) -> str:
        return self.value


class Verdict(str, Enum):
    """The outcome for a variant."""

    PASS = "pass"  # noqa: S105 - the linter takes it for a password
    FAIL = "fail"
    ERROR = "error"
    INCONCLUSIVE = "inconclusive"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """One thing that was looked at.

    Attributes:
        name: What was looked at, by the names of the report.
        status: What came of it.
        detail: In words, with the numbers.
        output: The output it is about, or None.
        measured: The number held against the limit, where there is one.
        limit: The limit, where there is one.
    """

    name: str
    status: Status
    detail: str
    output: str | None = None
    measured: float | None = None
    limit: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class JudgePlan:
    """What a measurement is held against.

    Attributes:
        rules: What is asked.
        limits: What they come to for each output.
        profiles: The reference's profile of each output.
        left_out: Rows of the samples that are not compared, because the candidate was calibrated on them.
    """

    rules: GateRules
    limits: Mapping[str, Limits]
    profiles: Mapping[str, OutputProfile]
    left_out: int = 0


def verdict_of(checks: Iterable[Check]) -> Verdict:
    """Return the worst of the checks: any fail, else error, else inconclusive, else pass.

    No check at all is an error.
    """
    statuses = {check.status for check in checks}
    if not statuses:
        return Verdict.ERROR
    for status in (Status.FAIL, Status.ERROR, Status.INCONCLUSIVE):
        if status in statuses:
            return Verdict(str(status))
    return Verdict.PASS


def exit_code_of(verdict: Verdict) -> ExitCode:
    """Return the exit code of a verdict."""
    return {
        Verdict.PASS: ExitCode.PASS,
        Verdict.FAIL: ExitCode.PARITY_FAILED,
        Verdict.ERROR: ExitCode.NOT_MEASURED,
        Verdict.INCONCLUSIVE: ExitCode.INCONCLUSIVE,
    }[verdict]


def judge(measured: Measurement, plan: JudgePlan) -> tuple[Check, ...]:
    """Return every check of a measurement."""
    checks = [_check_rows(measured, plan), *map(_check_violation, measured.violations)]
    if not measured.violations:
        checks.append(Check(name="contract", status=Status.PASS, detail="names, shapes and dtypes are the reference's"))
    checks.append(_check_accepts(measured))
    for name, statistics in measured.statistics.items():
        profile = plan.profiles[name]
        if profile.is_float:
            checks += _check_float(name, statistics, plan)
        else:
            checks.append(_check_exact(name, statistics, plan))
    for name, decision in measured.decisions.items():
        checks += _check_decision(name, decision, plan)
    checks += [_check_cosine(name, least, measured, plan) for name, least in plan.rules.min_cosine_similarity.items()]
    checks += _check_repeats(measured)
    return tuple(checks)


def _check_rows(measured: Measurement, plan: JudgePlan) -> Check:
    if measured.rows == 0:
        detail = "no rows were compared"
        if plan.left_out:
            detail += f": all {plan.left_out} are left out, for INT8 was calibrated on them"
        return Check(name="rows", status=Status.ERROR, detail=detail, measured=0, limit=plan.rules.min_rows)
    status = Status.PASS if measured.rows >= plan.rules.min_rows else Status.INCONCLUSIVE
    detail = f"{counted(measured.rows, 'row')} in {counted(measured.batches, 'batch')}"
    if measured.passes > 1:
        detail += f", asked {measured.passes} times"
    if status is Status.INCONCLUSIVE:
        may_differ = mismatch_rate_upper_95(0, measured.rows)
        detail += (
            f": fewer than the {plan.rules.min_rows} that min_rows asks for; {counted(measured.rows, 'row')} without a "
            f"mismatch: up to {may_differ:.0%} may differ; give more rows, or accept so few: --min-rows "
            f"{measured.rows} (min_rows in a spec)"
        ).replace("%", " %")
    elif measured.rows < COVERED_ROWS:
        status = Status.WARNING
        bound = upper_bound_text(mismatch_rate_upper_95(0, measured.rows))
        detail += f": so few say little, for {measured.rows} without a mismatch bound its rate at {bound}"
    if plan.left_out:
        detail += f"; {plan.left_out} of {measured.rows + plan.left_out} are left out, for INT8 was calibrated on them"
        if status is Status.INCONCLUSIVE:
            detail += ", and none would be with rows of their own in calibration.source"
    return Check(name="rows", status=status, detail=detail, measured=measured.rows, limit=plan.rules.min_rows)


def _check_violation(violation: Violation) -> Check:
    times = "" if violation.count == 1 else f" (in {violation.count} batches)"
    return Check(
        name=f"contract.{violation.check}",
        status=Status.FAIL,
        detail="; ".join(violation.details) + times,
        output=violation.output,
    )


def _check_accepts(measured: Measurement) -> Check:
    if not measured.refused_count:
        return Check(name="accepts_inputs", status=Status.PASS, detail="every batch was answered")
    count = measured.refused_count
    sentences = "; ".join(text.partition("\n")[0] for text in measured.refused)
    # What was said at length stands below it, of the first batch alone.
    below = "".join(measured.refused[0].partition("\n")[1:])
    detail = (
        f"{counted(count, 'batch')} that the reference answers {one_or_many(count, 'was', 'were')} not answered: "
        f"{sentences}{below}"
    )
    return Check(name="accepts_inputs", status=Status.FAIL, detail=detail, measured=measured.refused_count, limit=0)


def _check_exact(name: str, statistics: DiffStatistics, plan: JudgePlan) -> Check:
    if statistics.values == 0:
        return _nothing_measured(name, plan)
    status = Status.FAIL if statistics.mismatches else Status.PASS
    detail = f"{statistics.mismatches} of {statistics.values} values differ"
    is_rounded = plan.rules.precision not in {Precision.FP32, Precision.TF32}
    is_choice = plan.profiles[name].dtype.startswith(("int", "uint"))
    if is_rounded and is_choice and 0 < statistics.mismatches <= max(1, _TIPPED * statistics.values):
        detail += (
            f"; if {name} is the place of the largest score, rounding tips near ties: return all scores as an output "
            f"too, and declare --argmax-of {name}=SCORES (argmax_of in a spec)"
        )
    return Check(
        name="exact",
        status=status,
        detail=detail,
        output=name,
        measured=statistics.mismatches,
        limit=0,
    )


def _nothing_measured(name: str, plan: JudgePlan) -> Check:
    detail = f"no value of {name!r} could be compared"
    if plan.profiles[name].values == 0:
        detail += (
            ": an axis of it has no entries in any batch; where that is right, leave it out: outputs: "
            f"{{{name}: {{ignore: REASON}}}} in the spec, or --ignore {name}=REASON"
        )
    return Check(name="measured", status=Status.ERROR, detail=detail, output=name)


def _check_float(name: str, statistics: DiffStatistics, plan: JudgePlan) -> list[Check]:
    limits = plan.limits[name]
    if statistics.values == 0:
        return [_nothing_measured(name, plan)]
    checks = [_check_finite(name, statistics, plan), *_check_fills(name, statistics, limits)]
    if statistics.compared == 0:
        return [*checks, _nothing_measured(name, plan)]
    profile = plan.profiles[name]
    of_bulk = profile.bulk_abs
    step = Step(precision=plan.rules.precision, dtype=profile.dtype)

    def below(check: str, difference: float, magnitude: float) -> str:
        is_own_limit = check in plan.rules.tolerance.declared
        return below_steps(step, difference, magnitude, is_own_limit=is_own_limit)

    checks += _check_max(name, statistics, limits, below)
    checks.append(
        _worst_channel(
            "mean_abs_diff",
            name,
            statistics.mean_abs_by_channel,
            limits.mean_abs_diff,
            of_failure=lambda channel, mean: below("mean_abs_diff", mean, float(of_bulk[channel])),
        )
    )
    pooled = statistics.mean_abs_diff_of_columns
    if checks[-1].status is Status.PASS and pooled > limits.mean_of_columns:
        remark = f" over all columns{below('mean_abs_diff', pooled, float(of_bulk.max()))}"
        checks[-1] = _within("mean_abs_diff", name, pooled, limits.mean_of_columns, remark)
    if limits.rms_diff.size:
        checks.append(_worst_channel("rms_diff", name, statistics.rms_by_channel, limits.rms_diff))
    is_bounded = all(check.status is not Status.FAIL for check in checks)
    checks.append(_check_row(name, statistics, limits, is_bounded=is_bounded))
    checks.append(_check_bias(name, statistics, limits))
    return checks


def _check_row(name: str, statistics: DiffStatistics, limits: Limits, *, is_bounded: bool) -> Check:
    """Return the check of the row nearest to its limit, or furthest beyond it.

    Args:
        name: The output.
        statistics: What was measured of it.
        limits: Its limits.
        is_bounded: Whether every value is within its own limit: then channels within [-1, 1] have the floor of a
            bounded function, whose rounding is absolute while the row may be small.
    """
    row = statistics.nearest_bounded_row if is_bounded else statistics.nearest_row
    if row is None:
        return _within("max_row_rel_diff", name, statistics.max_row_rel_diff, limits.max_row_rel_diff)
    where = f", worst at {row_name(row.row_id)}" if row.row_id and row.max_row_rel_diff else ""
    found = _within("max_row_rel_diff", name, row.max_row_rel_diff, row.limit, where)
    # The division by the limit decides, as it does for values.
    return replace(found, status=Status.PASS if row.in_limits <= 1 else Status.FAIL)


def _check_cosine(name: str, least: float, measured: Measurement, plan: JudgePlan) -> Check:
    statistics = measured.statistics.get(name)
    if statistics is None or statistics.compared == 0 or not plan.profiles[name].is_float:
        detail = f"of {name!r} no float value was compared, and a cosine similarity of {least:g} is asked"
        return Check(name="min_cosine_similarity", status=Status.ERROR, detail=detail, output=name, limit=least)
    found = statistics.min_cosine_similarity
    # `not >=` rather than `<`: NaN is never enough.
    status = Status.PASS if found >= least else Status.FAIL
    sign = ">=" if status is Status.PASS else "<"
    return Check(
        name="min_cosine_similarity",
        status=status,
        detail=f"{found:.6g} {sign} {least:.6g}, lowest at {row_name(statistics.min_cosine_similarity_id)}",
        output=name,
        measured=found,
        limit=least,
    )


def _check_finite(name: str, statistics: DiffStatistics, plan: JudgePlan) -> Check:
    bad = statistics.non_finite + statistics.non_finite_mismatches
    detail = "the candidate is finite wherever the reference is"
    where = f", in {counted(statistics.non_finite_rows, 'row')}, first in {row_name(statistics.first_non_finite_id)}"
    if statistics.non_finite:
        detail = f"{_values_are(statistics.non_finite)} NaN or infinite where the reference is finite{where}"
    elif statistics.non_finite_mismatches:
        detail = (
            f"{_values_are(statistics.non_finite_mismatches)} not the NaN or infinity that the reference holds there"
            f"{where}"
        )
    elif statistics.non_finite_matches and plan.rules.is_non_finite_declared:
        count = statistics.non_finite_matches
        detail += f"; {counted(count, 'declared non-finite value')} {one_or_many(count, 'matches', 'match')}"
    return Check(
        name="finite",
        status=Status.FAIL if bad else Status.PASS,
        detail=detail,
        output=name,
        measured=bad,
        limit=0,
    )


def _check_fills(name: str, statistics: DiffStatistics, limits: Limits) -> list[Check]:
    if not statistics.fill_values:
        return []
    held = f"{counted(statistics.fill_values, 'fill value')} ({_listed(limits.fills)})"
    if statistics.fill_mismatches:
        count = statistics.fill_mismatches
        detail = f"{count} of {held} {one_or_many(count, 'is', 'are')} not what the reference holds there"
        if statistics.first_wrong_fill is not None:
            row, seen = statistics.first_wrong_fill
            detail += f": {seen:.6g}, first in {row_name(row)}" if count > 1 else f": {seen:.6g} in {row_name(row)}"
    else:
        detail = f"{held}, compared exactly"
    if statistics.fill_substitutes:
        nearest = _listed(dict.fromkeys(limits.substitutes))
        detail += f"; {statistics.fill_substitutes} as the nearest that the precision holds ({nearest})"
    return [
        Check(
            name="fill_values",
            status=Status.FAIL if statistics.fill_mismatches else Status.PASS,
            detail=detail,
            output=name,
            measured=statistics.fill_mismatches,
            limit=0,
        )
    ]


def _listed(values: Iterable[float]) -> str:
    return ", ".join(f"{value:.6g}" for value in values)


def _values_are(count: int) -> str:
    return f"{counted(count, 'value')} {one_or_many(count, 'is', 'are')}"


def _within(check: str, output: str, measured: float, limit: float, remark: str = "") -> Check:
    # `not <=` rather than `>`: NaN is never within a limit.
    status = Status.PASS if measured <= limit else Status.FAIL
    sign = "<=" if status is Status.PASS else ">"
    return Check(
        name=check,
        status=status,
        detail=f"{measured:.6g} {sign} {limit:.6g}{remark}",
        output=output,
        measured=measured,
        limit=limit,
    )


def _worst_channel(
    check: str,
    output: str,
    measured: NDArray[np.float64],
    limits: NDArray[np.float64],
    *,
    of_failure: Callable[[int, float], str] = lambda *_: "",
) -> Check:
    """Return the check of the channel nearest to its limit, or furthest beyond it.

    Where that fails, what `of_failure(channel, value)` returns is added.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        badness = np.where(np.isnan(measured), np.inf, np.where(measured == 0, 0.0, measured / limits))
    at = int(badness.argmax())
    value = float(measured[at])
    remark = f", worst in channel {at} of {len(measured)}" if len(measured) > 1 else ""
    found = _within(check, output, value, float(limits[at]), remark)
    if found.status is Status.PASS:
        return found
    return replace(found, detail=found.detail + of_failure(at, value))


def _check_max(
    name: str, statistics: DiffStatistics, limits: Limits, below: Callable[[str, float, float], str]
) -> list[Check]:
    if statistics.compared <= _MANY_VALUES:
        return [_check_nearest(name, statistics, limits, 1.0, below)]
    quantile = statistics.p9999_in_limits
    many = f"of {statistics.compared} values 99.99 % are within the limit"
    return [
        Check(
            name="p9999_abs_diff",
            status=Status.PASS if quantile <= 1 else Status.FAIL,
            detail=f"{many}: the 99.99 % quantile is {quantile:.4g} of it"
            if quantile <= 1
            else f"the 99.99 % quantile is {quantile:.4g} times the limit",
            output=name,
            measured=quantile,
            limit=1.0,
        ),
        _check_nearest(name, statistics, limits, _MANY_VALUES_FACTOR, below),
    ]


def _check_nearest(
    name: str, statistics: DiffStatistics, limits: Limits, factor: float, below: Callable[[str, float, float], str]
) -> Check:
    """Return the check of the value nearest to its own limit, or furthest beyond it."""
    nearest = statistics.nearest
    if nearest is None:
        return _within("max_abs_diff", name, statistics.max_abs_diff, float(limits.max_abs_diff.min()) * factor)
    channels = limits.max_abs_diff.size
    remark = f", worst in channel {nearest.channel} of {channels}" if channels > 1 else ""
    found = _within("max_abs_diff", name, nearest.max_abs_diff, nearest.limit * factor, remark)
    if found.status is Status.PASS:
        return found
    where = f", worst at {row_name(nearest.row_id)}: {nearest.actual:.6g} instead of {nearest.expected:.6g}"
    step = below(found.name, nearest.max_abs_diff, abs(nearest.expected))
    return replace(found, detail=found.detail + where + step)


def _check_bias(name: str, statistics: DiffStatistics, limits: Limits) -> Check:
    """Return a warning where the mean of the signed difference of a channel is above half the limit of its mean."""
    bars = np.minimum(limits.mean_abs_diff, limits.mean_of_columns) / 2
    with np.errstate(divide="ignore", invalid="ignore"):
        parts = np.where(statistics.bias_by_channel == 0, 0.0, np.abs(statistics.bias_by_channel) / bars)
    at = int(np.where(np.isnan(parts), np.inf, parts).argmax())
    bias, bar, count = (float(part[at]) for part in (statistics.bias_by_channel, bars, statistics.count_by_channel))
    variance = max(0.0, float(statistics.rms_by_channel[at]) ** 2 - bias**2)
    low, high = mean_interval_95(bias, variance, int(count)) if count else (math.nan, math.nan)
    is_large = not abs(bias) <= bar
    detail = f"{bias:.3g}, {'above' if is_large else 'at most'} {bar:.3g}"
    if limits.mean_abs_diff.size > 1:
        detail += f" in channel {at} of {limits.mean_abs_diff.size}"
    detail += f", half the limit of the mean (95 %: {low:.3g} to {high:.3g})"
    # A mean that may as well be 0 shows no bias.
    is_none = math.isfinite(bias) and low <= 0 <= high
    if is_large and is_none:
        detail += "; the interval holds 0"
    return Check(
        name="bias",
        status=Status.WARNING if is_large and not is_none else Status.PASS,
        detail=detail,
        output=name,
        measured=bias,
        limit=bar,
    )


def _check_decision(name: str, decision: DecisionStatistics, plan: JudgePlan) -> list[Check]:
    below = upper_bound_text(decision.mismatch_rate_upper_95)
    counted = (
        f"{decision.mismatches} of {decision.decisions} decisions differ "
        f"({decision.inside_band} near the boundary, {decision.outside_band} not; "
        f"{decision.rows_mismatched} of {decision.rows} rows, at 95 % below {below})"
    )
    allowed = plan.rules.tolerance.decision_mismatches
    if decision.outside_band:
        examples = row_names(decision.examples[:3])
        status, detail = Status.FAIL, f"{counted}: away from the boundary a flip always fails, as at {examples}"
        measured, limit = decision.outside_band, 0.0
    elif allowed is not None:
        status = Status.PASS if decision.mismatches <= allowed else Status.FAIL
        detail, measured, limit = f"{counted}, allowed are {allowed}", decision.mismatches, float(allowed)
    else:
        least, share = flips_allowed(plan.rules.precision)
        cap = max(least, math.floor(share * decision.decisions))
        status = Status.PASS if decision.inside_band <= cap else Status.FAIL
        detail = f"{counted}, allowed near the boundary are {cap}"
        measured, limit = decision.inside_band, float(cap)
    checks = [
        Check(name="decision_mismatches", status=status, detail=detail, output=name, measured=measured, limit=limit)
    ]
    if plan.rules.tolerance.mismatch_rate_upper_95 is not None:
        checks.append(_check_rate(name, decision, plan.rules.tolerance.mismatch_rate_upper_95))
    checks.append(_check_coverage(name, decision, plan))
    return checks


def flips_allowed(precision: Precision) -> tuple[int, float]:
    """Return how many flips next to the boundary are allowed at least, and which share of the decisions."""
    return _IN_BAND_COARSE if precision in _COARSE else _IN_BAND


def _check_rate(name: str, decision: DecisionStatistics, allowed: float) -> Check:
    bound = decision.mismatch_rate_upper_95
    status, remark = Status.PASS, ""
    if not bound <= allowed:
        # With no mismatch at all these rows could not have shown it: that is too few rows, not a fault.
        is_too_few = mismatch_rate_upper_95(0, decision.rows) > allowed
        status = Status.INCONCLUSIVE if is_too_few else Status.FAIL
        if is_too_few:
            needed = rows_for_upper_95(allowed) if 0 < allowed < 1 else "no number of"
            remark = f": {decision.rows} rows cannot show it, {needed} rows without a mismatch would"
    return Check(
        name="mismatch_rate_upper_95",
        status=status,
        detail=f"{upper_bound_text(bound)} of the rows at 95 %, allowed is {allowed:.3%}{remark}",
        output=name,
        measured=bound,
        limit=allowed,
    )


def _check_coverage(name: str, decision: DecisionStatistics, plan: JudgePlan) -> Check:
    total = max(1, sum(decision.classes.values()))
    # After the last colon stands the rule; the output's name may hold any word.
    is_yes_or_no = not decision.decision.rpartition(":")[2].startswith(("argmax", "top_k"))
    counts = {0: 0, 1: 0, **decision.classes} if is_yes_or_no else dict(decision.classes)
    if is_yes_or_no:
        words = f"{counts[1]} positive, {counts[0]} negative in the reference"
    else:
        words = f"{counted(len(counts), 'class')} chosen by the reference"
    status = Status.PASS
    if decision.constant:
        words += f"; declared constant: {decision.constant}"
        if not decision.is_constant:
            status, words = Status.WARNING, f"{words}, and it is not"
    elif decision.is_constant and name not in plan.rules.argmax_of and plan.rules.precision is not Precision.FP32:
        status = Status.INCONCLUSIVE
        words += (
            f": {_one_answer(decision, is_yes_or_no=is_yes_or_no)} all over, and rows without another answer do not "
            f"show that {plan.rules.precision} keeps the decision; add such rows, or say why none is needed: "
            f"decisions.{name}.constant: REASON, or --constant-decision {name}=REASON"
        )
    elif is_yes_or_no and min(counts.values()) < _COVERED_SHARE * total:
        rare = "positive" if counts[1] < counts[0] else "negative"
        status = Status.WARNING
        words += f": fewer than {_COVERED_SHARE:.0%}".replace("%", " %") + f" are {rare} (see docs/gate.md)"
    elif not is_yes_or_no and decision.is_constant:
        status, words = Status.WARNING, f"{words}: other classes are not covered"
    return Check(name="decision_coverage", status=status, detail=words, output=name)


def _one_answer(decision: DecisionStatistics, *, is_yes_or_no: bool) -> str:
    if is_yes_or_no:
        return "positive" if 1 in decision.classes else "negative"
    return f"{one_or_many(len(decision.classes), 'class', 'classes')} {', '.join(map(str, decision.classes))}"


def _check_repeats(measured: Measurement) -> list[Check]:
    checks = []
    for name, ratio in measured.repeat_ratio.items():
        largest = measured.repeat_max_abs_diff[name]
        status = Status.PASS if ratio <= 1 else Status.FAIL
        detail = f"{measured.passes} passes differ by {largest:.4g} at most, {ratio:.3g} of the limit"
        checks.append(
            Check(
                name="repeat_max_abs_diff",
                status=status,
                detail=detail,
                output=name,
                measured=largest,
                limit=None,
            )
        )
    return checks
