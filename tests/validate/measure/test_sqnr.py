"""The signal-to-quantization-noise ratio: streamed, it equals the formula over whole arrays, for values of any size."""

from __future__ import annotations

import functools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from paritygate.validate.measure import statistics
from paritygate.validate.measure.limits import Limits
from paritygate.validate.measure.profile import profile_outputs
from paritygate.validate.measure.valid_positions import ValidWhere, only_valid

_ONE = np.ones(1)
_LIMITS = Limits(max_abs_diff=_ONE, mean_abs_diff=_ONE, repeat_max_abs_diff=_ONE, max_row_rel_diff=0.1, axis=None)


def _sqnr(actual: NDArray[np.generic], expected: NDArray[np.generic], parts: int = 1, seed: int = 0) -> float:
    profile = profile_outputs("y", [(expected, len(expected))], axis=None, dtype=expected.dtype.name)
    states = []
    for rows in np.array_split(np.arange(len(expected)), parts):
        state = statistics.empty(profile, _LIMITS)
        states.append(statistics.update(state, actual[rows], expected[rows], [f"r{row}" for row in rows]))
    order = np.random.default_rng(seed).permutation(parts)
    return statistics.finish(functools.reduce(statistics.merge, (states[at] for at in order))).sqnr_db


@settings(deadline=None, max_examples=40)
@given(
    seed=st.integers(0, 1000),
    rows=st.integers(1, 30),
    parts=st.integers(1, 6),
    exponent=st.sampled_from([-180, 0, 180]),
)
def test_any_cut_merged_in_any_order_equals_the_formula(seed: int, rows: int, parts: int, exponent: int) -> None:
    rng = np.random.default_rng(seed)
    signal = rng.standard_normal((rows, 3))
    noise = 10.0 ** rng.integers(-9, 1) * rng.standard_normal((rows, 3))
    wanted = 10 * math.log10((signal**2).sum() / (noise**2).sum())
    # The ratio has no unit, but at these sizes float64 does not hold a square.
    size = 10.0**exponent

    found = _sqnr(size * (signal + noise), size * signal, parts, seed)

    assert found == pytest.approx(wanted, abs=1e-5)


def test_ten_percent_off_are_twenty_decibels() -> None:
    expected = np.array([[1.0, -2.0], [4.0, 0.0]], np.float64)

    assert _sqnr(1.1 * expected, expected) == pytest.approx(20)


@pytest.mark.parametrize(
    ("actual", "expected", "sqnr"),
    [
        ([[1.0, 2.0]], [[1.0, 2.0]], math.inf),
        ([[0.0, 0.0]], [[0.0, 0.0]], math.inf),
        ([[1e-3, 0.0]], [[0.0, 0.0]], -math.inf),
        ([[5e-324, 1.0]], [[0.0, 1.0]], -20 * math.log10(5e-324)),
        ([[math.nan]], [[1.0]], math.nan),
    ],
)
def test_what_has_no_ratio_is_infinite_or_not_measured(
    actual: list[list[float]], expected: list[list[float]], sqnr: float
) -> None:
    assert _sqnr(np.array(actual), np.array(expected)) == pytest.approx(sqnr, nan_ok=True)


def test_values_that_are_not_subtracted_count_on_neither_side() -> None:
    expected = np.array([[1.0, 2.0], [1e6, 3.0]])
    actual = np.array([[1.1, 2.0], [math.nan, 3.0]])

    assert _sqnr(actual, expected) == pytest.approx(10 * math.log10((1 + 4 + 9) / 0.1**2))


def test_positions_behind_the_mask_count_on_neither_side() -> None:
    expected, actual = np.array([[1.0, 2.0, 1e9]]), np.array([[1.1, 2.0, 7.0]])
    mask = {"mask": np.array([[1, 1, 0]])}
    where = {"y": ValidWhere(input="mask", axes=((0,), (1,)))}

    counted = only_valid({"y": expected}, mask, where)["y"]

    assert _sqnr(actual, counted) == pytest.approx(10 * math.log10((1 + 4) / 0.1**2))
