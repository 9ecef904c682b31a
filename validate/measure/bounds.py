"""Confidence bounds: how many mismatches may be unseen, given the count of those seen."""

from __future__ import annotations

import math

# Fewer rows than this bound nothing: of 30 without a mismatch, still 9.5 % may be wrong.
COVERED_ROWS = 30

# Two-sided 95 % quantile of the standard normal distribution.
_Z_95 = 1.959963984540054


def mismatch_rate_upper_95(mismatches: int, rows: int) -> float:
    """Return the one-sided 95 % upper bound of the mismatch rate, by Clopper and Pearson; 1.0 for no rows.

    Rows must be exchangeable. Source: C. J. Clopper and E. S. Pearson, Biometrika 26 (1934); for no mismatches it is 1
    - 0.05 ** (1 / rows), the rule of three.
    """
    if rows == 0 or mismatches >= rows:
        return 1.0
    if mismatches == 0:
        # The usual case, which needs no import.
        return -math.expm1(math.log(0.05) / rows)
    from scipy.special import betaincinv

    return float(betaincinv(mismatches + 1, rows - mismatches, 0.95))


def rows_for_upper_95(rate: float) -> int:
    """Return how many rows without a mismatch it takes to bound the rate at `rate`, 0 < rate < 1."""
    return math.ceil(math.log(0.05) / math.log1p(-rate))


def mean_interval_95(mean: float, variance: float, count: int) -> tuple[float, float]:
    """Return the 95 % interval of a mean by the normal approximation; `variance` has ddof 0, `count` is at least 1."""
    half = _Z_95 * math.sqrt(max(variance, 0.0) / count)
    return mean - half, mean + half


def upper_bound_text(rate: float) -> str:
    """Return an upper bound of a rate in percent, rounded up, with two decimals or two digits."""
    shown = rate * 100
    if shown <= 0 or shown >= 100:  # noqa: PLR2004 - percent
        return f"{shown:.0f} %"
    decimals = max(2, 1 - math.floor(math.log10(shown)))
    # The small term keeps 0.58, which is 0.5800000000000001 here, from becoming 0.59.
    return f"{math.ceil(shown * 10**decimals - 1e-9) / 10**decimals:.{decimals}f} %"
