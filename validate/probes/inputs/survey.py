"""What the samples hold: the range of every input, the sizes seen, and some real rows to derive others from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from paritygate.validate.probes.inputs.orders import Order
from paritygate.validate.probes.inputs.padding import Padding, PaddingSeen

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from paritygate.validate.probes.inputs.roles import DeclaredRole, InputRole


@dataclass(frozen=True, kw_only=True, slots=True)
class InputSurvey:
    """What was seen of one input.

    Attributes:
        dtype: NumPy's name of its dtype.
        has_rows: Whether its first axis holds the rows of the batch.
        low: The smallest finite value; None if there is none, or for texts.
        high: The largest finite value.
        has_nan: Whether a value is NaN.
        has_infinity: Whether a value is infinite.
        padding: How the positions lie that are not zero, or for ids not the id of padding.
        distinct: Its distinct values, in order, where they are few; None otherwise.
        shapes: Distinct shapes, the first ones.
        least_sizes: The smallest size of each axis; empty where inputs differ in rank.
        largest_sizes: The largest.
        feature_lows: The smallest finite value of each feature, which is the last axis up to rank 3; None where that
            axis changes its size or is long, and beyond rank 3. What is not finite at all has `inf` here.
        feature_highs: The largest finite value of each feature; `-inf` where there is none.
        values: How many values there were.
        is_whole: Whether every finite value is a whole number.
        is_shares: Whether the last axis always holds numbers from 0 to 1 that sum up to 1, as shares of a whole do.
    """

    dtype: str
    has_rows: bool
    low: float | None
    high: float | None
    has_nan: bool
    has_infinity: bool
    padding: PaddingSeen
    distinct: tuple[float, ...] | None
    shapes: tuple[tuple[int, ...], ...]
    least_sizes: tuple[int, ...]
    largest_sizes: tuple[int, ...]
    feature_lows: tuple[float, ...] | None = None
    feature_highs: tuple[float, ...] | None = None
    values: int = 0
    is_whole: bool = False
    is_shares: bool = False

    def bounds(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the smallest and the largest value by feature, or of all where features are not told apart.

        A value seen in one feature may be far beyond what another one holds. A feature without a finite value has the
        range of all.
        """
        low, high = self.low or 0.0, self.high or 0.0
        if self.feature_lows is None or self.feature_highs is None:
            return np.asarray(low), np.asarray(high)
        lows, highs = np.asarray(self.feature_lows), np.asarray(self.feature_highs)
        is_known = lows <= highs
        return np.where(is_known, lows, low), np.where(is_known, highs, high)

    def reach(self, values: NDArray[np.generic]) -> tuple[bool, bool]:
        """Return whether a finite value lies outside of the range seen, and whether one is larger in magnitude.

        NaN where none was seen lies outside; so does infinity, which is larger as well.
        """
        if values.dtype.kind not in "fiubV" or not values.size:
            return False, False
        wide = values.astype(np.float64)
        lows, highs = self._bounds_of(wide)
        is_infinite = np.isinf(wide)
        outside = self.outside(values) | (is_infinite & (not self.has_infinity))
        with np.errstate(invalid="ignore"):
            # Whether a flag is set is no question of size, though it was never set in the samples.
            least = 0.0 if values.dtype.kind in "fV" else 1.0
            larger = np.abs(wide) > np.maximum(np.maximum(np.abs(lows), np.abs(highs)), least) + _slack(lows, highs)
        if self.has_infinity:
            larger = larger & ~is_infinite
        is_new_nan = not self.has_nan and bool(np.isnan(wide).any())
        return bool(outside.any()) or is_new_nan, bool(larger.any())

    def outside(self, values: NDArray[np.generic]) -> NDArray[np.bool_]:
        """Return which finite numbers lie outside of the range seen."""
        wide = values.astype(np.float64)
        lows, highs = self._bounds_of(wide)
        # Rounding to the dtype of the input moves a bound itself.
        slack = _slack(lows, highs)
        with np.errstate(invalid="ignore"):
            found: NDArray[np.bool_] = ((wide < lows - slack) | (wide > highs + slack)) & np.isfinite(wide)
        return found

    def _bounds_of(self, values: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the bounds as they fit to an array, which may have other features than were seen."""
        lows, highs = self.bounds()
        if lows.ndim and (not values.ndim or values.shape[-1] != lows.size):
            return np.asarray(lows.min()), np.asarray(highs.max())
        return lows, highs

    def widened(self, declared: DeclaredRole) -> InputSurvey:
        """Return the same with what is declared to occur, as if samples had shown it."""
        kinds = {*self.padding.kinds, *(declared.padding or ()), *([Padding.EMPTY] if declared.empty else [])}
        known = [self.padding.shortest, declared.shortest]
        padding = PaddingSeen(
            kinds=tuple(kind for kind in Padding if kind in kinds),
            shortest=min((count for count in known if count is not None), default=None),
        )
        lows, highs = self.feature_lows, self.feature_highs
        low, high = declared.low, declared.high
        if self.low is not None and low is not None and lows is not None:
            lows = tuple(min(low, value) for value in lows)
        if self.high is not None and high is not None and highs is not None:
            highs = tuple(max(high, value) for value in highs)
        return replace(
            self,
            low=self.low if self.low is None or low is None else min(self.low, low),
            high=self.high if self.high is None or high is None else max(self.high, high),
            feature_lows=lows,
            feature_highs=highs,
            has_nan=self.has_nan or bool(declared.nan),
            has_infinity=self.has_infinity or bool(declared.infinity),
            padding=padding,
        )


def _slack(lows: NDArray[np.float64], highs: NDArray[np.float64]) -> NDArray[np.float64]:
    found: NDArray[np.float64] = 1e-6 * np.maximum(np.abs(lows), np.abs(highs))
    return found


@dataclass(frozen=True, kw_only=True, slots=True)
class Rows:
    """Real rows whose inputs have the same shapes, so that they fit into one batch.

    Attributes:
        inputs: Every input, the rows along the first axis of those that have rows; of the others, what stood in one
            call.
        ids: Which row of the samples each of them is, counted from 0: their ids are data of the user.
        with_rows: The inputs that have rows; the others are the same in every call.
    """

    inputs: Mapping[str, NDArray[np.generic]]
    ids: tuple[str, ...]
    with_rows: frozenset[str]

    def take(self, at: Sequence[int]) -> dict[str, NDArray[np.generic]]:
        """Return the inputs of the rows at these positions, in this order, as often as they are named."""
        chosen = list(at)
        return {name: array[chosen] if name in self.with_rows else array for name, array in self.inputs.items()}


@dataclass(frozen=True, kw_only=True, slots=True)
class Survey:
    """What the samples hold.

    Attributes:
        rows: How many rows there are.
        batch_sizes: The smallest and the largest batch.
        inputs: What was seen of each input.
        groups: Real rows, those of one shape together; the group of most rows first.
        orders: Whole numbers that never were above those of another input.
    """

    rows: int
    batch_sizes: tuple[int, int]
    inputs: Mapping[str, InputSurvey]
    groups: tuple[Rows, ...]
    orders: tuple[Order, ...] = ()

    def widened(self, roles: Mapping[str, InputRole]) -> Survey:
        """Return the same with what is declared to occur, as if samples had shown it; no size is set free by it."""
        inputs = {
            name: seen if name not in roles or roles[name].is_size else seen.widened(roles[name].declared)
            for name, seen in self.inputs.items()
        }
        return replace(self, inputs=inputs)
