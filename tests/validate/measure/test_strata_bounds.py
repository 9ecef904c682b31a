"""Strata: each value has its own bound and counts, and too few rows are said to be not covered."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from paritygate.batch import Batch
from paritygate.precision import Precision
from paritygate.validate.measure.check import Status
from paritygate.validate.measure.decisions import parse_decision
from paritygate.validate.measure.measurement import ComparisonPlan, Measurement
from paritygate.validate.measure.profile import profile_outputs
from paritygate.validate.measure.strata import StratifiedComparison, strata_coverage
from paritygate.validate.measure.tolerance import DEFAULT_TOLERANCES, limits_for


def _measured(rows: Mapping[str, int], flipped: str = "") -> dict[str, dict[str, Measurement]]:
    corpus = [value for value, count in rows.items() for _ in range(count)]
    expected = np.random.default_rng(0).standard_normal((len(corpus), 1)).astype(np.float32) + np.float32(10)
    profile = profile_outputs("y", [(expected, len(corpus))], axis=None, dtype="float32")
    plan = ComparisonPlan(
        profiles={"y": profile},
        limits={"y": limits_for(DEFAULT_TOLERANCES[Precision.FP32], profile)},
        decisions={"y": parse_decision("y:threshold=0")},
    )
    actual = expected.copy()
    if flipped:
        actual[corpus.index(flipped)] *= -1
    strata = StratifiedComparison(plan, ["corpus"])
    batch = Batch(inputs={}, ids=[str(row) for row in range(len(corpus))], strata={"corpus": corpus})
    for _ in range(2):
        strata.add(batch, {"y": actual}, {"y": expected})
        strata.end_pass()
    return strata.finish()


def test_a_fault_in_one_value_is_bounded_by_its_rows_alone() -> None:
    found = _measured({"news": 300, "web": 100}, flipped="web")["corpus"]

    # Source: Clopper and Pearson; 1 - 0.05 ** (1 / 300), and 1 of 100.
    assert found["news"].decisions["y"].mismatch_rate_upper_95 == pytest.approx(0.00994, abs=1e-5)
    assert found["web"].decisions["y"].mismatch_rate_upper_95 == pytest.approx(0.04656, abs=1e-5)
    assert (found["news"].rows, found["web"].rows) == (300, 100)
    # Two passes see the same rows.
    assert (found["news"].patterns["y"].beyond, found["web"].patterns["y"].beyond) == (0, 1)
    assert found["web"].patterns["y"].rows == 100


def test_values_with_few_rows_are_not_covered() -> None:
    (check,) = strata_coverage(_measured({"news": 30, "web": 29, "wiki": 3}))

    assert check.status is Status.WARNING
    assert ": 'wiki' (rows: 3), 'web' (rows: 29)" in check.detail
    assert check.words[-1].values == {"least": 30, "bound": "9.51 %"}
    assert (check.name, check.measured, check.limit) == ("strata_coverage", 3, 30)


def test_many_such_values_are_counted() -> None:
    (check,) = strata_coverage(_measured({f"c{number}": number + 1 for number in range(8)}))

    assert "'c4' (rows: 5) and 3 other values. " in check.detail


def test_enough_rows_of_every_value_are_a_pass() -> None:
    (check,) = strata_coverage(_measured({"news": 30, "web": 31}))

    assert (check.status, check.measured, check.limit) == (Status.PASS, 30, 30)


def test_without_strata_nothing_is_said() -> None:
    assert strata_coverage({}) == ()
