"""How much a candidate may differ: the declared limits, and what they come to for one output."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from paritygate.errors import UsageError
from paritygate.precision import Precision
from paritygate.text import meant
from paritygate.validate.gate.precision_steps import LEAST_STEPS, Step
from paritygate.validate.reference.blocks import on_axis
from paritygate.validate.reference.bulk import spread_within
from paritygate.validate.reference.profile import OutputProfile

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "DECISION_LIMITS",
    "DEFAULT_TOLERANCES",
    "Limits",
    "Tolerance",
    "limits_for",
    "limits_of_made_up",
    "parse_tolerance",
]


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
        precision: What the limits are for: a fill value may be the nearest number that it holds.
        declared: Names of the limits that the user set: they hold as written, while a default is
            multiplied by the scale of the output, and that of `max_abs_diff` is never below 4 steps.
    """

    max_abs_diff: float
    mean_abs_diff: float
    max_row_rel_diff: float
    repeat_max_abs_diff: float
    decision_mismatches: int | None = None
    mismatch_rate_upper_95: float | None = None
    precision: Precision = Precision.FP32
    declared: frozenset[str] = frozenset()


def _tolerance(precision: Precision, limits: tuple[float, float, float, float]) -> Tolerance:
    max_abs, mean_abs, row, repeat = limits
    return Tolerance(
        max_abs_diff=max_abs,
        mean_abs_diff=mean_abs,
        max_row_rel_diff=row,
        repeat_max_abs_diff=repeat,
        precision=precision,
    )


# Source: measured on equivalent and faulty conversions; see docs/tolerances.md. Mixed precision is judged as
# its lowest part, FP16.
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

# The precisions whose range or steps do not hold every fill value of FP32; INT8 and TF32 keep such constants.
_FILL_DTYPES = {Precision.FP16: "float16", Precision.MIXED: "float16", Precision.BF16: "bfloat16"}
# Limits of single values, which grow with the distance of the value.
_GROWING = ("max_abs_diff", "mean_abs_diff", "repeat_max_abs_diff")
# Limits that mean nothing where nothing is decided.
DECISION_LIMITS = frozenset({"decision_mismatches", "mismatch_rate_upper_95"})
_LIMIT_NAMES = tuple(item.name for item in fields(Tolerance) if item.name not in {"declared", "precision"})


def parse_tolerance(precision: Precision, declared: Mapping[str, float]) -> Tolerance:
    """Return the default tolerance of `precision` with the declared limits in place of its own.

    Raises:
        UsageError: A name is not a limit, or a value is negative, not finite, or not a count.
    """
    values: dict[str, Any] = {}
    for name, value in declared.items():
        if name not in _LIMIT_NAMES:
            msg = f"tolerance {name!r} is not known (allowed: {', '.join(_LIMIT_NAMES)}){meant(name, _LIMIT_NAMES)}"
            limit = name.rpartition(":")[2]
            if limit in _LIMIT_NAMES:
                hint = (
                    f"a limit holds for all outputs of a variant, and takes the name of none: --tolerance {limit}=1e-3"
                )
                raise UsageError(msg, hint=hint)
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

    The limit of a value is that of its channel, or `growth` times its distance from the center where that is more; in
    a row that is spread much further than others, no value has less than what comes of that row's own spread. A limit
    of `max_abs_diff` is never below four steps at the largest value of the row in its channel.

    Attributes:
        max_abs_diff: One a channel, shape (channels,): the limit of a value of the bulk.
        mean_abs_diff: One a channel.
        repeat_max_abs_diff: One a channel.
        max_row_rel_diff: Dimensionless.
        axis: The channel axis of the output, or None for one channel.
        center: The median of each channel; not read where nothing grows.
        growth: By the name of a limit, how it grows with the distance; a limit that is not named does not.
        step: The coarsest step that a value may have been rounded to; none where `max_abs_diff` was declared.
        fills: The fill values of the reference, which are compared exactly.
        substitutes: For each of them, what may stand there instead: the nearest number of the precision judged as.
    """

    max_abs_diff: NDArray[np.float64]
    mean_abs_diff: NDArray[np.float64]
    repeat_max_abs_diff: NDArray[np.float64]
    max_row_rel_diff: float
    axis: int | None
    center: NDArray[np.float64] = field(default_factory=lambda: np.zeros(1))
    growth: Mapping[str, float] = field(default_factory=dict)
    step: Step | None = None
    fills: tuple[float, ...] = ()
    substitutes: tuple[float, ...] = ()

    def widened(self, factor: float) -> Limits:
        """Return limits that are so many times as wide; the floor and what is compared exactly stay as they are."""
        return replace(
            self,
            max_abs_diff=self.max_abs_diff * factor,
            mean_abs_diff=self.mean_abs_diff * factor,
            repeat_max_abs_diff=self.repeat_max_abs_diff * factor,
            max_row_rel_diff=self.max_row_rel_diff * factor,
            growth={name: growth * factor for name, growth in self.growth.items()},
        )

    def of_values(self, name: str, expected: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the limit of each of these values by its name, in a shape that broadcasts over them.

        A NaN or an infinity has the limit of the bulk.

        Args:
            name: `max_abs_diff`, `mean_abs_diff` or `repeat_max_abs_diff`.
            expected: The reference's values, whole rows along axis 0; some may be masked.
        """
        # What is left out is masked, and no ordinary value of its row.
        expected = np.ma.filled(expected, np.nan)
        return self._of_values(name, expected, self._distance(expected))

    def of_max_and_mean(self, expected: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the limits of `max_abs_diff` and of `mean_abs_diff`, each as `of_values` does."""
        expected = np.ma.filled(expected, np.nan)
        distance = self._distance(expected)
        return (
            self._of_values("max_abs_diff", expected, distance),
            self._of_values("mean_abs_diff", expected, distance),
        )

    def widens_rows(self, expected: NDArray[np.float64]) -> bool:
        """Return whether some of these rows have limits by their own spread, in the unit that the limits give.

        Args:
            expected: The reference's values, whole rows along axis 0; some may be masked.
        """
        expected = np.ma.filled(expected, np.nan)
        distance, bulk = self._distance(expected), on_axis(self.max_abs_diff, self.axis, expected.ndim)
        if distance is None or not expected.ndim:
            return False
        return bool(_rows_beyond(distance * self.growth.get("max_abs_diff", 0.0), bulk).size)

    def _of_values(
        self, name: str, expected: NDArray[np.float64], distance: NDArray[np.float64] | None
    ) -> NDArray[np.float64]:
        grown = self._grown(name, expected, distance)
        if name != "max_abs_diff" or self.step is None or not expected.size:
            return grown
        return np.maximum(grown, LEAST_STEPS * self.step.at(self._largest_of_rows(expected)))

    def _distance(self, expected: NDArray[np.float64]) -> NDArray[np.float64] | None:
        """Return how far each value is from the center of its channel, 0 of none; None where no limit grows."""
        if not any(self.growth.values()):
            return None
        with np.errstate(invalid="ignore", over="ignore"):
            distance = np.asarray(expected - on_axis(self.center, self.axis, expected.ndim))
            distance = np.abs(distance, out=distance) if distance.ndim else np.abs(distance)
            if not math.isfinite(float(distance.sum())):
                distance = np.where(np.isfinite(distance), distance, 0.0)
        return distance

    def _grown(
        self, name: str, expected: NDArray[np.float64], distance: NDArray[np.float64] | None
    ) -> NDArray[np.float64]:
        bulk = on_axis(getattr(self, name), self.axis, expected.ndim)
        growth = self.growth.get(name, 0.0)
        if not growth or distance is None:
            return bulk
        own = np.asarray(distance * growth)
        own = np.maximum(bulk, own, out=own) if own.ndim else np.maximum(bulk, own)
        of_bulk = np.broadcast_to(bulk, expected.shape)
        from_center = np.broadcast_to(on_axis(self.center, self.axis, expected.ndim), expected.shape)
        for row in _rows_beyond(own, bulk):
            is_ordinary = np.isfinite(expected[row]) & ~self.is_fill(expected[row])
            apart = expected[row] - from_center[row]
            spread = spread_within((apart / of_bulk[row])[is_ordinary]) * growth
            own[row] = np.maximum(own[row], of_bulk[row] * spread)
        return own

    def _largest_of_rows(self, expected: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the largest ordinary magnitude in each row, by channel, in a shape that broadcasts over the values.

        A sum is rounded as coarsely as its largest terms, which are those of its own row: one huge row loosens nothing
        for the others.
        """
        magnitudes = np.abs(expected)
        # A NaN is below nothing.
        if not magnitudes.max() < min(map(abs, self.fills), default=math.inf):
            magnitudes = np.where(np.isfinite(expected) & ~self.is_fill(expected), magnitudes, 0.0)
        others = tuple(axis for axis in range(1, expected.ndim) if axis != self.axis)
        largest: NDArray[np.float64] = magnitudes.max(axis=others, keepdims=True)
        return largest

    def fits(self, shape: tuple[int, ...]) -> bool:
        """Return whether an array of this shape has as many channels."""
        return self.axis is None or (self.axis < len(shape) and shape[self.axis] == self.max_abs_diff.size)

    def band(self, expected: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return how far each of these values may be off; nothing where it is compared exactly."""
        limits = np.broadcast_to(self.of_values("max_abs_diff", expected), expected.shape)
        is_exact = self.is_fill(expected) | ~np.isfinite(expected)
        return np.where(is_exact, 0.0, limits) if is_exact.any() else limits

    def is_fill(self, expected: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Return which of these values are fill values."""
        found = np.zeros(expected.shape, dtype=bool)
        for fill in self.fills:
            found |= expected == fill
        return found

    def is_substituted(self, actual: NDArray[np.float64], expected: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Return where a fill value is another number than the reference's, and one that may stand for it."""
        found = np.zeros(expected.shape, dtype=bool)
        for fill, substitute in zip(self.fills, self.substitutes, strict=True):
            found |= (expected == fill) & (actual == substitute)
        found &= actual != expected
        return found

    def is_within(self, actual: NDArray[np.float64], expected: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Return which values are within their limit; NaN is where the reference holds NaN alone."""
        same = (actual == expected) | (np.isnan(actual) & np.isnan(expected))
        with np.errstate(invalid="ignore"):
            near: NDArray[np.bool_] = np.abs(actual - expected) <= self.band(expected)
        within: NDArray[np.bool_] = same | near | self.is_substituted(actual, expected)
        return within


def _rows_beyond(own: NDArray[np.float64], bulk: NDArray[np.float64]) -> NDArray[np.intp]:
    """Return the rows in which more than half of the values have a wider limit than the bulk."""
    if not own.size or own.ndim == 0:
        return np.empty(0, dtype=np.intp)
    is_wider = (own > bulk).reshape(len(own), -1)
    return np.flatnonzero(np.count_nonzero(is_wider, axis=1) * 2 > is_wider.shape[1])


def limits_for(tolerance: Tolerance, profile: OutputProfile) -> Limits:
    """Return the limits for one output: defaults scaled by the reference, declared ones as written.

    Outputs that are not float are compared exactly: their limits are zero.
    """
    if not profile.is_float:
        zero = np.zeros(profile.channels)
        return Limits(
            max_abs_diff=zero, mean_abs_diff=zero, repeat_max_abs_diff=zero, max_row_rel_diff=0.0, axis=profile.axis
        )
    step = Step(precision=tolerance.precision, dtype=profile.dtype)
    floors = {"max_abs_diff": LEAST_STEPS * step.at(profile.bulk_abs)}

    def limit(name: str) -> NDArray[np.float64]:
        value = float(getattr(tolerance, name))
        if name in tolerance.declared:
            return np.full_like(profile.scale, value)
        scaled: NDArray[np.float64] = np.maximum(value * profile.scale, floors.get(name, 0.0))
        return scaled

    return Limits(
        max_abs_diff=limit("max_abs_diff"),
        mean_abs_diff=limit("mean_abs_diff"),
        repeat_max_abs_diff=limit("repeat_max_abs_diff"),
        max_row_rel_diff=tolerance.max_row_rel_diff,
        axis=profile.axis,
        center=profile.center,
        growth={name: float(getattr(tolerance, name)) for name in _GROWING if name not in tolerance.declared},
        step=None if "max_abs_diff" in tolerance.declared else step,
        fills=profile.fills,
        substitutes=tuple(_nearest_in(tolerance.precision, fill) for fill in profile.fills),
    )


def limits_of_made_up(tolerance: Tolerance, profile: OutputProfile) -> Limits:
    """Return the limits of one output on inputs that no sample holds: none is stricter than the default.

    A limit that a service declares is about its own inputs. It does not grow with the answer, and answers to made-up
    inputs may be of any size.
    """
    declared, default = limits_for(tolerance, profile), limits_for(DEFAULT_TOLERANCES[tolerance.precision], profile)
    return replace(
        default,
        max_abs_diff=np.maximum(declared.max_abs_diff, default.max_abs_diff),
        mean_abs_diff=np.maximum(declared.mean_abs_diff, default.mean_abs_diff),
        repeat_max_abs_diff=np.maximum(declared.repeat_max_abs_diff, default.repeat_max_abs_diff),
        max_row_rel_diff=max(declared.max_row_rel_diff, default.max_row_rel_diff),
    )


def _nearest_in(precision: Precision, fill: float) -> float:
    """Return the finite number of a precision below FP32 that is nearest to a fill value, as a converter clamps it."""
    import ml_dtypes

    dtype = _FILL_DTYPES.get(precision)
    if dtype is None:
        return fill
    info = ml_dtypes.finfo(dtype)
    clamped = min(max(fill, float(info.min)), float(info.max))
    return float(np.asarray(clamped, dtype=np.float64).astype(info.dtype))


def looser_than_default(tolerance: Tolerance, profiles: Iterable[OutputProfile]) -> tuple[str, ...]:
    """Return the names of the declared limits that are looser than what the default comes to for some output."""
    default = DEFAULT_TOLERANCES[tolerance.precision]
    defaults = [limits_for(default, profile) for profile in profiles if profile.is_float]
    loose: list[str] = [
        name
        for name in ("max_abs_diff", "mean_abs_diff", "max_row_rel_diff", "repeat_max_abs_diff")
        if name in tolerance.declared
        and any(getattr(tolerance, name) > float(np.min(getattr(limits, name))) for limits in defaults)
    ]
    # The default cap on mismatches holds near the boundary only: any other count may be looser.
    if tolerance.decision_mismatches:
        loose.append("decision_mismatches")
    return tuple(loose)
