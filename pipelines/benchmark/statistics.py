"""Compute percentiles, speed-ups with intervals, and costs from timings. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from paritygate.pipelines.benchmark.result import Speedup

_NS_PER_MS = 1e6
_SECONDS_PER_HOUR = 3600.0
_ROWS_PRICED = 1e6
_CONFIDENCE = 0.95
_RESAMPLES = 2000
_SEED = 0
# Numbers drawn per block, however many rounds there are.
_BLOCK = 1 << 20
_TAILS = {"p95": 0.95, "p99": 0.99}
# Shares of calls are sums of floats.
_ROUNDING = 1e-9


def latency_summary(rounds: Sequence[NDArray[np.int64]]) -> dict[str, float]:
    """Return `p50`, `p95`, `p99`, `mean`, `min` and `max` in milliseconds, of one array of nanoseconds per round.

    `p50` is the median over rounds of each round's median, which the speed-up compares. In `p95` and `p99` too, every
    round has the same weight, whatever its number of calls, so that they are never below `p50`. They are latencies that
    occurred: the smallest one that more than 95 or 99 % of the calls stay within. So `p99` of 100 calls or fewer is the
    maximum, and `p95` of 20 or fewer.
    """
    values = np.concatenate(rounds).astype(np.float64) / _NS_PER_MS
    weights = np.concatenate([np.full(len(calls), 1 / len(calls) / len(rounds)) for calls in rounds])
    order = np.argsort(values, kind="stable")
    within = np.cumsum(weights[order])
    return {
        "p50": float(np.median([median_ms(calls) for calls in rounds])),
        **{name: _beyond(values[order], within, share) for name, share in _TAILS.items()},
        "mean": float(values.mean()),
        "min": float(values.min()),
        "max": float(values.max()),
    }


def _beyond(ordered: NDArray[np.float64], within: NDArray[np.float64], share: float) -> float:
    at = int(np.searchsorted(within, share + _ROUNDING, side="right"))
    return float(ordered[min(at, len(ordered) - 1)])


def median_ms(latencies_ns: NDArray[np.int64]) -> float:
    """Return the median of timed calls in milliseconds."""
    return float(np.median(latencies_ns)) / _NS_PER_MS


def speedup_of(source_ms: Sequence[float], variant_ms: Sequence[float]) -> Speedup:
    """Return the ratio of two speeds, from the median latencies (positive) of both in the same rounds.

    The ratio is that of the medians over rounds, both sides' `p50`. Its 95 % interval is a bootstrap over rounds,
    resampled alike on both sides because a slow machine slows both. Swapped sides give reciprocals, and the same rounds
    always the same interval. It covers noise between rounds, not other machines.

    Source: T. Hesterberg, "What Teachers Should Know About the Bootstrap", The American Statistician 69 (2015),
    371-386. On few observations the percentile interval is too narrow by about sqrt((n - 1) / n) * z / t. It is widened
    by that around the ratio, on logarithms.

    Raises:
        ValueError: There are fewer than two rounds, which have no spread, or their numbers differ.
    """
    # `scipy.stats` has the same two under better names, and takes half a second to import.
    from scipy.special import ndtri, stdtrit

    rounds = len(source_ms)
    if rounds != len(variant_ms) or rounds < 2:  # noqa: PLR2004 - a spread needs two
        raise ValueError(f"speed-up from {rounds} and {len(variant_ms)} rounds (at least 2, as many of each)")
    sides = np.asarray([source_ms, variant_ms], dtype=np.float64)
    ratio = float(_ratios(sides, np.arange(rounds)[None])[0])
    rng = np.random.default_rng(_SEED)
    block = max(1, _BLOCK // rounds)
    drawn = np.concatenate(
        [
            _ratios(sides, rng.integers(rounds, size=(min(block, _RESAMPLES - done), rounds)))
            for done in range(0, _RESAMPLES, block)
        ]
    )
    tail = (1 - _CONFIDENCE) / 2
    off = np.quantile(np.log(drawn / ratio), [tail, 1 - tail])
    widened = off * stdtrit(rounds - 1, tail) / ndtri(tail) * np.sqrt(rounds / (rounds - 1))
    low, high = ratio * np.exp(widened)
    return Speedup(ratio=ratio, low=min(ratio, float(low)), high=max(ratio, float(high)))


def _ratios(sides: NDArray[np.float64], rounds: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the ratio of both sides' medians for each row of rounds."""
    source, variant = (np.median(side[rounds], axis=1) for side in sides)
    ratios: NDArray[np.float64] = source / variant
    return ratios


def cost_per_million(price_per_hour: float, rows_per_s: float) -> float:
    """Return the cost of a million rows on a fully used machine with this price per hour."""
    return price_per_hour / _SECONDS_PER_HOUR / rows_per_s * _ROWS_PRICED
