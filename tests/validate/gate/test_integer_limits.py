"""An integer output is compared exactly, and as a quantity only by a limit of its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from paritygate.batch import Batch
from paritygate.distance import distance, subtract
from paritygate.errors import UsageError
from paritygate.precision import Precision
from paritygate.validate.gate.declared_limits import parse_tolerance
from paritygate.validate.gate.rule_checks import check_asked
from paritygate.validate.gate.rules import GateRules
from paritygate.validate.gate.verdict import JudgePlan, judge
from paritygate.validate.measure.check import Check, Status
from paritygate.validate.measure.limits import Limits, limits_for, limits_of_made_up, looser_than_default
from paritygate.validate.measure.measurement import ComparisonPlan, Measurement, OutputComparison, repeat_difference
from paritygate.validate.measure.profile import OutputProfile, profile_outputs
from paritygate.validate.reference.reference_noise import rows_within

Integers = NDArray[np.integer[Any]]
_ONE = {"y:max_abs_diff": 1}


def _profile(expected: NDArray[Any], axis: int | None = None) -> OutputProfile:
    return profile_outputs("y", [(expected, len(expected))], axis=axis, dtype=expected.dtype.name)


def _judged(
    expected: NDArray[Any], actual: NDArray[Any], declared: dict[str, Any], *, axis: int | None = None
) -> tuple[dict[str, Check], Measurement, Limits]:
    tolerance = parse_tolerance(Precision.FP32, declared)
    profiles = {"y": _profile(expected, axis)}
    limits = {"y": limits_for(tolerance, profiles["y"])}
    comparison = OutputComparison(ComparisonPlan(profiles=profiles, limits=limits))
    comparison.add(Batch(inputs={}, ids=[str(row) for row in range(len(expected))]), {"y": actual}, {"y": expected})
    comparison.end_pass()
    measured = comparison.finish()
    checks = judge(measured, JudgePlan(rules=GateRules(tolerance=tolerance), limits=limits, profiles=profiles))
    return {check.name: check for check in checks}, measured, limits["y"]


def _failed(*args: Any, **named: Any) -> set[str]:  # noqa: ANN401 - of `_judged`
    return {name for name, check in _judged(*args, **named)[0].items() if check.status is Status.FAIL}


def _images() -> NDArray[np.uint8]:
    return np.random.default_rng(0).integers(1, 255, size=(32, 3, 16, 16), dtype=np.uint8)


def _off(expected: NDArray[Any], *differences: int) -> NDArray[Any]:
    actual = expected.copy()
    actual.reshape(-1)[: len(differences)] += np.array(differences).astype(expected.dtype)
    return actual


def test_off_by_one_passes_by_a_limit_of_its_own_alone() -> None:
    images = _images()
    near = _off(images, 1, -1)

    assert _failed(images, near, {}) == {"exact"}
    assert _failed(images, near, {"max_abs_diff": 9, "mean_abs_diff": 9}) == {"exact"}
    assert _failed(images, near, {"z:max_abs_diff": 9}) == {"exact"}
    assert _failed(images, near, {"y:max_abs_diff": [None]}) == {"exact"}
    checks, measured, _ = _judged(images, near, _ONE)
    assert {check.status for name, check in checks.items() if name != "rows"} == {Status.PASS}
    assert (checks["max_abs_diff"].measured, checks["max_abs_diff"].limit) == (1, 1)
    assert "exact" not in checks
    # No rows differ that count as changed answers.
    assert measured.mismatches is None


def test_a_limit_of_another_figure_alone_allows_no_difference_of_a_value() -> None:
    near = _off(_images(), 1)

    for name in ("mean_abs_diff", "max_row_rel_diff", "repeat_max_abs_diff"):
        assert "max_abs_diff" in _failed(_images(), near, {f"y:{name}": 9})


def _wrapped(images: NDArray[np.uint8]) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    images[0, 0, 0, 0] = 255
    return images, _off(images, 1)


def _faults() -> dict[str, tuple[NDArray[Any], NDArray[Any], str]]:
    images = _images()
    boxes = np.random.default_rng(1).integers(0, 640, size=(100, 4), dtype=np.int32)
    column = boxes.copy()
    column[:, 3] += 40
    values = np.random.default_rng(2).uniform(0, 255, size=(64, 16))
    return {
        "off by two": (images, _off(images, 2), "max_abs_diff"),
        "wrapped from 255 to 0": (*_wrapped(_images()), "max_abs_diff"),
        "one column": (boxes, column, "max_abs_diff"),
        "a constant": (boxes, np.full_like(boxes, 320), "max_abs_diff"),
        "one more everywhere": (images, images + np.uint8(1), "mean_abs_diff"),
        "truncated, not rounded": (np.rint(values).astype(np.uint8), values.astype(np.uint8), "mean_abs_diff"),
        "another shape": (boxes, boxes[:, :3], "contract.shape"),
        "another dtype": (boxes, boxes.astype(np.int64), "contract.dtype"),
        "float": (boxes, np.where(boxes < 0, 0, boxes).astype(np.float32), "contract.dtype"),
    }


@pytest.mark.parametrize("fault", _faults())
def test_a_fault_fails_within_no_limit_of_one(fault: str) -> None:
    expected, actual, check = _faults()[fault]

    assert check in _failed(expected, actual, _ONE)


def test_few_values_may_all_have_the_whole_limit() -> None:
    few = np.array([[3], [9], [27], [81]])

    assert not _failed(few, few + 1, _ONE)
    assert _failed(few, few + 1, {**_ONE, "y:mean_abs_diff": 0.5}) == {"mean_abs_diff"}
    assert _failed(np.tile(few, (10, 1)), np.tile(few, (10, 1)) + 1, _ONE) == {"mean_abs_diff"}


def test_many_differences_of_the_whole_limit_are_within_it() -> None:
    # Above a million values, the 99.99 % quantile is judged, and it is the edge of a bin.
    expected = np.random.default_rng(0).integers(1, 255, size=(8, 3, 256, 256), dtype=np.uint8)
    assert not _failed(expected, _off(expected, *[1, -1] * 20_000), _ONE)
    assert "p9999_abs_diff" in _failed(expected, _off(expected, *[2, -2] * 20_000), _ONE)


def test_each_column_may_have_its_own_limit_and_one_without_is_exact() -> None:
    boxes = np.arange(40).reshape(10, 4) ** 2
    declared = {"y:max_abs_diff": [1, 5, None, 0]}

    assert not _failed(boxes, boxes + np.eye(10, 4, dtype=int) * [1, 5, 0, 0], declared, axis=1)
    for column in range(4):
        wrong = np.zeros_like(boxes)
        wrong[0, column] = [2, 6, 1, 1][column]
        assert "max_abs_diff" in _failed(boxes, boxes + wrong, declared, axis=1)
    with pytest.raises(UsageError, match="has 4 numbers"):
        _judged(boxes, boxes, declared)


def test_the_failure_of_an_exact_integer_names_the_limit_to_declare_but_not_of_a_bool() -> None:
    images = _images()
    (words,) = (word for word in _judged(images, _off(images, 1), {})[0]["exact"].words if word.key != "exact")
    assert (words.key, words.values) == ("exact.quantity", {"output": "y"})

    flags = images[:, 0, 0] > 128
    assert [word.key for word in _judged(flags, ~flags, {})[0]["exact"].words] == ["exact"]
    assert [word.key for word in _judged(images, images, {})[0]["exact"].words] == ["exact"]


@pytest.mark.parametrize("name", ["flag", "text", "label", "missing"])
def test_bool_text_and_labels_of_scores_have_no_limit(name: str) -> None:
    dtypes = {"flag": "bool", "text": "string", "label": "int64", "scores": "float32", "image": "uint8"}
    rules = GateRules(
        tolerance=parse_tolerance(Precision.FP32, {f"{name}:max_abs_diff": 1}), argmax_of={"label": "scores"}
    )
    with pytest.raises(UsageError, match=f"names '{name}', which is not a numeric output .*there are: scores, image"):
        check_asked(dtypes, rules)


def test_a_floor_of_a_float_output_is_for_no_integer() -> None:
    rules = GateRules(tolerance=parse_tolerance(Precision.FP32, _ONE), min_sqnr={"y": 40})
    with pytest.raises(UsageError, match="which is not a float output"):
        check_asked({"y": "uint8"}, rules)


def test_a_declared_limit_of_an_integer_is_looser_than_the_default() -> None:
    profiles = [_profile(_images())]

    assert looser_than_default(parse_tolerance(Precision.FP32, _ONE), profiles) == ("y:max_abs_diff",)
    for declared in ({"y:max_abs_diff": 0}, {"max_abs_diff": 9}):
        assert looser_than_default(parse_tolerance(Precision.FP32, declared), profiles) == ()


def test_generated_rows_and_repeats_have_the_declared_limit() -> None:
    images = _images()
    tolerance = parse_tolerance(Precision.FP32, _ONE)
    limits = limits_of_made_up(tolerance, _profile(images))

    assert limits.max_abs_diff.tolist() == limits.repeat_max_abs_diff.tolist() == [1]
    assert repeat_difference(_off(images, -1), images, limits) == (1, 1)
    assert repeat_difference(_off(images, 3), images, limits) == (3, 3)
    exact = limits_for(parse_tolerance(Precision.FP32, {"repeat_max_abs_diff": 9}), _profile(images))
    assert repeat_difference(_off(images, 1), images, exact)[0] == np.inf


@pytest.mark.parametrize("places", [0, 2])
def test_positions_that_do_not_count_are_left_out(places: int) -> None:
    values = np.array([[2**62, 5, 6], [1, 2, 3]])
    mask = np.zeros(values.shape, dtype=bool)
    mask[0, :places] = True

    failed = _failed(np.ma.MaskedArray(values, mask=mask), _off(values, -100, 100), _ONE)

    assert ("max_abs_diff" in failed) is (places == 0)


@st.composite
def _pairs(draw: st.DrawFn) -> tuple[Integers, Integers, int]:
    dtype = np.dtype(draw(st.sampled_from(["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"])))
    limit, info = draw(st.integers(0, 5)), np.iinfo(dtype)
    size = draw(st.integers(1, 12))
    values = st.integers(info.min, info.max) | st.sampled_from([info.min, info.max]) | st.integers(0, 9)
    expected = draw(st.lists(values, min_size=size, max_size=size))
    moved = draw(st.lists(st.integers(-limit - 1, limit + 1), min_size=size, max_size=size))
    actual = [min(max(value + by, info.min), info.max) for value, by in zip(expected, moved, strict=True)]
    far = draw(st.none() | st.tuples(st.integers(0, size - 1), values))
    if far is not None:
        actual[far[0]] = far[1]
    return np.array(expected, dtype).reshape(-1, 1), np.array(actual, dtype).reshape(-1, 1), limit


@settings(deadline=None, max_examples=60)
@given(_pairs())
def test_every_path_agrees_with_the_integers_of_python(pair: tuple[Integers, Integers, int]) -> None:
    expected, actual, limit = pair
    signed = [a - e for a, e in zip(actual.ravel().tolist(), expected.ravel().tolist(), strict=True)]
    apart = [abs(difference) for difference in signed]

    checks, measured, limits = _judged(expected, actual, {"y:max_abs_diff": limit, "y:mean_abs_diff": 0.5})

    assert subtract(actual, expected).ravel().tolist() == [float(difference) for difference in signed]
    assert distance(actual, expected).ravel().tolist() == [float(difference) for difference in apart]
    assert measured.statistics["y"].max_abs_diff == float(max(apart))
    assert measured.statistics["y"].mismatches == sum(difference > 0 for difference in apart)
    assert (checks["max_abs_diff"].status is Status.PASS) is (max(apart) <= limit)
    assert max(apart) > limit or checks["max_row_rel_diff"].status is Status.PASS
    assert (checks["mean_abs_diff"].status is Status.PASS) is (2 * sum(apart) <= len(apart))
    is_near = [difference <= limit for difference in apart]
    assert limits.is_within(actual, expected).ravel().tolist() == is_near
    within = rows_within(actual, expected, None, limits=limits, profile=_profile(expected))
    assert within.tolist() == is_near
    assert repeat_difference(actual, expected, limits)[1] == float(max(apart))
