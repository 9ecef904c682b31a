"""A comparison that takes in what others measured of other rows is the one that was given all of them."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paritygate.batch import Batch
from paritygate.codec import to_data
from paritygate.precision import Precision
from paritygate.validate.gate.declared_limits import parse_tolerance
from paritygate.validate.measure.decisions import parse_decision
from paritygate.validate.measure.limits import limits_for
from paritygate.validate.measure.measurement import ComparisonPlan, Measurement, OutputComparison
from paritygate.validate.measure.parts.exact_comparison import ExactComparison
from paritygate.validate.measure.profile import profile_outputs

_RULE = parse_decision("y:threshold=0")


def _measured(seed: int, sizes: list[int], *, is_in_parts: bool) -> Measurement:
    random = np.random.default_rng(seed)
    expected = random.normal(size=(sum(sizes), 1)).astype(np.float32)
    actual = (expected + random.normal(scale=0.3, size=expected.shape)).astype(np.float32)
    if seed % 3 == 0:
        actual[0] = np.nan
    profile = profile_outputs("y", [(expected, len(expected))], axis=None, dtype="float32")
    plan = ComparisonPlan(
        profiles={"y": profile},
        limits={"y": limits_for(parse_tolerance(Precision.FP32, {}), profile)},
        decisions={"y": _RULE},
    )
    whole, first = OutputComparison(plan), 0
    for size in sizes:
        rows = slice(first, first + size)
        batch = Batch(inputs={"x": expected[rows]}, ids=[f"r{row}" for row in range(first, first + size)])
        part = OutputComparison(plan) if is_in_parts else whole
        part.add(batch, {"y": actual[rows].astype(np.float64 if seed % 4 == 0 else np.float32)}, {"y": expected[rows]})
        if is_in_parts:
            part.end_pass()
            whole.take_in(part)
        first += size
    whole.end_pass()
    return whole.finish()


@settings(deadline=None, max_examples=60)
@given(seed=st.integers(0, 1000), sizes=st.lists(st.integers(1, 9), min_size=1, max_size=5))
def test_parts_taken_in_equal_the_whole(seed: int, sizes: list[int]) -> None:
    parts, whole = (_measured(seed, sizes, is_in_parts=is_in_parts) for is_in_parts in (True, False))

    assert (parts.rows, parts.batches, parts.passes) == (whole.rows, whole.batches, whole.passes)
    assert parts.decisions == whole.decisions
    assert [(found.check, found.count) for found in parts.violations] == [
        (found.check, found.count) for found in whole.violations
    ]
    one, other = parts.statistics["y"], whole.statistics["y"]
    for exact in ("rows", "values", "compared", "max_abs_diff", "non_finite", "non_finite_rows", "beyond"):
        assert getattr(one, exact) == pytest.approx(getattr(other, exact), nan_ok=True, abs=0, rel=0), exact
    assert [row.row_id for row in one.worst_rows] == [row.row_id for row in other.worst_rows]
    for rounded in ("mean_abs_diff", "std_abs_diff", "bias", "cosine_similarity"):
        assert getattr(one, rounded) == pytest.approx(getattr(other, rounded), nan_ok=True, rel=1e-9), rounded
    assert one.mean_abs_by_channel == pytest.approx(other.mean_abs_by_channel, rel=1e-9, nan_ok=True)


@pytest.mark.parametrize("is_in_parts", [False, True])
def test_a_row_with_a_label_and_a_decision_that_differ_is_one_mismatch(is_in_parts: bool) -> None:  # noqa: FBT001
    scores = np.array([[1.0], [-1.0], [2.0], [-2.0]], np.float32)
    expected = {"y": scores, "label": np.arange(4), "tokens": np.zeros((4, 3), np.int64)}
    actual = {name: array.copy() for name, array in expected.items()}
    actual["y"][1] = 1.0
    actual["label"][[1, 3]] = 9
    actual["tokens"][2, :2] = 9
    profiles = {
        name: profile_outputs(name, [(array, 4)], axis=None, dtype=array.dtype.name) for name, array in expected.items()
    }
    limits = {name: limits_for(parse_tolerance(Precision.FP32, {}), profile) for name, profile in profiles.items()}
    plan = ComparisonPlan(profiles=profiles, limits=limits, decisions={"y": _RULE})
    whole = OutputComparison(plan)
    for rows in (slice(0, 3), slice(3, 4)):
        part = OutputComparison(plan) if is_in_parts else whole
        sides = ({name: array[rows] for name, array in side.items()} for side in (actual, expected))
        part.add(Batch(inputs={}, ids=[f"r{row}" for row in range(4)[rows]]), *sides)
        if is_in_parts:
            part.end_pass()
            whole.take_in(part)
    whole.end_pass()

    found = whole.finish()

    assert (found.decisions["y"].mismatches, found.statistics["label"].mismatches) == (1, 2)
    # Rows 1 and 3, and two tokens of row 2.
    assert found.mismatches == 4


def _passes(comparison: OutputComparison, batches: Sequence[range], seed: int, passes: int, of: int) -> None:
    """Run passes over some batches of so many rows: in each, other rows are answered wrongly."""
    expected = np.random.default_rng(seed).normal(size=(of, 1)).astype(np.float32)
    first: dict[str, np.ndarray] = {}
    for number in range(passes):
        random = np.random.default_rng([seed, number])
        actual = {
            "y": expected + random.normal(size=expected.shape).astype(np.float32) * (random.random((of, 1)) > 0.7)
        }
        actual["label"] = (random.random(of) > 0.8).astype(np.int64)
        first = first or actual
        wanted = {"y": expected, "label": np.zeros(of, np.int64)}
        for rows in batches:
            own = slice(rows.start, rows.stop)
            batch = Batch(inputs={"x": expected[own]}, ids=[f"r{row}" for row in rows])
            answers, before, right = (
                {name: each[own] for name, each in side.items()} for side in (actual, first, wanted)
            )
            comparison.add(batch, answers, right)
            if number:
                comparison.add_repeat(before, answers)
        comparison.end_pass()


@settings(deadline=None, max_examples=20)
@given(
    seed=st.integers(0, 1000),
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=6),
    passes=st.integers(1, 3),
    of=st.integers(1, 7),
)
def test_passes_in_any_number_of_parts_have_the_figures_of_the_whole(
    seed: int, sizes: list[int], passes: int, of: int
) -> None:
    ends = np.cumsum(sizes).tolist()
    batches = [range(end - size, end) for end, size in zip(ends, sizes, strict=True)]
    expected = np.random.default_rng(seed).normal(size=(ends[-1], 1)).astype(np.float32)
    profiles = {
        "y": profile_outputs("y", [(expected, ends[-1])], axis=None, dtype="float32"),
        "label": profile_outputs("label", [(np.zeros(ends[-1], np.int64), ends[-1])], axis=None, dtype="int64"),
    }
    limits = {name: limits_for(parse_tolerance(Precision.FP32, {}), profile) for name, profile in profiles.items()}
    plan = ComparisonPlan(profiles=profiles, limits=limits, decisions={"y": _RULE})

    def merged(of: int) -> Measurement:
        whole = ExactComparison(plan, is_drawn=True)
        for number in range(of):
            own = batches[len(batches) * number // of : len(batches) * (number + 1) // of]
            part = ExactComparison(plan, is_drawn=True, rows_before=own[0].start if own else 0)
            _passes(part, own, seed, passes if own else 1, ends[-1])
            read = ExactComparison(plan, is_drawn=True)
            read.read(json.loads(json.dumps(part.to_data())))
            whole.take_in(read)
        whole.end_pass()
        return whole.finish()

    one, parts, plain = merged(1), merged(of), OutputComparison(plan, is_drawn=True)
    _passes(plain, batches, seed, passes, ends[-1])
    wanted = plain.finish()

    assert json.dumps(to_data(parts)) == json.dumps(to_data(one))
    for name in ("rows", "batches", "passes", "decisions", "mismatches", "repeat_ratio", "repeat_max_abs_diff"):
        assert getattr(parts, name) == getattr(wanted, name), name
    assert to_data(parts.drawings) == to_data(wanted.drawings)
    for name, statistics in wanted.statistics.items():
        own = parts.statistics[name]
        assert (own.rows, own.mismatches, own.beyond) == (statistics.rows, statistics.mismatches, statistics.beyond)
        assert [row.row_id for row in own.worst_rows] == [row.row_id for row in statistics.worst_rows]


def test_a_part_that_was_written_has_the_moments_of_its_rows() -> None:
    expected = np.random.default_rng(0).normal(size=(9, 1)).astype(np.float32)
    profile = profile_outputs("y", [(expected, 9)], axis=None, dtype="float32")
    limits = limits_for(parse_tolerance(Precision.FP32, {}), profile)
    plan = ComparisonPlan(profiles={"y": profile}, limits={"y": limits})
    part, read, plain = ExactComparison(plan), ExactComparison(plan), OutputComparison(plan)
    batch = Batch(inputs={"x": expected}, ids=[f"r{row}" for row in range(9)])
    for comparison in (part, plain):
        comparison.add(batch, {"y": expected + np.float32(0.5)}, {"y": expected})
        comparison.end_pass()
    read.read(json.loads(json.dumps(part.to_data())))

    growth, of_plain = (to_data(item.finish().patterns["y"].growth) for item in (read, plain))

    assert of_plain["mean_y"] > 0
    assert growth == pytest.approx(of_plain, rel=1e-9, abs=1e-9)
