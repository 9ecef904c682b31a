"""The limits of one output, which follow from the declared ones and the reference."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace
from numpy.typing import NDArray

from paritygate.distance import distance
from paritygate.errors import UsageError
from paritygate.precision import Precision
from paritygate.validate.measure.blocks import on_axis
from paritygate.validate.measure.precision_steps import LEAST_STEPS, UNIT_ROUNDOFF, Step
from paritygate.validate.measure.profile import OutputProfile
from paritygate.validate.measure.robust_scale import spread_within
from paritygate.validate.measure.tolerance import DEFAULT_TOLERANCES, OUTPUT_LIMITS, SHARES_OF_SPREAD, Tolerance

# Of shares of one quantity, the largest root mean square difference of a column, as a share of that of its distances
# from the median. Source: as above.
SHARES_OF_RMS: Mapping[Precision, float] = {**SHARES_OF_SPREAD, Precision.INT8: 3.5e-1}
# No cap is below so many roundings of the bulk: those of the weights move a nearly constant column as a whole.
# Source: measured on honest FP16 and BF16 of small networks, up to 8.9.
_ROUNDINGS_OF_CAP = 12
# The parts of a single value's cap and floor that the limit of a mean and of a repeat have.
_CAP_SHARE = {"max_abs_diff": 1.0, "mean_abs_diff": 1 / 5, "repeat_max_abs_diff": 1 / 2}
_FLOOR_SHARE = {"max_abs_diff": 1.0, "mean_abs_diff": 1 / 8, "repeat_max_abs_diff": 1 / 2}
# On generated rows, a limit may be so many times as large a share of its channel's spread, and half of it at most.
_ROOM_OF_MADE_UP, _MOST_OF_MADE_UP = 4.0, 0.5
# A candidate has noise of its own besides that of the reference.
_NOISE_ROOM = 2.0
_MOST_NOISE = 10.0
# So many values of an integer output may have their whole limit, because each is a large part of the mean of a few.
_FEW_WHOLE = 4
# How far implementations of a bounded function, such as Sigmoid, differ in float32 at any value.
# Source: ONNX Runtime's rational approximation against PyTorch's, up to 1.2e-7 measured; see docs/tolerances.md.
ACTIVATION_FLOOR = 3e-7
# The precisions whose range or steps do not hold every fill value of FP32; INT8 and TF32 keep such constants.
_FILL_DTYPES = {Precision.FP16: "float16", Precision.MIXED: "float16", Precision.BF16: "bfloat16"}
# Limits of single values, which grow with the distance of the value.
_GROWING = ("max_abs_diff", "mean_abs_diff", "repeat_max_abs_diff")


class Limits(Struct, frozen=True, kw_only=True):
    """A tolerance applied to one output; arrays hold one number a channel.

    The limit of a value is that of its channel, or `growth` times its distance from the center where that is more. In a
    row that is spread much further than others, no value has less than the limit by that row's own spread. A limit of
    `max_abs_diff` is never below the floor: that of the channel, or four steps at the largest value of the row in its
    channel. That of a row is never below the 2-norm of its values' floors.

    The first three limits are of a value of the bulk; `max_row_rel_diff` has no unit. `axis` is the channel axis; None
    for one channel. `floor` is how far arithmetic alone moves a value of the bulk; 0 where `max_abs_diff` was declared.
    `row_floor` is the same for the check of a row, and more for channels without a known last operator. `row_share` is
    the mean difference allowed by the spread of the channel; no row has less. `rms_diff` limits the root mean square
    difference; it is empty where the channels are not shares. The check of a row has no floor where its limit was
    declared. `growth` has the limits that grow with the distance from `center`. Of limits with a cap, `uncapped` is the
    limit without it; if less, a value may be off by `share` of the distance. `mean_of_columns` limits the mean over all
    columns of a table, an output of rank 2; it is infinite for others. `fixed` has the channels with declared limits,
    which hold as written. `step` is the coarsest step that a value may have been rounded to; None where `max_abs_diff`
    was declared. The reference's `fills` are compared exactly, but `substitutes`, the nearest numbers of the precision,
    are allowed. `is_exact` is for outputs that are compared exactly, such as labels. The sum of differences may exceed
    that of the mean limit by `of_few`.
    """

    max_abs_diff: NDArray[np.float64]
    mean_abs_diff: NDArray[np.float64]
    repeat_max_abs_diff: NDArray[np.float64]
    max_row_rel_diff: float
    axis: int | None
    floor: NDArray[np.float64] = field(default_factory=lambda: np.zeros(1))
    row_floor: NDArray[np.float64] = field(default_factory=lambda: np.zeros(1))
    row_share: NDArray[np.float64] = field(default_factory=lambda: np.zeros(1))
    is_one_value: bool = False
    rms_diff: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    has_row_floor: bool = False
    center: NDArray[np.float64] = field(default_factory=lambda: np.zeros(1))
    growth: Mapping[str, float] = field(default_factory=dict)
    share: Mapping[str, float] = field(default_factory=dict)
    uncapped: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)
    mean_of_columns: float = math.inf
    is_table: bool = False
    fixed: Mapping[str, NDArray[np.bool_]] = field(default_factory=dict)
    step: Step | None = None
    fills: tuple[float, ...] = ()
    substitutes: tuple[float, ...] = ()
    is_exact: bool = False
    of_few: NDArray[np.float64] = field(default_factory=lambda: np.zeros(1))

    def widened(self, factor: float) -> Limits:
        """Return limits that are so many times as wide; floors and exact comparisons stay as they are."""
        return replace(
            self,
            max_abs_diff=self.max_abs_diff * factor,
            mean_abs_diff=self.mean_abs_diff * factor,
            repeat_max_abs_diff=self.repeat_max_abs_diff * factor,
            max_row_rel_diff=self.max_row_rel_diff * factor,
            rms_diff=self.rms_diff * factor,
            growth={name: growth * factor for name, growth in self.growth.items()},
            share={name: share * factor for name, share in self.share.items()},
            uncapped={name: limit * factor for name, limit in self.uncapped.items()},
            mean_of_columns=self.mean_of_columns * factor,
        )

    def of_values(self, name: str, expected: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the limit of each of these values by its name, in a shape that broadcasts over them.

        The name is `max_abs_diff`, `mean_abs_diff` or `repeat_max_abs_diff`. `expected` are whole rows of the reference
        along axis 0; some may be masked. A NaN or an infinity has the limit of the bulk.
        """
        # Masked values are no ordinary ones of their row.
        expected = _filled(expected)
        return self._of_values(name, expected, self._distance(expected))

    def of_max_and_mean(self, expected: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the limits of `max_abs_diff` and of `mean_abs_diff`, each as `of_values` does."""
        expected = _filled(expected)
        distance = self._distance(expected)
        return (
            self._of_values("max_abs_diff", expected, distance),
            self._of_values("mean_abs_diff", expected, distance),
        )

    def of_rows(
        self, expected: NDArray[np.float64], sizes: NDArray[np.float64], *, is_bounded: bool = False
    ) -> NDArray[np.float64]:
        """Return how far each row of `expected`, as in `of_values`, may be off, in the 2-norm; shape (rows,).

        The difference of each row is relative to its size in `sizes`. With `is_bounded`, channels within [-1, 1] count
        as the values of a bounded function.
        """
        allowed = self.max_row_rel_diff * sizes
        if not self.has_row_floor or not expected.size:
            return allowed
        expected = _filled(expected)
        if self.is_one_value:
            # Such a row is off by as much as its value is.
            own = np.broadcast_to(self.of_values("max_abs_diff", expected), expected.shape)
            return np.maximum(allowed, own.reshape(len(sizes)))
        floors = on_axis(self.row_floor if is_bounded else self.floor, self.axis, expected.ndim)
        floors = np.maximum(floors, on_axis(self.row_share, self.axis, expected.ndim))
        if self.step is not None:
            floors = np.maximum(floors, LEAST_STEPS * self.step.at(self._largest_of_rows(expected)))
        # Masked values have no difference.
        is_left_out = np.isnan(expected)
        squares = np.where(is_left_out, 0.0, floors**2) if is_left_out.any() else floors**2
        has_rows = expected.ndim > 0 and len(expected) == len(sizes)
        summed = tuple(range(1, expected.ndim)) if has_rows else None
        floor: NDArray[np.float64] = np.sqrt(np.broadcast_to(squares, expected.shape).sum(axis=summed))
        return np.maximum(allowed, floor)

    def widens_rows(self, expected: NDArray[np.float64]) -> bool:
        """Return whether some rows of `expected`, as in `of_values`, have limits by their own spread."""
        expected = _filled(expected)
        distance, bulk = self._distance(expected), on_axis(self.max_abs_diff, self.axis, expected.ndim)
        if distance is None or not expected.ndim:
            return False
        return bool(_rows_beyond(distance * self.growth.get("max_abs_diff", 0.0), bulk).size)

    def _of_values(
        self, name: str, expected: NDArray[np.float64], distance: NDArray[np.float64] | None
    ) -> NDArray[np.float64]:
        limits = self._grown(name, expected, distance)
        if name == "max_abs_diff" and self.step is not None and expected.size:
            limits = np.maximum(limits, LEAST_STEPS * self.step.at(self._largest_of_rows(expected)))
        fixed = self.fixed.get(name)
        if fixed is None:
            return limits
        as_written = on_axis(getattr(self, name), self.axis, expected.ndim)
        return np.where(on_axis(fixed, self.axis, expected.ndim), as_written, limits)

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
        own: NDArray[np.float64] = np.asarray(distance * growth)
        own = np.maximum(bulk, own, out=own) if own.ndim else np.maximum(bulk, own)
        rows = _rows_beyond(own, bulk)
        if rows.size:
            self._grow_rows(own, rows, expected, growth, np.broadcast_to(bulk, expected.shape))
        # Where no cap binds, the limit of the bulk is as wide already.
        if name in self.uncapped and (self.uncapped[name] > getattr(self, name)).any():
            # Far from the others, a value is rounded in proportion to its size.
            most = on_axis(self.uncapped[name], self.axis, expected.ndim)
            own = np.maximum(own, np.minimum(most, distance * self.share[name]))
        return own

    def _grow_rows(
        self,
        own: NDArray[np.float64],
        rows: NDArray[np.intp],
        expected: NDArray[np.float64],
        growth: float,
        of_bulk: NDArray[np.float64],
    ) -> None:
        from_center = np.broadcast_to(on_axis(self.center, self.axis, expected.ndim), expected.shape)
        for row in rows:
            is_ordinary = np.isfinite(expected[row]) & ~self.is_fill(expected[row])
            # Columns are one quantity here: behind an added mask, each has another share of masked values.
            unit = np.ones(()) if self.is_table else of_bulk[row]
            apart = expected[row] if self.is_table else expected[row] - from_center[row]
            spread = spread_within((apart / unit)[is_ordinary]) * growth
            own[row] = np.maximum(own[row], unit * spread)

    def _largest_of_rows(self, expected: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the largest ordinary magnitude in each row, by channel, in a shape that broadcasts over the values.

        A sum is rounded as coarsely as its largest terms, those of its own row, so one huge row loosens nothing for
        others.
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
        """Return how far each of these values may be off; 0 where it is compared exactly."""
        limits = np.broadcast_to(self.of_values("max_abs_diff", expected), expected.shape)
        is_exact = self.is_fill(expected) | ~np.isfinite(expected)
        return np.where(is_exact, 0.0, limits) if is_exact.any() else limits

    def is_fill(self, expected: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Return which of these values are fill values."""
        is_equal = np.zeros(expected.shape, dtype=bool)
        for fill in self.fills:
            is_equal |= expected == fill
        return is_equal

    def is_substituted(self, actual: NDArray[np.float64], expected: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Return where a fill value differs from the reference's, and is its substitute."""
        is_substitute = np.zeros(expected.shape, dtype=bool)
        for fill, substitute in zip(self.fills, self.substitutes, strict=True):
            is_substitute |= (expected == fill) & (actual == substitute)
        is_substitute &= actual != expected
        return is_substitute

    def is_within(self, actual: NDArray[Any], expected: NDArray[Any]) -> NDArray[np.bool_]:
        """Return which values are within their limit; NaN only where the reference holds NaN."""
        near: NDArray[np.bool_] = distance(actual, expected) <= self.band(expected)
        return near | self.is_substituted(actual, expected)


def _filled(expected: NDArray[np.float64]) -> NDArray[np.float64]:
    # As in `left_out_of`, without an import of masked arrays.
    return expected if type(expected) is np.ndarray else np.ma.filled(expected, np.nan)


def _rows_beyond(own: NDArray[np.float64], bulk: NDArray[np.float64]) -> NDArray[np.intp]:
    """Return the rows in which more than half of the values have a wider limit than the bulk."""
    if not own.size or own.ndim == 0:
        return np.empty(0, dtype=np.intp)
    is_wider = (own > bulk).reshape(len(own), -1)
    return np.flatnonzero(np.count_nonzero(is_wider, axis=1) * 2 > is_wider.shape[1])


def limits_for(tolerance: Tolerance, profile: OutputProfile) -> Limits:
    """Return the limits of one output: defaults scaled by the reference, declared ones as written."""
    own = {name: _own_limit(tolerance, profile, name) for name in OUTPUT_LIMITS}
    if not profile.is_float:
        return _limits_of_whole(profile, own)
    step = Step(precision=tolerance.precision, dtype=profile.dtype)
    floor = floor_of_bulk(tolerance, profile)
    share = SHARES_OF_SPREAD[tolerance.precision]
    own_size = _own_size(tolerance.precision, profile)
    least = _ROUNDINGS_OF_CAP * UNIT_ROUNDOFF[tolerance.precision] * profile.bulk_abs

    def cap(name: str) -> NDArray[np.float64]:
        capped = np.maximum(_CAP_SHARE[name] * share * own_size * profile.cap_room, least)
        return np.where(own_size > 0, capped, np.inf)

    is_table = profile.output_spread is not None
    mean = tolerance.mean_abs_diff * profile.scale
    uncapped = {
        "max_abs_diff": tolerance.max_abs_diff * profile.scale,
        # All columns of a table together have this limit, and each has its cap.
        "mean_abs_diff": np.where(own_size > 0, np.inf, mean) if is_table else mean,
        "repeat_max_abs_diff": tolerance.repeat_max_abs_diff * profile.scale,
    }

    def limit(name: str) -> NDArray[np.float64]:
        default = np.maximum(np.minimum(uncapped[name], cap(name)), _FLOOR_SHARE[name] * floor)
        if name in tolerance.declared:
            default = np.full_like(profile.scale, getattr(tolerance, name))
        return np.where(np.isnan(own[name]), default, own[name])

    fixed = {name: ~np.isnan(own[name]) for name in _GROWING}
    row = float(own["max_row_rel_diff"][0])
    is_bounded = (profile.max_abs <= 1) & (profile.activation_floor == 0)
    return Limits(
        max_abs_diff=limit("max_abs_diff"),
        mean_abs_diff=limit("mean_abs_diff"),
        repeat_max_abs_diff=limit("repeat_max_abs_diff"),
        max_row_rel_diff=tolerance.max_row_rel_diff if math.isnan(row) else row,
        axis=profile.axis,
        floor=np.where(is_declared(tolerance, profile, "max_abs_diff"), 0.0, floor),
        row_floor=np.where(is_bounded, np.maximum(floor, ACTIVATION_FLOOR), floor),
        row_share=_CAP_SHARE["mean_abs_diff"] * share * profile.own_spread * profile.cap_room,
        # Below FP32 the limit of a row is near that of a value, and shows faults in all values.
        is_one_value=tolerance.precision is Precision.FP32 and profile.values == profile.rows,
        rms_diff=_rms_limit(tolerance, profile, floor),
        has_row_floor="max_row_rel_diff" not in tolerance.declared and math.isnan(row),
        center=profile.center,
        growth={name: float(getattr(tolerance, name)) for name in _GROWING if name not in tolerance.declared},
        share={name: share * _CAP_SHARE[name] for name in _GROWING if name not in tolerance.declared},
        uncapped={name: limit for name, limit in uncapped.items() if name not in tolerance.declared},
        mean_of_columns=_mean_of_columns(tolerance, profile, float(_FLOOR_SHARE["mean_abs_diff"] * floor.max())),
        is_table=is_table,
        fixed={name: channels for name, channels in fixed.items() if channels.any()},
        step=None if "max_abs_diff" in tolerance.declared else step,
        fills=profile.fills,
        substitutes=tuple(_nearest_in(tolerance.precision, fill) for fill in profile.fills),
    )


def limits_of(tolerance: Tolerance, profiles: Iterable[OutputProfile]) -> dict[str, Limits]:
    """Return the limits of the outputs that are not compared exactly, by name."""
    limits = {profile.name: limits_for(tolerance, profile) for profile in profiles}
    return {name: item for name, item in limits.items() if not item.is_exact}


def _limits_of_whole(profile: OutputProfile, own: Mapping[str, NDArray[np.float64]]) -> Limits:
    """Return the limits of an output that is not float: 0, unless its own are declared, because 1 may be another label.

    A declared `max_abs_diff` is the limit of repeats too, and the values of a row may all have it.
    """
    most, row = np.nan_to_num(own["max_abs_diff"]), float(own["max_row_rel_diff"][0])
    of_row = float(most.max()) * math.sqrt(profile.values / max(1, profile.rows)) / (profile.row_norm or 1.0)
    is_open = {name: np.isnan(limit) for name, limit in own.items()}
    return Limits(
        max_abs_diff=most,
        mean_abs_diff=np.where(is_open["mean_abs_diff"], _CAP_SHARE["mean_abs_diff"] * most, own["mean_abs_diff"]),
        repeat_max_abs_diff=np.where(is_open["repeat_max_abs_diff"], most, own["repeat_max_abs_diff"]),
        max_row_rel_diff=of_row if math.isnan(row) else row,
        axis=profile.axis,
        floor=most,
        has_row_floor=math.isnan(row),
        is_exact=all(channels.all() for channels in is_open.values()),
        of_few=np.where(is_open["mean_abs_diff"], _FEW_WHOLE * most, 0.0),
    )


def _own_limit(tolerance: Tolerance, profile: OutputProfile, name: str) -> NDArray[np.float64]:
    """Return the limit declared for one output alone, one a channel; NaN without one."""
    declared = tolerance.outputs.get(profile.name, {}).get(name, (None,))
    if len(declared) not in {1, profile.channels}:
        expected = "1" if profile.channels == 1 else f"{profile.channels} or 1"
        msg = f"tolerance {profile.name}:{name} has {len(declared)} numbers (expected {expected})"
        hint = f"give one number, or one for each channel; --axis {profile.name}=N chooses their axis"
        raise UsageError(msg, hint=hint)
    values = np.array([math.nan if value is None else value for value in declared])
    own: NDArray[np.float64] = np.full(profile.channels, values)
    return own


def is_declared(tolerance: Tolerance, profile: OutputProfile, name: str) -> NDArray[np.bool_]:
    """Return for which channels a limit was declared, for the output or for all outputs."""
    is_own = ~np.isnan(_own_limit(tolerance, profile, name))
    return np.ones_like(is_own) if name in tolerance.declared else is_own


def _own_size(precision: Precision, profile: OutputProfile) -> NDArray[np.float64]:
    """Return the size that caps the limit of each channel: its own spread; 0 where it has none.

    In FP32 a channel that hardly varies is capped by its size, because rounding is in proportion to it. Below FP32
    rounding is that of its terms, which may be far larger than a few rare values.
    """
    size = profile.size if precision is Precision.FP32 else 0.0
    return np.where(profile.own_spread > 0, profile.own_spread, size)


def floor_of_bulk(tolerance: Tolerance, profile: OutputProfile) -> NDArray[np.float64]:
    """Return how far arithmetic alone moves a value of the bulk, one a channel.

    It is four steps of the precision, the difference of implementations of the last operator, or the noise of the
    reference. Noise of more than ten limits is a fault of the reference, and loosens nothing beyond that.
    """
    steps = LEAST_STEPS * Step(precision=tolerance.precision, dtype=profile.dtype).at(profile.bulk_abs)
    noise = np.minimum(_NOISE_ROOM * profile.noise, _MOST_NOISE * tolerance.max_abs_diff * profile.scale)
    return np.maximum(np.maximum(steps, profile.activation_floor), noise)


def _mean_of_columns(tolerance: Tolerance, profile: OutputProfile, floor: float) -> float:
    if (
        profile.output_spread is None
        or "mean_abs_diff" in tolerance.declared | tolerance.outputs.get(profile.name, {}).keys()
    ):
        return math.inf
    # Columns of far larger spread than the others have limits of their own.
    return max(tolerance.mean_abs_diff * float(profile.scale.max()), floor)


def without_cap(profile: OutputProfile) -> OutputProfile:
    """Return the profile without the spreads of single channels, by which limits would be capped."""
    none = np.zeros_like(profile.own_spread)
    return replace(profile, own_spread=none, size=none)


def _rms_limit(tolerance: Tolerance, profile: OutputProfile, floor: NDArray[np.float64]) -> NDArray[np.float64]:
    if not profile.is_shares or profile.axis is None or "max_abs_diff" in tolerance.declared:
        return np.zeros(0)
    limit = np.maximum(SHARES_OF_RMS[tolerance.precision] * profile.rms, floor)
    return np.where(is_declared(tolerance, profile, "max_abs_diff"), np.inf, limit)


def limits_of_made_up(tolerance: Tolerance, profile: OutputProfile) -> Limits:
    """Return the limits of one output on generated inputs: none is stricter than the default.

    A declared limit is about the service's own inputs. It does not grow with the output, and outputs of generated
    inputs may be of any size.
    """
    declared = limits_for(tolerance, profile)
    if not profile.is_float:
        return declared
    # Generated rows are more than those sampled, and the largest of honest differences grows with them.
    share = SHARES_OF_SPREAD[tolerance.precision]
    wider = replace(profile, own_spread=profile.own_spread * max(1.0, min(_ROOM_OF_MADE_UP, _MOST_OF_MADE_UP / share)))
    default = limits_for(DEFAULT_TOLERANCES[tolerance.precision], wider)
    return replace(
        default,
        max_abs_diff=np.maximum(declared.max_abs_diff, default.max_abs_diff),
        mean_abs_diff=np.maximum(declared.mean_abs_diff, default.mean_abs_diff),
        repeat_max_abs_diff=np.maximum(declared.repeat_max_abs_diff, default.repeat_max_abs_diff),
        max_row_rel_diff=max(declared.max_row_rel_diff, default.max_row_rel_diff),
        # Columns of generated rows are other mixtures than those of the samples.
        rms_diff=np.zeros(0),
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
    """Return the names of the declared limits that are looser than the default of some output."""
    default = DEFAULT_TOLERANCES[tolerance.precision]
    defaults = {profile.name: limits_for(default, profile) for profile in profiles}
    floats = [limits for limits in defaults.values() if not limits.is_exact]
    loose: list[str] = [
        name
        for name in OUTPUT_LIMITS
        if name in tolerance.declared
        and any(getattr(tolerance, name) > float(np.min(getattr(limits, name))) for limits in floats)
    ]
    loose += [
        f"{output}:{name}"
        for output, declared in tolerance.outputs.items()
        for name, values in declared.items()
        if output in defaults and _is_looser(values, np.atleast_1d(getattr(defaults[output], name)))
    ]
    # The default cap on mismatches holds near the boundary only, so any other count may be looser.
    if tolerance.decision_mismatches:
        loose.append("decision_mismatches")
    return tuple(loose)


def _is_looser(declared: Sequence[float | None], defaults: NDArray[np.float64]) -> bool:
    values = np.array([-math.inf if value is None else value for value in declared])
    return bool((values > defaults).any())
