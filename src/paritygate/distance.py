"""Measure how far two arrays are apart, value by value."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray


def subtract(actual: NDArray[Any], expected: NDArray[Any]) -> NDArray[np.float64]:
    """Return actual - expected of every value, in float64; it subtracts integers of 64 bits before it rounds them."""
    actual, expected = np.asarray(actual), np.asarray(expected)
    with np.errstate(invalid="ignore", over="ignore"):
        if not {actual.dtype.name, expected.dtype.name} <= {"int64", "uint64"}:
            return np.asarray(actual.astype(np.float64, copy=False) - expected.astype(np.float64, copy=False))
        # Modulo 2^64, so that the difference of any two of them fits.
        apart = np.maximum(actual, expected).astype(np.uint64) - np.minimum(actual, expected).astype(np.uint64)
        return np.asarray(np.where(actual < expected, -1.0, 1.0) * apart)


def distance(actual: NDArray[Any], expected: NDArray[Any]) -> NDArray[np.float64]:
    """Return |actual - expected| of every value, in float64; the shape of `actual` broadcasts to that of `expected`.

    Equal values, two NaN, and two infinities of the same sign are 0 apart. A value that is NaN or infinite in one array
    alone is infinitely far from the other.
    """
    wide_actual, wide_expected = (np.asarray(array, dtype=np.float64) for array in (actual, expected))
    apart = np.asarray(np.abs(subtract(actual, expected)))
    with np.errstate(over="ignore"):
        if math.isfinite(float(apart.sum())):
            return apart
    # A value is NaN or infinite, or the sum exceeds float64.
    is_same = (wide_actual == wide_expected) | (np.isnan(wide_actual) & np.isnan(wide_expected))
    distances = np.where(is_same, 0.0, apart)
    return np.where(np.isnan(distances), np.inf, distances)
