"""Measure how far two arrays are apart, value by value."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray


def distance(actual: NDArray[Any], expected: NDArray[Any]) -> NDArray[np.float64]:
    """Return |actual - expected| of every value, in float64; the shape of `actual` broadcasts to that of `expected`.

    Equal values, two NaN, and two infinities of the same sign are 0 apart. A value that is NaN or infinite in one array
    alone is infinitely far from the other.
    """
    wide_actual, wide_expected = (np.asarray(array, dtype=np.float64) for array in (actual, expected))
    with np.errstate(invalid="ignore", over="ignore"):
        apart = np.asarray(np.abs(wide_actual - wide_expected))
        if math.isfinite(float(apart.sum())):
            return apart
    # A value is NaN or infinite, or the sum exceeds float64.
    is_same = (wide_actual == wide_expected) | (np.isnan(wide_actual) & np.isnan(wide_expected))
    with np.errstate(invalid="ignore", over="ignore"):
        distances = np.where(is_same, 0.0, apart)
    return np.where(np.isnan(distances), np.inf, distances)
