"""The states of a comparison as JSON data, and back; sums of floats are apart, in exact sums.

A state has no entry for each row. Channels, bins of histograms, shapes of batches and classes of decisions bound its
size.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from paritygate.validate.measure import statistics
from paritygate.validate.measure.flips import DecisionState
from paritygate.validate.measure.histogram import BINS, Histogram
from paritygate.validate.measure.parts.exact_sums import Exact, ExactSums, as_float, log_of, moments, of_log, power_sums
from paritygate.validate.measure.parts.state_data import (
    Counts,
    Number,
    Row,
    dense,
    fields_data,
    read,
    read_fields,
    row_data,
    row_of,
    sparse,
    spelled,
)
from paritygate.validate.measure.plot_data import Maxima, Sketch
from paritygate.validate.measure.row_pattern import Ends, Growth, RowPattern
from paritygate.validate.measure.statistics import DiffState, RowDifference

if TYPE_CHECKING:
    from paritygate.validate.measure.limits import Limits
    from paritygate.validate.measure.profile import OutputProfile

# The widest bin of positions.
_WIDEST = 1 << 60
# Sums over the values of each channel, and over all values.
_BY_CHANNEL = ("sum_abs", "sums", "sum_squares")
_PLAIN = ("dot", "actual_norm", "expected_norm")
_SINGLES = 2 * 2 + len(_PLAIN) + 2 + 5

_DIFFERENCES: Mapping[str, Any] = {
    **dict.fromkeys((name for name in statistics.COUNTS if name != "compared"), int),
    **dict.fromkeys(("total", "max_abs", "min_abs", "max_rel"), Number),
    **dict.fromkeys(("max_row_rel", "min_row_cosine"), tuple[Number, str]),
    "first_non_finite_id": str,
}
_ROW_DIFFERENCE = tuple[Number, Number, Number, str]
_PATTERN: Mapping[str, Any] = {
    **dict.fromkeys(("beyond_last", "broken", "batches_beyond", "rows_near"), int),
    **dict.fromkeys(("shuffled", "plural_beyond", "permuted", "alike"), int),
    "axis": int | None,
}
_BY_NUMBER = ("batches_of", "beyond_in", "rows_of_width", "beyond_of_width", "beyond_at")
_BY_NAME = ("held_beyond", "held_near", "empty_beyond", "resembles")
_ENDS = ("lengths_beyond", "lengths_within", "magnitudes_beyond", "magnitudes_within")
_DECISIONS: Mapping[str, Any] = {
    **dict.fromkeys(("decisions", "flips", "flips_outside", "rows"), int),
    "is_per_row": bool,
    "examples": tuple[str, ...],
    "earlier": tuple[tuple[int, int], ...],
}


def empty_sums(limits: Limits) -> ExactSums:
    """Return the sums of one output before the first batch."""
    return ExactSums(len(_BY_CHANNEL) * limits.max_abs_diff.size, _SINGLES)


def add_sums(sums: ExactSums, state: DiffState, growth: Growth) -> None:
    """Add the sums of one batch, by its state alone and the moments of its rows."""
    lengths, of_lengths = power_sums(growth.count, growth.mean_x, growth.xx)
    largest, of_largest = power_sums(growth.count, growth.mean_y, growth.yy)
    products: Exact = power_sums(1, growth.xy, 0.0)[0]
    if isinstance(lengths, Fraction) and isinstance(largest, Fraction) and growth.count:
        products += lengths * largest / int(growth.count)
    singles = [
        *power_sums(state.total, state.mean, state.squares),
        *power_sums(state.total, state.mean_abs, state.squares_abs),
        *(power_sums(1, getattr(state, name), 0.0)[0] for name in _PLAIN),
        of_log(state.log_noise),
        of_log(state.log_signal),
        *(lengths, of_lengths, largest, of_largest, products),
    ]
    sums.add(np.concatenate([getattr(state, name) for name in _BY_CHANNEL]), singles)


def with_sums(state: DiffState, exact: ExactSums) -> DiffState:
    """Return the state with exact sums, each rounded once."""
    numbers = exact.numbers()
    channels = state.count.size
    by_channel = [numbers[at * channels : (at + 1) * channels] for at in range(len(_BY_CHANNEL))]
    total, squares, total_abs, squares_abs, *rest = numbers[len(_BY_CHANNEL) * channels :]
    mean, deviation = moments(state.total, total, squares)
    mean_abs, deviation_abs = moments(state.total, total_abs, squares_abs)
    sums: dict[str, Any] = {
        **{name: np.array(list(map(as_float, part))) for name, part in zip(_BY_CHANNEL, by_channel, strict=True)},
        **{name: as_float(number) for name, number in zip(_PLAIN, rest, strict=False)},
    }
    return replace(
        state,
        **sums,
        mean=mean,
        squares=deviation,
        mean_abs=mean_abs,
        squares_abs=deviation_abs,
        log_noise=log_of(rest[len(_PLAIN)]),
        log_signal=log_of(rest[len(_PLAIN) + 1]),
    )


def growth_of(sums: ExactSums, count: float) -> Growth:
    """Return the moments of so many rows, each rounded once."""
    lengths, of_lengths, largest, of_largest, products = sums.numbers()[-5:]
    mean_x, xx = moments(count, lengths, of_lengths)
    mean_y, yy = moments(count, largest, of_largest)
    are_finite = all(isinstance(number, Fraction) for number in (products, lengths, largest))
    xy = as_float(products - lengths * largest / int(count)) if count and are_finite else 0.0
    return Growth(count=count, mean_x=mean_x, mean_y=mean_y, xx=xx, xy=xy, yy=yy)


def differences_data(state: DiffState) -> dict[str, Any]:
    """Return the state of the differences of one output as JSON data."""
    further = {"nearest_row": state.nearest_row, "nearest_bounded_row": state.nearest_bounded_row}
    return {
        **fields_data(state, _DIFFERENCES),
        "count": state.count.tolist(),
        "first_wrong_fill": spelled([] if state.first_wrong_fill is None else [state.first_wrong_fill]),
        **{
            name: spelled([] if row is None else [(row.in_limits, row.max_row_rel_diff, row.limit, row.row_id)])
            for name, row in further.items()
        },
        "histogram": sparse(state.histogram.counts()),
        "limit_histogram": sparse(state.limit_histogram.counts()),
        "nearest": [] if state.nearest is None else [row_data(state.nearest)],
        "worst": list(map(row_data, state.worst)),
    }


def differences_of(data: Mapping[str, Any], profile: OutputProfile, limits: Limits) -> DiffState:
    """Return the state that `differences_data` wrote; raise ValueError or KeyError for anything else."""
    state = statistics.empty(profile, limits)
    count = np.array(read(list[float], data["count"]), dtype=np.float64)
    if count.shape != state.count.shape:
        raise ValueError(f"{count.size} channels where the output has {state.count.size}")
    names = ("in_limits", "max_row_rel_diff", "limit", "row_id")
    found = {name: read(list[_ROW_DIFFERENCE], data[name]) for name in ("nearest_row", "nearest_bounded_row")}
    furthest: dict[str, Any] = {
        name: RowDifference(**dict(zip(names, rows[0], strict=True))) if rows else None for name, rows in found.items()
    }
    fills, nearest = read(list[tuple[str, Number]], data["first_wrong_fill"]), read(list[Row], data["nearest"])
    return replace(
        state,
        **read_fields(_DIFFERENCES, data),
        count=count,
        first_wrong_fill=fills[0] if fills else None,
        **furthest,
        histogram=Histogram.of(dense(read(Counts, data["histogram"]), (BINS,))),
        limit_histogram=Histogram.of(dense(read(Counts, data["limit_histogram"]), (BINS,))),
        nearest=row_of(nearest[0]) if nearest else None,
        worst=list(map(row_of, read(list[Row], data["worst"]))),
    )


def pattern_data(pattern: RowPattern) -> dict[str, Any]:
    """Return the pattern of the rows of one output as JSON data, without its moments."""
    return {
        **fields_data(pattern, _PATTERN),
        **{name: list(getattr(pattern, name).items()) for name in _BY_NUMBER},
        **{name: dict(getattr(pattern, name)) for name in _BY_NAME},
        **{name: spelled([getattr(pattern, name).low, getattr(pattern, name).high]) for name in _ENDS},
        "by_channel": pattern.by_channel.tolist(),
        "moved": list(pattern.moved.items()),
        "rows_with_length": pattern.growth.count,
    }


def pattern_of(data: Mapping[str, Any]) -> RowPattern:
    """Return the pattern that `pattern_data` wrote; raise ValueError or KeyError for anything else."""
    ends = {name: read(tuple[Number, Number], data[name]) for name in _ENDS}
    counts: dict[str, Any] = {
        **{name: Counter(dict(read(Counts, data[name]))) for name in _BY_NUMBER},
        **{name: Counter(read(dict[str, int], data[name])) for name in _BY_NAME},
        **{name: Ends(low=low, high=high) for name, (low, high) in ends.items()},
    }
    return RowPattern(
        **read_fields(_PATTERN, data),
        **counts,
        by_channel=np.array(read(list[int], data["by_channel"]), dtype=np.int64),
        moved=dict(read(Counts, data["moved"])),
        growth=Growth(count=read(float, data["rows_with_length"])),
    )


def decisions_data(state: DecisionState) -> dict[str, Any]:
    """Return the decisions on one output as JSON data: the rows that flipped are counted, not named."""
    return {
        **fields_data(state, _DECISIONS),
        "classes": list(state.classes.items()),
        "flipped": state.rows_flipped,
        "outside": state.rows_outside,
    }


def decisions_of(data: Mapping[str, Any]) -> DecisionState:
    """Return the state that `decisions_data` wrote; raise ValueError or KeyError for anything else."""
    return DecisionState(
        **read_fields(_DECISIONS, data),
        classes=dict(read(Counts, data["classes"])),
        flipped_elsewhere=read(int, data["flipped"]),
        outside_elsewhere=read(int, data["outside"]),
    )


def sketch_data(sketch: Sketch) -> dict[str, Any]:
    """Return the drawing of one output as JSON data."""
    grid = sketch.grid
    counted = {} if grid is None else {"values": sparse(grid.values), "flips": sparse(grid.flips)}
    maxima = {"by_row": sketch.by_row, "by_length": sketch.by_length}
    return {
        **counted,
        "not_finite": 0 if grid is None else grid.not_finite,
        **{name: spelled([item.width, item.largest.tolist()]) for name, item in maxima.items()},
    }


def read_sketch(sketch: Sketch, data: Mapping[str, Any]) -> None:
    """Add what `sketch_data` wrote to an empty drawing; raise ValueError or KeyError for anything else."""
    if sketch.grid is not None:
        shape = sketch.grid.values.shape
        sketch.grid.values, sketch.grid.flips = (dense(read(Counts, data[name]), shape) for name in ("values", "flips"))
        sketch.grid.not_finite = read(int, data["not_finite"])
    for name, own in (("by_row", sketch.by_row), ("by_length", sketch.by_length)):
        width, largest = read(tuple[int, list[Number]], data[name])
        if not 1 <= width <= _WIDEST or width & (width - 1) or len(largest) > own.most:
            raise ValueError(f"{len(largest)} bins of width {width}, of {own.most} at most")
        own.take_in(Maxima(most=own.most, width=width, largest=np.array(largest, dtype=np.float64)))
