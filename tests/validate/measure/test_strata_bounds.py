"""Strata: each value has its own bound and counts, and too few rows are said to be not covered."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest

from paritygate.batch import Batch
from paritygate.precision import Precision
from paritygate.validate.measure.check import Status
from paritygate.validate.measure.decisions import parse_decision
from paritygate.validate.measure.limits import limits_for
from paritygate.validate.measure.measurement import ComparisonPlan, Measurement, OutputComparison
from paritygate.validate.measure.profile import profile_outputs
from paritygate.validate.measure.strata import StratifiedComparison, strata_coverage
from paritygate.validate.measure.tolerance import DEFAULT_TOLERANCES


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


def _in_batches(sizes: Sequence[int], width: Callable[[int], int]) -> Measurement:
    draw = np.random.default_rng(1)
    expected = [draw.standard_normal((size, width(at))).astype(np.float32) for at, size in enumerate(sizes)]
    profile = profile_outputs("y", [(array, len(array)) for array in expected], axis=None, dtype="float32")
    plan = ComparisonPlan(
        profiles={"y": profile}, limits={"y": limits_for(DEFAULT_TOLERANCES[Precision.FP32], profile)}
    )
    strata, whole = StratifiedComparison(plan, ["corpus"]), OutputComparison(plan)
    for at, array in enumerate(expected):
        actual, ids = array + np.float32(at), [f"{at}/{row}" for row in range(len(array))]
        wanted = np.ma.MaskedArray(array, mask=np.arange(array.size).reshape(array.shape) % 5 == 0) if at % 2 else array
        batch = Batch(inputs={}, ids=ids, strata={"corpus": ["news"] * len(ids)})
        strata.add(batch, {"y": actual}, {"y": wanted})
        whole.add(batch, {"y": actual}, {"y": wanted})
    strata.end_pass()
    whole.end_pass()
    expected_figures, found = whole.finish(), strata.finish()["corpus"]["news"]
    of_batches, together = expected_figures.statistics["y"], found.statistics["y"]
    assert together.nearest == of_batches.nearest
    assert together.mean_abs_diff == pytest.approx(of_batches.mean_abs_diff, rel=1e-12)
    assert (together.values, together.left_out, together.beyond) == (
        of_batches.values,
        of_batches.left_out,
        of_batches.beyond,
    )
    assert found.patterns["y"].beyond == expected_figures.patterns["y"].beyond
    return found


def test_rows_of_a_value_are_measured_together_whatever_batches_they_come_in() -> None:
    # Widths that change, masked positions, and more numbers than wait.
    assert _in_batches([3, 1, 8, 8], lambda at: 4 + (at == 2)).rows == 20
    assert _in_batches([300] * 4, lambda _: 64).rows == 1200
