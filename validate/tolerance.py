"""How much a candidate may differ: the declared limits, and what they come to for one output."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from paritygate.errors import UsageError
from paritygate.precision import Precision
from paritygate.validate.profile import OutputProfile, ulp_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "DECISION_LIMITS",
    "DEFAULT_TOLERANCES",
    "LEAST_ULPS",
    "Limits",
    "Tolerance",
    "limits_for",
    "parse_tolerance",
]

# No default limit is below this many steps of the output's dtype at its largest magnitude.
LEAST_ULPS = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class Tolerance:
    """Limits by the names the report uses. A candidate passes that stays at or below each.

    Attributes:
        max_abs_diff: Largest |actual - expected|, in the unit of the output.
        mean_abs_diff: Mean of |actual - expected|.
        max_row_rel_diff: Largest |actual - expected| of a row relative to its norm, 2-norms.
        repeat_max_abs_diff: Largest difference between two runs on the same input.
        decision_mismatches: How many decisions may differ, near the boundary or not; None for the
            default, which allows only a few, and only where the reference is at the boundary.
        mismatch_rate_upper_95: Largest 95 % upper bound of the rate of rows that decide differently.
        declared: Names of the limits that the user set: they hold as written, while a default is
            multiplied by the scale of the output and never below 4 ulp of it.
    """

    max_abs_diff: float
    mean_abs_diff: float
    max_row_rel_diff: float
    repeat_max_abs_diff: float
    decision_mismatches: int | None = None
    mismatch_rate_upper_95: float | None = None
    declared: frozenset[str] = frozenset()

    def to_json(self) -> dict[str, Any]:
        """Return the tolerance as JSON data."""
        data: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(self)}
        data["declared"] = sorted(self.declared)
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Tolerance:
        """Return the tolerance that `to_json` wrote."""
        return cls(**{**data, "declared": frozenset(data["declared"])})


def _tolerance(max_abs: float, mean_abs: float, row: float, repeat: float) -> Tolerance:
    return Tolerance(max_abs_diff=max_abs, mean_abs_diff=mean_abs, max_row_rel_diff=row, repeat_max_abs_diff=repeat)


# Source: measured on innocent and faulty conversions; see docs/tolerances.md. Mixed precision is judged as
# its lowest part, FP16.
DEFAULT_TOLERANCES: Mapping[Precision, Tolerance] = {
    Precision.FP32: _tolerance(1e-4, 2e-5, 1e-4, 5e-5),
    Precision.TF32: _tolerance(1e-2, 2e-3, 1e-2, 5e-3),
    Precision.FP16: _tolerance(1e-2, 2e-3, 1e-2, 5e-3),
    Precision.MIXED: _tolerance(1e-2, 2e-3, 1e-2, 5e-3),
    Precision.BF16: _tolerance(5e-2, 1e-2, 5e-2, 2.5e-2),
    Precision.INT8: _tolerance(1e-1, 2e-2, 1e-1, 5e-2),
}

# Limits that mean nothing where nothing is decided.
DECISION_LIMITS = frozenset({"decision_mismatches", "mismatch_rate_upper_95"})
_LIMIT_NAMES = tuple(field.name for field in fields(Tolerance) if field.name != "declared")


def parse_tolerance(precision: Precision, declared: Mapping[str, float]) -> Tolerance:
    """Return the default tolerance of `precision` with the declared limits in place of its own.

    Raises:
        UsageError: A name is not a limit, or a value is negative, not finite, or not a count.
    """
    values: dict[str, Any] = {}
    for name, value in declared.items():
        if name not in _LIMIT_NAMES:
            msg = f"tolerance {name!r} is not known (allowed: {', '.join(_LIMIT_NAMES)})"
            raise UsageError(
                msg, hint="write max_abs_diff: 1e-3 below the variant in the spec, or --tolerance max_abs_diff=1e-3"
            )
        if not math.isfinite(value) or value < 0:
            msg = f"tolerance {name}={value} is not a finite number of at least 0"
            raise UsageError(msg, hint="leave the limit out to use the default")
        if name == "decision_mismatches":
            if value != int(value):
                msg = f"tolerance {name}={value} is not a whole number"
                raise UsageError(msg, hint="it counts decisions; for a rate use mismatch_rate_upper_95")
            value = int(value)  # noqa: PLW2901 - the same value as the count it is
        values[name] = value
    return replace(DEFAULT_TOLERANCES[precision], **values, declared=frozenset(values))


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """A tolerance applied to one output: the numbers that its differences are held against.

    Attributes:
        max_abs_diff: One a channel, shape (channels,).
        mean_abs_diff: One a channel.
        repeat_max_abs_diff: One a channel.
        max_row_rel_diff: Dimensionless.
        axis: The channel axis of the output, or None for one channel.
    """

    max_abs_diff: NDArray[np.float64]
    mean_abs_diff: NDArray[np.float64]
    repeat_max_abs_diff: NDArray[np.float64]
    max_row_rel_diff: float
    axis: int | None

    def by_element(self, rank: int) -> NDArray[np.float64]:
        """Return the max limits in a shape that broadcasts over an array of the output's rank."""
        if self.axis is None:
            return self.max_abs_diff.reshape((1,) * rank)
        shape = [1] * rank
        shape[self.axis] = -1
        return self.max_abs_diff.reshape(shape)


def limits_for(tolerance: Tolerance, profile: OutputProfile) -> Limits:
    """Return the limits for one output: defaults scaled by the reference, declared ones as written.

    Outputs that are not float are compared exactly: their limits are zero.
    """
    if not profile.is_float:
        zero = np.zeros(profile.std.size)
        return Limits(
            max_abs_diff=zero, mean_abs_diff=zero, repeat_max_abs_diff=zero, max_row_rel_diff=0.0, axis=profile.axis
        )
    floor = np.array([LEAST_ULPS * ulp_of(float(value), profile.dtype) for value in profile.max_abs])

    def limit(name: str) -> NDArray[np.float64]:
        value = float(getattr(tolerance, name))
        if name in tolerance.declared:
            return np.full_like(profile.scale, value)
        scaled: NDArray[np.float64] = np.maximum(value * profile.scale, floor)
        return scaled

    row = tolerance.max_row_rel_diff
    if "max_row_rel_diff" not in tolerance.declared:
        row = max(row, LEAST_ULPS * ulp_of(1.0, profile.dtype))
    return Limits(
        max_abs_diff=limit("max_abs_diff"),
        mean_abs_diff=limit("mean_abs_diff"),
        repeat_max_abs_diff=limit("repeat_max_abs_diff"),
        max_row_rel_diff=row,
        axis=profile.axis,
    )


def looser_than_default(
    tolerance: Tolerance, precision: Precision, profiles: Iterable[OutputProfile]
) -> tuple[str, ...]:
    """Return the names of the declared limits that are looser than what the default comes to for some output."""
    default = DEFAULT_TOLERANCES[precision]
    defaults = [limits_for(default, profile) for profile in profiles if profile.is_float]
    loose: list[str] = [
        name
        for name in ("max_abs_diff", "mean_abs_diff", "max_row_rel_diff", "repeat_max_abs_diff")
        if name in tolerance.declared
        and any(getattr(tolerance, name) > float(np.min(getattr(limits, name))) for limits in defaults)
    ]
    # The default cap on mismatches is 0.5 % of the rows, near the boundary only: any other count may be looser.
    if tolerance.decision_mismatches:
        loose.append("decision_mismatches")
    return tuple(loose)
