"""The least signal-to-quantization-noise ratio that a spec or a command may require of an output."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from paritygate.batch import Batch
from paritygate.precision import Precision
from paritygate.validate.gate.declared_limits import parse_tolerance
from paritygate.validate.gate.rules import GateRules
from paritygate.validate.gate.verdict import JudgePlan, judge
from paritygate.validate.measure.check import Check, Kind, Status
from paritygate.validate.measure.limits import limits_for
from paritygate.validate.measure.measurement import ComparisonPlan, OutputComparison
from paritygate.validate.measure.profile import profile_outputs

_LOOSE = parse_tolerance(Precision.FP16, {"max_abs_diff": 10.0, "mean_abs_diff": 10.0, "max_row_rel_diff": 10.0})
_EXPECTED = np.random.default_rng(0).standard_normal((200, 8)).astype(np.float32)


def _check(actual: NDArray[np.generic], expected: NDArray[np.generic], least: float) -> Check:
    profile = profile_outputs("y", [(expected, len(expected))], axis=None, dtype=expected.dtype.name)
    limits = {"y": limits_for(_LOOSE, profile)}
    comparison = OutputComparison(ComparisonPlan(profiles={"y": profile}, limits=limits))
    ids = [f"r{row}" for row in range(len(expected))]
    comparison.add(Batch(inputs={}, ids=ids), {"y": actual}, {"y": expected})
    comparison.end_pass()
    rules = GateRules(tolerance=_LOOSE, min_sqnr={"y": least})
    checks = judge(comparison.finish(), JudgePlan(rules=rules, limits=limits, profiles={"y": profile}))
    (found,) = (check for check in checks if check.name == "min_sqnr")
    return found


@pytest.mark.parametrize(("least", "status"), [(39.9, Status.PASS), (40.1, Status.FAIL)])
def test_noise_of_a_hundredth_is_forty_decibels(least: float, status: Status) -> None:
    found = _check(_EXPECTED * np.float32(1.01), _EXPECTED, least)

    assert (found.status, found.kind, found.output, found.rows, found.limit) == (status, Kind.MEASURED, "y", 200, least)
    assert found.measured == pytest.approx(40, abs=1e-3)


def test_outputs_without_a_difference_reach_any_ratio() -> None:
    found = _check(_EXPECTED, _EXPECTED, 1000)

    assert (found.status, found.measured, [words.key for words in found.words]) == (Status.PASS, None, ["floor.equal"])


def test_a_reference_of_zeros_is_reached_by_zeros_alone() -> None:
    zeros = np.zeros_like(_EXPECTED)

    assert _check(zeros, zeros, 0).status is Status.PASS
    found = _check(zeros + np.float32(1e-6), zeros, -1000)
    assert (found.status, found.measured, [words.key for words in found.words]) == (Status.FAIL, None, ["floor.zeros"])


@pytest.mark.parametrize("values", [np.arange(8), np.full((4, 2), math.nan, np.float32)], ids=["labels", "nan"])
def test_what_was_not_measured_does_not_pass(values: NDArray[np.generic]) -> None:
    expected = values if values.dtype.kind == "i" else np.ones_like(values)

    found = _check(values, expected, -1000)

    assert (found.status, found.kind, found.limit) == (Status.ERROR, Kind.NOT_MEASURED, -1000)
