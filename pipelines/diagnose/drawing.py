"""Draw values like given ones, so that a minimal model needs no weights and no inputs of its user."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from paritygate.validate.divergence.weights import ROUNDED, ROUNDED_TO, difference, is_near

Array = NDArray[Any]
# Shorter arrays of whole numbers are axes, sizes and such, which the nodes need.
_LEAST_WHOLE = 16
# Values that differ less, relative to their size, are one constant.
_LEAST_SPREAD = 1e-3


class Constant(Struct, frozen=True, kw_only=True):
    """A constant of one model, or the same one of both.

    `actual` is the candidate's value and `expected` the reference's; a name is empty where a model lacks it. `is_free`
    means that other constants do not depend on its values, as after a fusion. `is_drawn` means that no value comes
    from the models.
    """

    candidate: str
    reference: str
    actual: Array | None
    expected: Array | None
    is_free: bool = True
    is_drawn: bool = False

    @property
    def can_be_drawn(self) -> bool:
        """Whether drawn values may replace the values: single ones and axes are needed as they are."""
        array = self.actual if self.expected is None else self.expected
        if array is None or array.size <= 1 or not self.is_free:
            return False
        is_whole = array.dtype.kind in "iu" and array.size > _LEAST_WHOLE
        return is_whole or array.dtype.kind == "f" or array.dtype.name == "bfloat16"


def paired_constants(ours: Mapping[str, Array], theirs: Mapping[str, Array]) -> list[Constant]:
    """Pair the constants of both models: equal ones first, then others of one shape in their order.

    Where both models have others, and not as many of each shape, values of one may have been computed from the other's.
    """
    mine, left, pairs = dict(ours), dict(theirs), list[Constant]()
    for is_equal in (_are_equal, _are_alike):
        # Others are partners only if all have one.
        if is_equal is _are_alike and sorted(map(_form, mine.values())) != sorted(map(_form, left.values())):
            break
        for name, array in list(mine.items()):
            other = next((each for each, values in left.items() if is_equal(array, values)), None)
            if other is not None:
                pairs.append(Constant(candidate=name, reference=other, actual=mine.pop(name), expected=left.pop(other)))
    is_free = not (mine and left)
    return [
        *pairs,
        *(Constant(candidate=name, reference="", actual=mine[name], expected=None, is_free=is_free) for name in mine),
        *(Constant(candidate="", reference=name, actual=None, expected=left[name], is_free=is_free) for name in left),
    ]


def _form(array: Array) -> str:
    return f"{array.dtype.name}{sorted(array.shape)}"


def _are_alike(one: Array, other: Array) -> bool:
    return _form(one) == _form(other)


def _are_equal(one: Array, other: Array) -> bool:
    return one.dtype == other.dtype and one.size == other.size and (_same(one, other) or _same(one, other.T))


def _same(one: Array, other: Array) -> bool:
    return np.array_equal(one.reshape(-1), other.reshape(-1))


def drawn_constant(constant: Constant, random: np.random.Generator) -> Constant:
    """Return the constant with drawn values in both models, which differ as the real ones do."""
    actual, expected = constant.actual, constant.expected
    if actual is None or expected is None:
        drawn_one = [None if values is None else drawn_like(values, random) for values in (actual, expected)]
        return replace(constant, actual=drawn_one[0], expected=drawn_one[1], is_drawn=True)
    drawn = drawn_like(expected, random)
    return replace(constant, actual=_changed_alike(actual, expected, drawn, random), expected=drawn, is_drawn=True)


def _changed_alike(actual: Array, expected: Array, drawn: Array, random: np.random.Generator) -> Array:
    if _same(actual, expected):
        return drawn.reshape(actual.shape)
    if actual.size != expected.size or _same(actual, expected.T):
        return np.ascontiguousarray(drawn.T).reshape(actual.shape)
    words = difference(actual, expected) if actual.shape == expected.shape else ()
    key, values = (words[0].key, words[0].values) if words else ("", {})
    with np.errstate(over="ignore"):
        if key == ROUNDED:
            return drawn.astype(ROUNDED_TO[values["precision"]]).astype(actual.dtype)
        if key == "weight.transposed":
            return np.ascontiguousarray(drawn.T)
        if key == "weight.factor":
            scaled: Array = (drawn * values["factor"]).astype(actual.dtype)
            return scaled
    off = (actual.astype(np.float64) - expected.reshape(actual.shape).astype(np.float64)).reshape(-1)
    if is_near(actual, expected.reshape(actual.shape)):
        other = drawn.astype(np.float64) + random.normal(0.0, off[off != 0].std() or abs(off).max(), drawn.shape)
    else:
        other = drawn_like(actual, random).astype(np.float64)
    changed = np.where((off != 0).reshape(actual.shape), other, drawn.reshape(actual.shape).astype(np.float64))
    zero: Array = np.where(actual == 0, 0, changed).astype(actual.dtype)
    return zero


def drawn_like(values: Array, random: np.random.Generator) -> Array:
    """Return drawn values of the shape, dtype, mean, spread and sign of these ones, and none of these themselves."""
    if values.dtype.kind == "b":
        return random.integers(0, 2, values.shape).astype(bool)
    if values.dtype.kind in "iu" and values.size:
        return _whole_like(values, random)
    numbers = values.astype(np.float64)
    finite = numbers[np.isfinite(numbers)]
    if not finite.size:
        return values
    mean, spread, least = finite.mean(), finite.std(), finite.min()
    if spread <= _LEAST_SPREAD * np.abs(finite).max():
        # Values with the mean of a constant would be the constant.
        mean, spread, least = 0.0, 1.0, min(least, 0.0)
    drawn = random.normal(mean, spread, values.shape)
    if (finite >= 0).all():
        # A variance or a scale is never negative, nor nearer to 0 than the least one.
        drawn = least + np.abs(drawn - least)
    with np.errstate(over="ignore"):
        rounded: Array = drawn.astype(values.dtype)
    return rounded


def _whole_like(values: Array, random: np.random.Generator) -> Array:
    """Return drawn whole numbers, which are indices of a table that has the given ones."""
    least, most = min(values.min(), 0), max(values.max(), 1)
    if values.min() < values.max() or (least, most) == (0, 1):
        return random.integers(least, most, values.shape, dtype=values.dtype, endpoint=True)
    # A constant is left out.
    drawn = random.integers(least, most, values.shape, dtype=values.dtype)
    return np.where(drawn >= values, drawn + 1, drawn).astype(values.dtype)


def input_draws(values: Sequence[Array], random: np.random.Generator) -> list[list[Array]]:
    """Return drawn inputs in the order in which they are tried: like the real ones, then of other sizes."""
    like = [drawn_like(each, random) for each in values]
    others = (
        [
            (random.normal(size=each.shape) * size).astype(each.dtype) if each.dtype.kind == "f" else drawn
            for each, drawn in zip(values, like, strict=True)
        ]
        for size in (1.0, 0.0, 1e-3, 1e3)
    )
    return [like, *others]
