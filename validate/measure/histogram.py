"""A histogram of magnitudes by exponent and top mantissa bits: quantiles in fixed memory, exact sums of shards."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

# Bits of a float32 that name the bin: 8 exponent and 7 mantissa bits; the sign is always zero.
_MANTISSA_BITS = 7
_SHIFT = 23 - _MANTISSA_BITS
BINS = 1 << (31 - _SHIFT)
# The exponent of 2 where the second octave begins; the first one holds zero and all that is smaller.
FIRST_OCTAVE = -126
# The number of octaves from there on.
OCTAVES = 255
# A quantile is at most this fraction above the true one, for magnitudes of at least 1.2e-38.
RESOLUTION = 2.0**-_MANTISSA_BITS
# Above this many values counting all bins at once is cheaper than adding value by value.
_DENSE_FROM = 4096
# Of the largest float32.
_LARGEST_BIN = 0x7F7FFFFF >> _SHIFT


def empty_histogram() -> NDArray[np.int64]:
    """Return a histogram of nothing: `BINS` zeros."""
    return np.zeros(BINS, dtype=np.int64)


def add_magnitudes(histogram: NDArray[np.int64], magnitudes: NDArray[np.float64]) -> None:
    """Count `magnitudes` (any shape, finite, >= 0) into `histogram`, in place."""
    with np.errstate(over="ignore"):
        values = magnitudes.astype(np.float32).ravel()
    # Counting takes these integers; it would copy any others first, which takes longer than all else here.
    bins = np.right_shift(values.view(np.uint32), _SHIFT, dtype=np.intp)
    # Numbers beyond float32 count as its largest number.
    np.minimum(bins, _LARGEST_BIN, out=bins)
    if bins.size < _DENSE_FROM:
        np.add.at(histogram, bins, 1)
    else:
        histogram += np.bincount(bins, minlength=BINS)


def octaves(histogram: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the counts between powers of two, shape (256,): `2 ** (FIRST_OCTAVE + i - 1)` up to twice that at `i`.

    Entry 0 holds zero and all below `2 ** FIRST_OCTAVE`. Magnitudes count as rounded to float32.
    """
    counts: NDArray[np.int64] = histogram.reshape(-1, 1 << _MANTISSA_BITS).sum(axis=1)
    return counts


def quantile(histogram: NDArray[np.int64], fraction: float) -> float:
    """Return a value that at least `fraction` (0..1) of the counted magnitudes do not exceed; NaN if none was counted.

    It is the upper edge of a bin: never below the true quantile, and above it by `RESOLUTION` of it at most.
    """
    return quantiles(histogram, (fraction,))[0]


def quantiles(histogram: NDArray[np.int64], fractions: Sequence[float]) -> list[float]:
    """Return `quantile` of each fraction; all the bins are added up once."""
    counted = np.cumsum(histogram)
    return [_quantile(counted, fraction) for fraction in fractions]


def _quantile(counted: NDArray[np.int64], fraction: float) -> float:
    total = int(counted[-1])
    if total == 0:
        return float("nan")
    # Rank by integers where the product is exact enough: round() guards 0.999 * 1000 = 998.9999...
    rank = max(1, int(np.ceil(round(fraction * total, 9))))
    index = int(np.searchsorted(counted, rank))
    if index == 0:
        # The lowest bin holds zero and the smallest subnormals, and almost always means zero.
        return 0.0
    edge = np.array([((index + 1) << _SHIFT) - 1], dtype=np.uint32).view(np.float32)[0]
    return float(edge)
