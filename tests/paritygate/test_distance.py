"""How far two arrays are apart."""

from __future__ import annotations

import numpy as np
import pytest

from paritygate.distance import distance

_NAN, _INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("actual", "expected", "apart"),
    [
        (1.5, 1.0, 0.5),
        (_NAN, _NAN, 0.0),
        (_INF, _INF, 0.0),
        (_INF, -_INF, _INF),
        (_NAN, 1.0, _INF),
        (1.0, _NAN, _INF),
        (_NAN, _INF, _INF),
        (1.0, -_INF, _INF),
        (1e308, -1e308, _INF),
    ],
)
def test_equal_values_are_0_apart_and_what_is_finite_in_one_alone_is_infinitely_far(
    actual: float, expected: float, apart: float
) -> None:
    assert distance(np.array([actual]), np.array([expected])).tolist() == [apart]


def test_low_precision_and_unsigned_integers_do_not_wrap_around() -> None:
    assert distance(np.array([60000], np.float16), np.array([-60000], np.float16)).tolist() == [120000.0]
    assert distance(np.array([1], np.uint8), np.array([255], np.uint8)).tolist() == [254.0]
    assert distance(np.array([True]), np.array([False])).tolist() == [1.0]


def test_one_row_is_compared_with_many() -> None:
    assert distance(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([1.0, 1.0])).tolist() == [[0.0, 1.0], [2.0, 3.0]]
