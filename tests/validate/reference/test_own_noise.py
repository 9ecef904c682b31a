"""A row is held to the reference's own noise where that is more than its limit, and not where it is far more."""

from __future__ import annotations

import numpy as np
import pytest

from paritygate.precision import Precision
from paritygate.validate.measure.limits import limits_for
from paritygate.validate.measure.profile import profile_outputs
from paritygate.validate.measure.tolerance import DEFAULT_TOLERANCES
from paritygate.validate.reference.reference_noise import RowNoise, largest_in_limits, noise_by_row, rows_within

_EXPECTED = np.array([[0.5, -0.25], [0.75, 0.125]], dtype=np.float32)
_PROFILE = profile_outputs("out", [(_EXPECTED, 2)], axis=None, dtype="float32")
_LIMITS = limits_for(DEFAULT_TOLERANCES[Precision.FP32], _PROFILE)
_LIMIT = float(_LIMITS.max_abs_diff[0])


def _within(differences: tuple[float, float], noise: tuple[float, float] | None) -> list[bool]:
    actual = _EXPECTED + np.array([[value * _LIMIT, 0] for value in differences], dtype=np.float32)
    rows = None if noise is None else [RowNoise(max_abs_diff=value * _LIMIT, norm=value * _LIMIT) for value in noise]
    return rows_within(actual, _EXPECTED, rows, limits=_LIMITS, profile=_PROFILE).tolist()


@pytest.mark.parametrize(
    ("differences", "noise", "within"),
    [
        ((0.4, 3.0), None, [True, False]),
        # The noise of one row excuses no other.
        ((3.0, 3.0), (0.0, 4.0), [False, True]),
        ((5.0, 3.0), (4.0, 4.0), [False, True]),
        # Beyond ten limits the reference says nothing, and excuses nothing.
        ((3.0, 3.0), (11.0, 9.0), [False, True]),
        ((0.4, 0.4), (11.0, 11.0), [True, True]),
    ],
)
def test_the_limit_of_a_row_is_the_noise_of_the_reference_there(
    differences: tuple[float, float], noise: tuple[float, float] | None, within: list[bool]
) -> None:
    assert _within(differences, noise) == within


def test_nan_is_within_no_noise() -> None:
    actual = _EXPECTED.copy()
    actual[0, 0] = np.nan
    noise = [RowNoise(max_abs_diff=5 * _LIMIT, norm=5 * _LIMIT)] * 2

    assert rows_within(actual, _EXPECTED, noise, limits=_LIMITS, profile=_PROFILE).tolist() == [False, True]


def test_noise_is_the_largest_difference_and_the_norm_over_all_answers() -> None:
    noise = noise_by_row([_EXPECTED, _EXPECTED + np.float32(0.25), _EXPECTED])

    assert [row.max_abs_diff for row in noise] == [0.25, 0.25]
    assert noise[0].norm == pytest.approx(0.25 * 2**0.5)
    assert largest_in_limits(noise, _EXPECTED, _LIMITS)[1] == pytest.approx(0.25 / _LIMIT)


def test_answers_of_another_shape_or_finiteness_differ_as_much_as_can_be() -> None:
    broken = _EXPECTED.copy()
    broken[1, 0] = np.inf

    assert all(row.max_abs_diff > 1e300 for row in noise_by_row([_EXPECTED, _EXPECTED[:, :1]]))
    first, second = noise_by_row([_EXPECTED, broken])
    assert (first.max_abs_diff, second.max_abs_diff > 1e300) == (0, True)


def test_what_does_not_count_is_no_noise_and_excuses_nothing() -> None:
    padded = np.ma.MaskedArray(_EXPECTED, mask=[[False, True], [False, True]])
    elsewhere = _EXPECTED + np.array([[0, 9.0], [0, 9.0]], dtype=np.float32)

    assert [(row.max_abs_diff, row.norm) for row in noise_by_row([padded, elsewhere])] == [(0, 0), (0, 0)]
    assert rows_within(elsewhere, padded, None, limits=_LIMITS, profile=_PROFILE).tolist() == [True, True]
    wrong = elsewhere + np.array([[3 * _LIMIT, 0], [0, 0]], dtype=np.float32)
    assert rows_within(wrong, padded, None, limits=_LIMITS, profile=_PROFILE).tolist() == [False, True]
