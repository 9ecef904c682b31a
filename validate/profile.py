"""What is known of each reference output before any candidate is looked at: scale, size, variation.

Limits are scaled by what is found here, so it is computed on the reference alone and stored with it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from paritygate.signature import is_float_dtype

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "OutputProfile",
    "has_columns",
    "infer_channel_axis",
    "needs_scale_by_channel",
    "profile_outputs",
    "ulp_of",
]

# Rows are worked on in blocks of about this many values: the float64 copies of a block stay in the cache.
_BLOCK_VALUES = 1 << 17
# An output of this rank has columns. It has one scale, unless the scales of its columns are this far apart.
_COLUMNS_RANK = 2
_SCALES_APART = 100.0
_MOST_COLUMNS = 4096
# Rows of different shapes that are remembered to see whether an output varies over its inputs.
_SHAPES_REMEMBERED = 64


@dataclass(frozen=True, kw_only=True, slots=True)
class OutputProfile:
    """One output of the reference, over all samples.

    Attributes:
        name: The output.
        dtype: Its NumPy dtype name.
        axis: The channel axis along which scales are kept apart; None for one scale.
        std: Standard deviation (ddof 0) of the finite values, one a channel.
        max_abs: Largest finite magnitude, one a channel.
        rms_row_norm: Root mean square over rows of each row's 2-norm.
        rows: Rows seen.
        values: Values seen.
        non_finite: How many of them were NaN or infinite.
        varies: Whether the output differs between rows; None if no two rows could be compared.
    """

    name: str
    dtype: str
    axis: int | None
    std: NDArray[np.float64]
    max_abs: NDArray[np.float64]
    rms_row_norm: float
    rows: int
    values: int
    non_finite: int
    varies: bool | None

    @property
    def is_float(self) -> bool:
        """Whether differences of this output are judged by tolerance and not exactly."""
        return is_float_dtype(self.dtype)

    @property
    def scale(self) -> NDArray[np.float64]:
        """What default limits are multiplied by, one a channel: max(1, std)."""
        return np.maximum(1.0, self.std)

    def to_json(self) -> dict[str, Any]:
        """Return the profile as JSON data."""
        return {
            "name": self.name,
            "dtype": self.dtype,
            "axis": self.axis,
            "std": self.std.tolist(),
            "max_abs": self.max_abs.tolist(),
            "rms_row_norm": self.rms_row_norm,
            "rows": self.rows,
            "values": self.values,
            "non_finite": self.non_finite,
            "varies": self.varies,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> OutputProfile:
        """Return the profile that `to_json` wrote."""
        fields = dict(data)
        fields["std"] = np.asarray(fields["std"], dtype=np.float64)
        fields["max_abs"] = np.asarray(fields["max_abs"], dtype=np.float64)
        return cls(**fields)


def ulp_of(magnitude: float, dtype: str) -> float:
    """Return the distance from `magnitude` to the next larger value of `dtype` (float16/32/64, bfloat16).

    Source:
        IEEE 754: 2 ** (floor(log2 |x|) - mantissa bits), not below the smallest subnormal.
    """
    import ml_dtypes

    info = ml_dtypes.finfo(dtype)
    if not math.isfinite(magnitude) or magnitude < float(info.smallest_normal):
        return float(info.smallest_subnormal)
    exponent = math.frexp(magnitude)[1] - 1
    return math.ldexp(float(info.eps), exponent)


def infer_channel_axis(shapes: Iterable[Sequence[int]], declared: Sequence[int | str | None] | None) -> int | None:
    """Return the axis whose entries get a scale of their own, or None for one scale over all.

    Below rank 3 there is none. From rank 3 on it is an axis of fixed size: the smallest one, as
    channels, classes and coordinates are fewer than positions; the last one among equals.

    Args:
        shapes: The shapes seen.
        declared: The shape in the signature, where there is one; its symbolic dims are no channels.
    """
    seen = [tuple(shape) for shape in shapes]
    if not seen or len({len(shape) for shape in seen}) > 1 or len(seen[0]) < 3:  # noqa: PLR2004 - a rank
        return None
    first = seen[0]
    fixed = [axis for axis in range(1, len(first)) if len({shape[axis] for shape in seen}) == 1]
    if declared is not None and len(declared) == len(first):
        fixed = [axis for axis in fixed if isinstance(declared[axis], int)]
    if not fixed:
        return None
    return min(fixed, key=lambda axis: (first[axis], -axis))


def has_columns(shapes: Iterable[Sequence[int]]) -> bool:
    """Return whether an output of rank 2 has several columns, always as many."""
    widths = {shape[1] if len(shape) == _COLUMNS_RANK else 0 for shape in map(tuple, shapes)}
    return len(widths) == 1 and 1 < min(widths) <= _MOST_COLUMNS


def needs_scale_by_channel(profile: OutputProfile) -> bool:
    """Return whether the scales of the channels are so far apart that the largest would hide faults in the others.

    Columns of mixed units are such: an area in square metres beside a probability.
    """
    return bool(profile.scale.max() > _SCALES_APART * profile.scale.min())


class _Moments:
    """Running mean and squared deviation by channel, merged by the formula of Chan, Golub and LeVeque (1979)."""

    def __init__(self, channels: int) -> None:
        self.count = np.zeros(channels)
        self.mean = np.zeros(channels)
        self.squares = np.zeros(channels)
        self.max_abs = np.zeros(channels)

    def add(self, values: NDArray[np.float64]) -> None:
        """Add `values`, shape (channels, n), of which only the finite ones count."""
        if values.size == 0:
            return
        finite = np.isfinite(values)
        is_all_finite = bool(finite.all())
        count = np.full(len(values), float(values.shape[1])) if is_all_finite else finite.sum(axis=1).astype(np.float64)
        kept = values if is_all_finite else np.where(finite, values, 0.0)
        divisor = np.maximum(count, 1.0)
        mean = kept.sum(axis=1) / divisor
        deviation = kept - mean[:, None]
        if not is_all_finite:
            deviation[~finite] = 0.0
        total = np.maximum(self.count + count, 1.0)
        delta = mean - self.mean
        # What overflows leaves a spread that is not finite, which check_health refuses.
        with np.errstate(over="ignore", invalid="ignore"):
            squares = np.einsum("cn,cn->c", deviation, deviation)
            self.squares += squares + delta**2 * self.count * count / total
        self.mean += delta * count / total
        self.count += count
        np.maximum(self.max_abs, np.abs(kept).max(axis=1), out=self.max_abs)

    @property
    def std(self) -> NDArray[np.float64]:
        deviation: NDArray[np.float64] = np.sqrt(self.squares / np.maximum(self.count, 1.0))
        return deviation


class _Variation:
    """Whether rows differ from the first row of the same shape by more than rounding."""

    def __init__(self) -> None:
        self._first: dict[tuple[int, ...], NDArray[np.float64]] = {}
        self.is_compared = False
        self.max_difference = 0.0

    def add(self, rows: NDArray[np.float64]) -> None:
        shape = rows.shape[1:]
        if shape not in self._first:
            if len(self._first) >= _SHAPES_REMEMBERED or len(rows) == 0:
                return
            self._first[shape] = rows[0].copy()
            rows = rows[1:]
        if rows.size == 0:
            return
        self.is_compared = True
        # Infinity less infinity is NaN, which is left out below: infinite in both rows is no variation.
        with np.errstate(invalid="ignore"):
            difference = np.abs(rows - self._first[shape])
        finite = difference[np.isfinite(difference)]
        # A NaN that comes and goes is variation as well.
        is_pattern_varying = bool((np.isnan(rows) != np.isnan(self._first[shape])).any())
        largest = float("inf") if is_pattern_varying else float(finite.max(initial=0.0))
        self.max_difference = max(self.max_difference, largest)


def blocks_of_rows(shape: tuple[int, ...], rows: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of rows that hold about as many values as are worked on at once.

    An output without a row of its own per input is one range over all rows, as is one without values.
    """
    if not shape or shape[0] != rows or 0 in shape:
        yield 0, rows
        return
    step = max(1, _BLOCK_VALUES // max(1, math.prod(shape[1:])))
    for first in range(0, rows, step):
        yield first, min(rows, first + step)


def by_channel(values: NDArray[np.float64], axis: int | None) -> NDArray[np.float64]:
    """Return `values` as shape (channels, n): one row a channel, one channel where `axis` is None."""
    if axis is None:
        return values.reshape(1, -1)
    return np.moveaxis(values, axis, 0).reshape(values.shape[axis], -1)


def profile_outputs(
    name: str, arrays: Iterable[tuple[NDArray[np.generic], int]], *, axis: int | None, dtype: str
) -> OutputProfile:
    """Return the profile of one output, read once, batch by batch.

    Args:
        name: The output.
        arrays: Each batch's array and the number of rows of the batch.
        axis: The channel axis, or None.
        dtype: NumPy dtype name of the output.
    """
    moments: _Moments | None = None
    variation = _Variation()
    rows = values = non_finite = 0
    norm_squares = 0.0
    for block, block_rows in _blocks(arrays):
        wide = block.astype(np.float64)
        per_row = rows_of(wide, block_rows)
        channels = by_channel(wide, axis)
        if moments is None:
            moments = _Moments(len(channels))
        moments.add(channels)
        variation.add(per_row)
        finite = np.isfinite(per_row)
        is_all_finite = bool(finite.all())
        kept = (per_row if is_all_finite else np.where(finite, per_row, 0.0)).ravel()
        with np.errstate(over="ignore"):
            norm_squares += float(kept @ kept)
        rows += len(per_row)
        values += wide.size
        non_finite += 0 if is_all_finite else int(wide.size - np.count_nonzero(finite))
    moments = moments or _Moments(1)
    rounding = 4 * ulp_of(float(moments.max_abs.max(initial=0.0)), dtype) if is_float_dtype(dtype) else 0.0
    return OutputProfile(
        name=name,
        dtype=dtype,
        axis=axis,
        std=moments.std,
        max_abs=moments.max_abs,
        rms_row_norm=math.sqrt(norm_squares / rows) if rows else 0.0,
        rows=rows,
        values=values,
        non_finite=non_finite,
        varies=variation.max_difference > rounding if variation.is_compared else None,
    )


def _blocks(arrays: Iterable[tuple[NDArray[np.generic], int]]) -> Iterator[tuple[NDArray[np.generic], int]]:
    for array, rows in arrays:
        for first, last in blocks_of_rows(array.shape, rows):
            yield (array, rows) if last - first == rows else (array[first:last], last - first)


def rows_of(array: NDArray[np.float64], batch_rows: int) -> NDArray[np.float64]:
    """Return `array` with its rows along axis 0; an output that has no row of its own per input is one row."""
    if array.ndim and array.shape[0] == batch_rows:
        return array
    return array[np.newaxis]
