"""What a fault looks like: each signature planted alone is told in its words, and in no others."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from paritygate.batch import Batch
from paritygate.precision import Precision
from paritygate.signature import dtype_name
from paritygate.validate.gate.rules import GateRules
from paritygate.validate.gate.symptoms import chance_of_all, symptoms_of
from paritygate.validate.gate.verdict import JudgePlan, judge
from paritygate.validate.measure import row_pattern, statistics
from paritygate.validate.measure.check import Status
from paritygate.validate.measure.limits import limits_for
from paritygate.validate.measure.measurement import ComparisonPlan, OutputComparison
from paritygate.validate.measure.profile import profile_outputs
from paritygate.validate.measure.row_pattern import RowPattern, SeenBatch
from paritygate.validate.measure.row_traits import RowTraits
from paritygate.validate.measure.statistics import RowFigures
from paritygate.validate.measure.strata import StratifiedComparison
from paritygate.validate.measure.tolerance import DEFAULT_TOLERANCES
from paritygate.validate.words.sentence import say

Array = NDArray[Any]
_ROWS = 200
_WRONG = np.float32(0.5)


def _normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def _noisy(expected: Array) -> Array:
    """An honest rounding of the reference, so that no planted fault stands on exact zeros."""
    rounded: Array = (expected + _normal(*expected.shape, seed=99) * np.float32(1e-6)).astype(np.float32)
    return rounded


def _sizes(rows: int, size: int = 16) -> list[int]:
    return [min(size, rows - at) for at in range(0, rows, size)]


def _words(
    expected: Mapping[str, Array],
    actual: Mapping[str, Array],
    *,
    inputs: Mapping[str, Array] | None = None,
    sizes: Sequence[int] | None = None,
    strata: Mapping[str, Sequence[str]] | None = None,
    axis: int | None = None,
    passes: int = 1,
    precision: Precision = Precision.FP32,
) -> dict[str, tuple[str, ...]]:
    rows = len(next(iter(expected.values())))
    profiles = {
        name: profile_outputs(name, [(array, rows)], axis=axis, dtype=dtype_name(array.dtype))
        for name, array in expected.items()
    }
    tolerance = DEFAULT_TOLERANCES[precision]
    limits = {name: limits_for(tolerance, profile) for name, profile in profiles.items()}
    plan = ComparisonPlan(profiles=profiles, limits=limits)
    comparison, apart = OutputComparison(plan), StratifiedComparison(plan, tuple(strata or ()))
    edges = [0, *itertools.accumulate(sizes or _sizes(rows))]
    for _, (first, last) in itertools.product(range(passes), itertools.pairwise(edges)):
        part = slice(first, last)
        batch = Batch(
            inputs={name: array[part] for name, array in (inputs or {}).items()},
            ids=[f"r{row}" for row in range(first, last)],
            strata={name: values[part] for name, values in (strata or {}).items()},
        )
        sides = [{name: array[part] for name, array in side.items()} for side in (actual, expected)]
        comparison.add(batch, *sides)
        apart.add(batch, *sides)
        if last == rows:
            comparison.end_pass()
            apart.end_pass()
    measured = comparison.finish()
    judged = JudgePlan(rules=GateRules(tolerance=tolerance), limits=limits, profiles=profiles)
    return symptoms_of(measured, judge(measured, judged), apart.finish(), profiles)


def _of(expected: Array, actual: Array, **how: Any) -> tuple[str, ...]:  # noqa: ANN401 - as `_words` has them
    return _words({"y": expected}, {"y": actual}, **how).get("y", ())


def _wrong_at(rows: Sequence[int] | Array, expected: Array) -> Array:
    actual = _noisy(expected)
    signs = np.where(np.arange(expected.shape[1]) % 2, -_WRONG, _WRONG)
    actual[rows] += signs
    return actual


@pytest.mark.parametrize("passes", [1, 2])
def test_a_constant_offset(passes: int) -> None:
    expected = _normal(_ROWS, 4)

    assert _of(expected, _noisy(expected) + np.float32(0.01), passes=passes) == (
        "a constant offset: +0.01 everywhere, varying by 1e-06 only",
    )


def test_a_scale() -> None:
    expected = _normal(_ROWS, 4)

    assert _of(expected, expected * np.float32(1.5)) == ("scaled: the candidate is 1.5 times the reference",)


@pytest.mark.parametrize("factor", [0.0, 1e-3])
def test_what_hardly_follows_the_reference_is_no_scale(factor: float) -> None:
    expected = _normal(_ROWS, 4)
    actual = np.float32(factor) * _normal(_ROWS, 4)[::-1].copy()

    assert not any(words.startswith("scaled") for words in _of(expected, actual))


def test_a_small_factor_that_the_candidate_follows_is_a_scale() -> None:
    expected = _normal(_ROWS, 4)

    (words,) = _of(expected, expected / np.float32(255))
    assert words.startswith("scaled")


def test_a_scale_of_values_that_hardly_vary_is_told_from_an_offset() -> None:
    expected = 100 + _normal(_ROWS, 4)

    assert _of(expected, expected * np.float32(1.5)) == ("scaled: the candidate is 1.5 times the reference",)


@pytest.mark.parametrize("is_exact", [True, False])
def test_one_huge_row_that_is_scaled_is_no_scale_of_all(*, is_exact: bool) -> None:
    expected = _normal(_ROWS, 4)
    expected[111] *= np.float32(1e5)
    actual = expected.copy() if is_exact else _noisy(expected)
    actual[111] = expected[111] * np.float32(1.001)

    assert _of(expected, actual) == (f"few rows: 1 of {_ROWS} differ (row 'r111'), the others are within the limits",)


def test_a_scale_of_all_is_seen_beside_a_huge_row() -> None:
    expected = _normal(_ROWS, 4)
    expected[111] *= np.float32(1e5)

    assert _of(expected, expected * np.float32(1.5)) == ("scaled: the candidate is 1.5 times the reference",)


def test_an_approximated_function() -> None:
    expected = _normal(_ROWS, 4)
    too_much = np.abs(_normal(_ROWS, 4, seed=1)) * np.float32(1e-3)

    (words,) = _of(expected, expected + too_much)

    assert words.startswith("one-sided: the candidate is above the reference nearly everywhere (mean difference +0.000")
    assert words.endswith("), as where a function is approximated")


@pytest.mark.parametrize("share", [0.3, 0.6, 0.8])
def test_rows_of_a_category_that_the_candidate_does_not_know_are_no_approximation(share: float) -> None:
    expected = _normal(_ROWS, 1)
    is_unknown = np.random.default_rng(2).uniform(size=(_ROWS, 1)) < share
    actual = _noisy(expected) + np.where(is_unknown, np.float32(0.05), np.float32(0))

    found = _of(expected, actual.astype(np.float32))

    assert not any("approximated" in words for words in found), found
    assert share > 0.5 or not any("nearly everywhere" in words for words in found), found


def test_noise_beyond_the_limit_looks_like_nothing() -> None:
    expected = _normal(_ROWS, 4)

    assert _of(expected, expected + _normal(_ROWS, 4, seed=1) * np.float32(1e-2)) == ()


def test_a_pass_looks_like_nothing() -> None:
    expected = _normal(_ROWS, 4)

    assert _of(expected, _noisy(expected)) == ()


def test_few_rows() -> None:
    expected = _normal(_ROWS, 4)
    actual = _wrong_at([17, 90, 141], expected)
    actual[90] += _WRONG

    (words,) = _of(expected, actual)

    assert words.startswith("few rows: 3 of 200 differ (rows 'r90', ")
    assert words.endswith("), the others are within the limits")


def test_few_rows_that_are_not_finite() -> None:
    expected = _normal(_ROWS, 4)
    actual = _noisy(expected)
    actual[[17, 90], 2] = np.nan

    assert _of(expected, actual) == (
        "few rows: 2 of 200 are not finite (rows 'r17', 'r90'), the others are within the limits",
    )


def test_one_stratum() -> None:
    expected = _normal(_ROWS, 4)
    corpus = np.random.default_rng(0).choice(["news", "web", "wiki"], _ROWS).tolist()
    bad = [row for row, value in enumerate(corpus) if value == "web"]

    assert _of(expected, _wrong_at(bad, expected), strata={"corpus": corpus}) == (
        f"only rows of corpus 'web' differ: {len(bad)} of {len(bad)}, and none of the other {_ROWS - len(bad)}",
    )


@pytest.mark.parametrize(
    ("is_bad", "words"),
    [
        (lambda at, _: at == 0, "at the first place of their batch differ: 13 of 13, and none of the other 187"),
        (
            lambda at, size: at == size - 1,
            "at the last place of their batch differ: 13 of 13, and none of the other 187",
        ),
        (lambda at, _: at == 4, "at place 5 of their batch differ: 13 of 13, and none of the other 187"),
        (lambda at, _: at % 2 == 1, "at even places of their batch differ: 100 of 100, and none of the other 100"),
        (lambda at, _: at % 2 == 0, "at odd places of their batch differ: 100 of 100, and none of the other 100"),
        (lambda at, _: at > 0, "from place 2 of their batch on differ: 187 of 187, and none of the other 13"),
    ],
)
def test_one_place_in_the_batch(is_bad: Callable[[int, int], bool], words: str) -> None:
    expected = _normal(_ROWS, 4)
    places = [(at, size) for size in _sizes(_ROWS) for at in range(size)]
    bad = [row for row, place in enumerate(places) if is_bad(*place)]

    assert _of(expected, _wrong_at(bad, expected)) == (f"only rows {words}",)


@pytest.mark.parametrize(
    ("is_bad", "words"),
    [
        (lambda size: size == 7, "in batches of 7"),
        (lambda size: size >= 7, "in batches of 7 and more"),
        (lambda size: size <= 2, "in batches of 2 and fewer"),
    ],
)
def test_some_sizes_of_batches(is_bad: Callable[[int], bool], words: str) -> None:
    sizes = [1, 2, 7, 16] * 10
    rows = sum(sizes)
    expected = _normal(rows, 4)
    bad = [row for row, size in enumerate(size for size in sizes for _ in range(size)) if is_bad(size)]

    assert _of(expected, _wrong_at(bad, expected), sizes=sizes) == (
        f"only rows {words} differ: {len(bad)} of {len(bad)}, and none of the other {rows - len(bad)}",
    )


@pytest.mark.parametrize(
    ("is_bad", "words"),
    [
        (lambda width: width > 16, "24 and more"),
        (lambda width: width != 16, "other than 16"),
        (lambda width: width == 8, "8"),
    ],
)
def test_batches_of_another_width_than_the_traced_one(is_bad: Callable[[int], bool], words: str) -> None:
    expected = _normal(_ROWS, 4)
    sizes = _sizes(_ROWS, 10)
    widths = [width for width, size in zip(itertools.cycle([8, 16, 24, 32]), sizes, strict=False) for _ in range(size)]
    bad = [row for row, width in enumerate(widths) if is_bad(width)]
    profile = profile_outputs("y", [(expected, _ROWS)], axis=None, dtype="float32")
    tolerance = DEFAULT_TOLERANCES[Precision.FP32]
    limits = {"y": limits_for(tolerance, profile)}
    comparison = OutputComparison(ComparisonPlan(profiles={"y": profile}, limits=limits))
    actual = _wrong_at(bad, expected)
    for first in range(0, _ROWS, 10):
        part = slice(first, first + 10)
        # Every row of some length up to 8, whatever the batch is filled up to.
        lengths = np.random.default_rng(first).integers(2, 9, 10)
        inputs = {"ids": _mask(lengths, widths[first]) * 7}
        comparison.add(
            Batch(inputs=inputs, ids=[str(row) for row in range(10)]), {"y": actual[part]}, {"y": expected[part]}
        )
    comparison.end_pass()
    measured = comparison.finish()
    plan = JudgePlan(rules=GateRules(tolerance=tolerance), limits=limits, profiles={"y": profile})

    (said,) = symptoms_of(measured, judge(measured, plan), {}, {"y": profile})["y"]
    kind = f"only rows in batches of width {words} differ: {len(bad)} of {len(bad)}"
    assert said == f"{kind}, and none of the other {_ROWS - len(bad)}"


def test_what_is_far_to_one_side_is_no_approximation() -> None:
    expected = _normal(_ROWS, 4)

    (words,) = _of(expected, expected + np.abs(_normal(_ROWS, 4, seed=1)))

    assert words.endswith(")")
    assert words.startswith("one-sided: ")


def test_texts_and_flags_have_neither_sides_nor_sizes() -> None:
    rng = np.random.default_rng(0)
    words = np.array(["cat", "dog", "owl"])[rng.integers(0, 3, (_ROWS, 5))]
    flags = rng.integers(0, 2, (_ROWS, 5)).astype(np.bool_)

    assert _of(words, np.where(rng.random(words.shape) < 0.96, "fox", words)) == ()
    assert _of(words, np.full_like(words, "fox")) == ()
    assert _of(flags, np.ones_like(flags)) == ()


def test_texts_that_differ_in_some_rows_are_attributed_to_them() -> None:
    words = np.array(["cat", "dog", "owl"])[np.random.default_rng(0).integers(0, 3, _ROWS)]
    lengths = np.random.default_rng(3).integers(2, 33, _ROWS)
    bad = np.flatnonzero(lengths > 24)
    wrong = words.copy()
    wrong[bad] = "fox"

    assert _of(words, wrong, inputs={"input_ids": _mask(lengths) * 7}) == (
        f"only rows of length 25 and more differ: {len(bad)} of {len(bad)}, and none of the other {_ROWS - len(bad)}",
    )


def test_labels_have_no_sides() -> None:
    labels = np.random.default_rng(0).integers(0, 9, (_ROWS, 5))
    larger = labels + np.random.default_rng(1).integers(1, 9, labels.shape)

    assert _of(labels, larger) == ()
    assert _of(labels, labels + 1) == ("a constant offset: +1 everywhere, varying by 0 only",)


@pytest.mark.parametrize("off", [0.0, 1e-7])
def test_an_output_whose_classes_have_other_names_alone_looks_like_nothing(off: float) -> None:
    expected = _normal(_ROWS, 3)
    profile = profile_outputs("y", [(expected, _ROWS)], axis=None, dtype="float32")
    limits = {"y": limits_for(DEFAULT_TOLERANCES[Precision.FP32], profile)}
    comparison = OutputComparison(ComparisonPlan(profiles={"y": profile}, limits=limits))
    actual = expected + np.abs(_normal(_ROWS, 3, seed=1)) * np.float32(off)
    comparison.add(Batch(inputs={}, ids=[str(row) for row in range(_ROWS)]), {"y": actual}, {"y": expected})
    comparison.violate("classes", "y", say("contract.classes", output="y", found="[1, 0, 2]", wanted="[0, 1, 2]"))
    comparison.end_pass()
    measured = comparison.finish()
    rules = GateRules(tolerance=DEFAULT_TOLERANCES[Precision.FP32])
    checks = judge(measured, JudgePlan(rules=rules, limits=limits, profiles={"y": profile}))

    assert [check.name for check in checks if check.status is Status.FAIL] == ["contract.classes"]
    assert symptoms_of(measured, checks, {}, {"y": profile}) == {}


def _mask(lengths: Array, width: int = 32) -> Array:
    return (np.arange(width) < lengths[:, None]).astype(np.int64)


def test_it_grows_with_the_length() -> None:
    expected = _normal(_ROWS, 8)
    lengths = np.random.default_rng(3).integers(2, 33, _ROWS)
    signs = np.where(np.arange(8) % 2, -1.0, 1.0)
    actual = (expected + 1e-2 * lengths[:, None] * signs).astype(np.float32)

    assert _of(expected, actual, inputs={"attention_mask": _mask(lengths)}) == (
        "it grows with the length of the row (2 to 32): the correlation with the largest difference of a row is 1.00",
    )


def test_rows_longer_than_the_traced_one() -> None:
    expected = _normal(_ROWS, 4)
    lengths = np.random.default_rng(3).integers(2, 33, _ROWS)
    bad = np.flatnonzero(lengths > 24)
    ids = _mask(lengths) * 7

    assert _of(expected, _wrong_at(bad, expected), inputs={"input_ids": ids}) == (
        f"only rows of length 25 and more differ: {len(bad)} of {len(bad)}, and none of the other {_ROWS - len(bad)}",
    )


@pytest.mark.parametrize(("trait", "words"), [("padded", "padding"), ("left", "padding on the left")])
def test_rows_of_one_kind_of_mask(trait: str, words: str) -> None:
    expected = _normal(_ROWS, 4)
    rng = np.random.default_rng(5)
    mask = _mask(np.where(rng.random(_ROWS) < 0.3, 20, 32))
    chosen = rng.random(_ROWS) < 0.1
    if trait == "left":
        mask[chosen] = _mask(np.full(int(chosen.sum()), 20))[:, ::-1]
    bad = np.flatnonzero(mask.min(axis=1) == 0 if trait == "padded" else chosen)
    others = _ROWS - len(bad)

    found = _of(expected, _wrong_at(bad, expected), inputs={"mask": mask, "ids": np.full((_ROWS, 32), 5)})

    assert len(found) == 1
    assert found[0].startswith(f"only rows with {words} differ: {len(bad)} of {len(bad)}, and none of ")
    assert int(found[0].split()[-2]) <= others


def test_rows_without_any_position_name_their_mask() -> None:
    expected = _normal(_ROWS, 4)
    mask = _mask(np.full(_ROWS, 32))
    mask[[7, 9]] = 0
    ids = np.full((_ROWS, 32), 5)

    (found,) = _of(expected, _wrong_at(np.array([7, 9]), expected), inputs={"the_mask": mask, "ids": ids})

    assert "empty: false" in found
    assert "the_mask below roles" in found
    others = _of(expected, _wrong_at(np.array([7, 11]), expected), inputs={"the_mask": mask, "ids": ids})
    assert "roles" not in "".join(others)


@pytest.mark.parametrize(
    ("plant", "words"),
    [
        (np.nan, "NaN or infinity among their inputs"),
        (2.0**24 + 1, "integers beyond 2^24"),
        (-5.0, "negative integers"),
        (0.0, "one value all over an input"),
    ],
)
def test_rows_that_are_not_finite_only_for_some_inputs(plant: float, words: str) -> None:
    expected = _normal(_ROWS, 4)
    bad = np.random.default_rng(6).choice(_ROWS, 12, replace=False)
    actual = _noisy(expected)
    actual[bad] = np.inf
    inputs: dict[str, Array] = {"x": _normal(_ROWS, 6, seed=7), "n": np.full((_ROWS, 1), 9)}
    if np.isnan(plant):
        inputs["x"][bad, 3] = plant
    elif plant == 0:
        inputs["x"][bad] = plant
    else:
        inputs["n"][bad] = int(plant)

    (found,) = _of(expected, actual, inputs=inputs)

    assert found.startswith(f"only rows with {words} are not finite: 12 of 12, and none of ")


def test_rows_of_large_inputs() -> None:
    expected = _normal(_ROWS, 4)
    bad = np.random.default_rng(6).choice(_ROWS, 12, replace=False)
    inputs = _normal(_ROWS, 6, seed=7)
    inputs[bad, 2] = 300 + np.arange(12)

    (found,) = _of(expected, _wrong_at(bad, expected), inputs={"x": inputs})

    assert found.startswith("only rows with inputs of magnitude 300 and more differ: 12, and none of ")


def test_one_column() -> None:
    expected = _normal(_ROWS, 10)
    actual = _noisy(expected)
    actual[:, 3] = 0

    assert _of(expected, actual) == ("only index 3 of 10 along axis 1 is beyond the limit",)


def test_one_channel() -> None:
    expected = _normal(_ROWS, 5, 6, seed=2)
    actual = _noisy(expected)
    actual[:, 2] *= -1

    assert _of(expected, actual, axis=1) == ("only index 2 of 5 along axis 1 is beyond the limit",)


def test_swapped_outputs() -> None:
    start, end = _normal(_ROWS, 4), _normal(_ROWS, 4, seed=1)

    assert _words({"start": start, "end": end}, {"start": _noisy(end), "end": _noisy(start)}) == {
        "start": ("swapped outputs: it holds the reference's 'end'",),
        "end": ("swapped outputs: it holds the reference's 'start'",),
    }


def test_permuted_rows() -> None:
    expected = _normal(_ROWS, 4)
    actual = np.concatenate([expected[at : at + 16][::-1] for at in range(0, _ROWS, 16)])

    assert _of(expected, actual) == ("rows in another order: each batch holds the reference's rows, permuted",)


def test_rows_permuted_in_some_batches_are_counted() -> None:
    expected = _normal(_ROWS, 4)
    actual = _noisy(expected)
    actual[16:32] = actual[16:32][::-1]

    assert _of(expected, actual) == ("rows in another order: 1 of 13 batches holds the reference's rows, permuted",)
    actual[64:80] = actual[64:80][::-1]
    assert _of(expected, actual) == ("rows in another order: 2 of 13 batches hold the reference's rows, permuted",)


def test_rows_of_which_some_are_alike_are_permuted_all_the_same() -> None:
    expected = _normal(_ROWS, 4)
    expected[::16] = expected[1::16]
    actual = np.concatenate([_noisy(expected[at : at + 16])[::-1] for at in range(0, _ROWS, 16)])

    assert _of(expected, actual) == ("rows in another order: each batch holds the reference's rows, permuted",)


def _of_a_wide_and_a_narrow_channel() -> Array:
    expected = _normal(_ROWS, 2)
    expected[:, 0] *= 1000
    return expected


def test_rows_are_permuted_within_the_limits_of_each_channel_alone() -> None:
    expected = _of_a_wide_and_a_narrow_channel()
    moved = expected + np.array([0, 0.01], np.float32)
    swapped = np.concatenate([_noisy(expected[at : at + 16])[::-1] for at in range(0, _ROWS, 16)])

    assert _of(expected, moved, axis=1) == ("only index 1 of 2 along axis 1 is beyond the limit",)
    assert _of(expected, swapped, axis=1) == ("rows in another order: each batch holds the reference's rows, permuted",)


def test_columns_and_outputs_are_swapped_within_the_limits_of_each_channel_alone() -> None:
    expected = _of_a_wide_and_a_narrow_channel()
    moved = expected + np.array([1, 0.01], np.float32)
    narrow = expected.copy()
    narrow[:, 1] += np.float32(0.01)

    assert not any(words.startswith("columns") for words in _of(expected, moved, axis=1))
    found = _words({"y": expected, "z": narrow}, {"y": expected + np.array([0, 0.02], np.float32), "z": narrow}, axis=1)
    assert found == {"y": ("only index 1 of 2 along axis 1 is beyond the limit",)}


def test_rows_that_hold_the_values_of_several_others_are_not_permuted() -> None:
    # Each column holds what the reference has in it, in an order of its own.
    expected = _normal(_ROWS, 4)
    actual = np.concatenate(
        [np.stack([np.roll(expected[at : at + 16, n], n + 1) for n in range(4)], 1) for at in range(0, _ROWS, 16)]
    )
    # Of two values alone, those of the other kind are not as many.
    flags = (np.random.default_rng(0).random((_ROWS, 1)) < 0.3).astype(np.float32)

    assert _of(expected, actual) == ()
    assert not any(words.startswith("rows") for words in _of(flags, 1 - flags))


@pytest.mark.parametrize("passes", [1, 2])
def test_columns_in_another_order(passes: int) -> None:
    expected = _normal(_ROWS, 5)

    assert _of(expected, _noisy(expected)[:, [0, 3, 2, 1, 4]], passes=passes) == (
        "columns in another order: indices 1 and 3 of 5 along axis 1 are swapped",
    )
    assert _of(expected, _noisy(expected)[:, [2, 0, 1, 3, 4]], passes=passes) == (
        "columns in another order: 3 of 5 along axis 1 are permuted: index 0 holds what the reference has at 2",
    )


def test_places_of_the_last_axis_in_another_order() -> None:
    # As classes of each token are.
    expected = _normal(_ROWS, 6, 3, seed=3)

    assert _of(expected, _noisy(expected)[:, :, [1, 0, 2]]) == (
        "columns in another order: indices 0 and 1 of 3 along axis 2 are swapped",
    )


def test_columns_that_are_swapped_are_told_however_wide_the_limits_are() -> None:
    likely = np.random.default_rng(0).uniform(0, 1, (_ROWS, 1)).astype(np.float32)
    expected = np.concatenate([likely, 1 - likely], axis=1)
    rounded = _noisy(expected) + _normal(_ROWS, 2, seed=5) * np.float32(0.01)

    assert _of(expected, rounded[:, ::-1], precision=Precision.INT8) == (
        "columns in another order: indices 0 and 1 of 2 along axis 1 are swapped",
    )


def _steps(expected: Array) -> Array:
    return np.arange(1, expected.shape[-1] + 1, dtype=np.float32) / 7


# Answers that differ otherwise than by the order of their columns, of the reference's and some noise.
_OTHERWISE: Mapping[str, Callable[[Array, Array], Array]] = {
    "noise": lambda expected, noise: expected + noise * np.float32(0.3),
    "offset of each column": lambda expected, _: expected + _steps(expected),
    "scale of each column": lambda expected, _: expected * (1 + _steps(expected)),
    "rows": lambda expected, _: np.roll(expected, 1, axis=0),
    "one column twice": lambda expected, _: expected[..., [1, *range(1, expected.shape[-1])]],
    "swapped, and wrong": lambda expected, noise: expected[..., ::-1] + noise * np.float32(0.5),
    "other answers": lambda _, noise: noise,
}


@given(
    kind=st.sampled_from(sorted(_OTHERWISE)),
    columns=st.integers(2, 6),
    rows=st.integers(1, 60),
    precision=st.sampled_from([Precision.FP32, Precision.FP16, Precision.INT8]),
    is_deep=st.booleans(),
    seed=st.integers(0, 99),
)
def test_what_differs_otherwise_is_in_no_other_order(
    kind: str, columns: int, rows: int, precision: Precision, seed: int, *, is_deep: bool
) -> None:
    expected = _normal(rows, *([4] if is_deep else []), columns, seed=seed)

    actual = _OTHERWISE[kind](expected, _normal(*expected.shape, seed=seed + 1000)).astype(np.float32)

    found = _of(expected, actual, precision=precision)

    assert not any(words.startswith("columns") for words in found), found


@given(
    order=st.integers(2, 6).flatmap(lambda columns: st.permutations(range(columns))),
    precision=st.sampled_from([Precision.FP32, Precision.FP16, Precision.INT8]),
    is_deep=st.booleans(),
    seed=st.integers(0, 99),
)
def test_every_other_order_is_told(order: list[int], precision: Precision, seed: int, *, is_deep: bool) -> None:
    expected = _normal(_ROWS, *([4] if is_deep else []), len(order), seed=seed)

    found = _of(expected, _noisy(expected)[..., order], precision=precision)

    moved = [index for index, held in enumerate(order) if index != held]
    assert [words.startswith("columns in another order") for words in found] == ([True] if moved else [])
    assert all(f" {moved[0]} " in words for words in found)


def test_channels_in_another_order_in_some_batches() -> None:
    expected = _normal(_ROWS, 6, 3, seed=3)
    actual = _noisy(expected)
    actual[16:32] = actual[16:32][:, :, [2, 1, 0]]

    assert _of(expected, actual, axis=2) == (
        "columns in another order: indices 0 and 2 of 3 along axis 2 are swapped, in 1 of 13 batches",
    )


def test_columns_that_hold_no_column_of_the_reference_or_not_always_the_same_are_in_no_other_order() -> None:
    expected = _normal(_ROWS, 5)
    not_the_same = _noisy(expected)
    not_the_same[:16] = not_the_same[:16, [1, 0, 2, 3, 4]]
    not_the_same[16:32] = not_the_same[16:32, [2, 1, 0, 3, 4]]
    twice = _noisy(expected)
    twice[:, 0] = twice[:, 1]
    twice[:, 2] *= 3

    for actual in (not_the_same, twice):
        assert not any(words.startswith("columns") for words in _of(expected, actual))


def test_one_answer_for_all_rows_of_a_batch() -> None:
    expected = _normal(_ROWS, 4)
    actual = np.concatenate(
        [np.repeat(expected[at : at + 1], min(16, _ROWS - at), axis=0) for at in range(0, _ROWS, 16)]
    )

    assert _of(expected, actual) == ("one output for all rows: the rows of a batch are all answered alike",)
    actual[16:] = expected[16:]
    assert _of(expected, actual) == ("one output for all rows: the rows of 1 of 13 batches are all answered alike",)


def test_a_nan_that_was_clipped_is_a_row_that_is_not_finite_alike() -> None:
    expected = _normal(_ROWS, 4)
    bad = np.random.default_rng(6).choice(_ROWS, 12, replace=False)
    actual = _noisy(expected)
    inputs = _normal(_ROWS, 6, seed=7)
    inputs[bad, 0] = np.nan
    expected[bad] = np.nan

    (found,) = _of(expected, actual, inputs={"x": inputs})

    assert found.startswith("only rows with NaN or infinity among their inputs are not finite: 12 of 12, and none of ")


def test_an_output_without_rows_of_its_own_is_told_by_its_values_alone() -> None:
    expected = _normal(30)

    assert _words({"y": expected}, {"y": expected + 1}, sizes=[30]) != {}
    total = {"y": np.arange(20, dtype=np.float32)}
    profile = profile_outputs("y", [(total["y"], 3)], axis=None, dtype="float32")
    limits = {"y": limits_for(DEFAULT_TOLERANCES[Precision.FP32], profile)}
    comparison = OutputComparison(ComparisonPlan(profiles={"y": profile}, limits=limits))
    comparison.add(Batch(inputs={}, ids=["a", "b", "c"]), {"y": total["y"] + 1}, total)
    comparison.end_pass()
    measured = comparison.finish()
    plan = JudgePlan(
        rules=GateRules(tolerance=DEFAULT_TOLERANCES[Precision.FP32]), limits=limits, profiles={"y": profile}
    )

    assert measured.patterns == {}
    assert symptoms_of(measured, judge(measured, plan), {}, {"y": profile}) == {
        "y": ("a constant offset: +1 everywhere, varying by 0 only",)
    }


@pytest.mark.parametrize("seed", range(40))
def test_rows_that_differ_at_random_are_attributed_to_nothing(seed: int) -> None:
    rng = np.random.default_rng(seed)
    expected = _normal(_ROWS, 4)
    bad = rng.choice(_ROWS, int(rng.integers(1, 60)), replace=False)
    lengths = rng.integers(2, 33, _ROWS)
    corpus = rng.choice(["news", "web", "wiki"], _ROWS).tolist()

    found = _of(
        expected,
        _wrong_at(bad, expected),
        inputs={"mask": _mask(lengths), "x": _normal(_ROWS, 3, seed=seed + 1)},
        strata={"corpus": corpus},
    )

    assert all(words.startswith("few rows: ") for words in found)


def test_the_chance_is_that_of_the_hypergeometric_distribution() -> None:
    # Three ways to choose 2 of the 3, ten to choose 2 of the 5.
    assert chance_of_all(3, 5, 2) == pytest.approx(0.3)
    assert chance_of_all(3, 5, 4) == 0
    assert chance_of_all(3, 5, 0) == 1


def _patterns(seed: int, batches: int) -> list[RowPattern]:
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(batches):
        rows = int(rng.integers(1, 9))
        expected = {name: rng.standard_normal((rows, 3)).astype(np.float32) for name in ("y", "z")}
        actual = {name: array.copy() for name, array in expected.items()}
        bad = rng.random(rows) < rng.choice([0.0, 0.3, 1.0])
        actual["y"][bad, rng.integers(3)] += rng.choice([0.5, np.nan, np.inf])
        if rng.random() < 0.3:
            actual["y"] = expected["y"][:, rng.permutation(3)]
        profile = profile_outputs("y", [(expected["y"], rows)], axis=None, dtype="float32")
        limits = {name: limits_for(DEFAULT_TOLERANCES[Precision.FP32], profile) for name in expected}
        mask = _mask(rng.integers(0, 5, rows), 4)
        batch = Batch(inputs={"mask": mask, "x": actual["z"]}, ids=[str(row) for row in range(rows)])
        figures = RowFigures()
        state = statistics.empty(profile, limits["y"])
        state = statistics.update(state, actual["y"], expected["y"], batch.ids, figures)
        seen = SeenBatch(
            output="y",
            actual=actual["y"],
            expected=expected["y"],
            figures=figures,
            traits=RowTraits(batch),
            peers=expected,
            limits=limits,
        )
        found.append((seen, row_pattern.update(RowPattern(), seen)))
    whole = functools.reduce(row_pattern.update, [seen for seen, _ in found], RowPattern())
    return [whole, *(pattern for _, pattern in found)]


def _plain(pattern: RowPattern) -> dict[str, Any]:
    exact: dict[str, Any] = {
        name: getattr(pattern, name) for name in RowPattern.__slots__ if name not in {"growth", "by_channel"}
    }
    # A count of nothing is not a count.
    exact = {name: +value if hasattr(value, "most_common") else value for name, value in exact.items()}
    return exact | {"by_channel": pattern.by_channel.tolist()}


@given(st.integers(0, 10_000), st.integers(1, 6), st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_shards_merged_in_any_order_equal_one_pass(seed: int, batches: int, random: Random) -> None:
    whole, *shards = _patterns(seed, batches)
    random.shuffle(shards)

    merged = functools.reduce(row_pattern.merge, shards, RowPattern())

    assert _plain(merged) == _plain(whole)
    for name in ("count", "mean_x", "mean_y", "xx", "xy", "yy"):
        assert getattr(merged.growth, name) == pytest.approx(getattr(whole.growth, name), rel=1e-9, abs=1e-9), name
