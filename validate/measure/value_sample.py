"""A sample of values in fixed memory: all of them while they are few, then a random choice by their place.

Only the place among all values decides, so any cut into batches, and any order of merging, keeps the same values.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

# Values that are kept over all channels, and at least of each channel. A quantile of this many values is known to a few
# tenths of a percent, that of the fewest of one channel to a few percent.
_VALUES_KEPT = 1 << 18
_LEAST_OF_A_CHANNEL = 1 << 10


@dataclass(kw_only=True, slots=True)
class ValueSample:
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
