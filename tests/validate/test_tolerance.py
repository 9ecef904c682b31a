"""What a tolerance comes to for one output: scales, floors, channels, and what is declared."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from paritygate.precision import Precision
from paritygate.validate.profile import OutputProfile, infer_channel_axis, profile_outputs, ulp_of
from paritygate.validate.tolerance import (
    DEFAULT_TOLERANCES,
    Limits,
    Tolerance,
    limits_for,
    looser_than_default,
    parse_tolerance,
)


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

    assert found.max_abs_diff == pytest.approx([1e-3])
    assert found.mean_abs_diff == pytest.approx([2e-4])
    assert found.repeat_max_abs_diff == pytest.approx([5e-4])
    assert found.max_row_rel_diff == 1e-4


def test_a_spread_below_one_does_not_tighten_a_default() -> None:
    assert _limits(np.array([[0.0], [1e-3]], np.float32)).max_abs_diff == pytest.approx([1e-4])


def test_a_declared_limit_holds_as_written() -> None:
    found = _limits(np.array([[-1e6], [1e6]], np.float32), max_abs_diff=1e-3, max_row_rel_diff=1e-9)

    assert found.max_abs_diff.tolist() == [1e-3]
    assert found.max_row_rel_diff == 1e-9
    assert found.mean_abs_diff[0] == pytest.approx(2e-5 * 1e6)


def test_no_default_is_below_four_steps_of_the_dtype() -> None:
    # A regression at a million: nothing is nearer to it than a sixteenth.
    values = np.array([[1e6 - 1], [1e6 + 1]], np.float32)

    found = _limits(values)

    assert found.max_abs_diff.tolist() == found.mean_abs_diff.tolist() == [4 * 0.0625]


def test_each_channel_has_its_own_scale_and_floor() -> None:
    values = np.zeros((4, 3, 50), np.float32)
    rng = np.random.default_rng(0)
    values[:, 0] = 79 * rng.standard_normal((4, 50))
    values[:, 1] = rng.uniform(0, 1, (4, 50))
    values[:, 2] = 1e6
    profile = profile_outputs("y", [(values, 4)], axis=1, dtype="float32")

    found = limits_for(DEFAULT_TOLERANCES[Precision.FP16], profile)

    assert found.max_abs_diff.tolist() == pytest.approx([1e-2 * values[:, 0].std(dtype=np.float64), 1e-2, 0.25])
    assert found.by_element(3).shape == (1, 3, 1)


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

    assert cut.std == pytest.approx(values.astype(np.float64).std(axis=(0, 2)), rel=1e-10)
    assert whole.std == pytest.approx(cut.std, rel=1e-10)
    norms = np.linalg.norm(values.reshape(100, -1).astype(np.float64), axis=1)
    assert cut.rms_row_norm == pytest.approx(np.sqrt((norms**2).mean()))
    assert (cut.rows, cut.values, cut.max_abs.max()) == (100, 2100, np.abs(values).max())


def test_what_is_not_finite_does_not_enter_scale_or_size() -> None:
    values = np.array([[1.0, np.nan], [3.0, np.inf]], np.float32)

    profile = profile_outputs("y", [(values, 2)], axis=None, dtype="float32")

    assert (profile.std[0], profile.max_abs[0], profile.non_finite) == (1, 3, 2)


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
    assert infer_channel_axis(shapes, declared) == axis


def test_profiles_and_tolerances_survive_json() -> None:
    profile = profile_outputs("y", [(np.ones((2, 3), np.float32), 2)], axis=None, dtype="float32")
    tolerance = parse_tolerance(Precision.FP16, {"max_abs_diff": 0.5, "decision_mismatches": 2.0})

    assert OutputProfile.from_json(profile.to_json()).to_json() == profile.to_json()
    assert Tolerance.from_json(tolerance.to_json()) == tolerance


def test_only_what_is_looser_is_said_to_be_looser() -> None:
    # A spread of 10 makes the default max limit 1e-3: 5e-4 is tighter than that, and 1.0 looser than any mean.
    wide = profile_outputs("y", [(np.array([[-10.0], [10.0]], np.float32), 2)], axis=None, dtype="float32")
    narrow = profile_outputs("z", [(np.array([[-0.1], [0.1]], np.float32), 2)], axis=None, dtype="float32")
    declared = {"max_abs_diff": 5e-4, "mean_abs_diff": 1.0, "decision_mismatches": 0.0}
    tolerance = parse_tolerance(Precision.FP32, declared)

    assert looser_than_default(tolerance, Precision.FP32, [wide]) == ("mean_abs_diff",)
    assert looser_than_default(tolerance, Precision.FP32, [wide, narrow]) == ("max_abs_diff", "mean_abs_diff")
