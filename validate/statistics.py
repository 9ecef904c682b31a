"""Statistics of the difference of one output, over any number of batches, in memory that does not grow.

The state has the four operations of a mergeable statistic: `empty`, `update`, `merge`, `finish`.
Differences are taken in float64. What cannot be subtracted (NaN, infinity) is counted, not averaged.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from paritygate.validate.bounds import mean_interval_95
from paritygate.validate.histogram import add_magnitudes, empty_histogram, quantile
from paritygate.validate.profile import blocks_of_rows, by_channel, rows_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from paritygate.validate.profile import OutputProfile
    from paritygate.validate.tolerance import Limits

__all__ = ["DiffState", "DiffStatistics", "RowFigures", "WorstRow", "counts", "empty", "finish", "merge", "update"]

_WORST_ROWS = 10
# Floor of the denominator of the elementwise relative difference, in the unit of the output.
_RELATIVE_FLOOR = 1e-12
# A declared limit of zero is a unit too small to divide by.
_SMALLEST_UNIT = 1e-300


@dataclass(frozen=True, kw_only=True, slots=True, order=True)
class WorstRow:
    """A row and its largest difference.

    Attributes:
        max_abs_diff: The largest |actual - expected| in the row; infinite where finiteness differs.
        row_id: The id of the row in the samples.
        index: Position of the largest difference within the row.
        actual: The candidate's value there.
        expected: The reference's value there.
    """

    max_abs_diff: float
    row_id: str
    index: tuple[int, ...]
    actual: float
    expected: float


@dataclass(kw_only=True, slots=True)
class DiffState:
    """What is kept of the batches seen. Sums are by channel, shape (channels,)."""

    axis: int | None
    unit: NDArray[np.float64]
    rms_row_norm: float
    count: NDArray[np.float64]
    sum_abs: NDArray[np.float64]
    max_abs: NDArray[np.float64]
    min_abs: float = math.inf
    total: float = 0.0
    mean: float = 0.0
    squares: float = 0.0
    mean_abs: float = 0.0
    squares_abs: float = 0.0
    dot: float = 0.0
    actual_norm: float = 0.0
    expected_norm: float = 0.0
    max_rel: float = 0.0
    max_row_rel: float = 0.0
    max_row_rel_id: str = ""
    rows: int = 0
    values: int = 0
    mismatches: int = 0
    candidate_non_finite: int = 0
    non_finite_mismatches: int = 0
    non_finite_matches: int = 0
    histogram: NDArray[np.int64] = field(default_factory=empty_histogram)
    unit_histogram: NDArray[np.int64] | None = None
    worst: list[WorstRow] = field(default_factory=list)


@dataclass(kw_only=True, slots=True)
class RowFigures:
    """What was found of each row of one batch, block by block.

    Attributes:
        largest_blocks: The largest |actual - expected|; infinite where the one is finite otherwise than the other.
        relative_blocks: The difference relative to the row, in 2-norms.
    """

    largest_blocks: list[NDArray[np.float64]] = field(default_factory=list)
    relative_blocks: list[NDArray[np.float64]] = field(default_factory=list)

    @property
    def largest(self) -> NDArray[np.float64]:
        """The largest |actual - expected| of each row."""
        return _joined(self.largest_blocks)

    @property
    def relative(self) -> NDArray[np.float64]:
        """The relative difference of each row."""
        return _joined(self.relative_blocks)


def _joined(blocks: list[NDArray[np.float64]]) -> NDArray[np.float64]:
    return blocks[0] if len(blocks) == 1 else np.concatenate(blocks)


def empty(profile: OutputProfile, limits: Limits) -> DiffState:
    """Return the state before the first batch, for an output with the given reference profile and limits."""
    channels = limits.max_abs_diff.size
    return DiffState(
        axis=limits.axis,
        unit=np.maximum(limits.max_abs_diff, _SMALLEST_UNIT),
        rms_row_norm=profile.rms_row_norm,
        count=np.zeros(channels),
        sum_abs=np.zeros(channels),
        max_abs=np.zeros(channels),
        unit_histogram=empty_histogram() if channels > 1 else None,
    )


def update(
    state: DiffState,
    actual: NDArray[np.generic],
    expected: NDArray[np.generic],
    ids: Sequence[str],
    figures: RowFigures | None = None,
) -> DiffState:
    """Take in one batch and return the state, which is changed in place.

    Args:
        state: The state so far; not to be used again.
        actual: The candidate's output, numeric or bool.
        expected: The reference's output, of the same shape and dtype.
        ids: The ids of the batch's rows. An output without a row of its own per input counts as one row.
        figures: Where what is found of each row is put, if it is wanted.
    """
    for first, last in blocks_of_rows(expected.shape, len(ids)):
        if last - first == len(ids):
            _update(state, actual, expected, ids, figures)
        else:
            _update(state, actual[first:last], expected[first:last], ids[first:last], figures)
    return state


def _update(
    state: DiffState,
    actual: NDArray[np.generic],
    expected: NDArray[np.generic],
    ids: Sequence[str],
    figures: RowFigures | None,
) -> None:
    wide_expected = expected.astype(np.float64)
    wide_actual = actual.astype(np.float64)
    state.values += expected.size
    state.rows += len(rows_of(wide_expected, len(ids)))
    if expected.size == 0:
        return
    with np.errstate(invalid="ignore"):
        difference = wide_actual - wide_expected
    magnitude = np.abs(difference)
    # The sum of magnitudes is finite exactly when no difference is NaN or infinite (or it overflowed: then look).
    sum_abs = float(magnitude.sum())
    finite: NDArray[np.bool_] | None = None
    is_broken: NDArray[np.bool_] | None = None
    if not math.isfinite(sum_abs):
        finite = np.isfinite(wide_actual) & np.isfinite(wide_expected)
        _count_non_finite(state, wide_actual, wide_expected)
        is_broken = ~(finite | (wide_actual == wide_expected) | (np.isnan(wide_actual) & np.isnan(wide_expected)))
        difference = np.where(finite, difference, 0.0)
        magnitude = np.abs(difference)
        wide_actual = np.where(finite, wide_actual, 0.0)
        wide_expected = np.where(finite, wide_expected, 0.0)
    if expected.dtype.kind in "iub":
        state.mismatches += int(np.count_nonzero(actual != expected))
    _add_sums(state, difference, magnitude, finite)
    _add_products(state, wide_actual, wide_expected, magnitude)
    _add_histograms(state, magnitude, finite)
    largest, relative = _add_rows(state, (actual, expected), (difference, wide_expected), magnitude, ids)
    if figures is not None:
        if is_broken is not None:
            largest = np.where(is_broken.reshape(len(largest), -1).any(axis=1), np.inf, largest)
        figures.largest_blocks.append(largest)
        figures.relative_blocks.append(relative)


def _count_non_finite(state: DiffState, actual: NDArray[np.float64], expected: NDArray[np.float64]) -> None:
    expected_bad = ~np.isfinite(expected)
    state.candidate_non_finite += int(np.count_nonzero(~np.isfinite(actual) & ~expected_bad))
    same = (actual == expected) | (np.isnan(actual) & np.isnan(expected))
    state.non_finite_matches += int(np.count_nonzero(expected_bad & same))
    state.non_finite_mismatches += int(np.count_nonzero(expected_bad & ~same))


def _add_sums(
    state: DiffState,
    difference: NDArray[np.float64],
    magnitude: NDArray[np.float64],
    finite: NDArray[np.bool_] | None,
) -> None:
    channels = by_channel(magnitude, state.axis)
    state.sum_abs += channels.sum(axis=1)
    np.maximum(state.max_abs, channels.max(axis=1), out=state.max_abs)
    count = float(magnitude.size)
    kept_magnitude, kept = magnitude, difference
    if finite is None:
        state.count += channels.shape[1]
    else:
        state.count += by_channel(finite.astype(np.float64), state.axis).sum(axis=1)
        kept_magnitude, kept = magnitude[finite], difference[finite]
        count = float(kept.size)
    if count == 0:
        return
    state.min_abs = min(state.min_abs, float(kept_magnitude.min()))
    state.mean, state.squares = _merge_moments((state.total, state.mean, state.squares), (count, *_moments(kept)))
    state.mean_abs, state.squares_abs = _merge_moments(
        (state.total, state.mean_abs, state.squares_abs), (count, *_moments(kept_magnitude))
    )
    state.total += count


def _moments(values: NDArray[np.float64]) -> tuple[float, float]:
    mean = float(values.mean())
    deviation = (values - mean).ravel()
    return mean, float(deviation @ deviation)


def _merge_moments(a: tuple[float, float, float], b: tuple[float, float, float]) -> tuple[float, float]:
    """Return mean and squared deviation of two parts together, by Chan, Golub and LeVeque (1979)."""
    (count_a, mean_a, squares_a), (count_b, mean_b, squares_b) = a, b
    count = count_a + count_b
    if count == 0:
        return 0.0, 0.0
    delta = mean_b - mean_a
    return mean_a + delta * count_b / count, squares_a + squares_b + delta * delta * count_a * count_b / count


def _add_products(
    state: DiffState,
    actual: NDArray[np.float64],
    expected: NDArray[np.float64],
    magnitude: NDArray[np.float64],
) -> None:
    flat_actual, flat_expected = actual.ravel(), expected.ravel()
    state.dot += float(flat_actual @ flat_expected)
    state.actual_norm += float(flat_actual @ flat_actual)
    state.expected_norm += float(flat_expected @ flat_expected)
    relative = magnitude / np.maximum(np.abs(expected), _RELATIVE_FLOOR)
    state.max_rel = max(state.max_rel, float(relative.max()))


def _add_histograms(state: DiffState, magnitude: NDArray[np.float64], finite: NDArray[np.bool_] | None) -> None:
    add_magnitudes(state.histogram, magnitude if finite is None else magnitude[finite])
    if state.unit_histogram is None or state.axis is None:
        return
    shape = [1] * magnitude.ndim
    shape[state.axis] = -1
    in_units = magnitude / state.unit.reshape(shape)
    add_magnitudes(state.unit_histogram, in_units if finite is None else in_units[finite])


def _add_rows(
    state: DiffState,
    raw: tuple[NDArray[np.generic], NDArray[np.generic]],
    wide: tuple[NDArray[np.float64], NDArray[np.float64]],
    magnitude: NDArray[np.float64],
    ids: Sequence[str],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Take in the rows, and return the largest and the relative difference of each."""
    rows = len(rows_of(magnitude, len(ids)))
    names = ids if rows == len(ids) else [f"{ids[0]}..{ids[-1]}"] * rows
    difference, expected = (array.reshape(rows, -1) for array in wide)
    norms = np.sqrt(np.einsum("rn,rn->r", difference, difference))
    floors = np.maximum(np.sqrt(np.einsum("rn,rn->r", expected, expected)), state.rms_row_norm)
    with np.errstate(divide="ignore", invalid="ignore"):
        # Where the reference is zero all over, there is nothing to be relative to: the absolute limits hold.
        relative = np.where((norms == 0) | (floors == 0), 0.0, norms / floors)
    at = int(relative.argmax())
    if relative[at] > state.max_row_rel:
        state.max_row_rel, state.max_row_rel_id = float(relative[at]), names[at]
    return _keep_worst(state, raw, magnitude.reshape(rows, -1), names), relative


def _keep_worst(
    state: DiffState,
    raw: tuple[NDArray[np.generic], NDArray[np.generic]],
    magnitude: NDArray[np.float64],
    names: Sequence[str],
) -> NDArray[np.float64]:
    """Keep the rows that differ most, and return the largest difference of each."""
    actual, expected = (array.reshape(magnitude.shape) for array in raw)
    largest: NDArray[np.float64] = magnitude.max(axis=1)
    if actual.dtype.kind not in "iub":
        is_broken = (~np.isfinite(actual.astype(np.float64)) & np.isfinite(expected.astype(np.float64))).any(axis=1)
        largest = np.where(is_broken, np.inf, largest)
    bar = state.worst[-1].max_abs_diff if len(state.worst) == _WORST_ROWS else 0.0
    for row in map(int, np.flatnonzero(largest > bar)):
        if math.isinf(largest[row]):
            at = int(np.argmax(~np.isfinite(actual[row].astype(np.float64))))
        else:
            at = int(magnitude[row].argmax())
        shape = raw[0].shape[1:] if raw[0].ndim and raw[0].shape[0] == len(magnitude) else raw[0].shape
        state.worst.append(
            WorstRow(
                max_abs_diff=float(largest[row]),
                row_id=names[row],
                index=tuple(int(i) for i in np.unravel_index(at, shape)) if shape else (),
                actual=float(actual[row, at]),
                expected=float(expected[row, at]),
            )
        )
    state.worst = _worst_of(state.worst)
    return largest


def _worst_of(rows: list[WorstRow]) -> list[WorstRow]:
    # One entry a row id (repeats see the same row again); ties by id so that any order of merging agrees.
    best: dict[str, WorstRow] = {}
    for row in sorted(rows, key=lambda row: (-row.max_abs_diff, row.row_id)):
        best.setdefault(row.row_id, row)
    return list(best.values())[:_WORST_ROWS]


def merge(a: DiffState, b: DiffState) -> DiffState:
    """Return the state of both parts together; associative up to rounding in the sums."""
    mean, squares = _merge_moments((a.total, a.mean, a.squares), (b.total, b.mean, b.squares))
    mean_abs, squares_abs = _merge_moments((a.total, a.mean_abs, a.squares_abs), (b.total, b.mean_abs, b.squares_abs))
    row_side = max((a, b), key=lambda side: (side.max_row_rel, side.max_row_rel_id))
    both_units = None
    if a.unit_histogram is not None and b.unit_histogram is not None:
        both_units = a.unit_histogram + b.unit_histogram
    return DiffState(
        axis=a.axis,
        unit=a.unit,
        rms_row_norm=a.rms_row_norm,
        count=a.count + b.count,
        sum_abs=a.sum_abs + b.sum_abs,
        max_abs=np.maximum(a.max_abs, b.max_abs),
        min_abs=min(a.min_abs, b.min_abs),
        total=a.total + b.total,
        mean=mean,
        squares=squares,
        mean_abs=mean_abs,
        squares_abs=squares_abs,
        dot=a.dot + b.dot,
        actual_norm=a.actual_norm + b.actual_norm,
        expected_norm=a.expected_norm + b.expected_norm,
        max_rel=max(a.max_rel, b.max_rel),
        max_row_rel=row_side.max_row_rel,
        max_row_rel_id=row_side.max_row_rel_id,
        rows=a.rows + b.rows,
        values=a.values + b.values,
        mismatches=a.mismatches + b.mismatches,
        candidate_non_finite=a.candidate_non_finite + b.candidate_non_finite,
        non_finite_mismatches=a.non_finite_mismatches + b.non_finite_mismatches,
        non_finite_matches=a.non_finite_matches + b.non_finite_matches,
        histogram=a.histogram + b.histogram,
        unit_histogram=both_units,
        worst=_worst_of(a.worst + b.worst),
    )


def counts(state: DiffState) -> dict[str, int]:
    """Return all counts of the state, by their names in `DiffStatistics`."""
    return {
        "rows": state.rows,
        "values": state.values,
        "compared": int(state.total),
        "mismatches": state.mismatches,
        "non_finite": state.candidate_non_finite,
        "non_finite_mismatches": state.non_finite_mismatches,
        "non_finite_matches": state.non_finite_matches,
    }


@dataclass(frozen=True, kw_only=True, slots=True)
class DiffStatistics:
    """The difference of one output over all batches; statistics of |actual - expected| where not said otherwise.

    NaN where nothing could be subtracted. Quantiles are upper edges of bins, at most 1/128 above the
    true value. `std_abs_diff` is of |d| with ddof 0; `bias` is the mean of the signed difference;
    `p9999_in_limits` is the 99.99 % quantile of each difference divided by the max limit of its channel.
    `slope` is the factor of the reference that comes nearest to the candidate, in least squares, and
    `off_slope` the part of the squared difference that it does not explain.
    """

    rows: int
    values: int
    compared: int
    max_abs_diff: float
    min_abs_diff: float
    mean_abs_diff: float
    std_abs_diff: float
    p50_abs_diff: float
    p90_abs_diff: float
    p99_abs_diff: float
    p999_abs_diff: float
    bias: float
    bias_low_95: float
    bias_high_95: float
    std_diff: float
    cosine_similarity: float
    slope: float
    off_slope: float
    max_rel_diff: float
    max_row_rel_diff: float
    max_row_rel_id: str
    mismatches: int
    non_finite: int
    non_finite_mismatches: int
    non_finite_matches: int
    max_abs_by_channel: NDArray[np.float64]
    mean_abs_by_channel: NDArray[np.float64]
    p9999_in_limits: float
    worst_rows: tuple[WorstRow, ...]


def finish(state: DiffState, counted: Mapping[str, int] | None = None) -> DiffStatistics:
    """Return the statistics of all that was taken in.

    Args:
        state: The state.
        counted: What to give as the counts, by the names of `counts`, where the state saw rows repeatedly.
    """
    compared = int(state.total)
    nothing = math.nan
    variance = state.squares / state.total if compared else nothing
    low, high = mean_interval_95(state.mean, variance, compared) if compared else (nothing, nothing)
    largest = float(state.max_abs.max()) if compared else nothing

    def at(fraction: float) -> float:
        return min(quantile(state.histogram, fraction), largest)

    if state.unit_histogram is not None:
        p9999_in_limits = quantile(state.unit_histogram, 0.9999)
    else:
        p9999_in_limits = quantile(state.histogram, 0.9999) / float(state.unit[0])
    slope, off_slope = _slope(state)
    with np.errstate(invalid="ignore"):
        mean_by_channel = state.sum_abs / np.maximum(state.count, 1.0)
    return DiffStatistics(
        **(counts(state) if counted is None else counted),
        max_abs_diff=largest,
        min_abs_diff=state.min_abs if compared else nothing,
        mean_abs_diff=state.mean_abs if compared else nothing,
        std_abs_diff=math.sqrt(state.squares_abs / state.total) if compared else nothing,
        p50_abs_diff=at(0.5),
        p90_abs_diff=at(0.9),
        p99_abs_diff=at(0.99),
        p999_abs_diff=at(0.999),
        bias=state.mean if compared else nothing,
        bias_low_95=low,
        bias_high_95=high,
        std_diff=math.sqrt(variance) if compared else nothing,
        cosine_similarity=_cosine(state),
        slope=slope,
        off_slope=off_slope,
        max_rel_diff=state.max_rel if compared else nothing,
        max_row_rel_diff=state.max_row_rel if compared else nothing,
        max_row_rel_id=state.max_row_rel_id,
        max_abs_by_channel=state.max_abs,
        mean_abs_by_channel=mean_by_channel,
        p9999_in_limits=p9999_in_limits,
        worst_rows=tuple(state.worst),
    )


def _cosine(state: DiffState) -> float:
    product = math.sqrt(state.actual_norm) * math.sqrt(state.expected_norm)
    if product == 0:
        # Two zero vectors point the same way; a zero vector and another one do not.
        return 1.0 if state.total and state.actual_norm == state.expected_norm else math.nan
    return max(-1.0, min(1.0, state.dot / product))


def _slope(state: DiffState) -> tuple[float, float]:
    squares = state.squares + state.total * state.mean**2
    if state.expected_norm == 0 or squares == 0:
        return math.nan, math.nan
    # From the differences: subtracting the norms themselves would lose what is looked for.
    along = state.dot - state.expected_norm
    return 1.0 + along / state.expected_norm, max(0.0, 1.0 - along * along / (state.expected_norm * squares))
