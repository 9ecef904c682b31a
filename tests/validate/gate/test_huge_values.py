"""A float64 candidate whose values have no square in float64 fails, and stops nothing."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from paritygate.batch import Batch
from paritygate.precision import Precision
from paritygate.validate.gate.rules import GateRules
from paritygate.validate.gate.symptoms import symptoms_of
from paritygate.validate.gate.verdict import JudgePlan, judge
from paritygate.validate.measure.check import Status
from paritygate.validate.measure.limits import limits_for
from paritygate.validate.measure.measurement import ComparisonPlan, OutputComparison
from paritygate.validate.measure.profile import profile_outputs
from paritygate.validate.measure.tolerance import DEFAULT_TOLERANCES

_EXPECTED = np.random.default_rng(0).standard_normal((40, 4))
_ONE_VALUE = np.where(np.arange(160).reshape(40, 4) == 17, 1e170, _EXPECTED)


@pytest.mark.parametrize("actual", [_EXPECTED * 1e180, _EXPECTED + 1e180, _ONE_VALUE], ids=["scaled", "moved", "one"])
def test_it_is_judged_and_described(actual: NDArray[np.float64]) -> None:
    profile = profile_outputs("y", [(_EXPECTED, 40)], axis=None, dtype="float64")
    tolerance = DEFAULT_TOLERANCES[Precision.FP32]
    limits = {"y": limits_for(tolerance, profile)}
    comparison = OutputComparison(ComparisonPlan(profiles={"y": profile}, limits=limits))
    comparison.add(Batch(inputs={}, ids=[f"r{row}" for row in range(40)]), {"y": actual}, {"y": _EXPECTED})
    comparison.end_pass()
    measured = comparison.finish()

    checks = judge(measured, JudgePlan(rules=GateRules(tolerance=tolerance), limits=limits, profiles={"y": profile}))

    failed = {check.name for check in checks if check.status is Status.FAIL}
    assert failed >= {"max_abs_diff", "mean_abs_diff", "max_row_rel_diff"}
    assert symptoms_of(measured, checks, {}, {"y": profile}).keys() <= {"y"}
