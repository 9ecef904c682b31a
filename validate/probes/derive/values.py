"""Rare values: zeros, ones, negative, constant, tied, beyond those seen, missing and infinite."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paritygate.validate.probes.derive.boundaries import at_boundaries, features_in_words, in_buckets
from paritygate.validate.probes.derive.divisions import at_divisions
from paritygate.validate.probes.derive.sizes import batch_sizes
from paritygate.validate.probes.inputs.probe import LARGEST_OF_FP16, ProbeBatch, ProbeContext
from paritygate.validate.probes.inputs.roles import Form, Role
from paritygate.validate.probes.inputs.survey import InputSurvey, Rows

Floats = NDArray[np.float64]

_NAME = "values"
_PLAIN = frozenset({Role.NUMBER, Role.IMAGE, Role.LENGTH})
_ROWS = 4
# Factors that a service may meet, below those that overflow legitimately.
_BEYOND = (2.0, 4.0)
# Factors at which clips, guards and epsilons show; only float32 has to agree there.
_FAR = (32.0, 1024.0, 2.0**-10)
# A single spike: a row normalised by itself hides that all its values grow.
_SPIKE = 64.0
# Up to this many features run one by one; of more, a random part does, and all run in halves.
_FEATURES = 32
_BEYOND_FLOAT32 = 2**24 + 1
_BEYOND_INT32 = 2**31 + 1
_BEYOND_UINT32 = 2**32 + 1
_TABLE_RANK = 2
_SERIES_RANK = 3


def derive(context: ProbeContext) -> Iterator[ProbeBatch]:
    """Yield real rows in which one input has other values."""
    yield from at_divisions(context)
    yield from at_boundaries(context)
    yield from _of_inputs(context)
    yield from in_buckets(context)


def _of_inputs(context: ProbeContext) -> Iterator[ProbeBatch]:
    rows = context.survey.groups[0]
    for name, role in context.roles.items():
        array = rows.inputs[name]
        seen = context.survey.inputs[name]
        if (
            role.role not in _PLAIN
            or role.form is Form.FIXED
            or seen.low is None
            or seen.high is None
            or not array.size
        ):
            continue
        batch = _Batches(context, rows, name)
        if role.form is Form.FLAG:
            yield from _flags(batch, seen.low + seen.high)
        elif role.form is Form.ONE_HOT:
            yield from _one_hot(batch)
        elif array.dtype.kind in "fV":
            yield from _floats(batch, seen)
        elif array.dtype.kind in "iu":
            yield from _whole_numbers(batch, seen)
        elif array.dtype.kind == "b":
            yield from _flags(batch, 1)


def _floats(batch: _Batches, seen: InputSurvey) -> Iterator[ProbeBatch]:
    real = _without_missing(batch.real.astype(np.float64), seen)
    lows, highs = (np.broadcast_to(bound, real.shape[-1:]) for bound in seen.bounds())
    low, high = float(lows.min()), float(highs.max())
    yield batch.of(np.zeros_like(real), "zeros")
    yield batch.of(np.ones_like(real), "ones")
    yield batch.of(np.broadcast_to(lows, real.shape), "the smallest value seen, everywhere")
    yield batch.of(np.broadcast_to(highs, real.shape), "the largest value seen, everywhere")
    yield batch.of(np.full_like(real, real.mean()), "the mean, everywhere")
    yield batch.of(_constant_rows(real, batch.has_rows), "each row constant")
    # Real rows may be symmetric in sides, channels or places; these rows are not.
    rising = np.linspace(0.0, 1.0, max(1, real[:1].size if batch.has_rows else real.size))
    rising = np.broadcast_to(rising.reshape(real.shape[1:] if batch.has_rows else real.shape), real.shape)
    yield batch.of(lows + (highs - lows) * rising, "rising from the smallest to the largest value seen")
    yield batch.of(highs - (highs - lows) * rising, "falling from the largest to the smallest value seen")
    yield batch.of(-real, "negated")
    yield batch.of(np.where(np.arange(real.size).reshape(real.shape) % 2, real, -real), "every other value negated")
    for factor in _BEYOND:
        yield batch.of(real * factor, f"{factor:g} times what was seen")
        yield batch.of(-real * factor, f"{-factor:g} times what was seen")
    for factor in _FAR:
        yield batch.of(real * factor, f"{factor:g} times what was seen", is_far=True)
    yield from _spikes(batch, real, (lows, highs))
    yield from _by_feature(batch, real, (lows, highs), low=low, high=high)
    for value in (np.nan, np.inf, -np.inf):
        yield from _not_finite(batch, real, value)


def _without_missing(real: Floats, seen: InputSurvey) -> Floats:
    """Return the values, with each that is not finite replaced by the middle of its feature."""
    lows, highs = seen.bounds()
    return np.where(np.isfinite(real), real, np.broadcast_to((lows + highs) / 2, real.shape))


def _constant_rows(real: Floats, has_rows: bool) -> Floats:  # noqa: FBT001 - the one thing that it hangs on
    if not has_rows or real.ndim < _TABLE_RANK:
        return real
    first = real.reshape(len(real), -1)[:, :1]
    return np.broadcast_to(first.reshape((len(real),) + (1,) * (real.ndim - 1)), real.shape)


def _spikes(batch: _Batches, real: Floats, bounds: tuple[Floats, Floats]) -> Iterator[ProbeBatch]:
    if not batch.has_rows or real.ndim < _TABLE_RANK:
        return
    far = np.broadcast_to(bounds[1] + _SPIKE * np.maximum(bounds[1] - bounds[0], 1e-6), real.shape).reshape(
        len(real), -1
    )
    changed = real.copy().reshape(len(real), -1)
    rows = np.arange(len(real))
    places = (rows * changed.shape[1]) // len(real)
    changed[rows, places] = far[rows, places]
    yield batch.of(changed.reshape(real.shape), "one value of each row far beyond those seen", is_far=True)


def _by_feature(
    batch: _Batches, real: Floats, bounds: tuple[Floats, Floats], *, low: float, high: float
) -> Iterator[ProbeBatch]:
    """Yield rows in which single features are at, or beyond, the smallest and largest value seen."""
    lows, highs = bounds
    spread = np.where(highs > lows, highs - lows, 1.0)
    axis = batch.feature_axis
    if axis is None:
        return
    by_axis = axis == real.ndim - 1
    for about, values, whole in (
        ("the smallest value seen", lows, low),
        ("the largest value seen", highs, high),
        ("a value beyond those seen", highs + spread, 2 * high - low or 1.0),
        ("a value below those seen", lows - spread, 2 * low - high or -1.0),
    ):
        wanted = np.broadcast_to(values, real.shape) if by_axis else np.full_like(real, whole)
        yield from batch.with_features(real, wanted, about)


def _not_finite(batch: _Batches, real: Floats, value: float) -> Iterator[ProbeBatch]:
    yield batch.of(np.full_like(real, value), f"{value} everywhere")
    if batch.feature_axis is not None:
        yield from batch.with_features(real, np.full_like(real, value), f"{value}")
    if real.ndim > _TABLE_RANK and batch.has_rows:
        changed = real.copy()
        changed.reshape(len(real), -1)[:, 0] = value
        yield batch.of(changed, f"{value} at the first place of each row")


def _whole_numbers(batch: _Batches, seen: InputSurvey) -> Iterator[ProbeBatch]:
    low, high = int(seen.low or 0), int(seen.high or 0)
    limits = np.iinfo(batch.real.dtype)
    wanted = {
        0: "zeros", 1: "ones", -1: "minus one", -2: "minus two", low: "the smallest value seen",
        high: "the largest value seen", -high: "the largest value seen, negated", 2 * high + 1: "beyond what was seen",
        _BEYOND_FLOAT32: "what float32 does not hold", -_BEYOND_FLOAT32: "the same, negated",
        _BEYOND_INT32: "what int32 does not hold", _BEYOND_UINT32: "what uint32 does not hold",
    }  # fmt: skip
    if limits.bits < 32:  # noqa: PLR2004 - larger ones are nobody's values
        wanted |= {int(limits.max): "the largest of its dtype", int(limits.min): "the smallest of its dtype"}
    for value, about in wanted.items():
        if limits.min <= value <= limits.max:
            whole = np.full(batch.real.shape, value, dtype=batch.real.dtype)
            yield batch.of(whole, f"{about} ({value})", is_far=abs(value) > LARGEST_OF_FP16)
    # Every part of the range, in each row another.
    parts = np.linspace(low, high, batch.real.size).astype(batch.real.dtype)
    yield batch.of(parts.reshape(batch.real.shape), "all through the range seen")
    yield batch.of(parts[::-1].reshape(batch.real.shape), "all through the range seen, backwards")
    for about, value in (("the smallest value seen", low), ("the largest value seen", high)):
        if batch.feature_axis is not None:
            yield from batch.with_features(batch.real, np.full_like(batch.real, value), about)
    if limits.min < 0:
        yield batch.of(-batch.real, "negated")
        spread = np.arange(batch.real.size).reshape(batch.real.shape) - batch.real.size
        yield batch.of(spread.astype(batch.real.dtype), "small negative numbers, each another")


def _flags(batch: _Batches, when_set: float) -> Iterator[ProbeBatch]:
    real = batch.real.astype(bool)
    turns = np.arange(real.size).reshape(real.shape) % 2 == 0
    for flags, about in (
        (np.zeros_like(real), "none set"),
        (np.ones_like(real), "all set"),
        (~real, "the others set"),
        (turns, "set in turn"),
        (~turns, "set in turn, the others"),
    ):
        yield batch.of(np.where(flags, when_set, 0.0), about)


def _one_hot(batch: _Batches) -> Iterator[ProbeBatch]:
    size = batch.real.shape[-1]
    classes = np.arange(batch.real.size // size)
    for start in range(0, min(size, _FEATURES), len(classes)):
        shifted = np.eye(size)[(classes + start) % size]
        yield batch.of(shifted.reshape(batch.real.shape), f"one-hot of classes from {start} on")
    yield batch.of(np.roll(batch.real.astype(np.float64), 1, axis=-1), "the class beside the real one")


class _Batches:
    """Real rows, in which one input is replaced."""

    def __init__(self, context: ProbeContext, rows: Rows, name: str) -> None:
        sizes = batch_sizes(context)
        count = max(min(sizes), min(_ROWS, max(sizes)))
        order = context.random(f"{_NAME}/{name}").permutation(len(rows.ids))
        self._rows = rows
        self._name = name
        self._seen = context.survey.inputs[name]
        self._takes_missing = context.roles[name].takes_missing
        self._form = context.roles[name].form
        self._random = context.random(f"{_NAME}/features/{name}")
        self._at = [int(row) for row in np.resize(order, count)] if rows.with_rows else [0]
        self.has_rows = name in rows.with_rows
        self.real: NDArray[Any] = rows.take(self._at)[name]
        self.feature_axis = self._feature_axis(context.roles[name].role)

    def _feature_axis(self, role: Role) -> int | None:
        """Return the axis of features: the last one up to rank 3; for a picture, the shortest."""
        rank = self.real.ndim
        if not self.has_rows or rank < _TABLE_RANK:
            return None
        if role is Role.IMAGE:
            return min(range(1, rank), key=lambda axis: self.real.shape[axis])
        return rank - 1 if rank <= _SERIES_RANK else None

    def of(self, values: NDArray[Any], about: str, *, is_far: bool = False) -> ProbeBatch:
        """Return the rows with these values, as far as their form allows; `is_far` values bind float32 alone."""
        inputs = self._rows.take(self._at)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            inputs[self._name] = _in_form(np.array(values), self._form).astype(self.real.dtype)
        return ProbeBatch(
            inputs=inputs,
            rows=len(self._at),
            about=f"{self._name}: {about}",
            is_unlike_seen=True,
            is_far_from_seen=is_far,
            is_invented=True,
            hangs_on_runtime=self._hangs_on_runtime(inputs[self._name]),
        )

    def _hangs_on_runtime(self, values: NDArray[Any]) -> bool:
        """Return whether NaN or infinity occurs that neither the samples hold nor the model handles."""
        if values.dtype.kind not in "fV" or self._takes_missing:
            return False
        wide = values.astype(np.float64)
        return bool(
            (np.isnan(wide).any() and not self._seen.has_nan) or (np.isinf(wide).any() and not self._seen.has_infinity)
        )

    def with_features(self, real: NDArray[Any], wanted: NDArray[Any], about: str) -> Iterator[ProbeBatch]:
        """Yield rows that take one feature each from `wanted`; of many features, also half of them."""
        axis = self.feature_axis or 0
        count = real.shape[axis]
        chosen = [int(at) for at in self._random.permutation(count)[:_FEATURES]]
        size = len(self._at)
        for start in range(0, len(chosen), size):
            part = chosen[start : start + size]
            is_wanted = [np.arange(count) == feature for feature in part]
            yield self._mixed(real, wanted, is_wanted, f"{about} {features_in_words(part)}")
        if count <= _FEATURES:
            return
        # Every two features are in different halves for some bit.
        bits = [(np.arange(count) >> bit & 1) == side for bit in range(count.bit_length()) for side in (0, 1)]
        for start in range(0, len(bits), size):
            yield self._mixed(real, wanted, bits[start : start + size], f"{about} in half of {count} features")

    def _mixed(
        self, real: NDArray[Any], wanted: NDArray[Any], is_wanted: Sequence[NDArray[np.bool_]], about: str
    ) -> ProbeBatch:
        changed = real.copy()
        shape = [1] * (real.ndim - 1)
        shape[(self.feature_axis or 1) - 1] = -1
        for row, features in enumerate(is_wanted):
            changed[row] = np.where(features.reshape(shape), wanted[row], real[row])
        return self.of(changed, about)


def _in_form(values: NDArray[Any], form: Form | None) -> NDArray[Any]:
    if form is Form.WHOLE:
        return np.asarray(np.rint(values))
    if form is Form.SHARES:
        least = np.abs(values) + np.finfo(np.float32).tiny
        return np.asarray(least / least.sum(axis=-1, keepdims=True))
    return values
