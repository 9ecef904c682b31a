"""The difference of a metric between candidate and reference, with an interval from resampled rows.

Both sides are resampled by the same rows, so what the rows have in common cancels.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

Metric = Callable[[NDArray[np.float64], NDArray[np.float64]], NDArray[np.float64]]

RESAMPLES = 1000
# A resample holds no more rows than this. Samples of more rows get an interval that is too wide, by the root of how
# many times more, never too narrow.
_MOST_ROWS = 10_000
# Values that are resampled at once: memory holds a few arrays of this size.
_BLOCK_VALUES = 1 << 20
# Where more of the resamples than this have no metric, the rest is not representative.
_UNDEFINED_SHARE = 0.05
_LOW, _HIGH = 0.025, 0.975


class Interval(Struct, frozen=True, kw_only=True):
    """An interval that holds the true value in 95 of 100 cases."""

    low: float
    high: float


class PairedResamples(Struct, frozen=True, kw_only=True):
    """The metric of both sides on each resample, shape `(resamples,)`; NaN where it is not defined."""

    candidate: NDArray[np.float64]
    reference: NDArray[np.float64]

    def interval(self, statistic: NDArray[np.float64]) -> Interval | None:
        """Return the percentile interval of a statistic of the resamples; None where too many have none.

        Source: Efron and Tibshirani (1993), An Introduction to the Bootstrap, 13.3.
        """
        defined = statistic[np.isfinite(statistic)]
        if defined.size < (1 - _UNDEFINED_SHARE) * statistic.size:
            return None
        low, high = np.quantile(defined, [_LOW, _HIGH])
        return Interval(low=float(low), high=float(high))


def paired_resamples(
    metric: Metric, sides: tuple[NDArray[np.float64], NDArray[np.float64]], gold: NDArray[np.float64], *, seed: int
) -> PairedResamples:
    """Return the metric of both sides on `RESAMPLES` resamples of the rows, drawn with replacement.

    The metric takes arrays `(resamples, rows)`. `sides` are the predictions of candidate and reference, `(rows,)` as
    `gold`. Equal seeds give equal intervals.
    """
    rows = min(len(gold), _MOST_ROWS)
    random = np.random.default_rng(seed)
    step = max(1, _BLOCK_VALUES // max(1, rows))
    metrics: tuple[list[NDArray[np.float64]], list[NDArray[np.float64]]] = ([], [])
    for first in range(0, RESAMPLES, step):
        drawn = random.integers(0, len(gold), size=(min(step, RESAMPLES - first), rows))
        for side, values in zip(sides, metrics, strict=True):
            values.append(metric(side[drawn], gold[drawn]))
    return PairedResamples(candidate=np.concatenate(metrics[0]), reference=np.concatenate(metrics[1]))
