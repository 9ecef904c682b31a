"""What a benchmark makes of its timings: percentiles, the speed-up with its interval, the cost. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from paritygate.pipelines.benchmark.result import Speedup

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["cost_per_million", "latency_summary", "median_ms", "speedup_of"]

_NS_PER_MS = 1e6
_SECONDS_PER_HOUR = 3600.0
_ROWS_PRICED = 1e6
_CONFIDENCE = 0.95
_PERCENTILES = {"p50": 0.50, "p95": 0.95, "p99": 0.99}


def latency_summary(latencies_ns: NDArray[np.int64]) -> dict[str, float]:
    """Return `p50`, `p95`, `p99`, `mean`, `min` and `max` of timed calls, in milliseconds.

    A percentile is a latency that occurred: where it falls between two calls, the slower one
    (`numpy.quantile`, method `higher`). With 100 calls or fewer p99 is therefore the maximum, and with 20 or
    fewer p95 is: read them beside the number of calls.

    Args:
        latencies_ns: Nanoseconds of each call, shape `(calls,)`, at least one.
    """
    values = np.asarray(latencies_ns, dtype=np.float64) / _NS_PER_MS
    quantiles = np.quantile(values, list(_PERCENTILES.values()), method="higher")
    return {
        **{name: float(value) for name, value in zip(_PERCENTILES, quantiles, strict=True)},
        "mean": float(values.mean()),
        "min": float(values.min()),
        "max": float(values.max()),
    }


def median_ms(latencies_ns: NDArray[np.int64]) -> float:
    """Return the median of timed calls in milliseconds, the mean of the middle two for an even number."""
    return float(np.median(latencies_ns)) / _NS_PER_MS


def speedup_of(source_ms: Sequence[float], variant_ms: Sequence[float]) -> Speedup:
    """Return how many times as fast a variant is, from the median latency of both in each round.

    Rounds are pairs: what slowed the machine in one slowed both. The ratio is the geometric mean over the
    rounds of source / variant, and the interval that of Student's t at 95 % on the logarithms, so that
    swapping the sides gives the reciprocals. It speaks of noise between rounds, not of another machine.

    Args:
        source_ms: Median latency of the source in each round, positive.
        variant_ms: That of the variant in the same rounds.

    Raises:
        ValueError: There are fewer than two rounds, which have no spread, or the numbers differ.
    """
    from scipy import stats

    if len(source_ms) != len(variant_ms) or len(source_ms) < 2:  # noqa: PLR2004 - a spread needs two
        msg = f"speed-up from {len(source_ms)} and {len(variant_ms)} rounds (at least 2, as many of each)"
        raise ValueError(msg)
    logs = np.log(np.asarray(source_ms, dtype=np.float64)) - np.log(np.asarray(variant_ms, dtype=np.float64))
    rounds = len(logs)
    centre = float(logs.mean())
    half = float(stats.t.ppf((1 + _CONFIDENCE) / 2, rounds - 1) * logs.std(ddof=1) / np.sqrt(rounds))
    return Speedup(ratio=float(np.exp(centre)), low=float(np.exp(centre - half)), high=float(np.exp(centre + half)))


def cost_per_million(price_per_hour: float, rows_per_s: float) -> float:
    """Return what a million rows cost on a machine of this price per hour that does nothing else, fully used."""
    return price_per_hour / _SECONDS_PER_HOUR / rows_per_s * _ROWS_PRICED
