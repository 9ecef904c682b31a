"""What a tolerance comes to for one output: scales, floors, channels, and what is declared."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from numpy.typing import NDArray

from paritygate.codec import from_data, to_data
from paritygate.precision import Precision
from paritygate.validate.gate.declared_limits import parse_tolerance
from paritygate.validate.measure.limits import Limits, limits_for, looser_than_default
from paritygate.validate.measure.precision_steps import Step
from paritygate.validate.measure.profile import OutputProfile, profile_outputs, ulp_of
from paritygate.validate.measure.tolerance import DEFAULT_TOLERANCES, SHARES_OF_SPREAD, Tolerance
from paritygate.validate.reference.channel_axis import channel_axes


def _limits(values: NDArray[np.generic], precision: Precision = Precision.FP32, **declared: float) -> Limits:
    profile = profile_outputs("y", [(values, len(values))], axis=None, dtype=values.dtype.name)
    return limits_for(parse_tolerance(precision, declared), profile)


@pytest.mark.parametrize(
    ("precision", "limits"),
    [
        (Precision.FP32, (1e-4, 2e-5, 1e-4, 5e-5)),
        (Precision.TF32, (1e-2, 2e-3, 1e-2, 5e-3)),
        (Precision.FP16, (1e-2, 2e-3, 1e-2, 5e-3)),
        (Precision.MIXED, (1e-2, 2e-3, 1e-2, 5e-3)),
        (Precision.BF16, (5e-2, 1e-2, 5e-2, 2.5e-2)),
        (Precision.INT8, (1e-1, 2e-2, 1e-1, 5e-2)),
    ],
)
def test_the_defaults_are_the_published_ones(precision: Precision, limits: tuple[float, ...]) -> None:
    found = DEFAULT_TOLERANCES[precision]

    assert (found.max_abs_diff, found.mean_abs_diff, found.max_row_rel_diff, found.repeat_max_abs_diff) == limits


def test_a_default_is_multiplied_by_the_spread_of_the_reference() -> None:
    values = np.array([[-10.0], [10.0]], np.float32)

    found = _limits(values)

    # Nine tenths of the values lie within 10 of the median: for a normal distribution that is 1.645 times its spread.
    assert found.max_abs_diff == pytest.approx([1e-3 / 1.6448536])
    assert found.mean_abs_diff == pytest.approx([2e-4 / 1.6448536])
    assert found.repeat_max_abs_diff == pytest.approx([5e-4 / 1.6448536])
    assert found.max_row_rel_diff == 1e-4


def test_a_spread_below_one_does_not_tighten_a_default() -> None:
    assert _limits(np.array([[0.0], [1e-3]], np.float32)).max_abs_diff == pytest.approx([1e-4])


def test_a_declared_limit_holds_as_written() -> None:
    found = _limits(np.array([[-1e6], [1e6]], np.float32), max_abs_diff=1e-3, max_row_rel_diff=1e-9)

    assert found.max_abs_diff.tolist() == [1e-3]
    assert found.max_row_rel_diff == 1e-9
    assert found.mean_abs_diff[0] == pytest.approx(2e-5 * 1e6 / 1.6448536)
    # It does not grow with the distance of a value either.
    assert found.of_values("max_abs_diff", np.array([[1e6], [1e9]])).tolist() == [[1e-3]]


def test_the_limit_of_a_value_alone_is_never_below_four_steps_of_the_dtype() -> None:
    # A regression at a million: nothing is nearer to it than a sixteenth.
    values = np.array([[1e6 - 1], [1e6 + 1]], np.float32)

    found = _limits(values)

    assert found.max_abs_diff.tolist() == [4 * 0.0625]
    # Rounding adds up to a part of it in a mean, and between two runs.
    assert found.mean_abs_diff.tolist() == [0.5 * 0.0625]
    assert found.repeat_max_abs_diff.tolist() == [2 * 0.0625]
    assert found.max_row_rel_diff == 1e-4


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_the_limit_of_a_row_has_no_floor_where_the_output_is_of_a_coarse_dtype(dtype: str) -> None:
    kind = np.dtype(getattr(ml_dtypes, dtype)) if dtype == "bfloat16" else np.dtype(dtype)

    assert _limits(np.array([[-1.0], [1.0]]).astype(kind)).max_row_rel_diff == 1e-4


@pytest.mark.parametrize(
    ("precision", "step_at_eleven"),
    [
        (Precision.FP32, 2.0**-20),
        (Precision.TF32, 2.0**-7),
        (Precision.FP16, 2.0**-7),
        (Precision.MIXED, 2.0**-7),
        (Precision.BF16, 2.0**-4),
        # The steps of INT8 are the converter's.
        (Precision.INT8, 2.0**-20),
    ],
)
def test_the_steps_are_those_of_the_precision_where_the_output_is_finer(
    precision: Precision, step_at_eleven: float
) -> None:
    # The values are near each other: what is computed in FP16 and returned as float32 is not a finer for that.
    values = (11 + np.random.default_rng(0).uniform(-0.1, 0.1, (64, 1))).astype(np.float32)
    spread = float(np.quantile(np.abs(values - np.median(values)), 0.9, method="lower")) / 1.6448536
    default = min(DEFAULT_TOLERANCES[precision].max_abs_diff, SHARES_OF_SPREAD[precision] * spread)

    assert _limits(values, precision).max_abs_diff.tolist() == pytest.approx(
        [max(default, 4 * step_at_eleven)], rel=0.1
    )


def test_four_steps_are_those_at_the_largest_value_of_the_row_and_no_other_row() -> None:
    values = np.random.default_rng(0).uniform(-1, 1, (200, 10)).astype(np.float32)
    values[7, 3] = 3000.0
    found = _limits(values, Precision.FP16).of_values("max_abs_diff", values.astype(np.float64))

    # FP16 has a step of 2 at 3000: the sum that is 0.3 beside it may have been rounded as coarsely.
    assert (found[7] >= 8).all()
    assert found[[6, 8]] == pytest.approx(0.01)


def test_a_fill_value_is_no_largest_value_of_its_row() -> None:
    values = np.random.default_rng(0).uniform(-1, 1, (200, 10)).astype(np.float32)
    values[:, 3] = -1e9
    found = _limits(values, Precision.FP16).of_values("max_abs_diff", values.astype(np.float64))

    assert (found[:, :3] < 0.011).all()


@given(st.integers(0, 2**32 - 1), st.floats(-300, 300), st.floats(1e-3, 300), st.sampled_from(["float16", "bfloat16"]))
@settings(max_examples=60, deadline=None)
def test_no_value_fails_by_being_rounded_to_its_precision(seed: int, center: float, spread: float, dtype: str) -> None:
    kind = np.dtype(getattr(ml_dtypes, dtype)) if dtype == "bfloat16" else np.dtype(dtype)
    values = (center + spread * np.random.default_rng(seed).standard_normal((50, 8))).astype(np.float32)
    precision = Precision.BF16 if dtype == "bfloat16" else Precision.FP16

    profile = profile_outputs("y", [(values, 50)], axis=None, dtype="float32")
    found = limits_for(DEFAULT_TOLERANCES[precision], profile)

    wide = values.astype(np.float64)
    assert found.is_within(values.astype(kind).astype(np.float64), wide).all()
    # Nor is any limit widened beyond four steps at the largest value of all.
    floor = 4 * Step(precision=precision, dtype="float32").at(np.abs(wide).max(keepdims=True))
    without = replace(found, step=None, max_abs_diff=DEFAULT_TOLERANCES[precision].max_abs_diff * profile.scale)
    most = np.maximum(floor, without.of_values("max_abs_diff", wide))
    assert (found.of_values("max_abs_diff", wide) <= most * (1 + 1e-12)).all()


def test_each_channel_has_its_own_scale_and_floor() -> None:
    values = np.zeros((4, 3, 50), np.float32)
    rng = np.random.default_rng(0)
    values[:, 0] = 79 * rng.standard_normal((4, 50))
    values[:, 1] = rng.uniform(0, 1, (4, 50))
    values[:, 2] = 3000
    profile = profile_outputs("y", [(values, 4)], axis=1, dtype="float32")

    found = limits_for(DEFAULT_TOLERANCES[Precision.FP16], profile)

    assert found.max_abs_diff.tolist() == pytest.approx([1e-2 * 79, 1e-2, 8], rel=0.1)
    assert found.of_values("max_abs_diff", values.astype(np.float64)).shape == (4, 3, 50)


def test_the_limit_of_a_value_grows_with_its_distance_from_the_median() -> None:
    values = np.concatenate([np.random.default_rng(0).standard_normal(999) + 50, [1e6]])[:, np.newaxis]
    found = _limits(values.astype(np.float32))

    grown = found.of_values("max_abs_diff", np.array([[50.5], [150.0], [-950.0], [1e6 + 50], [np.nan], [-np.inf]]))

    near = 1e-4 * 1.0
    assert grown[:, 0] == pytest.approx([near, 1e-2, 1e-1, 1e2, near, near], rel=0.06)
    assert found.band(np.array([-np.inf, 50.0])) == pytest.approx([0, near], rel=0.06)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_value_far_from_the_median_has_room_for_two_steps_of_its_dtype_at_least(dtype: str) -> None:
    kind = np.dtype(getattr(ml_dtypes, dtype)) if dtype == "bfloat16" else np.dtype(dtype)
    values = np.random.default_rng(0).standard_normal((200, 1)).astype(kind)
    far = np.array([[3.0], [700.0], [-60000.0]])

    found = _limits(values).of_values("max_abs_diff", far)

    assert all(found[row, 0] >= 2 * ulp_of(abs(float(far[row, 0])), dtype) for row in range(3))


def test_integers_have_no_tolerance() -> None:
    found = _limits(np.array([[1], [2]]), max_abs_diff=5.0)

    assert (found.max_abs_diff.tolist(), found.max_row_rel_diff) == ([0], 0)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "bfloat16"])
@given(data=st.data())
def test_an_ulp_is_the_distance_to_the_next_value(dtype: str, data: st.DataObject) -> None:
    kind = np.dtype(getattr(ml_dtypes, dtype)) if dtype == "bfloat16" else np.dtype(dtype)
    info = ml_dtypes.finfo(kind)
    drawn = data.draw(st.floats(float(info.smallest_subnormal), float(info.max) / 4))
    value = np.array(drawn).astype(kind)
    bits = {2: np.uint16, 4: np.uint32, 8: np.uint64}[kind.itemsize]
    # Patterns of positive floats are in the order of the floats.
    following = (value.view(bits) + bits(1)).view(kind)

    assert ulp_of(float(value), dtype) == float(following) - float(value)


def test_scale_and_size_do_not_depend_on_how_the_rows_are_cut() -> None:
    values = np.random.default_rng(0).standard_normal((100, 3, 7)).astype(np.float32) * 40 + 1000
    whole = profile_outputs("y", [(values, 100)], axis=1, dtype="float32")
    parts = [(part, len(part)) for part in np.array_split(values, [1, 4, 50])]
    cut = profile_outputs("y", parts, axis=1, dtype="float32")

    assert to_data(cut) == to_data(whole)
    assert cut.spread == pytest.approx([40, 40, 40], rel=0.1)
    assert cut.center == pytest.approx(np.median(values.astype(np.float64), axis=(0, 2)))
    norms = np.linalg.norm(values.reshape(100, -1).astype(np.float64), axis=1)
    assert cut.row_norm == pytest.approx(np.sqrt((norms**2).mean()), rel=0.01)
    assert (cut.rows, cut.values, cut.max_abs.max()) == (100, 2100, np.abs(values).max())


def test_what_is_not_finite_does_not_enter_scale_or_size() -> None:
    values = np.array([[1.0, np.nan], [3.0, np.inf]], np.float32)

    profile = profile_outputs("y", [(values, 2)], axis=None, dtype="float32")

    assert (profile.center[0], profile.max_abs[0], profile.non_finite) == (2, 3, 2)
    assert profile.spread[0] == pytest.approx(1 / 1.6448536)


def test_what_is_read_twice_must_start_again() -> None:
    with pytest.raises(
        TypeError, match="give a list, or an iterable that restarts, because the arrays are read more than once"
    ):
        profile_outputs("y", iter([(np.ones((2, 3), np.float32), 2)]), axis=None, dtype="float32")


@pytest.mark.parametrize(
    ("fill", "found"),
    [
        (-1e4, (-1e4,)),
        (1e9, (1e9,)),
        (float(np.finfo(np.float32).min), (float(np.finfo(np.float32).min),)),
        (float(np.finfo(np.float32).max), (float(np.finfo(np.float32).max),)),
        # Infinity is counted as such; what is within 1000 times the median, or 1000, is an ordinary value.
        (-np.inf, ()),
        (-900.0, ()),
    ],
)
def test_a_fill_value_is_an_end_of_the_dtype_or_a_constant_far_beyond_all_else(
    fill: float, found: tuple[float, ...]
) -> None:
    values = np.random.default_rng(0).standard_normal((100, 5)).astype(np.float32)
    plain = profile_outputs("y", [(values, 100)], axis=None, dtype="float32")
    values[::2, ::2] = fill

    profile = profile_outputs("y", [(values, 100)], axis=None, dtype="float32")

    assert profile.fills == found
    if found:
        assert profile.max_abs[0] <= plain.max_abs[0]
        assert profile.spread == pytest.approx(plain.spread, rel=0.1)
        assert profile.row_norm < 1.1 * plain.row_norm


def test_large_values_that_differ_are_no_fill_values() -> None:
    values = np.random.default_rng(0).standard_normal((100, 5)).astype(np.float32)
    values[7] *= np.float32(1e6)

    assert profile_outputs("y", [(values, 100)], axis=None, dtype="float32").fills == ()


def test_a_price_that_is_often_the_same_is_no_fill_value_beside_a_probability() -> None:
    rng = np.random.default_rng(0)
    values = np.stack([rng.normal(1e6, 1e5, 200), rng.uniform(0, 1, 200)], axis=1).astype(np.float32)
    values[::5, 0] = 1e6

    assert profile_outputs("y", [(values, 200)], axis=1, dtype="float32").fills == ()


@given(st.lists(st.integers(0, 300), max_size=5), st.sampled_from([None, 1]), st.sampled_from([0.0, -1e9, np.inf]))
@settings(max_examples=40, deadline=None)
def test_any_cut_into_batches_gives_the_same_profile(cuts: list[int], axis: int | None, fill: float) -> None:
    values = np.random.default_rng(0).standard_normal((300, 4)).astype(np.float32)
    values[::3, 1] = fill
    edges = [0, *sorted(cuts), 300]
    parts = [(values[a:b], b - a) for a, b in itertools.pairwise(edges) if b > a]

    cut = profile_outputs("y", parts, axis=axis, dtype="float32")

    assert to_data(cut) == to_data(profile_outputs("y", [(values, 300)], axis=axis, dtype="float32"))


@pytest.mark.parametrize(
    ("rows", "varies"),
    [
        ([[1.0], [2.0]], True),
        ([[1.0], [1.0]], False),
        ([[1.0]], None),
        ([[1.0], [1.0 + 2**-23]], False),
        ([[1.0], [np.nan]], True),
    ],
)
def test_variation_is_a_difference_between_rows_beyond_rounding(
    rows: list[list[float]], *, varies: bool | None
) -> None:
    values = np.array(rows, np.float32)

    assert profile_outputs("y", [(values, len(values))], axis=None, dtype="float32").varies is varies


def test_rows_are_compared_with_rows_of_their_own_shape_only() -> None:
    batches = [(np.zeros((1, 2), np.float32), 1), (np.ones((1, 3), np.float32), 1)]

    assert profile_outputs("y", batches, axis=None, dtype="float32").varies is None


@pytest.mark.parametrize(
    ("shapes", "declared", "axis"),
    [
        ([(8, 3)], None, None),
        ([(8, 84, 8400), (1, 84, 8400)], None, 1),
        ([(8, 128, 768), (8, 32, 768)], None, 2),
        ([(8, 128, 768)], ("batch", "sequence", 768), 2),
        ([(2, 3, 224, 224)], None, 1),
        ([(2, 224, 224, 3)], None, 3),
        ([(2, 4, 4)], None, 2),
        ([(2, 5, 7), (2, 6, 8)], None, None),
        ([(2, 5, 7), (2, 5)], None, None),
        ([], None, None),
    ],
)
def test_the_channel_axis_is_the_smallest_of_fixed_size(
    shapes: list[tuple[int, ...]], declared: tuple[int | str, ...] | None, axis: int | None
) -> None:
    assert next(iter(channel_axes(shapes, declared)), None) == axis


@pytest.mark.parametrize(
    ("shape", "picture", "axis"),
    [
        ((8, 64, 64), ("batch", 3, 64, 64), None),
        ((8, 48, 64), ("batch", 48, 64, 3), None),
        ((8, 64, 96), ("batch", 3, 32, 48), None),
        ((8, 64, 96), ("batch", 3, 32, 32), 1),
        ((8, 64, 5), ("batch", 3, 64, 64), 2),
        ((8, 64, 64), ("batch", 3, "height", "width"), 2),
        ((8, 5, 64, 64), ("batch", 3, 64, 64), 1),
        ((8, 64, 64), ("batch", 64, 64), 2),
    ],
)
def test_a_map_over_the_places_of_a_picture_has_no_channels(
    shape: tuple[int, ...], picture: tuple[int | str, ...], axis: int | None
) -> None:
    assert next(iter(channel_axes([shape], None, [picture])), None) == axis


def test_profiles_and_tolerances_survive_json() -> None:
    profile = profile_outputs("y", [(np.ones((2, 3), np.float32), 2)], axis=None, dtype="float32")
    tolerance = parse_tolerance(Precision.FP16, {"max_abs_diff": 0.5, "decision_mismatches": 2.0})

    assert to_data(from_data(OutputProfile, to_data(profile))) == to_data(profile)
    assert from_data(Tolerance, to_data(tolerance)) == tolerance


def test_only_what_is_looser_is_said_to_be_looser() -> None:
    # A spread of 10 makes the default max limit 1e-3: 5e-4 is tighter than that, and 1.0 looser than any mean.
    wide = profile_outputs("y", [(np.array([[-10.0], [10.0]], np.float32), 2)], axis=None, dtype="float32")
    narrow = profile_outputs("z", [(np.array([[-0.1], [0.1]], np.float32), 2)], axis=None, dtype="float32")
    declared = {"max_abs_diff": 5e-4, "mean_abs_diff": 1.0, "decision_mismatches": 0.0}
    tolerance = parse_tolerance(Precision.FP32, declared)

    assert looser_than_default(tolerance, [wide]) == ("mean_abs_diff",)
    assert looser_than_default(tolerance, [wide, narrow]) == ("max_abs_diff", "mean_abs_diff")


@pytest.mark.parametrize("precision", [Precision.FP32, Precision.FP16, Precision.INT8])
def test_far_from_the_others_a_value_of_a_narrow_column_has_a_limit_by_its_size(precision: Precision) -> None:
    values = np.random.default_rng(0).standard_normal((400, 2)) * [1.0, 1e-2]
    profile = profile_outputs("y", [(values, 400)], axis=1, dtype="float64")
    limits = limits_for(DEFAULT_TOLERANCES[precision], profile)

    found = limits.of_values("max_abs_diff", np.array([[5.0, 0.1], [0.0, 0.0]]))

    growth, share = DEFAULT_TOLERANCES[precision].max_abs_diff, SHARES_OF_SPREAD[precision]
    distance = np.array([5.0, 0.1]) - profile.center
    assert found[0] == pytest.approx([distance[0] * growth, distance[1] * share])
    assert found[1].tolist() == limits.max_abs_diff.tolist()
