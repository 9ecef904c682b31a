"""Statistics of the difference of one output, over any number of batches, in constant memory.

The state has the four operations of a mergeable statistic: `empty`, `update`, `merge`, `finish`. Differences are in
float64. NaN and infinity are counted, not averaged.
"""

from __future__ import annotations

import heapq
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from paritygate.codec import with_finite
from paritygate.distance import subtract
from paritygate.validate.measure.blocks import blocks_of_rows, by_channel, by_threads, on_axis, rows_of, values_of_block
from paritygate.validate.measure.bounds import mean_interval_95
from paritygate.validate.measure.figures import WorstRow
from paritygate.validate.measure.histogram import Histogram
from paritygate.validate.measure.valid_positions import left_out_of, not_a_number

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from paritygate.validate.measure.limits import Limits
    from paritygate.validate.measure.profile import OutputProfile

_WORST_ROWS = 10
# The most parts of a batch that are measured at once: each has copies of its block in float64.
_PARTS = 4
# Floor of the denominator of the elementwise relative difference, in the unit of the output.
_RELATIVE_FLOOR = 1e-12
# Below this, a sum of squares in float64 has lost digits.
_SMALLEST_SQUARES = 1e-290
# A declared limit of zero is too small a unit to divide by.
_SMALLEST_UNIT = 1e-300


class RowDifference(Struct, frozen=True, kw_only=True, order=True):
    """The row furthest beyond its limit, or nearest to it, in 2-norms relative to the row's.

    `in_limits` is the difference divided by its limit.
    """

    in_limits: float
    max_row_rel_diff: float
    limit: float
    row_id: str


class DiffState(Struct, kw_only=True):
    """The state of the batches seen; sums are by channel, shape (channels,).

    `sum_abs` counts a value far from the bulk in proportion to its own limit. `nearest` is the finite difference that
    is nearest to its limit, or furthest beyond it, `nearest_row` that row by its own limit. `nearest_bounded_row` is
    that row where channels within [-1, 1] have the floor of a bounded function. `max_row_rel` and `min_row_cosine` hold
    the id of their row. `log_noise` and `log_signal` are natural logarithms of the sums of squares of difference and
    reference, because float64 cannot hold the squares of huge or tiny values.
    """

    limits: Limits
    row_norm: float
    names_rows: bool  # whether `worst` is collected
    count: NDArray[np.float64]
    sum_abs: NDArray[np.float64]
    sums: NDArray[np.float64]
    sum_squares: NDArray[np.float64]
    max_abs: float = 0.0
    min_abs: float = math.inf
    total: float = 0.0
    mean: float = 0.0
    squares: float = 0.0
    mean_abs: float = 0.0
    squares_abs: float = 0.0
    dot: float = 0.0
    actual_norm: float = 0.0
    expected_norm: float = 0.0
    log_noise: float = -math.inf
    log_signal: float = -math.inf
    max_rel: float = 0.0
    max_row_rel: tuple[float, str] = (0.0, "")
    nearest_row: RowDifference | None = None
    nearest_bounded_row: RowDifference | None = None
    min_row_cosine: tuple[float, str] = (math.inf, "")
    rows: int = 0
    values: int = 0
    mismatches: int = 0
    non_finite: int = 0
    non_finite_mismatches: int = 0
    non_finite_matches: int = 0
    non_finite_rows: int = 0
    first_non_finite_id: str = ""
    fill_values: int = 0
    fill_mismatches: int = 0
    fill_substitutes: int = 0
    left_out: int = 0
    beyond: int = 0
    first_wrong_fill: tuple[str, float] | None = None
    histogram: Histogram = field(default_factory=Histogram)
    limit_histogram: Histogram = field(default_factory=Histogram)
    nearest: WorstRow | None = None
    worst: list[WorstRow] = field(default_factory=list)


class RowFigures(Struct, kw_only=True):
    """Figures of each row of one batch, block by block.

    `largest_blocks` hold the largest |actual - expected|, infinite where finiteness differs. `in_limits_blocks` hold
    the largest part of its limit that a difference has, `relative_blocks` that of the whole row, in 2-norms.
    """

    largest_blocks: list[NDArray[np.float64]] = field(default_factory=list)
    in_limits_blocks: list[NDArray[np.float64]] = field(default_factory=list)
    relative_blocks: list[NDArray[np.float64]] = field(default_factory=list)

    def add(self, block: _Block, relative: NDArray[np.float64]) -> None:
        """Add some rows, and the part of its limit that each has."""
        self.largest_blocks.append(block.by_row(block.magnitude).max(axis=1))
        self.in_limits_blocks.append(block.by_row(block.in_limits).max(axis=1))
        self.relative_blocks.append(relative)

    def extend(self, later: RowFigures) -> None:
        """Add the figures of the rows that come after these."""
        self.largest_blocks += later.largest_blocks
        self.in_limits_blocks += later.in_limits_blocks
        self.relative_blocks += later.relative_blocks

    @property
    def largest(self) -> NDArray[np.float64]:
        """Return the largest |actual - expected| of each row."""
        return _joined(self.largest_blocks)

    @property
    def in_limits(self) -> NDArray[np.float64]:
        """Return the largest part of its limit that a difference has, of each row."""
        return _joined(self.in_limits_blocks)

    @property
    def relative(self) -> NDArray[np.float64]:
        """Return the part of its limit that the difference of each whole row has."""
        return _joined(self.relative_blocks)


def _joined(blocks: list[NDArray[np.float64]]) -> NDArray[np.float64]:
    return blocks[0] if len(blocks) == 1 else np.concatenate(blocks)


def empty(profile: OutputProfile, limits: Limits, *, names_rows: bool = True) -> DiffState:
    """Return the state before the first batch, for an output with the given reference profile and limits.

    Without `names_rows` it collects no worst rows.
    """
    return _empty(limits, profile.row_norm, names_rows=names_rows)


def _empty(limits: Limits, row_norm: float, *, names_rows: bool) -> DiffState:
    channels = limits.max_abs_diff.size
    return DiffState(
        limits=limits,
        row_norm=row_norm,
        names_rows=names_rows,
        count=np.zeros(channels),
        sum_abs=np.zeros(channels),
        sums=np.zeros(channels),
        sum_squares=np.zeros(channels),
    )


def update(
    state: DiffState,
    actual: NDArray[np.generic],
    expected: NDArray[np.generic],
    ids: Sequence[str],
    figures: RowFigures | None = None,
) -> DiffState:
    """Add one batch, and return the state that follows; the old one is not to be used again.

    Of many values, parts are measured at once and merged in order, so the result does not depend on threads. Both
    outputs have one shape and dtype, numeric or bool. An output without an axis of rows counts as one row. `figures`
    collects those of each row.
    """
    blocks = list(blocks_of_rows(expected.shape, len(ids)))
    if len(blocks) == 1:
        _update(state, actual, expected, ids, figures)
        return state

    def measured(part: Sequence[tuple[int, int]]) -> tuple[DiffState, RowFigures]:
        part_state, of_rows = _empty(state.limits, state.row_norm, names_rows=state.names_rows), RowFigures()
        for first, last in part:
            _update(part_state, actual[first:last], expected[first:last], ids[first:last], of_rows)
        return part_state, of_rows

    size = math.ceil(len(blocks) / _PARTS)
    parts = [blocks[at : at + size] for at in range(0, len(blocks), size)]
    for part_state, of_rows in by_threads(measured, parts, values=values_of_block(expected.shape)):
        state = merge(state, part_state)
        if figures is not None:
            figures.extend(of_rows)
    return state


def _update(
    state: DiffState,
    actual: NDArray[np.generic],
    expected: NDArray[np.generic],
    ids: Sequence[str],
    figures: RowFigures | None,
) -> None:
    left_out = left_out_of(expected)
    # NaN on both sides is left out of everything; where it is the reference's own, it is counted below.
    wide_expected, wide_actual = (not_a_number(array, left_out) for array in (expected, actual))
    actual, expected = np.asarray(actual), np.asarray(expected)
    without = 0 if left_out is None else int(np.count_nonzero(left_out))
    state.left_out += without
    state.values += expected.size - without
    state.rows += len(rows_of(wide_expected, len(ids)))
    if expected.size == 0:
        return
    is_whole = expected.dtype.kind in "iu"
    difference = subtract(actual, expected) if is_whole else subtract(wide_actual, wide_expected)
    magnitude = np.abs(difference)
    limits, of_mean = state.limits.of_max_and_mean(wide_expected)
    # The sum of magnitudes is finite exactly when no difference is NaN or infinite (or it overflowed: then look).
    is_kept: NDArray[np.bool_] | None = None
    broken: _Broken | None = None
    is_fill = state.limits.is_fill(wide_expected) if state.limits.fills else None
    if without or (is_fill is not None and is_fill.any()) or not math.isfinite(float(magnitude.sum())):
        is_kept = np.isfinite(wide_actual) & np.isfinite(wide_expected)
        _count_non_finite(state, wide_actual, wide_expected, ids)
        state.non_finite_matches -= without
        is_same = (wide_actual == wide_expected) | (np.isnan(wide_actual) & np.isnan(wide_expected))
        is_broken = ~(is_kept | is_same)
        if is_fill is not None:
            is_wrong = _count_fills(state, is_fill, wide_actual, wide_expected, ids)
            is_kept &= ~is_fill
            is_broken |= is_wrong
        # Values that are not finite are the largest of all.
        broken = _Broken(is_broken=is_broken, magnitude=np.where(np.isfinite(magnitude), magnitude, np.inf))
        difference = np.where(is_kept, difference, 0.0)
        magnitude = np.abs(difference)
        wide_actual = np.where(is_kept, wide_actual, 0.0)
        wide_expected = np.where(is_kept, wide_expected, 0.0)
        of_mean = state.limits.of_values("mean_abs_diff", wide_expected)
    if expected.dtype.kind in "iub":
        is_other = actual != expected
        state.mismatches += int(np.count_nonzero(is_other if left_out is None else is_other & ~left_out))
    with np.errstate(over="ignore"):
        in_limits = magnitude / (np.maximum(limits, _SMALLEST_UNIT) if limits.min() < _SMALLEST_UNIT else limits)
    _add_sums(state, difference, magnitude, is_kept, of_mean)
    state.histogram.add(magnitude if is_kept is None else magnitude[is_kept])
    state.limit_histogram.add(in_limits if is_kept is None else in_limits[is_kept])
    block = _Block(
        actual=actual,
        expected=expected,
        magnitude=magnitude,
        in_limits=in_limits,
        limits=limits,
        ids=ids,
        rows=len(rows_of(magnitude, len(ids))),
    )
    _add_nearest(state, block)
    products = _RowProducts.of(block, difference, wide_actual, wide_expected)
    _add_relative(state, products, magnitude, wide_expected)
    _add_directions(state, products, block)
    relative = _add_rows(state, products, block, wide_expected)
    if broken is not None:
        block = broken.put_into(block)
    _keep_worst(state, block)
    if figures is not None:
        figures.add(block, relative)


class _Block(Struct, frozen=True, kw_only=True):
    """Some rows, with figures of each value; `limits` broadcasts over them."""

    actual: NDArray[np.generic]
    expected: NDArray[np.generic]
    magnitude: NDArray[np.float64]
    in_limits: NDArray[np.float64]
    limits: NDArray[np.float64]
    ids: Sequence[str]
    rows: int  # 1 for an output without an axis of rows

    def by_row(self, values: NDArray[np.generic]) -> NDArray[Any]:
        """Return values of this block in the shape (rows, n)."""
        return values.reshape(self.rows, -1)

    def name_of(self, row: int) -> str:
        return self.ids[row] if self.rows == len(self.ids) else f"{self.ids[0]}..{self.ids[-1]}"

    def worst_row(self, row: int, at: int, axis: int | None) -> WorstRow:
        has_rows = self.actual.ndim > 0 and self.actual.shape[0] == self.rows
        shape = self.actual.shape[1:] if has_rows else self.actual.shape
        index = tuple(int(i) for i in np.unravel_index(at, shape)) if shape else ()
        whole = (row, *index) if has_rows else index
        return WorstRow(
            in_limits=float(self.by_row(self.in_limits)[row, at]),
            max_abs_diff=float(self.by_row(self.magnitude)[row, at]),
            row_id=self.name_of(row),
            index=index,
            actual=float(self.by_row(self.actual)[row, at]),
            expected=float(self.by_row(self.expected)[row, at]),
            limit=float(np.broadcast_to(self.limits, self.actual.shape)[whole]),
            channel=0 if axis is None else whole[axis],
        )


class _Broken(Struct, frozen=True, kw_only=True):
    """Mark where finiteness or a fill value differs, and by how much; infinite where that is not a number."""

    is_broken: NDArray[np.bool_]
    magnitude: NDArray[np.float64]

    def put_into(self, block: _Block) -> _Block:
        """Return the block with these differences in it, each beyond any limit."""
        return replace(
            block,
            magnitude=np.where(self.is_broken, self.magnitude, block.magnitude),
            in_limits=np.where(self.is_broken, np.inf, block.in_limits),
            limits=np.where(self.is_broken, 0.0, block.limits),
        )


def _count_fills(
    state: DiffState,
    is_fill: NDArray[np.bool_],
    actual: NDArray[np.float64],
    expected: NDArray[np.float64],
    ids: Sequence[str],
) -> NDArray[np.bool_]:
    """Count the fill values, and return where the candidate lacks one."""
    is_substituted = is_fill & state.limits.is_substituted(actual, expected)
    is_wrong: NDArray[np.bool_] = is_fill & ~(actual == expected) & ~is_substituted
    state.fill_values += int(np.count_nonzero(is_fill))
    state.fill_substitutes += int(np.count_nonzero(is_substituted))
    state.fill_mismatches += int(np.count_nonzero(is_wrong))
    if state.first_wrong_fill is None and is_wrong.any():
        row = _first_row(is_wrong, ids)
        state.first_wrong_fill = row, float(actual[is_wrong][0])
    return is_wrong


def _count_non_finite(
    state: DiffState, actual: NDArray[np.float64], expected: NDArray[np.float64], ids: Sequence[str]
) -> None:
    expected_bad = ~np.isfinite(expected)
    only_actual_bad = ~np.isfinite(actual) & ~expected_bad
    same = (actual == expected) | (np.isnan(actual) & np.isnan(expected))
    mismatch = expected_bad & ~same
    state.non_finite += int(np.count_nonzero(only_actual_bad))
    state.non_finite_matches += int(np.count_nonzero(expected_bad & same))
    state.non_finite_mismatches += int(np.count_nonzero(mismatch))
    by_row = rows_of(only_actual_bad | mismatch, len(ids))
    state.non_finite_rows += int(by_row.reshape(len(by_row), -1).any(axis=1).sum())
    if not state.first_non_finite_id and by_row.any():
        state.first_non_finite_id = _first_row(by_row, ids)


def _first_row(flags: NDArray[Any], ids: Sequence[str]) -> str:
    """Return the first row in which a flag is set; all rows, of an output without an axis of rows."""
    by_row = rows_of(flags, len(ids))
    if len(by_row) != len(ids):
        return f"{ids[0]}..{ids[-1]}"
    return ids[int(by_row.reshape(len(by_row), -1).any(axis=1).argmax())]


def _add_sums(
    state: DiffState,
    difference: NDArray[np.float64],
    magnitude: NDArray[np.float64],
    finite: NDArray[np.bool_] | None,
    of_mean: NDArray[np.float64],
) -> None:
    limits = state.limits
    weighted = magnitude
    if "mean_abs_diff" in limits.growth:
        weighted = on_axis(limits.mean_abs_diff, limits.axis, magnitude.ndim) / of_mean
        weighted = np.multiply(magnitude, weighted)
    channels = by_channel(weighted, limits.axis)
    state.sum_abs += channels.sum(axis=1)
    signed = by_channel(difference, limits.axis)
    state.sums += signed.sum(axis=1)
    state.sum_squares += np.einsum("cn,cn->c", signed, signed)
    state.max_abs = max(state.max_abs, float(magnitude.max()))
    count = float(magnitude.size)
    kept_magnitude, finite_difference = magnitude, difference
    if finite is None:
        state.count += channels.shape[1]
    else:
        state.count += by_channel(finite.astype(np.float64), limits.axis).sum(axis=1)
        kept_magnitude, finite_difference = magnitude[finite], difference[finite]
        count = float(finite_difference.size)
    if count == 0:
        return
    state.min_abs = min(state.min_abs, float(kept_magnitude.min()))
    state.mean, state.squares = _merge_moments(
        (state.total, state.mean, state.squares), (count, *_moments(finite_difference))
    )
    state.mean_abs, state.squares_abs = _merge_moments(
        (state.total, state.mean_abs, state.squares_abs), (count, *_moments(kept_magnitude))
    )
    state.total += count


def _moments(values: NDArray[np.float64]) -> tuple[float, float]:
    mean = float(values.mean())
    deviation = (values - mean).ravel()
    return mean, _dot(deviation, deviation)


def _dot(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    """Return the dot product of two vectors; `@` would wake threads of a library, which wait busily for more work."""
    return float(np.einsum("n,n->", one, other))


def _merge_moments(a: tuple[float, float, float], b: tuple[float, float, float]) -> tuple[float, float]:
    """Return mean and squared deviation of two parts together, by Chan, Golub and LeVeque (1979)."""
    (count_a, mean_a, squares_a), (count_b, mean_b, squares_b) = a, b
    count = count_a + count_b
    if count == 0:
        return 0.0, 0.0
    delta = mean_b - mean_a
    return mean_a + delta * count_b / count, squares_a + squares_b + delta * delta * count_a * count_b / count


def _add_relative(
    state: DiffState, products: _RowProducts, magnitude: NDArray[np.float64], expected: NDArray[np.float64]
) -> None:
    state.log_noise = _merged("log_noise", state.log_noise, _log_squares(magnitude, products.difference))
    state.log_signal = _merged("log_signal", state.log_signal, _log_squares(expected, products.expected))
    # In place, because one row of a language model may hold millions of values.
    sizes = np.atleast_1d(np.abs(expected))
    np.maximum(sizes, _RELATIVE_FLOOR, out=sizes)
    state.max_rel = max(state.max_rel, float(np.divide(magnitude, sizes, out=sizes).max()))


class _RowProducts(Struct, frozen=True, kw_only=True):
    """The dot products of each row with itself and with the other side's, shape (rows,)."""

    difference: NDArray[np.float64]
    actual: NDArray[np.float64]
    expected: NDArray[np.float64]
    both: NDArray[np.float64]

    @classmethod
    def of(
        cls, block: _Block, difference: NDArray[np.float64], actual: NDArray[np.float64], expected: NDArray[np.float64]
    ) -> _RowProducts:
        apart, one, other = (block.by_row(values) for values in (difference, actual, expected))
        return cls(
            difference=np.einsum("rn,rn->r", apart, apart),
            actual=np.einsum("rn,rn->r", one, one),
            expected=np.einsum("rn,rn->r", other, other),
            both=np.einsum("rn,rn->r", one, other),
        )


def _add_nearest(state: DiffState, block: _Block) -> None:
    """Keep the finite difference that is nearest to its limit, or furthest beyond it, and count those beyond."""
    in_limits = block.by_row(block.in_limits)
    state.beyond += int(np.count_nonzero(in_limits > 1))
    largest = float(in_limits.max())
    if largest > 0 and (state.nearest is None or largest >= state.nearest.in_limits):
        # Integers are often equally far off: the row of the first id, in whatever order parts are merged.
        rows, places = np.nonzero(in_limits == largest)
        row = min(np.unique(rows).tolist(), key=block.name_of)
        nearest = block.worst_row(row, int(places[rows == row].min()), state.limits.axis)
        state.nearest = _merged("nearest", state.nearest, nearest)


def _add_rows(
    state: DiffState, products: _RowProducts, block: _Block, expected: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Add the rows, and return the part of its limit that each has."""
    norms = np.sqrt(products.difference)
    sizes = np.maximum(np.sqrt(products.expected), state.row_norm)
    with np.errstate(divide="ignore", invalid="ignore"):
        # Where the reference is all zero, nothing can be relative to it, and the absolute limits hold.
        is_none = (norms == 0) | (sizes == 0)
        relative = np.where(is_none, 0.0, norms / sizes)
    at = int(relative.argmax())
    if relative[at] > state.max_row_rel[0]:
        state.max_row_rel = float(relative[at]), block.name_of(at)
    furthest, parts = _furthest_row(state.limits, block, (norms, sizes), expected, is_bounded=False)
    state.nearest_row = _merged("nearest_row", state.nearest_row, furthest)
    if furthest.in_limits > 1:
        furthest, _ = _furthest_row(state.limits, block, (norms, sizes), expected, is_bounded=True)
    state.nearest_bounded_row = _merged("nearest_bounded_row", state.nearest_bounded_row, furthest)
    return parts


def _furthest_row(
    limits: Limits,
    block: _Block,
    norms_and_sizes: tuple[NDArray[np.float64], NDArray[np.float64]],
    expected: NDArray[np.float64],
    *,
    is_bounded: bool,
) -> tuple[RowDifference, NDArray[np.float64]]:
    """Return the row of a block that is furthest beyond its limit, and the part of its limit that each row has."""
    norms, sizes = norms_and_sizes
    allowed = limits.of_rows(expected, sizes, is_bounded=is_bounded)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        parts = np.where((norms == 0) | (sizes == 0), 0.0, norms / allowed)
    at = int(parts.argmax())
    size = float(sizes[at]) or 1.0
    row = RowDifference(
        in_limits=float(parts[at]),
        max_row_rel_diff=float(norms[at]) / size,
        limit=float(allowed[at]) / size,
        row_id=block.name_of(at),
    )
    return row, parts


def _add_directions(state: DiffState, products: _RowProducts, block: _Block) -> None:
    """Add the directions of both outputs, and keep the row where they are furthest apart."""
    state.dot += float(products.both.sum())
    state.actual_norm += float(products.actual.sum())
    state.expected_norm += float(products.expected.sum())
    norms = np.sqrt(products.actual) * np.sqrt(products.expected)
    is_same = (products.actual == products.expected) & (products.both == products.expected)
    if not products.expected.all():
        # Squares of tiny values are 0, as if the row were zeros.
        is_same &= (products.expected > 0) | ~block.by_row(block.magnitude).any(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        # Equal vectors are no rounding apart, two zero vectors included; a zero vector and another one are not alike.
        cosines = np.where(is_same, 1.0, np.where(norms == 0, 0.0, products.both / norms))
    at = int(cosines.argmin())
    if cosines[at] < state.min_row_cosine[0]:
        state.min_row_cosine = max(-1.0, float(cosines[at])), block.name_of(at)


def _log_squares(values: NDArray[np.float64], by_row: NDArray[np.float64]) -> float:
    """Return the logarithm of the sum of squares, given the sums by row; -inf for zeros, inf for infinite values."""
    with np.errstate(over="ignore"):
        squares = float(by_row.sum())
    if _SMALLEST_SQUARES < squares < math.inf:
        return math.log(squares)
    largest = float(np.abs(values).max())
    if largest == 0 or math.isinf(largest):
        return math.inf if largest else -math.inf
    with np.errstate(under="ignore"):
        parts = (values / largest).ravel()
        return math.log(_dot(parts, parts)) + 2 * math.log(largest)


def _keep_worst(state: DiffState, block: _Block) -> None:
    """Keep the rows whose differences are furthest beyond their limits, or nearest to them."""
    if not state.names_rows:
        return
    in_limits = block.by_row(block.in_limits)
    largest: NDArray[np.float64] = in_limits.max(axis=1)
    bar = state.worst[-1].in_limits if len(state.worst) == _WORST_ROWS else 0.0
    rows = np.flatnonzero((largest >= bar) & (largest > 0))
    if rows.size > _WORST_ROWS:
        rows = rows[largest[rows] >= np.partition(largest[rows], -_WORST_ROWS)[-_WORST_ROWS]]
        apart = block.by_row(block.magnitude)[rows, in_limits[rows].argmax(axis=1)]
        ranked = zip(-largest[rows], -apart, map(block.name_of, rows), rows, strict=True)
        rows = np.array([row for *_, row in heapq.nsmallest(_WORST_ROWS, ranked)])
    if rows.size:
        worst = [block.worst_row(row, int(in_limits[row].argmax()), state.limits.axis) for row in map(int, rows)]
        state.worst = _worst_of([*state.worst, *worst])


def _worst_of(rows: list[WorstRow]) -> list[WorstRow]:
    # One entry a row id (repeats see the same row again); ties by id so that any order of merging agrees.
    best: dict[str, WorstRow] = {}
    for row in sorted(rows, key=lambda row: (-row.in_limits, -(row.max_abs_diff or 0.0), row.row_id)):
        best.setdefault(row.row_id, row)
    return list(best.values())[:_WORST_ROWS]


def _further(one: Any, other: Any) -> Any:  # noqa: ANN401 - what was found, or None
    return max((difference for difference in (one, other) if difference is not None), default=None)


# How the fields of two states become one; all others except moments are summed.
_MERGES: Mapping[str, Callable[[Any, Any], Any]] = {
    **dict.fromkeys(("limits", "row_norm", "names_rows"), lambda one, _: one),
    **dict.fromkeys(("max_abs", "max_rel", "max_row_rel"), max),
    **dict.fromkeys(("min_abs", "min_row_cosine"), min),
    **dict.fromkeys(("nearest_row", "nearest_bounded_row"), _further),
    **dict.fromkeys(("first_non_finite_id", "first_wrong_fill"), lambda one, other: one or other),
    **dict.fromkeys(("log_noise", "log_signal"), lambda one, other: float(np.logaddexp(one, other))),
    "nearest": lambda one, other: min(
        filter(None, (one, other)), key=lambda row: (-row.in_limits, row.row_id, row.index), default=None
    ),
}


def merge(a: DiffState, b: DiffState) -> DiffState:
    """Return the state of both parts together; associative up to rounding in the sums."""
    merged = {name: _merged(name, getattr(a, name), getattr(b, name)) for name in DiffState.__struct_fields__}
    merged["mean"], merged["squares"] = _merge_moments((a.total, a.mean, a.squares), (b.total, b.mean, b.squares))
    merged["mean_abs"], merged["squares_abs"] = _merge_moments(
        (a.total, a.mean_abs, a.squares_abs), (b.total, b.mean_abs, b.squares_abs)
    )
    return DiffState(**{**merged, "worst": _worst_of(a.worst + b.worst)})


def _merged(name: str, one: Any, other: Any) -> Any:  # noqa: ANN401 - of the type of the field
    return _MERGES.get(name, operator.add)(one, other)


def counts(state: DiffState) -> dict[str, int]:
    """Return all counts of the state, by their names in `DiffStatistics`."""
    return {name: int(state.total) if name == "compared" else getattr(state, name) for name in COUNTS}


class DiffStatistics(Struct, frozen=True, kw_only=True):
    """The difference of one output over all batches, of |actual - expected| unless noted; NaN where none was possible.

    Quantiles are upper edges of bins, at most 1/128 above the true value. `std_abs_diff` is of |d| with ddof 0; `bias`
    is the mean of the signed difference. `p9999_in_limits` is the 99.99 % quantile of each difference divided by its
    own max limit. `nearest` is the difference nearest to its max limit, or furthest beyond it, and `nearest_row` that
    row by its own limit. `nearest_bounded_row` is that row where channels within [-1, 1] have the floor of a bounded
    function. In `mean_abs_by_channel` a value far from the bulk counts in proportion to its own limit;
    `mean_abs_diff_of_columns` is the mean of these over all channels. `rms_by_channel` is the root mean square
    difference, and `bias_by_channel` the mean of the signed one, each with `count_by_channel` values. `left_out` counts
    the positions that do not count, `values` the others, and `beyond` differences beyond their own max limit. `sqnr_db`
    is the signal-to-quantization-noise ratio, 10 log10(sum expected^2 / sum d^2), in decibels: infinite without a
    difference, and -infinite if the reference is all zeros. Source: Lin, Talathi and Annapureddy, "Fixed Point
    Quantization of Deep Convolutional Networks" (2016); `compute_sqnr` of PyTorch's `torch.ao.ns` agrees. `slope` is
    the factor of the reference that comes nearest to the candidate, in least squares, and `off_slope` the part of the
    squared difference that it does not explain.
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
    min_cosine_similarity: float
    min_cosine_similarity_id: str
    slope: float
    off_slope: float
    sqnr_db: float
    max_rel_diff: float
    max_row_rel_diff: float
    max_row_rel_id: str
    mismatches: int
    non_finite: int
    non_finite_mismatches: int
    non_finite_matches: int
    non_finite_rows: int
    first_non_finite_id: str
    fill_values: int
    fill_mismatches: int
    fill_substitutes: int
    left_out: int
    beyond: int
    first_wrong_fill: tuple[str, float] | None
    nearest: WorstRow | None
    nearest_row: RowDifference | None
    nearest_bounded_row: RowDifference | None
    mean_abs_by_channel: NDArray[np.float64]
    mean_abs_diff_of_columns: float
    rms_by_channel: NDArray[np.float64]
    bias_by_channel: NDArray[np.float64]
    count_by_channel: NDArray[np.float64]
    p9999_in_limits: float
    worst_rows: tuple[WorstRow, ...]


COUNTS = (
    *("rows", "values", "compared", "mismatches", "non_finite", "non_finite_mismatches", "non_finite_matches"),
    *("non_finite_rows", "fill_values", "fill_mismatches", "fill_substitutes", "left_out", "beyond"),
)


def finish(state: DiffState, counted: Mapping[str, int] | None = None) -> DiffStatistics:
    """Return the statistics of all batches; `counted` replaces `counts` where the state saw rows repeatedly."""
    compared = int(state.total)
    nothing = math.nan
    variance = state.squares / state.total if compared else nothing
    low, high = mean_interval_95(state.mean, variance, compared) if compared else (nothing, nothing)
    largest = state.max_abs if compared else nothing
    nearest = math.inf if state.nearest is None else state.nearest.in_limits

    p50, p90, p99, p999 = (min(value, largest) for value in state.histogram.quantiles(0.5, 0.9, 0.99, 0.999))
    slope, off_slope = _slope(state)
    with np.errstate(invalid="ignore"):
        mean_by_channel = state.sum_abs / np.maximum(state.count, 1.0)
        bias_by_channel = state.sums / np.maximum(state.count, 1.0)
        rms_by_channel = np.sqrt(state.sum_squares / np.maximum(state.count, 1.0))
    return DiffStatistics(
        **(counts(state) if counted is None else counted),
        max_abs_diff=largest,
        min_abs_diff=state.min_abs if compared else nothing,
        mean_abs_diff=state.mean_abs if compared else nothing,
        std_abs_diff=math.sqrt(state.squares_abs / state.total) if compared else nothing,
        p50_abs_diff=p50,
        p90_abs_diff=p90,
        p99_abs_diff=p99,
        p999_abs_diff=p999,
        bias=state.mean if compared else nothing,
        bias_low_95=low,
        bias_high_95=high,
        std_diff=math.sqrt(variance) if compared else nothing,
        cosine_similarity=_cosine(state),
        min_cosine_similarity=min(1.0, state.min_row_cosine[0]) if compared else nothing,
        min_cosine_similarity_id=state.min_row_cosine[1],
        slope=slope,
        off_slope=off_slope,
        sqnr_db=_sqnr(state),
        max_rel_diff=state.max_rel if compared else nothing,
        max_row_rel_diff=state.max_row_rel[0] if compared else nothing,
        max_row_rel_id=state.max_row_rel[1],
        first_non_finite_id=state.first_non_finite_id,
        first_wrong_fill=state.first_wrong_fill,
        nearest=state.nearest if compared else None,
        nearest_row=state.nearest_row if compared else None,
        nearest_bounded_row=state.nearest_bounded_row if compared else None,
        mean_abs_by_channel=mean_by_channel,
        mean_abs_diff_of_columns=float(state.sum_abs.sum() / max(1.0, float(state.count.sum()))),
        rms_by_channel=rms_by_channel,
        bias_by_channel=bias_by_channel,
        count_by_channel=state.count,
        p9999_in_limits=min(state.limit_histogram.quantiles(0.9999)[0], nearest),
        worst_rows=tuple(map(with_finite, state.worst)),
    )


def _cosine(state: DiffState) -> float:
    product = math.sqrt(state.actual_norm) * math.sqrt(state.expected_norm)
    if product == 0:
        # Two zero vectors point the same way; a zero vector and another one do not.
        return 1.0 if state.total and state.actual_norm == state.expected_norm else math.nan
    return max(-1.0, min(1.0, state.dot / product))


def _sqnr(state: DiffState) -> float:
    if state.log_noise == -math.inf:
        return math.inf if state.total else math.nan
    return 10 * (state.log_signal - state.log_noise) / math.log(10)


def _slope(state: DiffState) -> tuple[float, float]:
    squares = state.squares + state.total * state.mean * state.mean
    if not 0 < state.expected_norm < math.inf or not 0 < squares < math.inf:
        return math.nan, math.nan
    # From the differences, because subtracting the norms themselves would lose them.
    along = state.dot - state.expected_norm
    return 1.0 + along / state.expected_norm, max(0.0, 1.0 - along * along / (state.expected_norm * squares))
