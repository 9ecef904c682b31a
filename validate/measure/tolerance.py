"""The declared limits. No array is used here, so that commands read rules without NumPy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from paritygate.precision import Precision


@dataclass(frozen=True, kw_only=True, slots=True)
class Tolerance:
    """Limits by the names in reports. A candidate passes that stays at or below each.

    `max_abs_diff` is the largest |actual - expected|, in the unit of the output, and `mean_abs_diff` its mean.
    `max_row_rel_diff` is that of a row relative to its norm, in 2-norms. `repeat_max_abs_diff` is the largest
    difference between two runs on the same input. `decision_mismatches` counts decisions that differ, near the boundary
    or not; None for the default, a few at the boundary alone. `mismatch_rate_upper_95` is the 95 % upper bound of the
    rate of rows that decide differently. A fill value may be the nearest number of the `precision`. Limits in
    `declared` hold as written. A default is multiplied by the scale of the output, capped by its spread, and never
    below what arithmetic can do. `outputs` has limits of one output by name: one number, or one for each column, None
    where the default holds.
    """

    max_abs_diff: float
    mean_abs_diff: float
    max_row_rel_diff: float
    repeat_max_abs_diff: float
    decision_mismatches: int | None = None
    mismatch_rate_upper_95: float | None = None
    precision: Precision = Precision.FP32
    declared: frozenset[str] = frozenset()
    outputs: Mapping[str, Mapping[str, tuple[float | None, ...]]] = field(default_factory=dict)


def _tolerance(precision: Precision, limits: tuple[float, float, float, float]) -> Tolerance:
    max_abs, mean_abs, row, repeat = limits
    return Tolerance(
        max_abs_diff=max_abs,
        mean_abs_diff=mean_abs,
        max_row_rel_diff=row,
        repeat_max_abs_diff=repeat,
        precision=precision,
    )


# Source: measured on equivalent and faulty conversions; see docs/tolerances.md. Mixed precision is judged as its lowest
# part, FP16.
DEFAULT_TOLERANCES: Mapping[Precision, Tolerance] = {
    precision: _tolerance(precision, limits)
    for precision, limits in {
        Precision.FP32: (1e-4, 2e-5, 1e-4, 5e-5),
        Precision.TF32: (1e-2, 2e-3, 1e-2, 5e-3),
        Precision.FP16: (1e-2, 2e-3, 1e-2, 5e-3),
        Precision.MIXED: (1e-2, 2e-3, 1e-2, 5e-3),
        Precision.BF16: (5e-2, 1e-2, 5e-2, 2.5e-2),
        Precision.INT8: (1e-1, 2e-2, 1e-1, 5e-2),
    }.items()
}


# The version of the rule by which limits follow from a tolerance and a reference: shares of limits of other versions
# are not comparable. 1: by the spread of the whole output; 2: capped by the spread of each channel.
LIMIT_RULE = 2

# The largest limit as a share of the spread of its own channel, so that a small column next to a large one is judged
# too. Source: measured on equivalent and faulty conversions; see docs/tolerances.md.
SHARES_OF_SPREAD: Mapping[Precision, float] = {
    Precision.FP32: 1e-3,
    Precision.TF32: 5e-2,
    Precision.FP16: 5e-2,
    Precision.MIXED: 5e-2,
    Precision.BF16: 1e-1,
    Precision.INT8: 4e-1,
}

# Limits without a meaning where nothing is decided.
DECISION_LIMITS = frozenset({"decision_mismatches", "mismatch_rate_upper_95"})

LIMIT_NAMES = tuple(item.name for item in fields(Tolerance) if item.name not in {"declared", "outputs", "precision"})

# Those that may be declared for one output.
OUTPUT_LIMITS = ("max_abs_diff", "mean_abs_diff", "max_row_rel_diff", "repeat_max_abs_diff")
