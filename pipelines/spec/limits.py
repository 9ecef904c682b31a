"""Limits on speed and size (`--constraint NAME=VALUE`), and the preference, by which a release is chosen."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Literal

from msgspec import Struct

from paritygate.pipelines.spec.named_numbers import parse_named_numbers

Preference = Literal["fastest", "smallest"]
PREFERENCES: tuple[Preference, ...] = ("fastest", "smallest")


class Constraint(Struct, frozen=True, kw_only=True):
    """One figure that may be limited."""

    meaning: str
    unit: str
    is_floor: bool = False  # the limit is the least, not the most


# It is known only with a declared price.
COST = "cost_per_million"

UNMEASURED = "was not measured"

# Latency, throughput and cost are those at the first batch size and concurrency of the spec.
# A megabyte is 10^6 bytes.
CONSTRAINTS: Mapping[str, Constraint] = {
    "latency_p50_ms": Constraint(meaning="median latency of a call", unit="ms"),
    "latency_p95_ms": Constraint(meaning="latency that 95 % of the calls stay within", unit="ms"),
    "latency_p99_ms": Constraint(meaning="latency that 99 % of the calls stay within", unit="ms"),
    "first_call_ms": Constraint(meaning="the first call after loading", unit="ms"),
    "load_s": Constraint(meaning="time to load", unit="s"),
    "rows_per_s": Constraint(meaning="throughput, at least", unit="rows/s", is_floor=True),
    "size_mb": Constraint(meaning="size of all files together", unit="MB"),
    "memory_mb": Constraint(meaning="largest resident size of the process", unit="MB"),
    COST: Constraint(meaning="price of a million rows", unit=""),
}


def check_limits(limits: Mapping[str, float]) -> dict[str, float]:
    """Return the limits; a ValueError for an unknown name, or a value that is not finite and above 0."""
    for name, value in limits.items():
        if name not in CONSTRAINTS:
            raise ValueError(f"limit {name!r} is not known (allowed: {', '.join(CONSTRAINTS)})")
        if not (math.isfinite(value) and value > 0):
            raise ValueError(f"limit {name} is {value:g}, not a finite number above 0")
    return dict(limits)


def parse_constraints(texts: Iterable[str]) -> dict[str, float]:
    """Return limits written as `NAME=VALUE`.

    Raises:
        UsageError: A text has another form, or a name is unknown or occurs twice, or a value is not a finite number
            above 0.
    """
    return parse_named_numbers(
        texts, check_limits, option="--constraint", names=CONSTRAINTS, example="latency_p95_ms=20"
    )


def broken_constraints(limits: Mapping[str, float], figures: Mapping[str, float | None]) -> tuple[str, ...]:
    """Return messages on the limits that the figures exceed; a figure without measurement exceeds every limit."""
    return tuple(words for name, limit in limits.items() if (words := _broken(name, limit, figures.get(name))))


def _broken(name: str, limit: float, found: float | None) -> str:
    if found is None or not math.isfinite(found):
        return f"{name} {UNMEASURED}"
    if CONSTRAINTS[name].is_floor:
        return f"{name} {_pair(found, '<', limit)}" if found < limit else ""
    return f"{name} {_pair(found, '>', limit)}" if found > limit else ""


def _pair(found: float, sign: str, limit: float) -> str:
    """Return both numbers with enough digits to show the difference."""
    for digits in range(3, 17):
        shown = f"{found:.{digits}g}"
        if float(shown) != limit and (float(shown) > limit) == (found > limit):
            return f"{shown} {sign} {limit:g}"
    return f"{found!r} {sign} {limit:g}"
