"""Counts the rows of an output beyond its limits, by all facts that could tell them apart.

The state is mergeable: integers, extremes and moments, one update a batch. While no row is beyond the limits, a batch
costs a few operations on its rows, and its values and inputs are not read.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from paritygate.batch import Arrays

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from paritygate.validate.measure.limits import Limits
    from paritygate.validate.measure.row_traits import RowTraits
    from paritygate.validate.measure.statistics import RowFigures


# Columns on the last axis that are told apart.
_MOST_COLUMNS = 4096
_COLUMNS_RANK = 2
# Values of a row, and other outputs, that are compared to see permuted rows and swapped outputs.
_VALUES_LOOKED_AT = 64
_PEERS_LOOKED_AT = 16
# Columns beyond the limits, and positions of a batch, that are compared to see permuted columns.
_COLUMNS_LOOKED_AT = 64
_POSITIONS_LOOKED_AT = 256
# In place of the column that a column holds, where batches do not agree on it.
_NO_COLUMN = -1
# Two outputs are another's only where they are this many limits off their own.
_FAR = 10.0
# Columns in another order explain a difference of which no more than this part is left in the reference's order.
_LEFT = 0.1


@dataclass(frozen=True, kw_only=True, slots=True)
class SeenBatch:
    """One batch of one output, after its differences were computed.

    `peers` are the reference's outputs that are compared, each with its `limits`.
    """

    output: str
    actual: NDArray[np.generic]
    expected: NDArray[np.generic]
    figures: RowFigures
    traits: RowTraits
    peers: Arrays
    limits: Mapping[str, Limits]


@dataclass(frozen=True, kw_only=True, slots=True)
class Ends:
    """The smallest and the largest of some numbers; of none, the smallest is above the largest."""

    low: float = math.inf
    high: float = -math.inf

    def of(self, values: NDArray[np.float64]) -> Ends:
        """Return the ends of these and some more."""
        if not values.size:
            return self
        return Ends(low=min(self.low, float(values.min())), high=max(self.high, float(values.max())))

    def with_ends(self, other: Ends) -> Ends:
        """Return the ends of both together."""
        return Ends(low=min(self.low, other.low), high=max(self.high, other.high))


@dataclass(frozen=True, kw_only=True, slots=True)
class Growth:
    """Moments of the length of the rows and their largest differences."""

    count: float = 0.0
    mean_x: float = 0.0
    mean_y: float = 0.0
    xx: float = 0.0
    xy: float = 0.0
    yy: float = 0.0

    @classmethod
    def of(cls, lengths: NDArray[np.float64], differences: NDArray[np.float64]) -> Growth:
        """Return the moments of one batch; differences that are not finite are left out."""
        if not np.isfinite(differences).all():
            is_finite = np.isfinite(differences)
            lengths, differences = lengths[is_finite], differences[is_finite]
        if not lengths.size:
            return cls()
        mean_x, mean_y = float(lengths.sum()) / lengths.size, float(differences.sum()) / lengths.size
        x, y = lengths - mean_x, differences - mean_y
        return cls(
            count=float(lengths.size), mean_x=mean_x, mean_y=mean_y, xx=float(x @ x), xy=float(x @ y), yy=float(y @ y)
        )

    def with_growth(self, other: Growth) -> Growth:
        """Return the moments of both together, by Chan, Golub and LeVeque (1979)."""
        count = self.count + other.count
        if not count:
            return self
        x, y = other.mean_x - self.mean_x, other.mean_y - self.mean_y
        part = self.count * other.count / count
        return Growth(
            count=count,
            mean_x=self.mean_x + x * other.count / count,
            mean_y=self.mean_y + y * other.count / count,
            xx=self.xx + other.xx + x * x * part,
            xy=self.xy + other.xy + x * y * part,
            yy=self.yy + other.yy + y * y * part,
        )


@dataclass(kw_only=True, slots=True)
class RowPattern:
    """The state of the rows of one output; `beyond` means beyond the limits.

    `batches_of` and `beyond_in` are by the number of rows of the batch, `rows_of_width` and `beyond_of_width` by its
    width, `beyond_at` by the place in the batch from 0. `beyond_last` counts the last rows of their batch. `broken`
    rows are finite on one side only. The `batches_beyond` have rows beyond; all of their rows are `rows_near`.
    `held_beyond` and `held_near` count these by trait, `empty_beyond` rows without any position by mask.
    `lengths_beyond` and `lengths_within` are ends of lengths, those of magnitudes are of the largest inputs of rows
    near. `growth` has moments of length and difference. `by_channel` counts rows beyond by the channels that are, or by
    places on the last axis without channels; `axis` is that axis. In `shuffled` batches, the columns beyond are the
    reference's in another order. `moved` is the reference's column that each holds; -1 where batches do not agree. Of
    the `plural_beyond`, batches of several rows, the `permuted` ones hold the reference's rows in another order. The
    rows of `alike` ones are all equal. `resembles` counts batches that hold the reference's values of another output.
    """

    batches_of: Counter[int] = field(default_factory=Counter)
    beyond_in: Counter[int] = field(default_factory=Counter)
    rows_of_width: Counter[int] = field(default_factory=Counter)
    beyond_of_width: Counter[int] = field(default_factory=Counter)
    beyond_at: Counter[int] = field(default_factory=Counter)
    beyond_last: int = 0
    broken: int = 0
    batches_beyond: int = 0
    rows_near: int = 0
    held_beyond: Counter[str] = field(default_factory=Counter)
    held_near: Counter[str] = field(default_factory=Counter)
    empty_beyond: Counter[str] = field(default_factory=Counter)
    lengths_beyond: Ends = field(default_factory=Ends)
    lengths_within: Ends = field(default_factory=Ends)
    magnitudes_beyond: Ends = field(default_factory=Ends)
    magnitudes_within: Ends = field(default_factory=Ends)
    growth: Growth = field(default_factory=Growth)
    by_channel: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    axis: int | None = None
    shuffled: int = 0
    moved: dict[int, int] = field(default_factory=dict)
    plural_beyond: int = 0
    permuted: int = 0
    alike: int = 0
    resembles: Counter[str] = field(default_factory=Counter)

    @property
    def batches(self) -> int:
        """Return the number of batches."""
        return sum(self.batches_of.values())

    @property
    def rows(self) -> int:
        """Return the number of rows."""
        return sum(rows * count for rows, count in self.batches_of.items())

    @property
    def beyond(self) -> int:
        """Return the number of rows beyond the limits."""
        return sum(self.beyond_in.values())


def update(pattern: RowPattern, seen: SeenBatch) -> RowPattern:
    """Add one batch, and return the pattern, which is changed in place."""
    largest = seen.figures.largest
    pattern.batches_of[len(largest)] += 1
    pattern.rows_of_width[seen.traits.width] += len(largest)
    lengths = seen.traits.lengths
    if lengths is not None:
        pattern.growth = pattern.growth.with_growth(Growth.of(lengths, largest))
    is_beyond = _is_beyond(seen)
    if is_beyond is None:
        if lengths is not None:
            pattern.lengths_within = pattern.lengths_within.of(lengths)
        return pattern
    if lengths is not None:
        pattern.lengths_beyond = pattern.lengths_beyond.of(lengths[is_beyond])
        pattern.lengths_within = pattern.lengths_within.of(lengths[~is_beyond])
    pattern.beyond_of_width[seen.traits.width] += int(np.count_nonzero(is_beyond))
    _add_places(pattern, is_beyond)
    _add_traits(pattern, seen, is_beyond)
    _add_channels(pattern, seen, is_beyond)
    _add_wiring(pattern, seen, is_beyond)
    return pattern


def _is_beyond(seen: SeenBatch) -> NDArray[np.bool_] | None:
    """Return which rows are beyond the limits; None if none is."""
    # `not <=` rather than `>`: NaN is never within a limit.
    is_beyond = ~((seen.figures.in_limits <= 1) & (seen.figures.relative <= 1))
    return is_beyond if is_beyond.any() else None


def _over(seen: SeenBatch, rows: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return which values of these rows are beyond their limit, in the shape of the output."""
    actual, expected = seen.actual[rows].astype(np.float64), seen.expected[rows].astype(np.float64)
    over: NDArray[np.bool_] = ~seen.limits[seen.output].is_within(actual, expected)
    return over


def _add_places(pattern: RowPattern, is_beyond: NDArray[np.bool_]) -> None:
    rows = len(is_beyond)
    pattern.batches_beyond += 1
    pattern.rows_near += rows
    pattern.beyond_in[rows] += int(np.count_nonzero(is_beyond))
    pattern.beyond_at.update(np.flatnonzero(is_beyond).tolist())
    pattern.beyond_last += int(is_beyond[-1])


def _add_traits(pattern: RowPattern, seen: SeenBatch, is_beyond: NDArray[np.bool_]) -> None:
    pattern.broken += int(np.count_nonzero(np.isinf(seen.figures.largest)))
    for name, has_trait in seen.traits.held.items():
        pattern.held_near[name] += int(np.count_nonzero(has_trait))
        pattern.held_beyond[name] += int(np.count_nonzero(has_trait & is_beyond))
    for name, has_trait in seen.traits.empty().items():
        pattern.empty_beyond[name] += int(np.count_nonzero(has_trait & is_beyond))
    magnitudes = seen.traits.magnitudes
    if magnitudes is not None:
        pattern.magnitudes_beyond = pattern.magnitudes_beyond.of(magnitudes[is_beyond])
        pattern.magnitudes_within = pattern.magnitudes_within.of(magnitudes[~is_beyond])


def _add_channels(pattern: RowPattern, seen: SeenBatch, is_beyond: NDArray[np.bool_]) -> None:
    shape, axis = seen.expected.shape, seen.limits[seen.output].axis
    if axis is None and len(shape) >= _COLUMNS_RANK and 1 < shape[-1] <= _MOST_COLUMNS:
        axis = len(shape) - 1
    if axis is None:
        return
    over = _over(seen, is_beyond)
    # Axis 0 holds the rows; all but it and the channels are reduced away.
    by_row = np.asarray(over.any(axis=tuple(at for at in range(1, over.ndim) if at != axis)))
    pattern.axis = axis
    pattern.by_channel = _added(pattern.by_channel, np.count_nonzero(by_row, axis=0))
    _add_moved(pattern, seen, axis, np.flatnonzero(by_row.any(axis=0)))


def _add_moved(pattern: RowPattern, seen: SeenBatch, axis: int, beyond: NDArray[np.intp]) -> None:
    """Add which of the reference's columns the columns beyond the limits hold, if each holds one of them."""
    if not 1 < len(beyond) <= _COLUMNS_LOOKED_AT:
        return
    actual, expected = (
        np.moveaxis(side, axis, -1)[..., beyond].reshape(-1, len(beyond))[:_POSITIONS_LOOKED_AT].astype(np.float64)
        for side in (seen.actual, seen.expected)
    )
    with np.errstate(invalid="ignore"):
        off = np.abs(actual[:, :, np.newaxis] - expected[:, np.newaxis, :]).max(axis=0)
    columns, left = off.argmin(axis=1), off.min(axis=1)
    # With limits by channel, a column has those of the column that it holds.
    limit = np.broadcast_to(seen.limits[seen.output].max_abs_diff, seen.expected.shape[axis])[beyond][columns]
    # For a column that is hardly beyond its limit, another order explains as much as chance.
    is_near = (left <= limit) & (left <= _LEFT * off.diagonal())
    if is_near.all() and len(set(columns.tolist())) == len(beyond):
        pattern.shuffled += 1
        pattern.moved = _agreed(pattern.moved, dict(zip(beyond.tolist(), beyond[columns].tolist(), strict=True)))


def _agreed(moved: Mapping[int, int], more: Mapping[int, int]) -> dict[int, int]:
    return {**moved, **{column: own if moved.get(column, own) == own else _NO_COLUMN for column, own in more.items()}}


def _added(counts: NDArray[np.int64], more: NDArray[np.signedinteger[Any]]) -> NDArray[np.int64]:
    total = np.zeros(max(len(counts), len(more)), dtype=np.int64)
    total[: len(counts)] += counts
    total[: len(more)] += more
    return total


def _add_wiring(pattern: RowPattern, seen: SeenBatch, is_beyond: NDArray[np.bool_]) -> None:
    is_plural = len(is_beyond) > 1
    pattern.plural_beyond += is_plural
    if not seen.figures.in_limits.max() > _FAR:
        return
    actual, expected = _looked_at(seen.actual), _looked_at(seen.expected)
    if is_plural:
        is_alike = bool((actual == actual[:1]).all()) and not bool((expected == expected[:1]).all())
        pattern.alike += is_alike
        is_most = bool(np.count_nonzero(is_beyond) > len(is_beyond) / 2)
        pattern.permuted += is_most and _is_permuted(actual, expected, _limits_looked_at(seen, seen.output))
    peers = [name for name, array in seen.peers.items() if name != seen.output and array.shape == seen.expected.shape]
    for name in peers[:_PEERS_LOOKED_AT]:
        pattern.resembles[name] += _is_near(actual, _looked_at(seen.peers[name]), _limits_looked_at(seen, name))


def _looked_at(array: NDArray[np.generic]) -> NDArray[np.float64]:
    flat = array.reshape(len(array), -1)
    step = max(1, math.ceil(flat.shape[1] / _VALUES_LOOKED_AT))
    return flat[:, ::step].astype(np.float64)


def _limits_looked_at(seen: SeenBatch, output: str) -> NDArray[np.float64]:
    expected = seen.peers[output].astype(np.float64)
    limits = seen.limits[output].of_values("max_abs_diff", expected)
    return _looked_at(np.broadcast_to(limits, expected.shape))


def _is_near(actual: NDArray[np.float64], expected: NDArray[np.float64], limits: NDArray[np.float64]) -> bool:
    with np.errstate(invalid="ignore"):
        return bool((np.abs(actual - expected) <= limits).all())


def _is_permuted(actual: NDArray[np.float64], expected: NDArray[np.float64], limits: NDArray[np.float64]) -> bool:
    """Return whether the rows in some order are the reference's, each within the limits of its match."""
    fits = np.zeros((len(actual), len(expected)), dtype=np.bool_)
    with np.errstate(invalid="ignore"):
        for row, answer in enumerate(actual):
            fits[row] = (np.abs(answer - expected) <= limits).all(axis=1)
            if not fits[row].any():
                return False
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import maximum_bipartite_matching

    # A row that fits several, such as one of two equal ones, takes the place of one only.
    return bool((maximum_bipartite_matching(csr_array(fits)) >= 0).all())


def merge(a: RowPattern, b: RowPattern) -> RowPattern:
    """Return the pattern of both parts together; associative up to rounding in the moments."""
    return RowPattern(
        batches_of=a.batches_of + b.batches_of,
        beyond_in=a.beyond_in + b.beyond_in,
        rows_of_width=a.rows_of_width + b.rows_of_width,
        beyond_of_width=a.beyond_of_width + b.beyond_of_width,
        beyond_at=a.beyond_at + b.beyond_at,
        beyond_last=a.beyond_last + b.beyond_last,
        broken=a.broken + b.broken,
        batches_beyond=a.batches_beyond + b.batches_beyond,
        rows_near=a.rows_near + b.rows_near,
        held_beyond=a.held_beyond + b.held_beyond,
        held_near=a.held_near + b.held_near,
        empty_beyond=a.empty_beyond + b.empty_beyond,
        lengths_beyond=a.lengths_beyond.with_ends(b.lengths_beyond),
        lengths_within=a.lengths_within.with_ends(b.lengths_within),
        magnitudes_beyond=a.magnitudes_beyond.with_ends(b.magnitudes_beyond),
        magnitudes_within=a.magnitudes_within.with_ends(b.magnitudes_within),
        growth=a.growth.with_growth(b.growth),
        by_channel=_added(a.by_channel, b.by_channel),
        axis=a.axis if a.axis is not None else b.axis,
        shuffled=a.shuffled + b.shuffled,
        moved=_agreed(a.moved, b.moved),
        plural_beyond=a.plural_beyond + b.plural_beyond,
        permuted=a.permuted + b.permuted,
        alike=a.alike + b.alike,
        resembles=a.resembles + b.resembles,
    )
