"""Faults that one scale for a whole tensor does not see, and equivalent rewrites that must pass."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paritygate.precision import Precision
from paritygate.validate.gate.rules import GateRules
from paritygate.validate.gate.verdict import JudgePlan, judge
from paritygate.validate.measure.check import Verdict, verdict_of
from paritygate.validate.measure.limits import limits_for
from paritygate.validate.measure.measurement import ComparisonPlan, OutputComparison
from paritygate.validate.measure.profile import profile_outputs
from paritygate.validate.measure.tolerance import DEFAULT_TOLERANCES
from paritygate.validate.reference.channel_axis import channel_axes

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from tests.pipelines.conftest import Bench


@pytest.fixture(scope="module")
def detections() -> NDArray[np.float32]:
    """Return what a detector returns, [rows, 84, 8400]: 4 coordinates in pixels, 80 class scores, mostly low."""
    rng = np.random.default_rng(0)
    boxes = rng.uniform(0, 640, (2, 4, 8400))
    scores = rng.beta(0.05, 8, (2, 80, 8400))
    # A few objects are really there.
    for row in range(2):
        scores[row, rng.integers(0, 80, 40), rng.integers(0, 8400, 40)] = rng.uniform(0.5, 0.95, 40)
    return np.concatenate([boxes, scores], axis=1).astype(np.float32)


def _scores_times(detections: NDArray[np.float32], factor: float) -> NDArray[np.float32]:
    changed = detections.copy()
    changed[:, 4:] *= np.float32(factor)
    return changed


@pytest.mark.parametrize(("factor", "precision"), [(0.5, "fp16"), (0.0, "bf16"), (0.0, "int8")])
def test_class_scores_of_a_detector_that_are_halved_or_lost_fail(
    bench: Bench, detections: NDArray[np.float32], factor: float, precision: str
) -> None:
    outcome = bench.given({"boxes": detections}, {"boxes": _scores_times(detections, factor)}, "--precision", precision)

    assert outcome.code == 1
    assert outcome.result["outputs"]["boxes"]["axis"] == 1


def test_rounding_of_a_detector_to_half_precision_passes(bench: Bench, detections: NDArray[np.float32]) -> None:
    rounded = detections.astype(np.float16).astype(np.float32)

    assert bench.given({"boxes": detections}, {"boxes": rounded}, "--precision", "fp16").failed == set()


def _unit(values: NDArray[np.float64]) -> NDArray[np.float32]:
    return (values / np.linalg.norm(values, axis=1, keepdims=True)).astype(np.float32)


def test_unit_embeddings_with_three_percent_of_noise_fail_as_fp16(bench: Bench) -> None:
    rng = np.random.default_rng(0)
    clean = _unit(rng.standard_normal((200, 768)))
    noise = _unit(rng.standard_normal((200, 768))) * np.float32(0.03)

    outcome = bench.given({"embedding": clean}, {"embedding": clean + noise}, "--precision", "fp16")

    assert outcome.code == 1
    assert {"max_abs_diff", "max_row_rel_diff"} <= outcome.failed


def test_probabilities_of_a_thousand_classes_replaced_by_zeros_fail_as_bf16(bench: Bench) -> None:
    logits = 0.5 * np.random.default_rng(0).standard_normal((200, 1000))
    probabilities = (np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)).astype(np.float32)

    outcome = bench.given({"p": probabilities}, {"p": np.zeros_like(probabilities)}, "--precision", "bf16")

    assert outcome.code == 1
    assert {"max_abs_diff", "max_row_rel_diff", "rms_diff"} <= outcome.failed
    assert outcome.check("max_row_rel_diff", "p")["measured"] == pytest.approx(1, abs=0.2)


def test_a_sum_in_another_order_passes_as_fp32(bench: Bench) -> None:
    rng = np.random.default_rng(0)
    x, weight = (rng.standard_normal(shape).astype(np.float32) for shape in ((300, 512), (512, 64)))
    forward, backward = x @ weight, (x[:, ::-1].copy() @ weight[::-1].copy())
    assert (forward != backward).any()

    outcome = bench.given({"logits": forward}, {"logits": backward}, "--decision", "logits:argmax")

    assert outcome.code == 0


def test_a_regression_at_a_million_that_varies_by_one_cannot_be_resolved(bench: Bench) -> None:
    prices = np.float32(1e6) + np.random.default_rng(0).uniform(-1, 1, (500, 1)).astype(np.float32)

    outcome = bench.given({"price": prices}, {"price": prices.copy()})

    assert outcome.code == 3
    assert outcome.status("resolution", "price") == "inconclusive"
    assert outcome.check("resolution", "price")["measured"] == 0.25


def test_some_values_at_a_million_may_be_off_by_a_step_and_none_by_much_more(bench: Bench) -> None:
    prices = np.float32(1e6) + 100 * bench.normal(500, 1)
    some, far = prices.copy(), prices.copy()
    some[::100] = np.nextafter(some[::100], np.float32(np.inf))
    far[7] += np.float32(0.5)

    assert bench.given({"price": prices}, {"price": some}).code == 0
    assert bench.given({"price": prices}, {"price": far}).code == 1


def _masked(bench: Bench, name: str, fill: float, *, factor: float = 1.0) -> str:
    """Write `y = Where(m, factor * x, fill)`: scores behind a mask."""
    import onnx

    return bench.model(
        name,
        [
            onnx.helper.make_node("Mul", ["x", "factor"], ["scores"]),
            onnx.helper.make_node("Where", ["m", "scores", "fill"], ["y"]),
        ],
        inputs={"m": ("bool", ["batch", 8]), "x": ("float", ["batch", 8])},
        outputs={"y": ("float", ["batch", 8])},
        weights={"factor": np.float32([factor]), "fill": np.float32([fill])},
    )


@pytest.mark.parametrize("fill", [-1e4, -1e9, float(np.finfo(np.float32).min), -np.inf])
@pytest.mark.parametrize("factor", [0.0, 1.003])
def test_a_fault_behind_masked_scores_fails_on_the_samples_alone(bench: Bench, fill: float, factor: float) -> None:
    mask = np.random.default_rng(0).random((120, 8)) < 0.6
    samples = bench.npz("inputs.npz", {"m": mask, "x": bench.normal(120, 8)})
    options = ("--samples", samples, "--probes", "none", "--non-finite", "match")
    reference = _masked(bench, "reference", fill)

    wrong = bench.compare(reference, _masked(bench, "wrong", fill, factor=factor), *options)
    right = bench.compare(reference, _masked(bench, "right", fill), *options)

    assert (wrong.code, wrong.failed) == (1, {"max_abs_diff", "mean_abs_diff", "max_row_rel_diff"})
    assert right.code == 0
    fills = 0 if np.isinf(fill) else int(np.count_nonzero(~mask))
    assert right.result["outputs"]["y"]["fill_values"] == fills


def test_one_huge_row_does_not_hide_the_others(bench: Bench) -> None:
    expected = bench.normal(300, 4)
    expected[17] *= np.float32(1e6)
    actual = expected * np.float32(1.05)
    actual[17] = expected[17] * np.float32(1 + 1e-6)

    outcome = bench.given({"y": expected}, {"y": actual}, "--probes", "none")

    assert (outcome.code, outcome.failed) == (1, {"max_abs_diff", "mean_abs_diff", "max_row_rel_diff"})
    worst = outcome.result["outputs"]["y"]["worst_rows"][0]
    assert worst["row_id"] != "17"
    assert worst["max_abs_diff"] > worst["limit"]
    assert outcome.result["outputs"]["y"]["scale"] < 1.2


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16", "int8"])
def test_a_row_that_is_lost_among_ten_thousand_fails(bench: Bench, precision: str) -> None:
    expected = np.random.default_rng(0).standard_normal((10_000, 8)).astype(np.float32)
    actual = expected.copy()
    actual[7321] = 0

    outcome = bench.given({"logits": expected}, {"logits": actual}, "--precision", precision)

    assert outcome.code == 1
    assert outcome.result["outputs"]["logits"]["worst_rows"][0]["row_id"] == "7321"


def test_a_constant_offset_is_warned_of_before_it_fails(bench: Bench) -> None:
    expected = np.random.default_rng(0).standard_normal((500, 4)).astype(np.float32)

    outcome = bench.given({"logits": expected}, {"logits": expected + np.float32(1.5e-5)})

    assert outcome.code == 0
    assert outcome.status("bias", "logits") == "warning"
    assert outcome.check("bias", "logits")["limit"] == pytest.approx(1e-5, rel=0.1)


def _verdict(expected: NDArray[np.float32], actual: NDArray[np.float32], precision: Precision) -> Verdict:
    from paritygate.batch import Batch

    axis = next(iter(channel_axes([expected.shape], None)), None)
    profile = profile_outputs("y", [(expected, len(expected))], axis=axis, dtype="float32")
    limits = limits_for(DEFAULT_TOLERANCES[precision], profile)
    comparison = OutputComparison(ComparisonPlan(profiles={"y": profile}, limits={"y": limits}))
    comparison.add(Batch(inputs={}, ids=[str(row) for row in range(len(expected))]), {"y": actual}, {"y": expected})
    comparison.end_pass()
    plan = JudgePlan(
        rules=GateRules(tolerance=DEFAULT_TOLERANCES[precision]), limits={"y": limits}, profiles={"y": profile}
    )
    return verdict_of(judge(comparison.finish(), plan))


@given(
    shape=st.sampled_from([(8, 1), (8, 5), (4, 3, 6)]),
    seed=st.integers(0, 1000),
    size=st.floats(-7, 2),
    growth=st.floats(1, 1000),
    share=st.floats(0.01, 1),
    precision=st.sampled_from([Precision.FP32, Precision.FP16, Precision.INT8]),
)
@settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow])
def test_scaling_an_error_up_never_turns_a_fail_into_a_pass(
    *, shape: tuple[int, ...], seed: int, size: float, growth: float, share: float, precision: Precision
) -> None:
    rng = np.random.default_rng(seed)
    expected = (rng.standard_normal(shape) * 10 ** rng.uniform(-2, 3)).astype(np.float32)
    error = rng.standard_normal(shape) * (rng.random(shape) < share) * 10**size
    smaller, larger = ((expected + factor * error).astype(np.float32) for factor in (1, growth))
    # Rounding to float32 may swallow a part of an error, so the claim is about what is left of it.
    grew = bool((np.abs(larger - expected) >= np.abs(smaller - expected)).all())

    if grew and _verdict(expected, smaller, precision) is Verdict.FAIL:
        assert _verdict(expected, larger, precision) is Verdict.FAIL


def _table_of_mixed_units(rows: int = 120) -> NDArray[np.float32]:
    """Return a probability, an area in square metres and a count, [rows, 3]."""
    rng = np.random.default_rng(5)
    columns = (rng.uniform(0, 1, rows), rng.normal(2e6, 5e5, rows), rng.poisson(20, rows))
    return np.stack(columns, axis=1).astype(np.float32)


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16", "int8"])
def test_a_lost_column_beside_one_of_another_unit_fails(bench: Bench, precision: str) -> None:
    expected = _table_of_mixed_units()
    actual = expected.copy()
    actual[:, 0] = 0

    outcome = bench.given({"table": expected}, {"table": actual}, "--precision", precision)

    assert outcome.code == 1
    assert outcome.result["outputs"]["table"]["axis"] == 1


def test_a_table_of_mixed_units_may_differ_by_its_rounding(bench: Bench) -> None:
    expected = _table_of_mixed_units()
    actual = np.nextafter(expected, np.float32(np.inf))

    assert bench.given({"table": expected}, {"table": actual}).failed == set()


def test_every_column_is_a_channel(bench: Bench) -> None:
    expected = bench.normal(100, 3) * np.float32([1, 5, 50])

    outcome = bench.given({"logits": expected}, {"logits": expected + np.float32(1e-6)})

    assert outcome.result["outputs"]["logits"]["axis"] == 1
