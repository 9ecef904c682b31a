"""The bulk of a reference output: its middle, its spread, and the constants that are not values.

Limits follow from the bulk, so that large and rare values cannot loosen them for all others.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

# The bulk is this share of the values, those nearest to the median.
BULK_SHARE = 0.9
# So many standard deviations of a normal distribution hold the bulk: the quantile of 0.95 of it.
NORMAL_REACH = 1.6448536269514722
# Within so many standard deviations lie a tenth, and half, of a normal distribution: its quantiles of 0.55 and 0.75.
_NORMAL_TENTH, _NORMAL_HALF = 0.12566134685507402, 0.6744897501960817
# The least values of a row that have a spread.
_FEW = 3
# The least values off its constant that give a channel a spread of its own.
LEAST_VARYING = 30
# The tail of a channel is at least this share of its values.
_TAIL_SHARE = 0.01
# A fill value is this many times beyond the median magnitude of the others, and that counts as one unit at least:
# limits are absolute below it, and a probability of exactly 1 among small ones is not a fill value.
_FAR = 1000.0
# It fills at least this share of the values, and more than one.
_FILL_SHARE = 0.01
# How many values are sorted at once.
_VALUES_AT_ONCE = 1 << 18


class Bulk(Struct, frozen=True, kw_only=True):
    """The ordinary values of each channel; every array has the shape (channels,).

    `center` is the median; 0 for a channel without values. `spread` is the distance from it within which `BULK_SHARE`
    of the values are, as a standard deviation. `own_spread` is the same, of the values off the median alone where more
    than half of all are the median. It is 0 where fewer than `LEAST_VARYING` values differ from the median. `size` is
    the median, or the values off it where these are larger; 0 of fewer than `LEAST_VARYING` values. `tail` is the
    distance from the median that `LEAST_VARYING` values reach, and 1 % of all at least; 0 of fewer. `rms` is the root
    mean square distance from the median.
    """

    center: NDArray[np.float64]
    spread: NDArray[np.float64]
    own_spread: NDArray[np.float64]
    size: NDArray[np.float64]
    tail: NDArray[np.float64]
    rms: NDArray[np.float64]


def bulk_of(values: NDArray[np.float64], fills: Sequence[float]) -> Bulk:
    """Return the bulk of each channel of `values`, shape (channels, n), without `fills` and non-finite values.

    The spread is divided by that of a normal distribution of standard deviation 1. Values more than 1000 times as far
    away as half of those off the median are left out first, so that a third of huge rows is not bulk either. The median
    absolute deviation would be 0 where half of the values are 0, as behind a ReLU. It also knows only one of two
    clusters, while rounding is that of both. The standard deviation of the central 99 % would include one huge row of a
    hundred.
    """
    step = max(1, _VALUES_AT_ONCE // max(1, values.shape[1]))
    parts = [_bulk_of(values[first : first + step], fills) for first in range(0, len(values), step)]

    def joined(name: str) -> NDArray[np.float64]:
        return np.concatenate([np.zeros(0), *(getattr(part, name) for part in parts)])

    names = ("center", "spread", "own_spread", "size", "tail", "rms")
    return Bulk(**{name: joined(name) for name in names})


def _bulk_of(values: NDArray[np.float64], fills: Sequence[float]) -> Bulk:
    """Return `bulk_of` some channels at once: an output of a language model has as many as the model has words."""
    is_ordinary = _is_ordinary(values, fills)
    counts = np.count_nonzero(is_ordinary, axis=1)
    # Values that are left out are sorted behind all others.
    ordered = np.sort(np.where(is_ordinary, values, np.nan), axis=1)
    center = _median(ordered, np.zeros_like(counts), counts)
    distances = np.sort(np.abs(ordered - center[:, None]), axis=1)
    zeros = np.count_nonzero(distances == 0, axis=1)
    spread = _reach(distances, counts, 1.0) / NORMAL_REACH
    off_constant = _reach(distances, counts, 1.0, skipped=zeros) / NORMAL_REACH
    own = np.where(zeros * 2 > counts, off_constant, spread)
    tail = np.maximum(LEAST_VARYING, np.ceil(counts * _TAIL_SHARE).astype(np.intp))
    with np.errstate(over="ignore"):
        squares = np.nansum(distances**2, axis=1)
    return Bulk(
        center=center,
        spread=spread,
        own_spread=np.where(counts - zeros >= LEAST_VARYING, own, 0.0),
        size=np.where(counts >= LEAST_VARYING, np.maximum(np.abs(center), off_constant), 0.0),
        tail=np.where(counts >= tail, _at(distances, counts - tail), 0.0),
        rms=np.sqrt(squares / np.maximum(counts, 1)),
    )


def _median(ordered: NDArray[np.float64], first: NDArray[np.intp], counts: NDArray[np.intp]) -> NDArray[np.float64]:
    """Return the median of so many sorted values of each row from the first one on; 0 of none."""
    low, high = _at(ordered, first + (counts - 1) // 2), _at(ordered, first + counts // 2)
    with np.errstate(over="ignore"):
        median = np.where(counts % 2 == 1, low, (low + high) / 2)
    return np.where(counts > 0, median, 0.0)


def _at(ordered: NDArray[np.float64], places: NDArray[np.intp]) -> NDArray[np.float64]:
    """Return one value of each row; any value where there is no such place."""
    if not ordered.shape[1]:
        return np.zeros(len(ordered))
    return ordered[np.arange(len(ordered)), np.clip(places, 0, ordered.shape[1] - 1)]


def spread_within(values: NDArray[np.float64]) -> float:
    """Return the spread of the values of one row around its median, as a standard deviation; 0 below three values.

    Rounding in a row 10^6 times larger than others is as large as that row, also for its values near 0. Behind an added
    mask (-1e4 + x), the size of the values, or their median distance, is not a measure. Most values of a row are large
    there, and do not show the rounding of the others. But these are close together, as the tenth of the values nearest
    to the median shows, so the smaller of both counts. `values` are ordinary ones, each in the unit of its channel.
    """
    ordered = np.sort(values, axis=None)
    if ordered.size < _FEW:
        return 0.0
    # An element, because the mean of two may be half-way between two clusters.
    distances = np.sort(np.abs(ordered - ordered[(ordered.size - 1) // 2]))
    nearest = distances[max(1, ordered.size // 10)] / _NORMAL_TENTH
    return float(min(nearest, distances[ordered.size // 2] / _NORMAL_HALF))


def _reach(
    ordered: NDArray[np.float64], counts: NDArray[np.intp], unit: float, skipped: NDArray[np.intp] | int = 0
) -> NDArray[np.float64]:
    """Return for each row the size that `BULK_SHARE` of its sizes do not exceed, without those far from the others.

    `ordered`, shape (rows, n), has `counts` sorted sizes in each row, and NaN behind them. For the bar of those far
    away, a size counts as `unit` at least. The `skipped` smallest sizes of each row are left out.
    """
    zeros = np.count_nonzero(ordered == 0, axis=1)
    moved = counts - zeros
    bar = _FAR * np.maximum(unit, _median(ordered, zeros, moved))
    near = np.count_nonzero(ordered <= bar[:, None], axis=1) - skipped
    # The value itself, not between two: of ten values, one huge value must not enter.
    places = skipped + np.floor((near - 1) * BULK_SHARE).astype(np.intp)
    return np.where(moved > 0, _at(ordered, places), 0.0)


def _is_ordinary(values: NDArray[np.float64], fills: Sequence[float]) -> NDArray[np.bool_]:
    is_ordinary = np.isfinite(values)
    for fill in fills:
        is_ordinary &= values != fill
    return is_ordinary


def _ordinary(values: NDArray[np.float64], fills: Sequence[float]) -> NDArray[np.float64]:
    return values[_is_ordinary(values, fills)]


def repeated_fills(values: NDArray[np.float64], known: Sequence[float]) -> tuple[float, ...]:
    """Return the fill constants of `values`, shape (channels, n), such as the -1e9 of masked logits; sorted.

    Such a constant makes up at least a hundredth of a channel, and two values. It is more than 1000 times the median
    magnitude of the channel's other values, or more than 1000 where that is below 1. The `known` ones are not values.
    """
    fills: set[float] = set()
    with np.errstate(invalid="ignore"):
        has_far = (np.abs(values) > _FAR).any(axis=1)
    for row in values[has_far]:
        ordinary = _ordinary(row, known)
        far = ordinary[np.abs(ordinary) > _FAR]
        if not far.size:
            continue
        constants, counts = np.unique(far, return_counts=True)
        repeated = constants[counts >= max(2, _FILL_SHARE * np.count_nonzero(~np.isnan(row)))]
        others = _ordinary(ordinary, repeated.tolist())
        if others.size:
            bar = _FAR * max(1.0, float(np.median(np.abs(others))))
            fills.update(repeated[np.abs(repeated) > bar].tolist())
    return tuple(sorted(fills))


def may_hold_fills(array: NDArray[np.generic]) -> bool:
    """Return whether some value of an array of any shape is large enough for a fill value, or infinite."""
    with np.errstate(invalid="ignore"):
        return array.dtype.kind in "fV" and bool((np.abs(array) > array.dtype.type(_FAR)).any())


def typical_row_norm(norms: NDArray[np.float64], sizes: NDArray[np.float64]) -> float:
    """Return the least size that a row's difference is relative to: the root mean square of norms, huge ones clipped.

    A norm counts as no more than that of the bulk of the rows, or than one unit a value where that is more. The median
    would be next to nothing where most rows are zero, or are probabilities near 0. Honest rounding, as large there as
    elsewhere, would be many times the row. `norms` are the 2-norms of rows, `sizes` their numbers of values.
    """
    is_finite = np.isfinite(norms)
    norms, sizes = norms[is_finite], sizes[is_finite]
    if not norms.size:
        return 0.0
    units = np.sqrt(sizes)
    reach = _reach(np.sort(norms)[None], np.array([norms.size]), float(units.max()))
    clipped = np.minimum(norms, np.maximum(reach, units))
    return float(np.sqrt(np.mean(clipped**2)))


# Values that are kept over all channels, and at least of each channel. A quantile of this many values is known to a few
# tenths of a percent, that of the fewest of one channel to a few percent.
_VALUES_KEPT = 1 << 18
_LEAST_OF_A_CHANNEL = 1 << 10


class ValueSample(Struct, kw_only=True):
    """The values kept of those seen, shape (channels, n): the same places of every channel.

    A value is kept where the lowest `level` bits of the hash of its place are zero. `kept` is the number of places
    kept. `places`, and the values at them, shape (channels, kept), come part by part.
    """

    channels: int
    next_place: int = 0
    level: int = 0
    kept: int = 0
    places: list[NDArray[np.uint64]] = field(default_factory=list)
    values: list[NDArray[np.float64]] = field(default_factory=list)


def empty(channels: int, *, first_place: int = 0) -> ValueSample:
    """Return an empty sample; `first_place` is how many values come before those of this part."""
    return ValueSample(channels=channels, next_place=first_place)


def update(sample: ValueSample, values: NDArray[np.float64]) -> ValueSample:
    """Add values of shape (channels, n), in order, and return the sample, which is changed in place."""
    places = np.arange(sample.next_place, sample.next_place + values.shape[1], dtype=np.uint64)
    sample.next_place += values.shape[1]
    if sample.level:
        is_kept = _is_kept(places, sample.level)
        values, places = values[:, is_kept], places[is_kept]
    if places.size:
        # A copy, because a view would hold the whole batch in memory.
        sample.values.append(np.array(values, dtype=np.float64))
        sample.places.append(places)
        sample.kept += places.size
    return _thinned(sample)


def merge(a: ValueSample, b: ValueSample) -> ValueSample:
    """Return the sample of two parts together, each begun at its own place; associative, in any order."""
    level = max(a.level, b.level)
    merged = ValueSample(
        channels=a.channels,
        next_place=max(a.next_place, b.next_place),
        level=level,
        places=[*a.places, *b.places],
        values=[*a.values, *b.values],
    )
    _keep(merged)
    return _thinned(merged)


def finish(sample: ValueSample) -> NDArray[np.float64]:
    """Return the values kept, shape (channels, kept), in the order of their places."""
    if not sample.values:
        return np.zeros((sample.channels, 0))
    places, values = np.concatenate(sample.places), _beside(sample.values)
    # Only merged parts are out of order; ordering each channel would copy all of them.
    is_in_order = bool((places[1:] > places[:-1]).all())
    return values if is_in_order else values[:, np.argsort(places)]


def _beside(parts: list[NDArray[np.float64]]) -> NDArray[np.float64]:
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)


def _thinned(sample: ValueSample) -> ValueSample:
    most = max(_LEAST_OF_A_CHANNEL, _VALUES_KEPT // max(1, sample.channels))
    while sample.kept > most:
        sample.level += 1
        _keep(sample)
    return sample


def _keep(sample: ValueSample) -> None:
    """Drop values that the level does not keep, and join the parts."""
    if not sample.places:
        return
    places = np.concatenate(sample.places)
    is_kept = _is_kept(places, sample.level)
    sample.values = [
        _beside([part[:, is_left] for part, is_left in zip(sample.values, _cut(is_kept, sample), strict=True)])
    ]
    sample.places = [places[is_kept]]
    sample.kept = int(np.count_nonzero(is_kept))


def _cut(is_kept: NDArray[np.bool_], sample: ValueSample) -> list[NDArray[np.bool_]]:
    """Return which values of each part are kept."""
    ends = np.cumsum([len(part) for part in sample.places])
    return np.split(is_kept, ends[:-1])


def _is_kept(places: NDArray[np.uint64], level: int) -> NDArray[np.bool_]:
    """Return which places are kept.

    Source: the finaliser of SplitMix64: G. Steele, D. Lea and C. Flood, Fast Splittable Pseudorandom Number Generators
    (2014). It spreads neighbouring places evenly, where every n-th one would follow any period of the outputs.
    """
    mixed = (places ^ (places >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    is_chosen: NDArray[np.bool_] = (mixed & np.uint64((1 << level) - 1)) == 0
    return is_chosen
