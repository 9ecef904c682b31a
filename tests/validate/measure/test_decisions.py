"""Decisions: where the boundary is, what the band explains, how flips are counted and folded."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from paritygate.codec import from_data, to_data
from paritygate.errors import UsageError
from paritygate.signature import TensorSpec
from paritygate.validate.measure.decisions import Decision, Rule, check_rank, parse_decision, undecided
from paritygate.validate.measure.figures import DecisionStatistics
from paritygate.validate.measure.flips import (
    DecisionState,
    decide,
    finish_decisions,
    fold_passes,
    merge_decisions,
    update_decisions,
)
from paritygate.validate.measure.limits import Limits


def _limits(limit: float | list[float], axis: int | None = None) -> Limits:
    value = np.atleast_1d(np.asarray(limit, dtype=np.float64))
    return Limits(max_abs_diff=value, mean_abs_diff=value, repeat_max_abs_diff=value, max_row_rel_diff=1.0, axis=axis)


def _count(
    text: str, actual: NDArray[np.generic], expected: NDArray[np.generic], limits: Limits | float = 0.0
) -> DecisionStatistics:
    decision = parse_decision(f"y:{text}")
    flips = decide(decision, actual, expected, limits if isinstance(limits, Limits) else _limits(limits))
    ids = [f"r{row}" for row in range(len(expected))]
    return finish_decisions(update_decisions(DecisionState(), flips, first_row=0, ids=ids), decision)


def _column(*values: float) -> NDArray[np.float32]:
    return np.array(values, dtype=np.float32).reshape(-1, 1)


@pytest.mark.parametrize(
    ("text", "decision"),
    [
        ("y:threshold=3", Decision(output="y", rule=Rule.THRESHOLD, threshold=3)),
        ("y:threshold=>=3", Decision(output="y", rule=Rule.THRESHOLD, threshold=3, is_inclusive=True)),
        ("y:threshold=-1e-3,axis=1", Decision(output="y", rule=Rule.THRESHOLD, threshold=-1e-3, axis=1)),
        ("y:argmax", Decision(output="y", rule=Rule.ARGMAX)),
        ("y:argmax,axis=-1", Decision(output="y", rule=Rule.ARGMAX, axis=-1)),
        ("y:top_k=5", Decision(output="y", rule=Rule.TOP_K, k=5)),
        ("y:multilabel=0.5", Decision(output="y", rule=Rule.MULTILABEL, threshold=0.5)),
        # TensorFlow's names hold colons.
        ("dense:0:argmax", Decision(output="dense:0", rule=Rule.ARGMAX)),
    ],
)
def test_a_decision_reads_as_it_is_written(text: str, decision: Decision) -> None:
    assert parse_decision(text) == decision
    assert parse_decision(str(decision)) == decision
    assert from_data(Decision, to_data(decision)) == decision


def test_positive_is_strictly_above_the_threshold_unless_declared_at_least() -> None:
    values = _column(2.9, 3.0, 3.1)

    assert _count("threshold=3", values, values).classes == {"0": 2, "1": 1}
    assert _count("threshold=>=3", values, values).classes == {"0": 1, "1": 2}


@pytest.mark.parametrize(("limit", "outside"), [(0.25, 0), (0.2499, 1)])
def test_a_flip_at_the_very_edge_of_the_band_is_inside(limit: float, outside: int) -> None:
    found = _count("threshold=3", _column(2.9, 0.0), _column(3.25, 0.0), limit)

    assert (found.mismatches, found.outside_band, found.inside_band) == (1, outside, 1 - outside)


def test_a_value_on_the_threshold_flips_one_way_only() -> None:
    assert _count("threshold=3", _column(3.0), _column(3.0)).mismatches == 0
    assert _count("threshold=3", _column(3.0001), _column(3.0), 1e-3).inside_band == 1
    assert _count("threshold=3", _column(2.9999), _column(3.0), 1e-3).mismatches == 0


@pytest.mark.parametrize(("limit", "outside"), [(0.5, 0), (0.49, 1)])
def test_the_band_of_an_argmax_is_twice_the_limit(limit: float, outside: int) -> None:
    expected = np.array([[1.0, 2.0, 0.0]], np.float32)
    actual = np.array([[2.5, 2.0, 0.0]], np.float32)

    found = _count("argmax", actual, expected, limit)

    assert (found.mismatches, found.outside_band) == (1, outside)


def test_the_band_of_an_argmax_is_measured_against_the_class_that_was_chosen() -> None:
    # The runner-up is close, but the candidate chose the class that is far behind.
    expected = np.array([[2.0, 1.99, -9.0]], np.float32)
    actual = np.array([[2.0, 1.99, 3.0]], np.float32)

    assert _count("argmax", actual, expected, 0.1).outside_band == 1


def test_the_first_of_tied_classes_wins_on_both_sides() -> None:
    tied = np.array([[1.0, 1.0, 0.0]], np.float32)

    assert _count("argmax", tied, tied).classes == {"0": 1}
    assert _count("argmax", tied - 0, np.array([[1.0, 0.9, 0.0]], np.float32)).mismatches == 0


def test_the_order_within_a_top_k_set_does_not_matter() -> None:
    expected = np.array([[3.0, 2.0, 1.0, 0.0]], np.float32)

    assert _count("top_k=2", np.array([[2.0, 3.0, 1.0, 0.0]], np.float32), expected).mismatches == 0
    assert _count("top_k=2", np.array([[3.0, 1.0, 2.0, 0.0]], np.float32), expected).mismatches == 1


@pytest.mark.parametrize(("limit", "outside"), [(0.5, 0), (0.4, 1)])
def test_the_band_of_a_top_k_set_is_twice_the_limit_at_its_last_place(limit: float, outside: int) -> None:
    expected = np.array([[9.0, 2.0, 1.0, 0.0]], np.float32)
    actual = np.array([[9.0, 1.0, 2.0, 0.0]], np.float32)

    assert _count("top_k=2", actual, expected, limit).outside_band == outside


def test_a_top_k_set_as_large_as_the_classes_never_differs() -> None:
    expected = np.random.default_rng(0).standard_normal((5, 3))

    assert _count("top_k=7", -expected, expected).mismatches == 0


def test_ties_at_the_last_place_of_a_top_k_set_go_to_the_first() -> None:
    tied = np.array([[5.0, 1.0, 1.0, 1.0]], np.float32)

    assert _count("top_k=2", tied, tied).mismatches == 0


def test_limits_of_the_channels_are_those_of_the_classes() -> None:
    expected = np.zeros((2, 3, 4), np.float32)
    expected[:, 0] = 1
    actual = expected.copy()
    actual[0, 1, 2] = 1.5
    limits = _limits([0.6, 0.6, 0.1], axis=1)

    assert _count("argmax,axis=1", actual, expected, limits).outside_band == 0
    assert _count("argmax,axis=1", actual, expected, _limits([0.1, 0.6, 0.6], axis=1)).outside_band == 1


def test_multilabel_counts_rows_up_to_rank_2() -> None:
    expected = np.array([[0.9, 0.1, 0.8], [0.1, 0.1, 0.1]], np.float32)
    actual = np.array([[0.1, 0.9, 0.8], [0.1, 0.1, 0.1]], np.float32)

    found = _count("multilabel=0.5", actual, expected)

    assert (found.mismatches, found.decisions, found.rows) == (1, 2, 2)


@pytest.mark.parametrize("text", ["threshold=0.5,axis=1", "argmax,axis=1", "top_k=1,axis=1"])
def test_above_rank_2_elements_are_counted(text: str) -> None:
    expected = np.zeros((3, 2, 4), np.float32)
    expected[:, 0] = 1
    actual = expected.copy()
    actual[1, :, :2] = actual[1, ::-1, :2]

    found = _count(text, actual, expected)

    assert found.decisions == 3 * 4 * (2 if "threshold" in text else 1)
    assert found.mismatches == (4 if "threshold" in text else 2)
    assert (found.rows_mismatched, found.rows) == (1, 3)
    assert found.mismatch_rate_upper_95 > 1 / 3


@given(
    hnp.arrays(np.float32, st.tuples(st.integers(1, 20), st.integers(1, 6)), elements=st.floats(-8, 8, width=16)),
    st.floats(0, 1),
    st.sampled_from(["threshold=1", "argmax", "top_k=2", "multilabel=0"]),
    st.integers(0, 2**31),
)
def test_a_difference_within_the_limit_never_flips_outside_the_band(
    expected: NDArray[np.float32], limit: float, rule: str, seed: int
) -> None:
    noise = np.random.default_rng(seed).uniform(-limit, limit, expected.shape)
    actual = expected.astype(np.float64) + noise

    # The sum is rounded, so the noise may exceed the limit by half an ulp.
    assert _count(rule, actual, expected.astype(np.float64), limit * (1 + 1e-12) + 1e-14).outside_band == 0


@given(
    hnp.arrays(np.float32, st.tuples(st.integers(1, 30), st.just(3)), elements=st.floats(-4, 4, width=16)),
    st.integers(0, 2**31),
    st.sampled_from(["threshold=0.5", "argmax", "top_k=2"]),
    st.integers(0, 30),
)
def test_shards_of_rows_merge_to_the_whole(expected: NDArray[np.float32], seed: int, rule: str, cut: int) -> None:
    actual = expected + np.random.default_rng(seed).standard_normal(expected.shape).astype(np.float32)
    decision = parse_decision(f"y:{rule}")
    cut = min(cut, len(expected))
    parts = []
    for first, last in ((0, cut), (cut, len(expected))):
        state = DecisionState()
        if last > first:
            flips = decide(decision, actual[first:last], expected[first:last], _limits(0.3))
            ids = [f"r{row}" for row in range(first, last)]
            state = update_decisions(state, flips, first_row=first, ids=ids)
        parts.append(state)

    whole = _count(rule, actual, expected, 0.3)

    assert finish_decisions(merge_decisions(*parts), decision) == whole


def test_a_row_that_flips_in_several_passes_is_one_mismatch() -> None:
    decision = parse_decision("y:threshold=0")
    expected = _column(1, 1, -1, -1)
    states = []
    for actual in (_column(-1, 1, -1, -1), _column(-1, 1, 1, -1)):
        flips = decide(decision, actual, expected, _limits(0.1))
        states.append(update_decisions(DecisionState(), flips, first_row=0, ids=list("abcd")))

    found = finish_decisions(fold_passes(*states), decision)

    assert (found.rows, found.decisions, found.mismatches, found.outside_band) == (4, 4, 2, 2)
    assert found.examples == ("a", "c")
    assert found.classes == {"0": 2, "1": 2}


@pytest.mark.parametrize(("text", "rank"), [("argmax", 3), ("threshold=1", 3), ("argmax", 1), ("argmax,axis=-3", 3)])
def test_a_rule_that_leaves_the_axis_open_is_refused(text: str, rank: int) -> None:
    with pytest.raises(UsageError, match="axis"):
        check_rank(parse_decision(f"y:{text}"), rank)


@pytest.mark.parametrize(
    ("text", "rank"), [("argmax", 2), ("threshold=1", 1), ("argmax,axis=-1", 4), ("top_k=2,axis=1", 3)]
)
def test_a_rule_that_says_the_axis_is_taken(text: str, rank: int) -> None:
    check_rank(parse_decision(f"y:{text}"), rank)


def test_nan_is_never_chosen() -> None:
    expected = np.array([[1.0, 3.0, 2.0]], np.float32)
    actual = np.array([[1.0, np.nan, 2.0]], np.float32)

    found = _count("argmax", actual, expected, 0.1)

    assert (found.mismatches, found.outside_band) == (1, 1)


@pytest.mark.parametrize(
    ("name", "shape", "decided", "is_named"),
    [
        ("output_0", ("batch", 4), set(), True),
        ("output_0", ("batch", 4), {"output_0"}, False),
        ("output_0", ("batch", 1), set(), False),
        ("output_0", ("batch", 768), set(), False),
        ("output_0", ("batch", "classes"), set(), False),
        ("boxes", ("batch", 4), set(), False),
        ("sentence_embedding", ("batch", 100), set(), False),
    ],
)
def test_scores_without_a_decision_are_named(
    name: str, shape: tuple[int | str, ...], decided: set[str], *, is_named: bool
) -> None:
    output = TensorSpec(name=name, dtype="float32", shape=shape)
    label = TensorSpec(name="label", dtype="int64", shape=("batch",))

    assert (f"{{{name}: {{argmax: true}}}}" in undecided([output], decided)) == is_named
    assert not undecided([label, output], decided)
