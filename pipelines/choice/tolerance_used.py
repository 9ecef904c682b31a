"""The share of its tolerance that a variant's difference uses, as one number for every precision."""

from __future__ import annotations

import math
from collections.abc import Iterable

# Above a million values, the limit applies to the 99.99 % quantile, and ten times it to the largest.
_CHECKS = frozenset({"max_abs_diff", "p9999_abs_diff", "mean_abs_diff", "max_row_rel_diff"})


def tolerance_used(checks: Iterable[tuple[str, float | None, float | None]]) -> float | None:
    """Return the largest measured / limit of the checks of differences, given as (name, measured, limit).

    None as a measured number or limit means a value that is not finite. The share is at most 1 exactly where these
    checks pass. It is infinite where a difference is not finite, or the limit is 0 and something differs. It is None
    where no float output was compared.
    """
    shares = [_share(measured, limit) for name, measured, limit in checks if name in _CHECKS]
    return max(shares, default=None)


def _share(measured: float | None, limit: float | None) -> float:
    if measured is None or limit is None or not math.isfinite(measured):
        return math.inf
    if measured == 0:
        return 0.0
    return measured / limit if limit > 0 else math.inf
