"""How much of what is tolerated the difference of a variant takes, as one number for every precision."""

from __future__ import annotations

import math
from collections.abc import Iterable

# Above a million values the limit is that of the 99.99 % quantile, and ten times it that of the largest.
_CHECKS = frozenset({"max_abs_diff", "p9999_abs_diff", "mean_abs_diff", "max_row_rel_diff"})


def limit_share(checks: Iterable[tuple[str, float | None, float | None]]) -> float | None:
    """Return the largest measured / limit of the checks of differences: that of the limit that is nearest.

    Args:
        checks: Name, measured number and limit of each check of a comparison; None for a number that is not finite.

    Returns:
        At least 0; at most 1 exactly where these checks pass; infinite where a difference is not finite, or the
        limit is 0 and something differs; None where no float output was compared.
    """
    shares = [_share(measured, limit) for name, measured, limit in checks if name in _CHECKS]
    return max(shares, default=None)


def _share(measured: float | None, limit: float | None) -> float:
    if measured is None or limit is None or not math.isfinite(measured):
        return math.inf
    if measured == 0:
        return 0.0
    return measured / limit if limit > 0 else math.inf
