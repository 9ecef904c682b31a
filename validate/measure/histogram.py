"""A histogram of magnitudes by exponent and top mantissa bits: quantiles in fixed memory, exact sums of shards."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

# Bits of a float32 that name the bin: 8 exponent and 7 mantissa bits; the sign is always zero.
_MANTISSA_BITS = 7
_SHIFT = 23 - _MANTISSA_BITS
BINS = 1 << (31 - _SHIFT)
# A quantile is at most this fraction above the true one, for magnitudes of at least 1.2e-38.
RESOLUTION = 2.0**-_MANTISSA_BITS
# Bins of fewer values are kept one by one: most batches are small, and all the counters fill 256 KB.
_FEW = 4096
# Of the largest float32.
_LARGEST_BIN = 0x7F7FFFFF >> _SHIFT


class Histogram:
    """Counts of magnitudes, in fixed memory. The sum of two is the histogram of both."""

    __slots__ = ("_counts", "_few", "size")

    def __init__(self) -> None:
        self._few: list[NDArray[np.intp]] = []
        self._counts: NDArray[np.int64] | None = None  # instead of the few
        self.size = 0

    @classmethod
    def of(cls, counts: NDArray[np.int64]) -> Histogram:
        """Return the histogram with these counts of the `BINS`."""
        histogram = cls()
        histogram._counts, histogram.size = counts, int(counts.sum())
        return histogram

    def add(self, magnitudes: NDArray[np.float64]) -> None:
        """Count `magnitudes`: any shape, finite, >= 0."""
        with np.errstate(over="ignore"):
            values = magnitudes.astype(np.float32).ravel()
        # Counting takes these integers; it would copy any others first, which takes longer than all else here.
        bins = np.right_shift(values.view(np.uint32), _SHIFT, dtype=np.intp)
        # Numbers beyond float32 count as its largest number.
        np.minimum(bins, _LARGEST_BIN, out=bins)
        self.size += bins.size
        if self._counts is None:
            self._few.append(bins)
            self._count_many()
        elif bins.size < _FEW:
            np.add.at(self._counts, bins, 1)
        else:
            self._counts += _counted(bins)

    def __add__(self, other: Histogram) -> Histogram:
        both = Histogram()
        both.size = self.size + other.size
        if self._counts is None and other._counts is None:
            both._few = [*self._few, *other._few]
            both._count_many()
        else:
            both._counts = self.counts() + other.counts()
        return both

    def _count_many(self) -> None:
        if self.size >= _FEW:
            self._counts, self._few = _counted(*self._few), []

    def counts(self) -> NDArray[np.int64]:
        """Return the number of magnitudes in each of the `BINS`."""
        return _counted(*self._few) if self._counts is None else self._counts

    def octaves(self) -> NDArray[np.int64]:
        """Return the counts between powers of two, shape (256,).

        Entry `i` has those from `2 ** (FIRST_OCTAVE + i - 1)` to twice that, and entry 0 zero and all below
        `2 ** FIRST_OCTAVE`. Magnitudes count as rounded to float32.
        """
        counts: NDArray[np.int64] = self.counts().reshape(-1, 1 << _MANTISSA_BITS).sum(axis=1)
        return counts

    def quantiles(self, *fractions: float) -> list[float]:
        """Return for each fraction (0..1) a value that at least so many magnitudes do not exceed; NaN for none.

        It is the upper edge of a bin: never below the true quantile, and above it by `RESOLUTION` of it at most.
        """
        if not self.size:
            return [float("nan") for _ in fractions]
        # Rank by integers where the product is exact enough: round() guards 0.999 * 1000 = 998.9999...
        ranks = [max(1, math.ceil(round(fraction * self.size, 9))) for fraction in fractions]
        if self._counts is None:
            ordered = np.sort(np.concatenate(self._few))
            return [_edge(int(ordered[rank - 1])) for rank in ranks]
        return [_edge(int(place)) for place in np.searchsorted(np.cumsum(self._counts), ranks)]


def _counted(*bins: NDArray[np.intp]) -> NDArray[np.int64]:
    # One array is not copied.
    together = bins[0] if len(bins) == 1 else np.concatenate([np.zeros(0, dtype=np.intp), *bins])
    return np.bincount(together, minlength=BINS)


def _edge(place: int) -> float:
    """Return the upper edge of a bin; the lowest one almost always means zero, beside the smallest subnormals."""
    return float(np.uint32(((place + 1) << _SHIFT) - 1).view(np.float32)) if place else 0.0
