"""Factors by which the figures of a new version may be worse than those of a released one."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from msgspec import Struct

from paritygate.pipelines.spec.named_numbers import parse_named_numbers


class AgainstFigure(Struct, frozen=True, kw_only=True):
    """One figure to compare versions by."""

    meaning: str
    factor: float  # the default: of gold, where more is better, the divisor
    unit: str = ""
    is_more_better: bool = False


# A megabyte is 10^6 bytes.
FIGURES: Mapping[str, AgainstFigure] = {
    "max_abs_diff": AgainstFigure(meaning="largest difference of an output, as a part of its limit", factor=1.5),
    "mismatch_rate": AgainstFigure(meaning="share of the answers that differ", factor=1.5),
    "gold": AgainstFigure(meaning="metric against gold, where higher is better", factor=1.01, is_more_better=True),
    "size_mb": AgainstFigure(meaning="size of all files together", factor=1.1, unit="MB"),
    "latency_p50_ms": AgainstFigure(meaning="median latency of a call", factor=1.2, unit="ms"),
}


def check_factors(factors: Mapping[str, float]) -> dict[str, float]:
    """Return the factors; a ValueError for an unknown name, or a value that is not finite and at least 1."""
    for name, value in factors.items():
        if name not in FIGURES:
            raise ValueError(f"figure {name!r} is not known (allowed: {', '.join(FIGURES)})")
        if not (math.isfinite(value) and value >= 1):
            raise ValueError(f"the factor of {name} is {value:g}, not a finite number of at least 1")
    return dict(factors)


def parse_factors(texts: Iterable[str]) -> dict[str, float]:
    """Return factors written as `NAME=FACTOR`.

    Raises:
        UsageError: A text has another form, or a name is unknown or occurs twice, or a value is not a finite number
            of at least 1.
    """
    return parse_named_numbers(texts, check_factors, option="--worse", names=FIGURES, example="max_abs_diff=1.5")
