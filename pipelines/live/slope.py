"""Estimate how fast a series grows, with an interval, although single values jump.

The slope is the median of those between all pairs of points, and its interval comes from Kendall's rank correlation.
Points are medians of blocks of the series, because neighbouring values of memory or latency depend on each other.
Source: Sen, "Estimates of the regression coefficient based on Kendall's tau", JASA 63 (1968), sections 2 and 4.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from msgspec import Struct

_MINUTE = 60.0
_BLOCKS = 20
# Of fewer points, an interval of 99 % would hold all slopes.
_LEAST_POINTS = 8
# The quantile of the normal distribution for an interval of 99 %.
_NORMAL_99 = 2.5758


class Trend(Struct, frozen=True, kw_only=True):
    """The growth of a series after its warm-up; `low` and `high` are an interval of 99 % for `per_minute`."""

    first: float  # the median of the first quarter
    last: float  # the median of the last quarter
    per_minute: float
    low: float
    high: float
    late_per_minute: float  # of the second half alone
    net_per_minute: float  # from the first quarter to the last
    points: int  # values in the series

    def exceeds(self, limit: float) -> bool:
        """Return whether the series grows by more than `limit` a minute, also in its second half.

        A cache that fills up, or an allocator that settles, grows in the first half alone.
        """
        return self.low > limit and self.late_per_minute > limit

    def is_unclear(self, limit: float) -> bool:
        """Return whether a longer series is needed: it grew by more, but not throughout, or the interval is wide.

        A leak in a few large steps looks like a cache that fills up.
        """
        grows = max(self.late_per_minute, self.net_per_minute) > limit
        return not self.exceeds(limit) and self.high > limit and grows


def trend_of(times: Sequence[float], values: Sequence[float]) -> Trend | None:
    """Return the trend of values at times in seconds; None for too few values, or all at one time.

    Args:
        times: Ascending, shape (n,).
        values: Finite, shape (n,).
    """
    at, found = np.asarray(times, dtype=np.float64), np.asarray(values, dtype=np.float64)
    blocks = min(_BLOCKS, len(at) // 2)
    if blocks < _LEAST_POINTS or at[-1] <= at[0]:
        return None
    parts = np.array_split(np.arange(len(at)), blocks)
    middle = np.asarray([np.median(at[part]) for part in parts]) / _MINUTE
    level = np.asarray([np.median(found[part]) for part in parts])
    slopes = _slopes(middle, level)
    # Half the width of the interval, in ranks of slopes.
    ranks = _NORMAL_99 * math.sqrt(blocks * (blocks - 1) * (2 * blocks + 5) / 18)
    low, high = math.floor((len(slopes) - ranks) / 2), math.ceil((len(slopes) + ranks) / 2)
    quarter = max(1, len(found) // 4)
    first, last = float(np.median(found[:quarter])), float(np.median(found[-quarter:]))
    apart = (float(np.median(at[-quarter:])) - float(np.median(at[:quarter]))) / _MINUTE
    half = blocks // 2
    return Trend(
        first=first,
        last=last,
        per_minute=float(np.median(slopes)),
        low=float(slopes[max(0, low)]),
        high=float(slopes[min(len(slopes) - 1, high)]),
        late_per_minute=float(np.median(_slopes(middle[half:], level[half:]))),
        net_per_minute=(last - first) / apart,
        points=len(found),
    )


def _slopes(times: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return the slopes between all pairs of points, ascending."""
    first, second = np.triu_indices(len(times), k=1)
    slopes: np.ndarray = np.sort((values[second] - values[first]) / (times[second] - times[first]))
    return slopes
