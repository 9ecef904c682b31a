"""Rows with one value throughout, as of an idle sensor or a blank picture, at values that float32 sums exactly.

Models divide such rows by a spread of zero, and conversions lose the guards against it. Correct conversions sum in
other orders, so they agree on such a row only where every sum and mean of its values is exact.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from paritygate.batch import Arrays
from paritygate.validate.probes.derive.sizes import batch_sizes
from paritygate.validate.probes.inputs.probe import ProbeBatch, ProbeContext
from paritygate.validate.probes.inputs.roles import Form, InputRole, Role
from paritygate.validate.probes.inputs.survey import InputSurvey, Rows

_NAME = "flat"
_ROLES = frozenset({Role.NUMBER, Role.IMAGE})
_FORMS = frozenset({None, Form.WHOLE})
_ROWS = 4
# Number of equal steps that move a row; rounding may leave a zero in a few of them by chance.
_STEPS = 12
_BITS = 24
_MOST_AXES = 4
_LEAST_RANK = 2
_SERIES_RANK = 3
_LEAST_BYTES = 4
# Where no sum is exact, one value in five may still trigger a guard against a spread of zero.
_SMALL_STEPS = 16
_SMALL_STEP = 2.0**-20
_VALUES = 8
# How often the step is halved, from the largest power of two in the range.
_HALVINGS = 12


def derive(context: ProbeContext) -> Iterator[ProbeBatch]:
    """Yield real rows in which one input is constant, or each feature of a series is."""
    rows = context.survey.groups[0]
    for name, role in context.roles.items():
        if _applies(rows, name, role):
            yield from _of_input(context, rows, name)


def _applies(rows: Rows, name: str, role: InputRole) -> bool:
    array = rows.inputs[name]
    is_wide = array.ndim >= _LEAST_RANK and array[:1].size > 1
    is_number = array.dtype.kind in "iu" or (array.dtype.kind == "f" and array.dtype.itemsize >= _LEAST_BYTES)
    is_plain = role.role in _ROLES and role.form in _FORMS and not role.is_size
    return is_plain and name in rows.with_rows and is_wide and is_number


def _of_input(context: ProbeContext, rows: Rows, name: str) -> Iterator[ProbeBatch]:
    seen = context.survey.inputs[name]
    if seen.low is None or seen.high is None:
        return
    shape = rows.inputs[name].shape[1:]
    sums = _Sums.of(shape, is_whole=seen.is_whole)
    sizes = batch_sizes(context)
    count = max(min(sizes), min(_ROWS, max(sizes)))
    at = np.resize(context.random(_NAME).permutation(len(rows.ids)), count).tolist()
    lows, highs = seen.bounds()
    values = sums.values(float(np.max(lows)), float(np.min(highs)))
    if values:
        flat = [np.full(shape, values[row % len(values)]) for row in range(count)]
        shown = ", ".join(f"{value:g}" for value in dict.fromkeys(values[:count]))
        yield _Flat(rows=rows, name=name, at=at, sums=sums, least=min(sizes)).batch(flat, f"{shown} all over")
    if len(shape) == _SERIES_RANK - 1 and lows.ndim and shape[-1] > 1:
        by_feature = _by_feature(seen, sums)
        flat = [np.broadcast_to(by_feature[row % _ROWS], shape) for row in range(count)]
        yield _Flat(rows=rows, name=name, at=at, sums=sums, least=min(sizes)).batch(flat, "each feature constant")


def _by_feature(seen: InputSurvey, sums: _Sums) -> NDArray[np.float64]:
    """Return values [row, feature], exact ones where the range of the feature has any."""
    lows, highs = seen.bounds()
    columns = [sums.values(float(low), float(high)) or [float(low)] for low, high in zip(lows, highs, strict=True)]
    return np.array([[column[row % len(column)] for column in columns] for row in range(_ROWS)])


class _Sums(Struct, frozen=True, kw_only=True):
    """The values that float32 sums exactly along any axes of a row.

    A sum may cover any of `counts` values. The sum of a row is exact where a value has at most `bits` significant bits.
    """

    counts: tuple[int, ...]
    bits: int
    is_whole: bool

    @classmethod
    def of(cls, shape: Sequence[int], *, is_whole: bool) -> _Sums:
        """Return the sums of rows of this shape."""
        axes = [size for size in shape if size > 1][:_MOST_AXES]
        some = itertools.chain.from_iterable(itertools.combinations(axes, many + 1) for many in range(len(axes)))
        counts = {math.prod(shape), *map(math.prod, some)}
        return cls(counts=tuple(sorted(counts)), bits=_BITS - math.ceil(math.log2(math.prod(shape))), is_whole=is_whole)

    def is_exact(self, value: float, bits: int) -> bool:
        """Return whether a value has at most these bits and equals its mean, also where the mean multiplies by 1/n."""
        if _bits_of(value) > bits or (self.is_whole and value != round(value)):
            return False
        with np.errstate(over="ignore", invalid="ignore"):
            return all(
                np.float32(value * count) * (np.float32(1) / np.float32(count)) == np.float32(value)
                for count in self.counts
            )

    def values(self, low: float, high: float) -> list[float]:
        """Return some exact values of a range, those with the fewest bits; the first ones are far apart.

        Where possible their squares sum exactly as well, because a variance may be computed from squares.
        """
        for bits in (self.bits // 2, self.bits):
            exact = sorted(self._of_range(low, high, bits), key=lambda value: (_bits_of(value), abs(value)))[:_VALUES]
            if exact:
                ends = dict.fromkeys([min(exact, key=abs), max(exact), min(exact)])
                return [*ends, *(value for value in sorted(exact) if value not in ends)]
        return []

    def _of_range(self, low: float, high: float, bits: int) -> set[float]:
        largest = max(abs(low), abs(high))
        exact = {0.0} if low <= 0 <= high else set()
        # NaN, infinities and denormals have no step.
        if bits < 1 or not math.isfinite(low) or not low <= high or not np.finfo(np.float32).tiny < largest < math.inf:
            return exact
        step = 2.0 ** math.floor(math.log2(largest))
        for _ in range(_HALVINGS + bits):
            inside = range(math.ceil(low / step), math.floor(high / step) + 1)
            exact.update(value for value in (step * times for times in inside) if self.is_exact(value, bits))
            if len(exact) >= _VALUES or len(inside) > 4 * _VALUES:
                break
            step /= 2
        return exact

    def steps(self, value: float, bits: int) -> list[float]:
        """Return values at equal steps beside one, whose sums are exact; [] if there are none."""
        _, exponent = math.frexp(value)
        step = max(2.0 ** (exponent - bits), 1.0 if self.is_whole else 0.0)
        for signed in (step, -step):
            stepped = [value + signed * number for number in range(1, _STEPS + 1)]
            if all(_bits_of(other) <= bits and other * value > 0 for other in stepped):
                return stepped
        return []


def _bits_of(value: float) -> int:
    """Return the number of significant bits; 0 for zero."""
    whole, _ = value.as_integer_ratio()
    whole = abs(whole)
    return (whole // (whole & -whole)).bit_length() if whole else 0


class _Flat(Struct, frozen=True, kw_only=True):
    rows: Rows
    name: str
    at: Sequence[int]
    sums: _Sums
    least: int

    def batch(self, flat: Sequence[NDArray[np.float64]], about: str) -> ProbeBatch:
        """Return rows with these values; rows run apart where the reference is not steady on all of them."""
        inputs = self._inputs(np.stack(flat))
        return ProbeBatch(
            inputs=inputs,
            rows=len(flat),
            about=f"{self.name}: {about}",
            is_unlike_seen=True,
            is_invented=True,
            moved_alike=lambda is_exact: (
                self._moved_exactly(np.stack(flat)) if is_exact else self._moved(np.stack(flat))
            ),
            apart=(lambda: self._apart(flat, about)) if len(flat) > 1 and self.least == 1 else None,
        )

    def _apart(self, flat: Sequence[NDArray[np.float64]], about: str) -> Iterator[ProbeBatch]:
        for row, values in enumerate(flat):
            alone = replace(self, at=self.at[row : row + 1])
            which = f"{values.flat[0]:g} all over" if (values == values.flat[0]).all() else f"{about}, row {row}"
            yield alone.batch([values], which)

    def _inputs(self, values: NDArray[Any]) -> Arrays:
        inputs = self.rows.take(self.at)
        inputs[self.name] = values.astype(inputs[self.name].dtype)
        return inputs

    def _moved(self, values: NDArray[np.float64]) -> Iterator[Sequence[Arrays]]:
        """Yield the rows moved by tiny steps, to values whose sums are not exact."""
        beside = {
            float(value): [
                float(value) * (1 + _SMALL_STEP * number) if value else -0.0 for number in range(1, 1 + _SMALL_STEPS)
            ]
            for value in np.unique(values)
        }
        yield [self._inputs(_replaced(values, beside, number)) for number in range(_SMALL_STEPS)]

    def _moved_exactly(self, values: NDArray[np.float64]) -> Iterator[Sequence[Arrays]]:
        """Yield the rows moved by equal steps: the smallest ones, and those with exact squares."""
        for bits in dict.fromkeys((self.sums.bits, self.sums.bits // 2)):
            beside = {
                float(value): self.sums.steps(float(value), bits) if value else [-0.0] * _STEPS
                for value in np.unique(values)
            }
            if all(beside.values()):
                yield [self._inputs(_replaced(values, beside, number)) for number in range(_STEPS)]


def _replaced(values: NDArray[np.float64], beside: Mapping[float, Sequence[float]], number: int) -> NDArray[np.float64]:
    """Return the values moved by this many of their steps; every other zero changes its sign."""
    moved = np.select([values == value for value in beside], [others[number] for others in beside.values()], values)
    turns = (np.arange(values.size).reshape(values.shape) + number) % 2 == 0
    return np.where((values == 0) & turns, 0.0, moved)
