"""The axis of an output whose entries are channels, which are judged by their own spread."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from paritygate.validate.measure.blocks import by_channel
from paritygate.validate.measure.robust_scale import bulk_of
from paritygate.validate.measure.valid_positions import left_out_of, not_a_number

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Each column of an output of this rank is a channel; more columns than these are one channel.
_COLUMNS_RANK = 2
MOST_COLUMNS = 4096
# The spreads of quantities in other units differ by more than this factor, and by so many times the factor along the
# most likely axis. Of many quantities, two neighbours do; from place to place, spreads change smoothly.
_APART = 100.0
_APART_BESIDE = 10.0
_MANY = 64
# The share of neighbours with spreads so far apart, at least, of many quantities in other units.
_JUMPS_OF_UNITS = 0.1
# Entries whose spread is a smaller share of the largest one, such as padded positions, may hold rounding alone.
_ROUNDING = 2.0**-20
# How many rows and values show it.
_ROWS_SEEN = 32
_VALUES_SEEN = 1 << 18


def channel_axes(
    shapes: Iterable[Sequence[int]],
    declared: Sequence[int | str | None] | None,
    inputs: Iterable[Sequence[int | str | None]] = (),
) -> list[int]:
    """Return the axes whose entries may be channels, the most likely one first; none for one channel.

    Below rank 3 there is none, except for columns: see `has_columns`. From rank 3 on, it is the smallest axis of fixed
    size, because channels, classes and coordinates are fewer than positions; the last one among equals. A map of one
    number for each place of a picture, such as a depth, has none, because its rows and columns are places. It has the
    picture's proportions. Symbolic dims of the `declared` shape are not channels. `inputs` are shapes of the signature.
    """
    seen = [tuple(shape) for shape in shapes]
    if not seen or len({len(shape) for shape in seen}) > 1 or len(seen[0]) < 3:  # noqa: PLR2004 - a rank
        return []
    first = seen[0]
    if any(_is_map_of(first, shape) for shape in inputs):
        return []
    fixed = [axis for axis in range(1, len(first)) if first[axis] and len({shape[axis] for shape in seen}) == 1]
    if declared is not None and len(declared) == len(first):
        fixed = [axis for axis in fixed if isinstance(declared[axis], int)]
    return sorted(fixed, key=lambda axis: (first[axis], -axis))


def axis_of_units(arrays: Iterable[tuple[NDArray[np.generic], int]], axes: Sequence[int]) -> int | None:
    """Return the axis whose entries are channels, of possible `axes`: the first, or one of quantities in other units.

    Spreads that are far apart along an axis, and along the first one are not, show such quantities. The first rows
    decide, whatever the batches are.
    """
    found: dict[int, float] = {}
    if len(axes) > 1:
        parts = _first_rows(arrays)
        sizes = {axis: parts[0].shape[axis] for axis in axes}
        spreads = {axis: _spreads(parts, axis) for axis in axes if axis == axes[0] or sizes[axis] <= MOST_COLUMNS}
        found = {axis: _apart(each) for axis, each in spreads.items() if axis == axes[0] or _may_be_units(each)}
    best = max(found, key=lambda axis: found[axis], default=None)
    if best is None or found[best] <= max(_APART, _APART_BESIDE * found[axes[0]]):
        return axes[0] if axes else None
    return best


def _first_rows(arrays: Iterable[tuple[NDArray[np.generic], int]]) -> list[NDArray[np.float64]]:
    parts, missing = [], _ROWS_SEEN
    for array, _ in arrays:
        part = array[:missing]
        parts.append(not_a_number(part, left_out_of(part)))
        missing -= len(part)
        if missing <= 0:
            break
    return parts


def _spreads(parts: Sequence[NDArray[np.float64]], axis: int) -> NDArray[np.float64]:
    """Return the spreads of the entries of an axis, without those of rounding alone; other axes may vary by part."""
    channels = np.concatenate([by_channel(part, axis) for part in parts], axis=1)
    step = max(1, math.ceil(channels.size / _VALUES_SEEN))
    spreads = bulk_of(channels[:, ::step], ()).spread
    above: NDArray[np.float64] = spreads[spreads > spreads.max(initial=0.0) * _ROUNDING]
    return above


def _apart(spreads: NDArray[np.float64]) -> float:
    return float(spreads.max() / spreads.min()) if spreads.size else 1.0


def _may_be_units(spreads: NDArray[np.float64]) -> bool:
    if spreads.size <= _MANY:
        return True
    # A window, a gate or a silent part makes a few jumps between neighbours; quantities in other units make many.
    jumps = np.count_nonzero(np.abs(np.diff(np.log(spreads))) > math.log(_APART_BESIDE))
    return bool(jumps > spreads.size * _JUMPS_OF_UNITS)


def _is_map_of(output: Sequence[int], picture: Sequence[int | str | None]) -> bool:
    """Return whether an output of rank 3 has the proportions of a picture: it is a map of it, at any resolution."""
    if len(output) != 3 or len(picture) != 4:  # noqa: PLR2004 - ranks
        return False
    # Channels come before the places of a picture, or after them.
    sides = [(height, width) for height, width in (picture[2:], picture[1:3])]
    return any(
        isinstance(height, int) and isinstance(width, int) and output[1] * width == output[2] * height
        for height, width in sides
    )


def has_columns(shapes: Iterable[Sequence[int]], declared: Sequence[int | str | None] | None = None) -> bool:
    """Return whether an output of rank 2 has several columns, always as many.

    A square whose second dim is declared without a fixed size may hold a value for each pair of rows.
    """
    seen = [tuple(shape) for shape in shapes]
    widths = {shape[1] if len(shape) == _COLUMNS_RANK else 0 for shape in seen}
    is_fixed = declared is None or len(declared) != _COLUMNS_RANK or isinstance(declared[1], int)
    is_of_pairs = not is_fixed and all(shape[0] == shape[-1] for shape in seen)
    return len(widths) == 1 and 1 < min(widths) <= MOST_COLUMNS and not is_of_pairs
