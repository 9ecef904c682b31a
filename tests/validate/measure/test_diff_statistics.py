"""Statistics of differences: streaming equals the whole array, for any cut, order of merging, dtype and value."""

from __future__ import annotations

import functools
import itertools
import math
from unittest import mock

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from msgspec.structs import replace
from numpy.typing import NDArray

from paritygate.validate.measure import statistics
from paritygate.validate.measure.histogram import RESOLUTION, Histogram
from paritygate.validate.measure.limits import Limits
from paritygate.validate.measure.profile import OutputProfile, profile_outputs
from paritygate.validate.measure.statistics import DiffState, DiffStatistics, RowFigures

_DTYPES = [np.dtype(np.float16), np.dtype(np.float32), np.dtype(np.float64), np.dtype(ml_dtypes.bfloat16)]
# Rounding of a value to float32 before it is put into its bin.
_FLOAT32_ROUNDING = 2.0**-24
_SMALLEST_NORMAL = float(np.finfo(np.float32).tiny)


def _limits(axis: int | None, channels: int) -> Limits:
    one = np.full(channels, 0.25)
    return Limits(max_abs_diff=one, mean_abs_diff=one, repeat_max_abs_diff=one, max_row_rel_diff=0.1, axis=axis)


def _profile(expected: NDArray[np.generic], axis: int | None) -> OutputProfile:
    return profile_outputs("y", [(expected, len(expected))], axis=axis, dtype=expected.dtype.name)


def _state(
    actual: NDArray[np.generic], expected: NDArray[np.generic], cuts: list[int], axis: int | None = None
) -> list[DiffState]:
    profile = _profile(expected, axis)
    limits = _limits(axis, profile.channels)
    if axis is None:
        limits = replace(limits, center=profile.center, growth={"max_abs_diff": 0.025, "mean_abs_diff": 0.025})
    ids = [f"r{row}" for row in range(len(expected))]
    edges = [0, *sorted(cut % (len(expected) + 1) for cut in cuts), len(expected)]
    states = []
    for first, last in itertools.pairwise(edges):
        state = statistics.empty(profile, limits)
        state = statistics.update(state, actual[first:last], expected[first:last], ids[first:last])
        states.append(state)
    return states


def _whole(actual: NDArray[np.generic], expected: NDArray[np.generic], axis: int | None = None) -> DiffStatistics:
    return statistics.finish(_state(actual, expected, [], axis)[0])


def _oracle(actual: NDArray[np.generic], expected: NDArray[np.generic]) -> dict[str, float]:
    """Compute from the whole arrays what the streaming statistics must come to."""
    wide_actual, wide_expected = actual.astype(np.float64), expected.astype(np.float64)
    is_finite = np.isfinite(wide_actual) & np.isfinite(wide_expected)
    difference = wide_actual[is_finite] - wide_expected[is_finite]
    magnitude = np.abs(difference)
    if not magnitude.size:
        names = ("max_abs_diff", "min_abs_diff", "mean_abs_diff", "std_abs_diff", "bias", "std_diff")
        return {"compared": 0} | dict.fromkeys(names, math.nan)
    return {
        "compared": magnitude.size,
        "max_abs_diff": magnitude.max(),
        "min_abs_diff": magnitude.min(),
        "mean_abs_diff": magnitude.mean(),
        "std_abs_diff": magnitude.std(),
        "bias": difference.mean(),
        "std_diff": difference.std(),
    }


def _assert_agrees(found: DiffStatistics, wanted: dict[str, float]) -> None:
    scale = 0.0 if math.isnan(wanted["max_abs_diff"]) else wanted["max_abs_diff"]
    for name, value in wanted.items():
        assert getattr(found, name) == pytest.approx(value, rel=1e-9, abs=1e-9 * scale, nan_ok=True), name


@st.composite
def _pairs(draw: st.DrawFn, *, is_finite: bool = False) -> tuple[NDArray[np.generic], NDArray[np.generic]]:
    dtype = draw(st.sampled_from(_DTYPES))
    shape = draw(hnp.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=5))
    width = 16 if dtype.itemsize == 2 else 32
    # NaN, infinities, -0 and subnormals are among what hypothesis likes to draw.
    values = st.floats(width=width, allow_nan=not is_finite, allow_infinity=not is_finite, min_value=None)
    drawn = [draw(hnp.arrays(np.float32, shape, elements=values)) for _ in range(2)]
    with np.errstate(over="ignore"):
        actual, expected = (array.astype(dtype) for array in drawn)
    if draw(st.booleans()) and expected.ndim > 1:
        # The same values, not contiguous in memory.
        actual, expected = (np.asfortranarray(array) for array in (actual, expected))
    if draw(st.booleans()):
        actual = np.where(draw(hnp.arrays(bool, shape)), actual, expected).astype(dtype)
    return actual, expected


_CUTS = st.lists(st.integers(0, 100), max_size=4)


@given(_pairs(), _CUTS, st.randoms(use_true_random=False))
@settings(max_examples=60)
def test_any_cut_merged_in_any_order_equals_the_whole_array(
    pair: tuple[NDArray[np.generic], NDArray[np.generic]], cuts: list[int], random: object
) -> None:
    actual, expected = pair
    states = _state(actual, expected, cuts)
    random.shuffle(states)  # type: ignore[attr-defined]  # hypothesis hands out random.Random

    merged = statistics.finish(functools.reduce(statistics.merge, states))
    whole = _whole(actual, expected)

    _assert_agrees(merged, _oracle(actual, expected))
    for exact in ("rows", "values", "compared", "mismatches", "non_finite", "non_finite_mismatches", "max_abs_diff"):
        assert getattr(merged, exact) == pytest.approx(getattr(whole, exact), rel=0, abs=0, nan_ok=True), exact
    for quantity in ("p50_abs_diff", "p90_abs_diff", "p99_abs_diff", "p999_abs_diff", "p9999_in_limits"):
        assert getattr(merged, quantity) == pytest.approx(getattr(whole, quantity), rel=0, abs=0, nan_ok=True)
    assert merged.max_row_rel_diff == pytest.approx(whole.max_row_rel_diff, rel=1e-12, nan_ok=True)
    assert [row.in_limits for row in merged.worst_rows] == [row.in_limits for row in whole.worst_rows]
    assert merged.mean_abs_by_channel == pytest.approx(whole.mean_abs_by_channel, rel=1e-9)
    assert (merged.nearest is None) == (whole.nearest is None)
    if merged.nearest is not None and whole.nearest is not None:
        assert merged.nearest.in_limits == whole.nearest.in_limits


@given(_pairs(), _CUTS)
@settings(max_examples=50)
def test_one_state_fed_batch_by_batch_equals_the_whole_array(
    pair: tuple[NDArray[np.generic], NDArray[np.generic]], cuts: list[int]
) -> None:
    actual, expected = pair
    profile = _profile(expected, None)
    state = statistics.empty(profile, _limits(None, 1))
    edges = [0, *sorted(cut % (len(expected) + 1) for cut in cuts), len(expected)]
    for first, last in itertools.pairwise(edges):
        ids = [f"r{row}" for row in range(first, last)]
        state = statistics.update(state, actual[first:last], expected[first:last], ids)

    _assert_agrees(statistics.finish(state), _oracle(actual, expected))


@given(_pairs())
@settings(max_examples=50)
def test_any_number_of_threads_comes_to_the_same(pair: tuple[NDArray[np.generic], NDArray[np.generic]]) -> None:
    actual, expected = pair
    ids = [f"r{row}" for row in range(len(expected))]
    found = []
    for processors in (1, 3):
        with (
            mock.patch("paritygate.machine.available_processors", lambda count=processors: count),
            # Every row is a block.
            mock.patch("paritygate.validate.measure.blocks._BLOCK_VALUES", 1),
        ):
            state = statistics.empty(_profile(expected, None), _limits(None, 1))
            figures = RowFigures()
            state = statistics.update(state, actual, expected, ids, figures)
        if expected.size:
            assert np.array_equal(figures.largest, _figures_of(actual, expected).largest, equal_nan=True)
        found.append(statistics.finish(state))

    _assert_agrees(found[0], _oracle(actual, expected))
    # Not equal up to rounding: the same. NaN is written alike.
    assert repr(found[0]) == repr(found[1])


def _figures_of(actual: NDArray[np.generic], expected: NDArray[np.generic]) -> RowFigures:
    figures = RowFigures()
    state = statistics.empty(_profile(expected, None), _limits(None, 1))
    statistics.update(state, actual, expected, [f"r{row}" for row in range(len(expected))], figures)
    return figures


@given(_pairs(is_finite=True), st.integers(0, 5), st.integers(0, 5))
@settings(max_examples=60)
def test_merging_is_associative(pair: tuple[NDArray[np.generic], NDArray[np.generic]], first: int, second: int) -> None:
    a, b, c = _state(*pair, [first, second])

    left = statistics.finish(statistics.merge(statistics.merge(a, b), c))
    right = statistics.finish(statistics.merge(a, statistics.merge(b, c)))

    scale = 0.0 if math.isnan(left.max_abs_diff) else left.max_abs_diff
    for name in ("mean_abs_diff", "std_abs_diff", "bias", "std_diff"):
        assert getattr(left, name) == pytest.approx(getattr(right, name), rel=1e-9, abs=1e-9 * scale, nan_ok=True), name
    assert left.worst_rows == right.worst_rows
    assert left.p99_abs_diff == pytest.approx(right.p99_abs_diff, rel=0, abs=0, nan_ok=True)


@given(_pairs())
@settings(max_examples=60)
def test_the_counts_of_what_is_not_finite_tell_who_is_to_blame(
    pair: tuple[NDArray[np.generic], NDArray[np.generic]],
) -> None:
    actual, expected = (array.astype(np.float64) for array in pair)
    is_expected_bad, is_actual_bad = ~np.isfinite(expected), ~np.isfinite(actual)
    same = (actual == expected) | (np.isnan(actual) & np.isnan(expected))

    found = _whole(*pair)

    assert found.non_finite == np.count_nonzero(is_actual_bad & ~is_expected_bad)
    assert found.non_finite_mismatches == np.count_nonzero(is_expected_bad & ~same)
    assert found.non_finite_matches == np.count_nonzero(is_expected_bad & same)


@given(hnp.arrays(np.float64, st.integers(1, 300), elements=st.floats(0, 1e30)), st.floats(0.001, 1))
@settings(max_examples=60)
def test_a_quantile_is_never_below_the_true_one_and_above_it_by_the_resolution_at_most(
    magnitudes: NDArray[np.float64], fraction: float
) -> None:
    histogram = Histogram()
    histogram.add(magnitudes)
    rank = max(1, math.ceil(round(fraction * magnitudes.size, 9)))
    true = float(np.sort(magnitudes)[rank - 1])

    found = histogram.quantiles(fraction)[0]

    if true < _SMALLEST_NORMAL:
        assert found <= 2 * _SMALLEST_NORMAL
    else:
        assert true * (1 - _FLOAT32_ROUNDING) <= found <= true * (1 + RESOLUTION) * (1 + _FLOAT32_ROUNDING)


def test_a_quantile_of_nothing_is_not_a_number() -> None:
    assert math.isnan(Histogram().quantiles(0.5)[0])


def test_histograms_of_few_and_of_many_values_are_the_same() -> None:
    values = np.abs(np.random.default_rng(0).standard_normal(10_000))
    fractions = (0.001, 0.5, 0.9, 0.999, 1.0)
    at_once, in_parts, few, sums = Histogram(), Histogram(), Histogram(), Histogram()
    at_once.add(values)
    for part in np.array_split(values, 100):
        in_parts.add(part)
        own = Histogram()
        own.add(part)
        sums = sums + own
        if few.size < 4000:
            few.add(part)
    same_few = Histogram() + few
    many = few + at_once

    for histogram in (in_parts, sums):
        assert (at_once.counts() == histogram.counts()).all()
        assert at_once.quantiles(*fractions) == histogram.quantiles(*fractions)
    assert at_once.counts().sum() == at_once.size == 10_000
    assert same_few.quantiles(*fractions) == few.quantiles(*fractions)
    assert (many.counts() == few.counts() + at_once.counts()).all()
    ordered = np.sort(values[: few.size].astype(np.float32))
    assert all(few.quantiles(at / few.size)[0] >= ordered[at - 1] for at in range(1, few.size, 50))


@pytest.mark.parametrize("dtype", _DTYPES, ids=str)
def test_differences_are_taken_in_float64(dtype: np.dtype[np.generic]) -> None:
    expected = np.full((4, 1), 1.0).astype(dtype)
    actual = np.array([[1.0], [1.0], [1.0], [1.5]]).astype(dtype)

    found = _whole(actual, expected)

    assert (found.max_abs_diff, found.mean_abs_diff, found.min_abs_diff) == (0.5, 0.125, 0.0)
    assert found.std_abs_diff == pytest.approx(np.std([0, 0, 0, 0.5]), rel=1e-12)


def test_large_unsigned_differences_do_not_wrap() -> None:
    found = _whole(np.array([[0]], dtype=np.uint8), np.array([[255]], dtype=np.uint8))

    assert (found.max_abs_diff, found.mismatches) == (255, 1)


def test_integers_that_float64_cannot_tell_apart_are_mismatches() -> None:
    found = _whole(np.array([[2**53 + 1]]), np.array([[2**53]]))

    assert found.mismatches == 1


@pytest.mark.parametrize("shape", [(0,), (0, 4), (4, 0), (3, 0, 2)])
def test_arrays_without_values_measure_nothing(shape: tuple[int, ...]) -> None:
    found = _whole(np.zeros(shape, np.float32), np.zeros(shape, np.float32))

    assert (found.values, found.compared, found.rows) == (0, 0, shape[0])
    assert math.isnan(found.max_abs_diff)
    assert math.isnan(found.mean_abs_diff)


def test_a_scalar_is_one_row() -> None:
    expected = np.array(2.0, np.float32)
    profile = profile_outputs("y", [(expected, 1)], axis=None, dtype="float32")
    state = statistics.empty(profile, _limits(None, 1))
    statistics.update(state, np.array(2.5, np.float32), expected, ["only"])

    found = statistics.finish(state)

    assert (found.rows, found.max_abs_diff, found.worst_rows[0].row_id) == (1, 0.5, "only")


def test_minus_zero_is_zero() -> None:
    found = _whole(np.array([[-0.0]], np.float32), np.array([[0.0]], np.float32))

    assert (found.max_abs_diff, found.max_rel_diff, found.max_row_rel_diff) == (0, 0, 0)


def test_a_subnormal_difference_is_seen() -> None:
    tiny = np.finfo(np.float32).smallest_subnormal

    assert _whole(np.array([[tiny]]), np.array([[np.float32(0)]])).max_abs_diff == pytest.approx(float(tiny))


def test_the_worst_rows_name_row_position_and_both_values() -> None:
    expected = np.zeros((20, 2, 3), np.float32)
    expected[..., 0] = 1
    actual = expected.copy()
    actual[13, 1, 2] = 7
    actual[4, 0, 1] = 3

    found = _whole(actual, expected).worst_rows

    assert [(row.row_id, row.index, row.actual, row.expected) for row in found] == [
        ("r13", (1, 2), 7.0, 0.0),
        ("r4", (0, 1), 3.0, 0.0),
    ]


def test_ten_rows_are_named_and_each_only_once() -> None:
    expected = np.zeros((50, 1), np.float32)
    actual = np.arange(50, dtype=np.float32).reshape(50, 1)
    profile, limits = _profile(expected, None), _limits(None, 1)
    state = statistics.empty(profile, limits)
    for _ in range(2):
        state = statistics.update(state, actual, expected, [f"r{row}" for row in range(50)])

    assert [row.row_id for row in statistics.finish(state).worst_rows] == [f"r{row}" for row in range(49, 39, -1)]


def test_a_row_that_is_not_finite_is_the_worst() -> None:
    expected = np.zeros((3, 2), np.float32)
    actual = np.array([[9, 0], [0, np.nan], [0, 0]], np.float32)

    worst = _whole(actual, expected).worst_rows[0]

    assert (worst.row_id, worst.index, worst.actual) == ("r1", (1,), None)


def test_the_row_difference_is_relative_to_the_row_or_to_a_typical_row() -> None:
    # Norms of the rows: 5, 5, 0. The root mean square of them is sqrt(50 / 3), and no row is huge.
    expected = np.array([[3, 4], [4, 3], [0, 0]], np.float32)
    actual = expected.copy()
    actual[0, 0] += 0.5
    actual[2, 0] += 0.5

    found = _whole(actual, expected)

    assert found.max_row_rel_diff == pytest.approx(0.5 / math.sqrt(50 / 3))
    assert found.max_row_rel_id == "r2"


def test_channels_are_kept_apart() -> None:
    expected = np.zeros((4, 3, 5), np.float32)
    expected[:, 0] = np.random.default_rng(0).standard_normal((4, 5))
    actual = expected.copy()
    actual[2, 1, 3] = 0.75

    found = _whole(actual, expected, axis=1)

    assert found.nearest is not None
    assert (found.nearest.channel, found.nearest.max_abs_diff, found.nearest.row_id) == (1, 0.75, "r2")
    assert found.mean_abs_by_channel.tolist() == pytest.approx([0, 0.75 / 20, 0])


def _growing(center: float, *, fills: tuple[float, ...] = ()) -> Limits:
    """Return limits of 0.25 up to a distance of 10 from the center, and of a fortieth of the distance beyond."""
    names = ("max_abs_diff", "mean_abs_diff", "repeat_max_abs_diff")
    return replace(
        _limits(None, 1),
        center=np.array([center]),
        growth=dict.fromkeys(names, 0.025),
        fills=fills,
        substitutes=fills,
    )


def _grown(actual: NDArray[np.generic], expected: NDArray[np.generic], limits: Limits) -> DiffStatistics:
    state = statistics.empty(_profile(expected, None), limits)
    return statistics.finish(statistics.update(state, actual, expected, [f"r{row}" for row in range(len(expected))]))


def test_the_worst_row_is_the_one_furthest_beyond_its_own_limit() -> None:
    expected = np.array([[100.0], [1000.0], [104.0]])
    actual = expected + np.array([[0.5], [20.0], [0.1]])

    found = _grown(actual, expected, _growing(100.0))

    assert [(row.row_id, row.max_abs_diff, row.limit) for row in found.worst_rows] == [
        ("r0", 0.5, 0.25),
        ("r1", 20.0, 22.5),
        ("r2", pytest.approx(0.1), 0.25),
    ]
    assert found.nearest == found.worst_rows[0]
    assert found.max_abs_diff == 20.0


def test_in_the_mean_a_value_counts_in_proportion_to_its_own_limit() -> None:
    expected = np.array([[100.0], [1000.0], [104.0], [100.0]])
    actual = expected + np.array([[0.1], [9.0], [0.1], [0.0]])

    found = _grown(actual, expected, _growing(100.0))

    assert found.mean_abs_by_channel.tolist() == pytest.approx([(0.1 + 9.0 * 0.25 / 22.5 + 0.1) / 4])
    assert found.mean_abs_diff == pytest.approx(9.2 / 4)


def test_a_fill_value_is_counted_and_enters_no_difference() -> None:
    expected = np.array([[1.0], [-1e9], [-1e9], [2.0]])
    actual = np.array([[1.5], [-1e9], [-1.1e9], [2.0]])

    found = _grown(actual, expected, _growing(0.0, fills=(-1e9,)))

    assert (found.fill_values, found.fill_mismatches, found.compared, found.max_abs_diff) == (2, 1, 2, 0.5)
    assert (found.worst_rows[0].row_id, found.worst_rows[0].limit) == ("r2", 0.0)
    assert found.max_row_rel_id == "r0"


def test_a_candidate_that_is_not_finite_at_a_fill_value_is_counted_as_such() -> None:
    expected = np.array([[1.0], [-1e9], [-1e9], [2.0]])
    actual = np.array([[1.0], [-np.inf], [np.nan], [2.0]])

    found = _grown(actual, expected, _growing(0.0, fills=(-1e9,)))

    assert (found.non_finite, found.fill_mismatches) == (2, 2)


def test_the_cosine_of_two_zero_vectors_is_one_and_that_of_one_is_unknown() -> None:
    zero, one = np.zeros((1, 2), np.float32), np.ones((1, 2), np.float32)

    assert _whole(zero, zero).cosine_similarity == 1
    assert math.isnan(_whole(one, zero).cosine_similarity)
    assert _whole(-one, one).cosine_similarity == pytest.approx(-1)


def test_memory_does_not_grow_with_the_number_of_rows() -> None:
    profile = _profile(np.ones((2, 4), np.float32), None)
    state = statistics.empty(profile, _limits(None, 1))
    rng = np.random.default_rng(0)
    for batch in range(200):
        expected = rng.standard_normal((16, 4)).astype(np.float32)
        state = statistics.update(state, expected + np.float32(1e-4), expected, [f"{batch}/{row}" for row in range(16)])

    assert len(state.worst) == 10
    assert state.histogram.size == 200 * 16 * 4
    assert not state.histogram._few
