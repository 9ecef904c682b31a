"""Sums of float64 numbers without any rounding, so that no order of adding changes them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paritygate.codec import read_as
from paritygate.validate.measure.parts.state_data import Number, spelled

# A number without rounding; a float only where it is not finite.
Exact = Fraction | float

# Limbs hold 32 bits each, from below the smallest subnormal number to above the largest number.
_BITS = 32
_LIMB = (1 << _BITS) - 1
_MANTISSA = 53
_LOWEST = 1074 + 52
# A limb of 63 bits takes so many numbers before it is carried.
_MOST_ADDED = 1 << 28
# Sums are whole multiples of 2 ** -_PLACES, also those of squares and of their products with counts.
_PLACES = 2400
# No sum of the largest squares has more digits.
_MOST_DIGITS = 1400


class ExactSums:
    """The exact sums of vectors of one size, and of single numbers beside them.

    Numbers that are not finite are summed apart, as float64 does.
    """

    def __init__(self, size: int, singles: int) -> None:
        # By place, and only the places in use: there may be a sum for each word of a language.
        self._limbs: dict[int, NDArray[np.int64]] = {}
        self._added = 0
        self._whole = [0] * (size + singles)
        self._odd: NDArray[np.float64] = np.zeros(size + singles)
        self._size = size

    def add(self, vector: NDArray[np.float64], singles: Sequence[Exact]) -> None:
        """Add a vector and the single numbers."""
        is_finite = np.isfinite(vector)
        if not is_finite.all():
            self._odd[: self._size] += np.where(is_finite, 0.0, vector)
            vector = np.where(is_finite, vector, 0.0)
        mantissas, exponents = np.frexp(vector)
        whole = np.ldexp(mantissas, _MANTISSA).astype(np.int64)
        limbs, shifts = np.divmod(exponents.astype(np.int64) + (_LOWEST - _MANTISSA), _BITS)
        # A mantissa of 53 bits, shifted within a limb, reaches over three limbs.
        low, high = (whole & _LIMB) << shifts, (whole >> _BITS) << shifts
        parts = (low & _LIMB, (low >> _BITS) + (high & _LIMB), high >> _BITS)
        for limb in np.unique(limbs).tolist():
            is_here = limbs == limb
            for up, part in enumerate(parts):
                self._limb(limb + up)[is_here] += part[is_here]
        for at, number in enumerate(singles, start=self._size):
            if isinstance(number, Fraction):
                self._whole[at] += _as_whole(number)
            else:
                self._odd[at] += number
        self._added += 1
        if self._added >= _MOST_ADDED:
            self._carry()

    def _limb(self, place: int) -> NDArray[np.int64]:
        return self._limbs.setdefault(place, np.zeros(self._size, dtype=np.int64))

    def take_in(self, other: ExactSums) -> None:
        """Add the sums of others."""
        self._carry()
        other._carry()
        self._whole = [one + more for one, more in zip(self._whole, other._whole, strict=True)]
        self._odd += other._odd

    def _carry(self) -> None:
        for limb, sums in self._limbs.items():
            shift = _BITS * limb + _PLACES - _LOWEST
            for at, number in enumerate(sums.tolist()):
                self._whole[at] += number << shift
        self._limbs = {}
        self._added = 0

    def numbers(self) -> list[Exact]:
        """Return the sums of the vectors, then those of the single numbers."""
        self._carry()
        sums = zip(self._whole, self._odd.tolist(), strict=True)
        return [Fraction(whole, 1 << _PLACES) if odd == 0 else odd for whole, odd in sums]

    def to_data(self) -> dict[str, Any]:
        """Return the sums as JSON data."""
        self._carry()
        odd = [(at, number) for at, number in enumerate(self._odd.tolist()) if number != 0]
        return {"sums": [_text(whole) for whole in self._whole], "odd": spelled(odd)}

    def read(self, data: Mapping[str, Any]) -> None:
        """Add the sums that `to_data` wrote; raise ValueError for anything else."""
        texts = read_as(list[str], data["sums"])
        if len(texts) != len(self._whole):
            raise ValueError(f"{len(texts)} sums where {len(self._whole)} are expected")
        self._whole = [one + _whole_of(text) for one, text in zip(self._whole, texts, strict=True)]
        for at, number in read_as(list[tuple[int, Number]], data["odd"]):
            self._odd[at] += number


def _text(whole: int) -> str:
    """Return the digits, and how many zeros follow: most digits of a short number are zeros at its end."""
    text = f"{whole:x}"
    digits = text.rstrip("0")
    return f"{digits}:{len(text) - len(digits)}"


def _whole_of(text: str) -> int:
    digits, _, zeros = text.partition(":")
    if len(digits) > _MOST_DIGITS or not 0 <= int(zeros) <= _MOST_DIGITS:
        raise ValueError("a sum has too many digits")
    return int(digits or "0", 16) << (4 * int(zeros))


def _as_whole(number: Fraction) -> int:
    # Denominators are powers of two; what is below the last place is cut off, the same in any order.
    return (number.numerator << _PLACES) // number.denominator


def as_float(number: Exact) -> float:
    """Return the nearest float64; infinite beyond the largest."""
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def power_sums(count: float, mean: float, squares: float) -> tuple[Exact, Exact]:
    """Return the sum of values and that of their squares, of their mean and the squared deviations from it."""
    if not (math.isfinite(mean) and math.isfinite(squares)):
        return (math.nan, math.nan) if math.isnan(mean) else (mean, math.inf)
    exact = Fraction(mean)
    return int(count) * exact, Fraction(squares) + int(count) * exact * exact


def moments(count: float, total: Exact, squares: Exact) -> tuple[float, float]:
    """Return the mean and the squared deviations from it, of the sums that `power_sums` returns."""
    if not count:
        return 0.0, 0.0
    if not (isinstance(total, Fraction) and isinstance(squares, Fraction)):
        return as_float(total / int(count)), math.nan
    return as_float(total / int(count)), max(0.0, as_float(squares - total * total / int(count)))


def of_log(logarithm: float) -> Exact:
    """Return the number with this natural logarithm, as near as float64 holds it, though it may be far beyond it."""
    if math.isinf(logarithm):
        return Fraction(0) if logarithm < 0 else math.inf
    if math.isnan(logarithm):
        return math.nan
    exponent = math.floor(logarithm / math.log(2))
    return Fraction(math.exp(logarithm - exponent * math.log(2))) * Fraction(2) ** exponent


def log_of(number: Exact) -> float:
    """Return the natural logarithm of a number that `of_log` returned, or of a sum of such."""
    if not isinstance(number, Fraction):
        return number
    return math.log(number.numerator) - math.log(number.denominator) if number > 0 else -math.inf
