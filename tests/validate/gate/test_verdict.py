"""The verdict: the worst of its checks, and no number that could not be measured ever passes."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from paritygate.batch import Batch
from paritygate.errors import ExitCode
from paritygate.precision import Precision
from paritygate.validate.gate.declared_limits import parse_tolerance
from paritygate.validate.gate.rules import GateRules
from paritygate.validate.gate.verdict import JudgePlan, judge
from paritygate.validate.measure.check import Check, Status, Verdict, exit_code_of, verdict_of
from paritygate.validate.measure.decisions import Decision, Rule
from paritygate.validate.measure.figures import WorstRow
from paritygate.validate.measure.limits import limits_for
from paritygate.validate.measure.measurement import ComparisonPlan, Measurement, OutputComparison, Refusal
from paritygate.validate.measure.precision_steps import Step, below_steps
from paritygate.validate.measure.profile import profile_outputs
from paritygate.validate.measure.statistics import RowDifference
from paritygate.validate.measure.tolerance import DEFAULT_TOLERANCES

_ORDER = (Status.FAIL, Status.ERROR, Status.INCONCLUSIVE, Status.WARNING, Status.PASS)


def _measured(difference: float = 0.0, rows: int = 8) -> tuple[Measurement, JudgePlan]:
    expected = np.random.default_rng(0).standard_normal((rows, 2)).astype(np.float32)
    profile = profile_outputs("y", [(expected, rows)], axis=None, dtype="float32")
    tolerance = DEFAULT_TOLERANCES[Precision.FP32]
    limits = limits_for(tolerance, profile)
    comparison = OutputComparison(ComparisonPlan(profiles={"y": profile}, limits={"y": limits}))
    batch = Batch(inputs={}, ids=[str(row) for row in range(rows)])
    comparison.add(batch, {"y": expected + np.float32(difference)}, {"y": expected})
    comparison.end_pass()
    plan = JudgePlan(rules=GateRules(tolerance=tolerance), limits={"y": limits}, profiles={"y": profile})
    return comparison.finish(), plan


def _statuses(measured: Measurement, plan: JudgePlan) -> dict[str, Status]:
    return {check.name: check.status for check in judge(measured, plan)}


@pytest.mark.parametrize("statuses", list(itertools.combinations_with_replacement(_ORDER, 3)))
def test_the_verdict_is_the_worst_of_the_checks_in_any_order(statuses: tuple[Status, ...]) -> None:
    worst = min(statuses, key=_ORDER.index)
    expected = Verdict.PASS if worst is Status.WARNING else Verdict(worst.value)

    for order in itertools.permutations(statuses):
        assert verdict_of(Check(name="c", status=status, words=()) for status in order) is expected


def test_no_check_at_all_is_an_error() -> None:
    assert verdict_of([]) is Verdict.ERROR


def test_each_verdict_has_its_exit_code() -> None:
    assert {verdict: exit_code_of(verdict) for verdict in Verdict} == {
        Verdict.PASS: ExitCode.PASS,
        Verdict.FAIL: ExitCode.PARITY_FAILED,
        Verdict.INCONCLUSIVE: ExitCode.INCONCLUSIVE,
        Verdict.ERROR: ExitCode.NOT_MEASURED,
    }


def test_what_agrees_passes_and_what_differs_fails() -> None:
    assert verdict_of(judge(*_measured(0.0))) is Verdict.PASS
    assert verdict_of(judge(*_measured(0.01))) is Verdict.FAIL


@pytest.mark.parametrize(("min_rows", "verdict"), [(8, Verdict.PASS), (9, Verdict.INCONCLUSIVE)])
def test_fewer_rows_than_asked_for_are_inconclusive(min_rows: int, verdict: Verdict) -> None:
    measured, plan = _measured()

    assert verdict_of(judge(measured, replace(plan, rules=replace(plan.rules, min_rows=min_rows)))) is verdict


@pytest.mark.parametrize(("rows", "status"), [(5, Status.WARNING), (29, Status.WARNING), (30, Status.PASS)])
def test_few_rows_are_a_warning_with_what_they_bound_and_no_other_verdict(rows: int, status: Status) -> None:
    measured, plan = _measured(rows=rows)

    checks = judge(measured, plan)

    (found,) = (check for check in checks if check.name == "rows")
    assert found.status is status
    # 1 - 0.05 ** (1 / 5), rounded up.
    assert ("45.08 %" in found.detail) == (rows == 5)
    assert verdict_of(checks) is Verdict.PASS


def test_a_fail_is_not_hidden_by_too_few_rows() -> None:
    measured, plan = _measured(0.01)

    assert verdict_of(judge(measured, replace(plan, rules=replace(plan.rules, min_rows=100)))) is Verdict.FAIL


def test_no_rows_are_an_error() -> None:
    measured, plan = _measured()

    assert _statuses(replace(measured, rows=0), plan)["rows"] is Status.ERROR


@pytest.mark.parametrize(
    ("field", "check"),
    [("nearest_bounded_row", "max_row_rel_diff"), ("bias_by_channel", "bias"), ("p9999_in_limits", "p9999_abs_diff")],
)
def test_a_number_that_is_none_is_never_within_its_limit(field: str, check: str) -> None:
    measured, plan = _measured()
    many = 2_000_000 if check == "p9999_abs_diff" else 16
    none: dict[str, Any] = {
        "nearest_bounded_row": RowDifference(in_limits=math.nan, max_row_rel_diff=math.nan, limit=1.0, row_id="1"),
        "bias_by_channel": np.array([math.nan]),
    }
    broken = replace(measured.statistics["y"], compared=many, **{field: none.get(field, math.nan)})

    assert _statuses(replace(measured, statistics={"y": broken}), plan)[check] is not Status.PASS


@pytest.mark.parametrize(("rms", "status"), [(30.0, Status.PASS), (1.5, Status.WARNING)])
def test_a_bias_whose_interval_holds_0_is_no_warning(rms: float, status: Status) -> None:
    measured, plan = _measured()
    plan = replace(plan, limits={"y": replace(plan.limits["y"], mean_abs_diff=np.array([0.5]))})
    biased = replace(
        measured.statistics["y"],
        bias_by_channel=np.array([-1.0]),
        rms_by_channel=np.array([rms]),
        count_by_channel=np.array([100.0]),
    )
    (check,) = (item for item in judge(replace(measured, statistics={"y": biased}), plan) if item.name == "bias")

    assert (check.status, check.measured, check.limit) == (status, -1.0, 0.25)


def _nearest(difference: float, limit: float) -> WorstRow:
    return WorstRow(
        in_limits=difference / limit,
        max_abs_diff=difference,
        row_id="7",
        index=(0,),
        actual=difference,
        expected=0.0,
        limit=limit,
        channel=0,
    )


@pytest.mark.parametrize(
    ("field", "value"),
    [("max_abs_diff", math.nan), ("nearest", _nearest(math.nan, 1.0)), ("mean_abs_by_channel", np.array([math.nan]))],
)
def test_what_is_no_number_is_never_within_its_limit(field: str, value: Any) -> None:  # noqa: ANN401
    measured, plan = _measured()
    changed: dict[str, Any] = {field: value}
    broken = replace(measured.statistics["y"], **changed)

    assert verdict_of(judge(replace(measured, statistics={"y": broken}), plan)) is Verdict.FAIL


def test_what_is_exactly_at_a_limit_passes_and_the_next_value_fails() -> None:
    measured, plan = _measured()
    limit = float(plan.limits["y"].max_abs_diff[0])
    for value, status in ((limit, Status.PASS), (math.nextafter(limit, 1), Status.FAIL)):
        at_limit = replace(measured.statistics["y"], nearest=_nearest(value, limit))
        assert _statuses(replace(measured, statistics={"y": at_limit}), plan)["max_abs_diff"] is status


def _far_from_zero(precision: Precision, difference: float, **declared: float) -> dict[str, Check]:
    """Judge an output near 11 that is computed in FP16 and returned as float32, against declared limits."""
    expected = (11 + np.random.default_rng(0).standard_normal((64, 2)) / 100).astype(np.float32)
    profile = profile_outputs("y", [(expected, 64)], axis=None, dtype="float32")
    tolerance = parse_tolerance(precision, declared)
    limits = limits_for(tolerance, profile)
    comparison = OutputComparison(ComparisonPlan(profiles={"y": profile}, limits={"y": limits}))
    batch = Batch(inputs={}, ids=[str(row) for row in range(64)])
    comparison.add(batch, {"y": expected + np.float32(difference)}, {"y": expected})
    comparison.end_pass()
    plan = JudgePlan(rules=GateRules(tolerance=tolerance), limits={"y": limits}, profiles={"y": profile})
    return {check.name: check for check in judge(comparison.finish(), plan)}


def test_a_limit_below_what_the_precision_holds_there_is_said_where_it_fails() -> None:
    declared = {"max_abs_diff": 1e-2, "mean_abs_diff": 2e-3}
    half, single = (_far_from_zero(each, 0.016, **declared) for each in (Precision.FP16, Precision.FP32))

    for name in ("max_abs_diff", "mean_abs_diff"):
        # The limit itself is the same: what is said changes no verdict.
        assert {found[name].status for found in (half, single)} == {Status.FAIL}
        assert {found[name].limit for found in (half, single)} == {half[name].limit}
        (remark,) = (words.values for words in half[name].words if words.key == "steps")
        assert (remark["precision"], remark["steps"], remark["most"]) == ("fp16", 2.0**-7, 4)
        assert "steps" not in {words.key for words in single[name].words}
    assert "steps" not in {words.key for words in _far_from_zero(Precision.FP16, 0.0)["max_abs_diff"].words}


def test_a_default_limit_of_the_mean_has_no_floor_and_says_where_rounding_is_beyond_it() -> None:
    found = _far_from_zero(Precision.FP16, 0.016)

    # Two steps of FP16 at 11: a single value may be off by them, not every one to the same side.
    assert found["max_abs_diff"].status is Status.PASS
    assert found["mean_abs_diff"].status is Status.FAIL
    assert found["mean_abs_diff"].words[-1].key == "steps.own_tolerance"


@pytest.mark.parametrize(
    ("precision", "differing", "is_said"),
    [(Precision.FP16, 1, True), (Precision.INT8, 4, True), (Precision.FP16, 5, False), (Precision.FP32, 1, False)],
)
def test_whole_numbers_that_rounding_may_tip_fail_and_say_what_to_declare(
    precision: Precision, differing: int, *, is_said: bool
) -> None:
    expected = np.arange(400).reshape(100, 4) % 16
    actual = expected.copy()
    actual.reshape(-1)[:differing] += 1
    profile = profile_outputs("codes", [(expected, 100)], axis=None, dtype="int64")
    tolerance = DEFAULT_TOLERANCES[precision]
    limits = {"codes": limits_for(tolerance, profile)}
    comparison = OutputComparison(ComparisonPlan(profiles={"codes": profile}, limits=limits))
    comparison.add(Batch(inputs={}, ids=list(map(str, range(100)))), {"codes": actual}, {"codes": expected})
    comparison.end_pass()
    plan = JudgePlan(rules=GateRules(tolerance=tolerance), limits=limits, profiles={"codes": profile})

    (check,) = [check for check in judge(comparison.finish(), plan) if check.name == "exact"]

    assert check.status is Status.FAIL
    assert check.detail.startswith(f"{differing} of 400 values differ")
    assert ("--argmax-of codes=SCORES" in check.detail) is is_said


@pytest.mark.parametrize(
    ("precision", "rows", "allowed"),
    [
        (Precision.FP32, 100, 1),
        (Precision.FP16, 100, 1),
        (Precision.TF32, 399, 1),
        (Precision.MIXED, 400, 2),
        (Precision.BF16, 40, 2),
        (Precision.INT8, 69, 2),
        (Precision.BF16, 149, 2),
        (Precision.INT8, 150, 3),
    ],
)
@pytest.mark.parametrize("more", [0, 1])
def test_flips_next_to_the_boundary_are_capped_by_the_precision(
    precision: Precision, rows: int, allowed: int, more: int
) -> None:
    expected = np.where(np.arange(rows) % 2, 1.0, -1.0).astype(np.float32)
    expected[: allowed + more] = 1e-6
    actual = expected.copy()
    actual[: allowed + more] = -1e-6
    profile = profile_outputs("y", [(expected, rows)], axis=None, dtype="float32")
    tolerance = DEFAULT_TOLERANCES[precision]
    limits = {"y": limits_for(tolerance, profile)}
    plan = ComparisonPlan(
        profiles={"y": profile}, limits=limits, decisions={"y": Decision(output="y", rule=Rule.THRESHOLD)}
    )
    comparison = OutputComparison(plan)
    comparison.add(Batch(inputs={}, ids=list(map(str, range(rows)))), {"y": actual}, {"y": expected})
    comparison.end_pass()
    rules = GateRules(tolerance=tolerance)
    checks = judge(comparison.finish(), JudgePlan(rules=rules, limits=limits, profiles={"y": profile}))

    found = next(check for check in checks if check.name == "decision_mismatches")
    assert found.status is (Status.FAIL if more else Status.PASS)
    assert found.limit == allowed


@pytest.mark.parametrize(
    ("precision", "step"),
    [
        (Precision.FP32, 2.0**-20),
        (Precision.TF32, 2.0**-7),
        (Precision.FP16, 2.0**-7),
        (Precision.MIXED, 2.0**-7),
        (Precision.BF16, 2.0**-4),
        # The steps of INT8 are the converter's: those of the output's dtype are left.
        (Precision.INT8, 2.0**-20),
    ],
)
def test_each_precision_has_its_step_at_eleven(precision: Precision, step: float) -> None:
    assert Step(precision=precision, dtype="float32").at(np.array([11.0])).tolist() == [step]
    # An output in FP16 is not a finer than that, whatever it was computed in.
    assert Step(precision=precision, dtype="float16").at(np.array(11.0)) == max(step, 2.0**-7)


_HALF = Step(precision=Precision.FP16, dtype="float32")


@pytest.mark.parametrize(("steps", "is_said"), [(4.0, True), (4.1, False), (400.0, False), (math.nan, False)])
def test_only_of_a_difference_of_few_steps_it_is_said_that_rounding_may_be_beyond_the_limit(
    steps: float,
    is_said: bool,  # noqa: FBT001 - one case each
) -> None:
    assert bool(below_steps(_HALF, steps * 2**-7, 11.0, is_own_limit=False)) is is_said


def test_whoever_declared_the_limit_is_not_told_to_declare_one() -> None:
    said = [below_steps(_HALF, 2**-7, 11.0, is_own_limit=is_own) for is_own in (False, True)]
    assert [[item.key for item in words] for words in said] == [["steps", "steps.own_tolerance"], ["steps"]]


_REFUSAL = Refusal(first="0", last="7", reason="no", below="")


def test_one_of_a_kind_is_counted_in_the_singular() -> None:
    measured, plan = _measured(rows=1)
    checks = {check.name: check for check in judge(replace(measured, refused=(_REFUSAL,), refused_count=1), plan)}
    again = {check.name: check for check in judge(replace(measured, passes=3), plan)}

    assert again["rows"].detail.startswith("1 row in 1 batch, run 3 times")
    assert checks["rows"].detail.startswith("1 row in 1 batch")
    refused = checks["accepts_inputs"]
    assert refused.detail.startswith("the candidate refused 1 batch ")
    assert refused.detail.endswith(": rows '0'..'7': no")
    assert (refused.measured, refused.limit) == (1, 0)


def test_passes_that_differ_beyond_the_limit_fail() -> None:
    measured, plan = _measured()
    for ratio, status in ((1.0, Status.PASS), (1.0001, Status.FAIL), (math.inf, Status.FAIL), (math.nan, Status.FAIL)):
        repeated = replace(measured, passes=2, repeat_ratio={"y": ratio}, repeat_max_abs_diff={"y": 1.0})
        assert _statuses(repeated, plan)["repeat_max_abs_diff"] is status


def test_a_batch_that_was_not_answered_fails() -> None:
    measured, plan = _measured()
    refused = replace(measured, refused=(_REFUSAL,), refused_count=1)

    assert verdict_of(judge(refused, plan)) is Verdict.FAIL


def test_values_that_were_never_compared_are_an_error() -> None:
    measured, plan = _measured()
    nothing = replace(measured.statistics["y"], values=0, compared=0)

    assert verdict_of(judge(replace(measured, statistics={"y": nothing}), plan)) is Verdict.ERROR
