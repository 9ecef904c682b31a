"""Survey the samples: the range of every input, the sizes seen, and some real rows to derive probes from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from paritygate.batch import Arrays
from paritygate.validate.probes.inputs.orders import Order
from paritygate.validate.probes.inputs.padding import Padding, PaddingSeen

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from paritygate.validate.probes.inputs.roles import DeclaredRole, InputRole

# The survey in a release, and in the settings of a recording.
SURVEY_FILE, SURVEY = "inputs.json", "inputs"
# Ranges of more features are stored as one.
_FEATURES_STORED = 512


class InputSurvey(Struct, frozen=True, kw_only=True):
    """The values and shapes seen of one input.

    - `has_rows`: the first axis holds the rows. `low`, `high`: finite values; None if there are none, or for texts.
    - `padding`: of zeros, or for ids of the padding id. `distinct`: sorted values where they are few, else None.
    - `shapes`: the first distinct ones. `least_sizes`, `largest_sizes`: by axis; empty where the rank differs.
    - `feature_lows`, `feature_highs`: finite values by feature, the last axis up to rank 3; None where that axis is
      long or changes its size. A feature without finite values has `inf` and `-inf`.
    - `nan_rows`: how many rows have NaN. `is_shares`: the last axis always holds numbers from 0 to 1 that sum to 1.
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
    nan_rows: int = 0

    def bounds(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the smallest and largest value by feature, or of all without features or finite values."""
        low, high = self.low or 0.0, self.high or 0.0
        if self.feature_lows is None or self.feature_highs is None:
            return np.asarray(low), np.asarray(high)
        lows, highs = np.asarray(self.feature_lows), np.asarray(self.feature_highs)
        is_known = lows <= highs
        return np.where(is_known, lows, low), np.where(is_known, highs, high)

    def reach(self, values: NDArray[np.generic]) -> tuple[bool, bool]:
        """Return whether a value (also new NaN, infinity) is outside those seen, and whether one is larger."""
        if values.dtype.kind not in "fiubV" or not values.size:
            return False, False
        wide = values.astype(np.float64)
        lows, highs = self._bounds_of(wide)
        is_infinite = np.isinf(wide)
        outside = self.outside(values) | (is_infinite & (not self.has_infinity))
        with np.errstate(invalid="ignore"):
            # A set flag is not larger in magnitude, though no sample sets it.
            least = 0.0 if values.dtype.kind in "fV" else 1.0
            larger = np.abs(wide) > np.maximum(np.maximum(np.abs(lows), np.abs(highs)), least) + _slack(lows, highs)
        if self.has_infinity:
            larger = larger & ~is_infinite
        is_new_nan = not self.has_nan and bool(np.isnan(wide).any())
        return bool(outside.any()) or is_new_nan, bool(larger.any())

    def outside(self, values: NDArray[np.generic]) -> NDArray[np.bool_]:
        """Return which finite numbers are outside the range seen."""
        below, above = self.beyond(values)
        return below | above

    def beyond(self, values: NDArray[np.generic]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Return which finite numbers are below the range seen, and which are above it."""
        wide = values.astype(np.float64)
        lows, highs = self._bounds_of(wide)
        # Rounding to the dtype of the input moves a bound itself.
        slack = _slack(lows, highs)
        with np.errstate(invalid="ignore"):
            is_finite = np.isfinite(wide)
            return (wide < lows - slack) & is_finite, (wide > highs + slack) & is_finite

    def _bounds_of(self, values: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the bounds that fit an array, which may have other features than those seen."""
        lows, highs = self.bounds()
        if lows.ndim and (not values.ndim or values.shape[-1] != lows.size):
            return np.asarray(lows.min()), np.asarray(highs.max())
        return lows, highs

    def widened(self, declared: DeclaredRole) -> InputSurvey:
        """Return the survey with declared values added as if samples had them."""
        kinds = {*self.padding.kinds, *(declared.padding or ()), *([Padding.EMPTY] if declared.empty else [])}
        counts = [self.padding.shortest, declared.shortest]
        padding = PaddingSeen(
            kinds=tuple(kind for kind in Padding if kind in kinds),
            shortest=min((count for count in counts if count is not None), default=None),
            longest=self.padding.longest,
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

    def stored(self) -> InputSurvey:
        """Return what is stored with a release: of bounded size, and without numbers that JSON lacks."""
        lows, highs = np.asarray(self.feature_lows or ()), np.asarray(self.feature_highs or ())
        if len(lows) <= _FEATURES_STORED and np.isfinite([lows, highs]).all():
            return replace(self, shapes=())
        return replace(self, shapes=(), feature_lows=None, feature_highs=None)


def _slack(lows: NDArray[np.float64], highs: NDArray[np.float64]) -> NDArray[np.float64]:
    slack: NDArray[np.float64] = 1e-6 * np.maximum(np.abs(lows), np.abs(highs))
    return slack


class Rows(Struct, frozen=True, kw_only=True):
    """Real rows whose inputs have the same shapes, so that they fit into one batch.

    `ids` are positions in the samples, from 0, because the rows' own ids are user data. Inputs not in `with_rows` have
    no rows and are those of one call.
    """

    inputs: Arrays
    ids: tuple[str, ...]
    with_rows: frozenset[str]

    def take(self, at: Sequence[int]) -> dict[str, NDArray[np.generic]]:
        """Return the inputs of the rows at these positions, in this order and with repeats."""
        chosen = list(at)
        return {name: array[chosen] if name in self.with_rows else array for name, array in self.inputs.items()}


class StoredSurvey(Struct, frozen=True, kw_only=True):
    """The survey of the samples that a release was judged on, without any row of them."""

    rows: int
    inputs: Mapping[str, InputSurvey]


class Survey(Struct, frozen=True, kw_only=True):
    """The contents of the samples: the smallest and largest batch, and real rows by shape, the largest group first."""

    rows: int
    batch_sizes: tuple[int, int]
    inputs: Mapping[str, InputSurvey]
    groups: tuple[Rows, ...]
    orders: tuple[Order, ...] = ()

    def stored(self) -> StoredSurvey:
        """Return what is stored with a release."""
        return StoredSurvey(rows=self.rows, inputs={name: seen.stored() for name, seen in self.inputs.items()})

    def widened(self, roles: Mapping[str, InputRole]) -> Survey:
        """Return the survey with declared values added as if samples had them; sizes are never widened."""
        inputs = {
            name: seen if name not in roles or roles[name].is_size else seen.widened(roles[name].declared)
            for name, seen in self.inputs.items()
        }
        return replace(self, inputs=inputs)
