"""Values that are rare: zeros, ones, negative, constant, tied, beyond what was seen, missing and infinite."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from paritygate.validate.probes.probe import ProbeBatch, ProbeContext
from paritygate.validate.probes.roles import Role
from paritygate.validate.probes.sizes import batch_sizes
from paritygate.validate.probes.survey import InputSurvey, Rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["derive"]

_NAME = "values"
_PLAIN = frozenset({Role.NUMBER, Role.IMAGE, Role.LENGTH})
_ROWS = 4
# How far beyond the seen range: what a service may meet, not what overflows honestly.
_BEYOND = (2.0, 4.0)
# Features that are looked at one by one; of more, so many are drawn.
_FEATURES = 32
_BEYOND_FLOAT32 = 2**24 + 1
_BEYOND_INT32 = 2**31 + 1


def derive(context: ProbeContext) -> Iterator[ProbeBatch]:
    """Yield real rows in which the values of one input are others."""
    rows = context.survey.groups[0]
    for name, role in context.roles.items():
        array = rows.inputs[name]
        seen = context.survey.inputs[name]
        if role.role not in _PLAIN or seen.low is None or seen.high is None:
            continue
        if array.dtype.kind in "fV":
            yield from _floats(context, rows, name, seen)
        elif array.dtype.kind in "iu":
            yield from _whole_numbers(context, rows, name, seen)


def _floats(context: ProbeContext, rows: Rows, name: str, seen: InputSurvey) -> Iterator[ProbeBatch]:
    batch = _Batches(context, rows, name)
    low, high = float(seen.low or 0.0), float(seen.high or 0.0)
    real = batch.real.astype(np.float64)
    yield batch.of(np.zeros_like(real), "zeros", beyond=not low <= 0 <= high)
    yield batch.of(np.ones_like(real), "ones", beyond=not low <= 1 <= high)
    yield batch.of(np.full_like(real, low), "the smallest value seen, everywhere")
    yield batch.of(np.full_like(real, high), "the largest value seen, everywhere")
    yield batch.of(np.full_like(real, real.mean()), "the mean, everywhere")
    yield batch.of(
        np.broadcast_to(
            real.reshape(len(real), -1)[:, :1].reshape((len(real),) + (1,) * (real.ndim - 1))
            if real.ndim > 1
            else real,
            real.shape,
        ),
        "each row constant",
    )
    yield batch.of(-real, "negated", beyond=bool((-real).min() < low or (-real).max() > high))
    for factor in _BEYOND:
        yield batch.of(real * factor, f"{factor:g} times what was seen", beyond=True)
    yield from _by_feature(batch, real, low, high)
    for value in (np.nan, np.inf, -np.inf):
        yield from _not_finite(batch, real, value)


def _by_feature(batch: _Batches, real: NDArray[np.float64], low: float, high: float) -> Iterator[ProbeBatch]:
    """Yield rows of which one feature alone is the smallest, the largest or beyond."""
    if real.ndim != 2:  # noqa: PLR2004 - rows of features
        return
    for about, value, beyond in (
        ("the smallest value seen", low, False),
        ("the largest value seen", high, False),
        ("a value beyond those seen", high + (high - low or 1.0), True),
        ("a value below those seen", low - (high - low or 1.0), True),
    ):
        for features in batch.features(real.shape[1]):
            changed = real.copy()
            changed[np.arange(len(features)), features] = value
            yield batch.of(changed, f"{about} in features {_listed(features)}", beyond=beyond)


def _not_finite(batch: _Batches, real: NDArray[np.float64], value: float) -> Iterator[ProbeBatch]:
    yield batch.of(np.full_like(real, value), f"{value} everywhere", beyond=True)
    if real.ndim == 2:  # noqa: PLR2004 - rows of features
        for features in batch.features(real.shape[1]):
            changed = real.copy()
            changed[np.arange(len(features)), features] = value
            yield batch.of(changed, f"{value} in features {_listed(features)}", beyond=True)
    elif real.ndim > 1:
        changed = real.copy()
        changed.reshape(len(real), -1)[:, 0] = value
        yield batch.of(changed, f"{value} at the first place of each row", beyond=True)


def _whole_numbers(context: ProbeContext, rows: Rows, name: str, seen: InputSurvey) -> Iterator[ProbeBatch]:
    batch = _Batches(context, rows, name)
    low, high = int(seen.low or 0), int(seen.high or 0)
    limits = np.iinfo(batch.real.dtype)
    wanted = {
        0: "zeros", 1: "ones", -1: "minus one", -2: "minus two", low: "the smallest value seen",
        high: "the largest value seen", -high: "the largest value seen, negated", 2 * high + 1: "beyond what was seen",
        _BEYOND_FLOAT32: "what float32 does not hold", -_BEYOND_FLOAT32: "the same, negated",
        _BEYOND_INT32: "what int32 does not hold",
    }  # fmt: skip
    for value, about in wanted.items():
        if limits.min <= value <= limits.max:
            whole = np.full(batch.real.shape, value, dtype=batch.real.dtype)
            yield batch.of(whole, f"{about} ({value})", beyond=not low <= value <= high)
    if limits.min < 0:
        yield batch.of(-batch.real, "negated", beyond=True)
        spread = np.arange(batch.real.size).reshape(batch.real.shape) - batch.real.size
        yield batch.of(spread.astype(batch.real.dtype), "small negative numbers, each another", beyond=True)


class _Batches:
    """Some real rows, of which one input is to be replaced."""

    def __init__(self, context: ProbeContext, rows: Rows, name: str) -> None:
        sizes = batch_sizes(context)
        count = max(min(sizes), min(_ROWS, max(sizes)))
        order = context.random(f"{_NAME}/{name}").permutation(len(rows.ids))
        self._rows = rows
        self._name = name
        self._random = context.random(f"{_NAME}/features/{name}")
        self._at = [int(row) for row in np.resize(order, count)]
        self.real: NDArray[Any] = rows.take(self._at)[name]

    def of(self, values: NDArray[Any], about: str, *, beyond: bool = False) -> ProbeBatch:
        """Return the rows with these values in place of the real ones."""
        inputs = self._rows.take(self._at)
        with np.errstate(over="ignore", invalid="ignore"):
            inputs[self._name] = values.astype(self.real.dtype)
        return ProbeBatch(inputs=inputs, rows=len(self._at), about=f"{self._name}: {about}", is_beyond_seen=beyond)

    def features(self, count: int) -> Iterator[list[int]]:
        """Yield features, one for each row of a batch, until all were named, or as many as are looked at."""
        chosen = [int(at) for at in self._random.permutation(count)[:_FEATURES]]
        size = len(self._at)
        for start in range(0, len(chosen), size):
            yield chosen[start : start + size]


def _listed(features: list[int]) -> str:
    return ", ".join(map(str, features))
