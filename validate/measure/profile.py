"""Profiles of reference outputs, stored with the reference: scale, size and variation, from which limits follow."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Annotated

import numpy as np
from msgspec import Struct, field
from msgspec.structs import force_setattr, replace

from paritygate.codec import Floats
from paritygate.distance import distance
from paritygate.signature import is_float_dtype
from paritygate.validate.measure import robust_scale
from paritygate.validate.measure.blocks import blocks_of_rows, by_channel, on_axis, rows_of
from paritygate.validate.measure.robust_scale import (
    LEAST_VARYING,
    NORMAL_REACH,
    bulk_of,
    repeated_fills,
    typical_row_norm,
)
from paritygate.validate.measure.valid_positions import left_out_of, not_a_number

# An array of float64, one a channel, that is written to files.
if TYPE_CHECKING:
    from numpy.typing import NDArray

    from paritygate.validate.measure.robust_scale import ValueSample

    FloatArray = Annotated[NDArray[np.float64], Floats]
else:
    # The command imports this module and computes nothing, so it loads no NumPy.
    FloatArray = Annotated[object, Floats]

# Each column of an output of this rank is a channel.
_COLUMNS_RANK = 2
# Entries of a channel axis are shares of one quantity where their sum is 1 within this, and there are so many.
_SUM_WITHIN = 1e-3
_LEAST_SHARES = 3
# How many times as wide a cap is where the error of a bounded function is not known at the output. One percent off is
# still beyond it.
ROOM_BEHIND_BOUNDED = 4.0
# The number of row shapes that are remembered, to see whether an output varies over its inputs.
_SHAPES_REMEMBERED = 64


class OutputProfile(Struct, frozen=True, kw_only=True):
    """One output of the reference, over all samples; arrays hold one number a channel.

    `axis` is the channel axis; None for one channel. Ordinary values are finite and no fill values. `center` is their
    median, and `spread` that of their bulk; the standard deviation, were they normal. A channel is judged by its
    `own_spread`: that of the values off its constant, or the size of the whole where the channels are shares of it. It
    is 0 where a channel hardly varies. `size` and `tail` are those of `robust_scale.Bulk`; `rms` is the root mean
    square distance from the center. `output_spread` is that of all columns together, for rank 2; None where each
    channel has its own. `is_shares` marks channels whose sum is 1 everywhere. `noise` is how far the reference differs
    from itself, `activation_floor` how far implementations of the last operator differ. The cap by the own spread is
    `cap_room` times as wide: more than 1 where a bounded function is computed with others, and its error at the output
    is unknown. `max_abs` is the largest ordinary magnitude. `row_norm` is the 2-norm of a typical row; huge rows are
    clipped. `non_finite` counts values. `fills` are the largest numbers of the dtype, and constants far beyond all
    others. `varies` is None if no two rows could be compared. `low` and `high` are the smallest and largest ordinary
    value of all channels; None without any, or where they were not recorded.
    """

    name: str
    dtype: str
    axis: int | None
    center: FloatArray
    spread: FloatArray
    max_abs: FloatArray
    row_norm: float
    rows: int
    values: int
    non_finite: int
    varies: bool | None
    fills: tuple[float, ...] = ()
    low: float | None = None
    high: float | None = None
    own_spread: FloatArray = field(default_factory=lambda: np.zeros(0))
    size: FloatArray = field(default_factory=lambda: np.zeros(0))
    cap_room: FloatArray = field(default_factory=lambda: np.zeros(0))
    tail: FloatArray = field(default_factory=lambda: np.zeros(0))
    rms: FloatArray = field(default_factory=lambda: np.zeros(0))
    output_spread: float | None = None
    is_shares: bool = False
    noise: FloatArray = field(default_factory=lambda: np.zeros(0))
    activation_floor: FloatArray = field(default_factory=lambda: np.zeros(0))

    def __post_init__(self) -> None:
        """Fill in zeros where nothing was recorded: without a spread of its own, a channel has no cap."""
        for name in ("own_spread", "size", "tail", "rms", "noise", "activation_floor"):
            if not getattr(self, name).size:
                force_setattr(self, name, np.zeros_like(self.spread))
        if not self.cap_room.size:
            force_setattr(self, "cap_room", np.ones_like(self.spread))

    @property
    def channels(self) -> int:
        """Return the number of channels."""
        return self.spread.size

    @property
    def is_float(self) -> bool:
        """Return whether the dtype is a float one."""
        return is_float_dtype(self.dtype)

    @property
    def scale(self) -> NDArray[np.float64]:
        """Return max(1, spread) of each channel, which multiplies default limits before they are capped."""
        return np.maximum(max(1.0, self.output_spread or 0.0), self.spread)

    @property
    def bulk_abs(self) -> NDArray[np.float64]:
        """Return the largest magnitude of the bulk, one a channel."""
        return np.minimum(np.abs(self.center) + NORMAL_REACH * self.spread, self.max_abs)

    def beyond_bulk(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return how many scales each value of an array of this output is from the center, 1 at least."""
        from_center = np.abs(values - on_axis(self.center, self.axis, values.ndim))
        return np.maximum(1.0, from_center / on_axis(self.scale, self.axis, values.ndim))


def ulp_of(magnitude: float, dtype: str) -> float:
    """Return the distance from `magnitude` to the next larger value of `dtype` (float16/32/64, bfloat16).

    Source: IEEE 754: 2 ** (floor(log2 |x|) - mantissa bits), not below the smallest subnormal.
    """
    import ml_dtypes

    info = ml_dtypes.finfo(dtype)
    if not math.isfinite(magnitude) or magnitude < float(info.smallest_normal):
        return float(info.smallest_subnormal)
    exponent = math.frexp(magnitude)[1] - 1
    return math.ldexp(float(info.eps), exponent)


def with_activation_floors(
    profiles: Mapping[str, OutputProfile], floors: Mapping[str, NDArray[np.float64]]
) -> dict[str, OutputProfile]:
    """Return the profiles with these floors; where columns are not channels, the smallest floor counts for all."""
    result = dict(profiles)
    for name in profiles.keys() & floors.keys():
        profile, floor = profiles[name], floors[name]
        if not profile.is_float:
            continue
        is_by_column = profile.output_spread is not None and floor.size == profile.channels
        own = floor if is_by_column else np.full(profile.channels, floor.min())
        # A floor that is NaN is unknown.
        result[name] = replace(
            profile,
            activation_floor=np.nan_to_num(own, nan=0.0),
            cap_room=np.where(np.isnan(own), ROOM_BEHIND_BOUNDED, 1.0),
        )
    return result


class _Variation:
    """The largest difference of rows from the first row of the same shape."""

    def __init__(self) -> None:
        self._first: dict[tuple[int, ...], tuple[NDArray[np.float64], NDArray[np.bool_] | None]] = {}
        self.is_compared = False
        self.max_difference = 0.0

    def add(self, rows: NDArray[np.float64], left_out: NDArray[np.bool_] | None) -> None:
        shape = rows.shape[1:]
        if shape not in self._first:
            if len(self._first) >= _SHAPES_REMEMBERED or len(rows) == 0:
                return
            self._first[shape] = rows[0].copy(), None if left_out is None else left_out[0]
            rows, left_out = rows[1:], None if left_out is None else left_out[1:]
        first, out_of_first = self._first[shape]
        out = False if out_of_first is None else out_of_first
        is_out = np.broadcast_to(out if left_out is None else out | left_out, rows.shape)
        if is_out.all():
            return
        self.is_compared = True
        # NaN or infinity that comes and goes is variation as well; the same in both rows is none.
        largest = float(np.where(is_out, 0.0, distance(rows, first)).max(initial=0.0))
        self.max_difference = max(self.max_difference, largest)


def profile_outputs(  # noqa: PLR0913 - what is read, and how
    name: str,
    arrays: Iterable[tuple[NDArray[np.generic], int]],
    *,
    axis: int | None,
    dtype: str,
    apart: Iterable[tuple[NDArray[np.generic], int]] | None = None,
    fills: Iterable[float] = (),
) -> OutputProfile:
    """Return the profile of one output, read once batch by batch, and once more where it holds repeated fill values.

    `arrays` holds each batch's array, masked where positions do not count, and its number of rows; each reading starts
    again. `apart` has the same without rows that occur several times, for a few generated rows alone. A value that such
    a row repeats is no fill value, and a few rows do not tell a column of one fill value from a large value. `fills`
    are known fill values.
    """
    if iter(arrays) is arrays:
        raise TypeError("give a list, or an iterable that restarts, because the arrays are read more than once")
    is_float = is_float_dtype(dtype)
    reading = _Pass(axis, tuple(dict.fromkeys((*_extremes(dtype), *fills))) if is_float else ())
    reading.read(arrays)
    values = reading.ordinary_sample()
    is_table = axis is not None and reading.rank == _COLUMNS_RANK
    repeated: set[float] = set()
    if is_float:
        of_rows = values if apart is None else _sample_of(apart, axis, reading.fills)
        repeated.update(repeated_fills(of_rows, reading.fills))
        if is_table and apart is None and values.shape[1] >= LEAST_VARYING:
            # The fill value of whole columns is known by the other columns.
            columns = set(values[(values == values[:, :1]).all(axis=1), 0].tolist())
            repeated |= columns.intersection(repeated_fills(values.reshape(1, -1), reading.fills))
    if repeated:
        reading = _Pass(axis, (*reading.fills, *sorted(repeated)))
        reading.read(arrays)
    bulk = bulk_of(values, reading.fills)
    shares = reading.shares.typical_largest if is_float else None
    rounding = 4 * ulp_of(float(reading.max_abs.max(initial=0.0)), dtype) if is_float else 0.0
    return OutputProfile(
        name=name,
        dtype=dtype,
        axis=axis,
        center=bulk.center,
        spread=bulk.spread,
        own_spread=bulk.own_spread if shares is None else np.where(bulk.own_spread > 0, shares, 0.0),
        size=bulk.size,
        tail=bulk.tail,
        rms=bulk.rms,
        output_spread=float(bulk_of(values.reshape(1, -1), reading.fills).spread[0]) if is_table else None,
        is_shares=shares is not None,
        noise=np.zeros_like(bulk.spread),
        activation_floor=np.zeros_like(bulk.spread),
        max_abs=reading.max_abs,
        row_norm=typical_row_norm(*robust_scale.finish(reading.norms)),
        rows=reading.rows,
        values=reading.values,
        non_finite=reading.non_finite,
        varies=reading.variation.max_difference > rounding if reading.variation.is_compared else None,
        fills=tuple(sorted(reading.seen_fills)),
        low=reading.low if reading.low <= reading.high else None,
        high=reading.high if reading.low <= reading.high else None,
    )


def _sample_of(
    arrays: Iterable[tuple[NDArray[np.generic], int]], axis: int | None, fills: tuple[float, ...]
) -> NDArray[np.float64]:
    reading = _Pass(axis, fills)
    reading.read(arrays)
    return reading.ordinary_sample()


def _extremes(dtype: str) -> tuple[float, ...]:
    import ml_dtypes

    info = ml_dtypes.finfo(dtype)
    return float(info.min), float(info.max)


class _Shares:
    """Tests whether the entries along an axis sum to 1 everywhere, and samples the largest of them."""

    def __init__(self, axis: int | None) -> None:
        self._axis = axis
        self._is_possible = True
        self._largest = robust_scale.empty(1)

    def add(self, values: NDArray[np.float64]) -> None:
        """Add values, whole rows; NaN where they do not count."""
        axis = -1 if self._axis is None else self._axis
        if not self._is_possible or not values.size:
            return
        if values.ndim < _COLUMNS_RANK or values.shape[axis] < _LEAST_SHARES:
            self._is_possible = False
            return
        with np.errstate(invalid="ignore", over="ignore"):
            sums = values.sum(axis=axis)
        is_counted = ~np.isnan(values).any(axis=axis)
        is_one = np.abs(sums[is_counted] - 1.0) <= _SUM_WITHIN
        self._is_possible = bool(is_one.all()) and not (values < -_SUM_WITHIN).any()
        if self._is_possible:
            robust_scale.update(self._largest, values.max(axis=axis)[is_counted].reshape(1, -1))

    @property
    def typical_largest(self) -> float | None:
        """Return the median of the largest entries; None where the entries are not shares."""
        largest = robust_scale.finish(self._largest)
        return float(np.median(largest)) if self._is_possible and largest.size else None


class _Pass:
    """One reading of an output, with the fill values known so far."""

    def __init__(self, axis: int | None, fills: tuple[float, ...]) -> None:
        self.fills = fills
        self.seen_fills: set[float] = set()
        self.variation = _Variation()
        # The norm of each row, and how many values it has.
        self.norms = robust_scale.empty(2)
        self.max_abs = np.zeros(1)
        self.rows = self.values = self.non_finite = 0
        self.low, self.high = math.inf, -math.inf
        self.rank = 0
        self.shares = _Shares(axis)
        self._axis = axis
        self._sample: ValueSample | None = None
        self._nearest_fill = min(map(abs, fills), default=math.inf)

    def read(self, arrays: Iterable[tuple[NDArray[np.generic], int]]) -> None:
        for block, rows in _blocks(arrays):
            left_out = left_out_of(block)
            self._add(not_a_number(block, left_out), rows, left_out)

    def ordinary_sample(self) -> NDArray[np.float64]:
        """Return the sample of the values, shape (channels, n)."""
        return np.zeros((1, 0)) if self._sample is None else robust_scale.finish(self._sample)

    def _add(self, wide: NDArray[np.float64], rows: int, left_out: NDArray[np.bool_] | None) -> None:
        channels = by_channel(wide, self._axis)
        if self._sample is None:
            self._sample = robust_scale.empty(len(channels))
            self.max_abs = np.zeros(len(channels))
        robust_scale.update(self._sample, channels)
        self.rank = wide.ndim
        self.shares.add(wide)
        per_row = rows_of(wide, rows)
        out_by_row = None if left_out is None else rows_of(left_out, rows)
        self.variation.add(per_row, out_by_row)
        without = 0 if left_out is None else int(np.count_nonzero(left_out))
        self.rows += len(per_row)
        self.values += wide.size - without
        is_ordinary = self._is_ordinary(per_row)
        # Masked values are no NaN of the reference.
        self.non_finite -= without
        without_fills = per_row if is_ordinary is None else np.where(is_ordinary, per_row, 0.0)
        if wide.size:
            magnitudes = np.abs(
                by_channel(without_fills if wide.shape == without_fills.shape else without_fills[0], self._axis)
            )
            np.maximum(self.max_abs, magnitudes.max(axis=1), out=self.max_abs)
        ordinary = per_row if is_ordinary is None else per_row[is_ordinary]
        self.low = min(self.low, float(ordinary.min(initial=math.inf)))
        self.high = max(self.high, float(ordinary.max(initial=-math.inf)))
        flat = (
            without_fills.reshape(len(without_fills), -1) if without_fills.size else np.zeros((len(without_fills), 0))
        )
        with np.errstate(over="ignore"):
            norms = np.sqrt(np.einsum("rn,rn->r", flat, flat))
        sizes = np.full(len(flat), float(flat.shape[1]))
        if out_by_row is not None:
            sizes -= np.count_nonzero(out_by_row.reshape(len(flat), -1), axis=1)
        robust_scale.update(self.norms, np.stack([norms, sizes]))

    def _is_ordinary(self, values: NDArray[np.float64]) -> NDArray[np.bool_] | None:
        """Return which values are finite and no fill values; None where all are."""
        largest = float(np.abs(values).max(initial=0.0))
        if largest < self._nearest_fill:
            return None
        finite = np.isfinite(values)
        self.non_finite += int(values.size - np.count_nonzero(finite))
        for fill in self.fills:
            is_fill = values == fill
            if is_fill.any():
                self.seen_fills.add(fill)
                finite &= ~is_fill
        return None if finite.all() else finite


def _blocks(arrays: Iterable[tuple[NDArray[np.generic], int]]) -> Iterator[tuple[NDArray[np.generic], int]]:
    for array, rows in arrays:
        for first, last in blocks_of_rows(array.shape, rows):
            yield (array, rows) if last - first == rows else (array[first:last], last - first)
