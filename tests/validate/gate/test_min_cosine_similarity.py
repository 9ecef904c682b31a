"""The least cosine similarity of a row's two answers, which the spec may ask of an output such as an embedding."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from paritygate.batch import Batch
from paritygate.codec import to_data
from paritygate.pipelines.compare.job import ComparisonJob
from paritygate.pipelines.compare.models import recorded_model
from paritygate.pipelines.jobs import compare
from paritygate.precision import Precision
from paritygate.validate.gate.declared_limits import parse_tolerance
from paritygate.validate.gate.rules import GateRules
from paritygate.validate.gate.verdict import JudgePlan, judge
from paritygate.validate.measure.check import Check, Status
from paritygate.validate.measure.limits import limits_for
from paritygate.validate.measure.measurement import ComparisonPlan, OutputComparison
from paritygate.validate.measure.profile import profile_outputs
from paritygate.validate.samples.source import SampleSource

_LOOSE = parse_tolerance(Precision.FP16, {"max_abs_diff": 10.0, "mean_abs_diff": 10.0, "max_row_rel_diff": 10.0})


def _check(actual: NDArray[np.generic], expected: NDArray[np.generic], least: float, *, batch: int = 100) -> Check:
    profile = profile_outputs("y", [(expected, len(expected))], axis=None, dtype=expected.dtype.name)
    limits = {"y": limits_for(_LOOSE, profile)}
    comparison = OutputComparison(ComparisonPlan(profiles={"y": profile}, limits=limits))
    for at in range(0, len(expected), batch):
        part = slice(at, at + batch)
        ids = [f"r{row}" for row in range(at, min(at + batch, len(expected)))]
        comparison.add(Batch(inputs={}, ids=ids), {"y": actual[part]}, {"y": expected[part]})
    comparison.end_pass()
    rules = GateRules(tolerance=_LOOSE, min_cosine_similarity={"y": least})
    checks = judge(comparison.finish(), JudgePlan(rules=rules, limits=limits, profiles={"y": profile}))
    (found,) = (check for check in checks if check.name == "min_cosine_similarity")
    return found


@given(seed=st.integers(0, 10_000), rows=st.integers(1, 40), batch=st.integers(1, 9), noise=st.floats(0, 3))
def test_it_is_that_of_the_worst_row_however_the_rows_are_cut_into_batches(
    seed: int, rows: int, batch: int, noise: float
) -> None:
    rng = np.random.default_rng(seed)
    expected = rng.standard_normal((rows, 5)).astype(np.float32)
    actual = (expected + noise * rng.standard_normal((rows, 5))).astype(np.float32)
    a, b = actual.astype(np.float64), expected.astype(np.float64)
    cosines = (a * b).sum(axis=1) / (np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1))

    found = _check(actual, expected, 0.0, batch=batch)

    assert found.measured == pytest.approx(cosines.min(), abs=1e-12)
    assert found.status is (Status.PASS if found.measured >= 0 else Status.FAIL)


def test_one_row_that_points_elsewhere_fails_where_all_values_together_hide_it() -> None:
    rng = np.random.default_rng(0)
    expected = rng.standard_normal((500, 64)).astype(np.float32)
    actual = expected.copy()
    actual[321] = -actual[321]

    found = _check(actual, expected, 0.99)

    assert (found.status, found.measured, found.limit) == (Status.FAIL, pytest.approx(-1.0), 0.99)
    assert found.detail == "-1 < 0.99, lowest at row 'r321'"


def test_a_row_is_like_itself_to_the_last_bit_and_one_of_zeros_like_no_other() -> None:
    expected = np.array([[1.0, 0.0], [0.0, 0.0]], np.float32)
    moved = np.array([[1.0, 0.0], [0.0, 1e-3]], np.float32)

    assert _check(expected, expected, 1.0).status is Status.PASS
    equal = np.random.default_rng(3).standard_normal((200, 33)).astype(np.float32)
    assert _check(equal, equal, 1.0).measured == 1.0
    assert _check(moved, expected, 0.5).measured == 0.0


def test_a_row_whose_squares_are_too_small_for_float64_is_not_taken_for_zeros() -> None:
    tiny = np.array([[1e-180, -2e-180]])

    assert _check(tiny, tiny, 1.0).status is Status.PASS
    assert _check(-tiny, tiny, 0.0).status is Status.PASS
    assert _check(-tiny, tiny, 0.5).status is Status.FAIL


def test_an_output_without_float_values_cannot_be_held_to_it() -> None:
    labels = np.arange(8, dtype=np.int64)

    found = _check(labels, labels, 0.9)

    assert found.status is Status.ERROR
    assert [(words.key, words.values["least"]) for words in found.words] == [("floor.nothing", 0.9)]


def _compare(folder: Path, actual: NDArray[np.float32], least: dict[str, float]) -> dict[str, str]:
    expected = np.random.default_rng(1).standard_normal((20, 8)).astype(np.float32)
    for name, arrays in {
        "samples": {"x": expected},
        "reference": {"embedding": expected},
        "candidate": {"embedding": expected + actual},
    }.items():
        np.savez(folder / f"{name}.npz", **arrays)
    job = ComparisonJob(
        reference=recorded_model(folder / "reference.npz", name="reference"),
        candidate=recorded_model(folder / "candidate.npz", name="candidate"),
        samples=SampleSource(text="samples.npz", folder=folder),
        rules=GateRules(tolerance=_LOOSE, min_cosine_similarity=least),
    )
    (folder / "work").mkdir()
    args = {"job": to_data(job), "folder": str(folder / "work"), "time_limit_s": 60}
    found = compare.run(args, lambda *_: None)
    return {check["name"]: check["status"] for check in found["checks"]} | {"verdict": found["verdict"]}


@pytest.mark.parametrize(("least", "verdict"), [(0.5, "pass"), (0.999, "fail")])
def test_a_comparison_is_held_to_what_is_asked_of_an_output(tmp_path: Path, least: float, verdict: str) -> None:
    noise = 0.2 * np.random.default_rng(2).standard_normal((20, 8)).astype(np.float32)

    found = _compare(tmp_path, noise, {"embedding": least})

    assert (found["min_cosine_similarity"], found["verdict"]) == (verdict, verdict)


def test_where_nothing_is_asked_there_is_no_check(tmp_path: Path) -> None:
    assert "min_cosine_similarity" not in _compare(tmp_path, np.zeros((20, 8), np.float32), {})


def test_a_row_that_is_not_finite_is_left_to_the_check_of_that() -> None:
    expected = np.ones((4, 2), np.float32)
    actual = expected.copy()
    actual[2] = math.nan

    assert _check(actual, expected, 0.5).status is Status.PASS
