"""Confidence bounds against SciPy's exact test and the numbers that are published."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paritygate.validate.measure.bounds import mean_interval_95, mismatch_rate_upper_95, rows_for_upper_95


@pytest.mark.parametrize(
    ("mismatches", "rows", "percent"),
    [
        (0, 100, 2.95),
        (0, 300, 0.99),
        (0, 519, 0.58),
        (1, 519, 0.91),
        (2, 519, 1.21),
        (3, 519, 1.49),
        (0, 1000, 0.30),
        (1, 1000, 0.47),
        (2, 1000, 0.63),
        (3, 1000, 0.77),
        (0, 3000, 0.10),
    ],
)
def test_the_bound_is_the_published_one(mismatches: int, rows: int, percent: float) -> None:
    assert 100 * mismatch_rate_upper_95(mismatches, rows) == pytest.approx(percent, abs=0.0051)


@given(st.integers(1, 5000), st.data())
@settings(max_examples=40)
def test_the_bound_is_that_of_the_exact_binomial_test(rows: int, data: st.DataObject) -> None:
    from scipy.stats import binomtest

    mismatches = data.draw(st.integers(0, rows))
    # A one-sided bound at 95 % is the upper end of the two-sided interval at 90 %.
    interval = binomtest(mismatches, rows).proportion_ci(confidence_level=0.90, method="exact")

    assert mismatch_rate_upper_95(mismatches, rows) == pytest.approx(interval.high, rel=1e-9)


def test_no_rows_bound_nothing() -> None:
    assert mismatch_rate_upper_95(0, 0) == 1
    assert mismatch_rate_upper_95(5, 5) == 1


@pytest.mark.parametrize(("rate", "rows"), [(0.01, 299), (0.005, 598), (0.001, 2995)])
def test_the_rows_that_a_rate_needs_are_the_fewest_that_show_it(rate: float, rows: int) -> None:
    assert rows_for_upper_95(rate) == rows
    assert mismatch_rate_upper_95(0, rows) <= rate < mismatch_rate_upper_95(0, rows - 1)


def test_the_interval_of_a_mean_is_that_of_the_normal_distribution() -> None:
    from scipy.stats import norm

    values = np.random.default_rng(0).standard_normal(400)

    low, high = mean_interval_95(float(values.mean()), float(values.var()), values.size)

    assert (low, high) == pytest.approx(norm.interval(0.95, values.mean(), values.std() / 20), rel=1e-12)


def test_the_interval_of_a_constant_is_the_constant() -> None:
    assert mean_interval_95(0.5, -1e-20, 3) == (0.5, 0.5)
