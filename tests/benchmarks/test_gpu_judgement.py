"""Entries, ratios and exit codes of the GPU figures, without a GPU."""

from __future__ import annotations

import json
import math
from types import ModuleType
from typing import Any

import pytest

from paritygate.codec import to_data

NOISE = 1e-6


def comparison(**changes: Any) -> dict[str, Any]:  # noqa: ANN401 - parts of JSON
    """Return what `compare` writes, as far as it is read here."""
    output = {
        "max_abs_diff": 4e-3, "min_abs_diff": 0.0, "mean_abs_diff": 8e-4, "std_abs_diff": 7e-4, "p99_abs_diff": 3e-3,
        "bias": 1e-5, "max_row_rel_diff": 1e-3, "non_finite": 0,
        "limits": {"max_abs_diff": {"lowest": 1.5e-2, "highest": 1.5e-2}},
    }  # fmt: skip
    candidate = {
        "runtime": "onnxruntime", "version": "1.31.1", "device": "cuda:sm90", "precision_found": "fp16", "tf32": False,
        "optimisation": "all", "notes": ["ran on CUDAExecutionProvider"], "digest": "sha256:0",
    }  # fmt: skip
    return {
        "error": None,
        "verdict": "pass",
        "outputs": {"logits": output},
        "decisions": {"logits": {"mismatches": 0, "rows": 519, "classes": {}}},
        "checks": [{"name": "difference", "status": "pass", "detail": "within"}],
        "candidate": candidate,
        **changes,
    }


def entry(judgement: ModuleType, state: str, *, real: float | None = 4e-3) -> Any:  # noqa: ANN401 - an Entry of the script
    """Return an entry in a state, predicted as 4e-3 where it ran."""
    made = judgement.Entry(model="m", runner="r", precision="fp16", state=judgement.State(state))
    if state == "not run":
        return made
    figures = dict.fromkeys(judgement.PREDICTED, real)
    expected = dict.fromkeys(judgement.PREDICTED, 4e-3)
    ratios = judgement.ratios_of(expected, figures, noise=NOISE)
    return judgement.Entry(
        model="m", runner="r", precision="fp16", state=judgement.State(state), figures=figures, ratios=ratios
    )


def test_a_comparison_becomes_an_entry_with_its_figures_and_with_what_ran(judgement: ModuleType) -> None:
    made = to_data(judgement.entry_of("sts", "onnxruntime-cuda", "fp16", comparison()))

    assert made["state"] == "pass"
    assert made["reason"] == ""
    assert made["figures"]["max_abs_diff"] == 4e-3
    assert made["limits"] == {"max_abs_diff": 1.5e-2}
    assert made["decisions"] == {"logits": {"mismatches": 0, "rows": 519}}
    assert made["ran"]["device"] == "cuda:sm90"
    assert made["ran"]["notes"] == ["ran on CUDAExecutionProvider"]


def test_a_comparison_that_failed_says_by_which_check(judgement: ModuleType) -> None:
    checks = [
        {"name": "difference", "status": "fail", "detail": "max 2 > 0.01"},
        {"name": "health", "status": "pass", "detail": "finite"},
    ]

    made = judgement.entry_of("sts", "tensorrt", "fp16", comparison(verdict="fail", checks=checks))

    assert made.state is judgement.State.FAIL
    assert made.reason == "difference: max 2 > 0.01"


@pytest.mark.parametrize(("kind", "state"), [("MissingBackendError", "not run"), ("BackendError", "error")])
def test_what_is_missing_is_not_run_and_what_broke_is_an_error(judgement: ModuleType, kind: str, state: str) -> None:
    error = {"kind": kind, "message": "no provider of this name", "hint": ""}

    made = judgement.entry_of("sts", "tensorrt", "fp16", comparison(error=error, outputs={}))

    assert made.state.value == state
    assert made.reason == "no provider of this name"
    assert made.figures is None


def test_a_model_with_two_outputs_is_refused(judgement: ModuleType) -> None:
    outputs = {"a": {}, "b": {}}

    with pytest.raises(ValueError, match="has outputs a, b: exactly one"):
        judgement.entry_of("two", "tensorrt", "fp16", comparison(outputs=outputs))


@pytest.mark.parametrize(
    ("emulated", "real", "verdict"),
    [
        (4e-3, 4e-3, "within the factor"),
        (4e-3, 11.9e-3, "within the factor"),
        (4e-3, 12.1e-3, "outside the factor"),
        (4e-3, 4e-3 / 2.9, "within the factor"),
        (4e-3, 4e-3 / 3.1, "outside the factor"),
        (9e-7, 1e-9, "below the noise"),
        (0.0, 0.0, "below the noise"),
        # Not both below it: the smaller one counts as the noise.
        (2.9e-6, 0.0, "within the factor"),
        (4e-3, 0.0, "outside the factor"),
        (0.0, 3.1e-6, "outside the factor"),
        (4e-3, None, "outside the factor"),
        (None, 4e-3, "outside the factor"),
        (math.inf, math.inf, "outside the factor"),
        (math.nan, 4e-3, "outside the factor"),
    ],
)
def test_a_prediction_holds_within_a_factor_of_3_up_or_down(
    judgement: ModuleType, emulated: float | None, real: float | None, verdict: str
) -> None:
    figures = [dict.fromkeys(judgement.PREDICTED, value) for value in (emulated, real)]

    ratios = judgement.ratios_of(*figures, noise=NOISE)

    assert set(ratios) == {"max_abs_diff", "mean_abs_diff"}
    assert {ratio.verdict.value for ratio in ratios.values()} == {verdict}


def test_one_statistic_outside_makes_the_entry_not_predicted(judgement: ModuleType) -> None:
    emulated = {"max_abs_diff": 4e-3, "mean_abs_diff": 8e-4}
    real = {"max_abs_diff": 4e-3, "mean_abs_diff": 8e-3}
    made = judgement.Entry(
        model="m",
        runner="r",
        precision="fp16",
        state=judgement.State.PASS,
        ratios=judgement.ratios_of(emulated, real, noise=NOISE),
    )

    assert made.prediction is judgement.Predicted.OUTSIDE
    assert judgement.exit_code([made], is_strict=False) == 1


@pytest.mark.parametrize(
    ("states", "code"),
    [
        (["pass", "pass"], 0),
        (["pass", "not run"], 0),
        (["pass", "fail"], 1),
        (["pass", "error", "fail"], 5),
        (["pass", "inconclusive"], 5),
        (["not run", "not run"], 5),
        ([], 5),
    ],
)
def test_the_exit_code_is_green_only_for_what_ran_and_passed(
    judgement: ModuleType, states: list[str], code: int
) -> None:
    assert judgement.exit_code([entry(judgement, state) for state in states], is_strict=False) == code


def test_strictly_what_was_not_run_is_not_green(judgement: ModuleType) -> None:
    entries = [entry(judgement, "pass"), entry(judgement, "not run")]

    assert judgement.exit_code(entries, is_strict=True) == 5
    assert judgement.exit_code(entries[:1], is_strict=True) == 0


def test_the_report_holds_every_entry_and_says_what_is_a_rehearsal(judgement: ModuleType) -> None:
    entries = [entry(judgement, "pass"), judgement.not_run("m", "tensorrt", "fp32", "it is not installed")]

    on_gpu = judgement.report(entries, machine={"gpu": {"name": "NVIDIA H100", "driver": "570.1"}}, device="cuda")
    rehearsed = judgement.report(entries, machine={}, device="cpu")

    assert json.loads(json.dumps(on_gpu)) == on_gpu
    assert on_gpu["machine"]["gpu"]["driver"] == "570.1"
    assert on_gpu["counts"] == {"pass": 1, "fail": 0, "inconclusive": 0, "error": 0, "not run": 1}
    assert on_gpu["entries"][0]["prediction"] == "within the factor"
    assert on_gpu["entries"][0]["ratios"]["max_abs_diff"]["ratio"] == 1.0
    assert on_gpu["entries"][1]["reason"] == "it is not installed"
    assert not on_gpu["is_rehearsal"]
    assert rehearsed["is_rehearsal"]


def test_a_line_shows_figures_ratios_and_reasons(judgement: ModuleType) -> None:
    entries = [
        entry(judgement, "pass", real=2e-3),
        entry(judgement, "fail", real=None),
        judgement.not_run("m", "tensorrt", "fp32", "it is not installed"),
    ]

    first, second, third = judgement.lines(entries)

    assert "pass" in first
    assert first.endswith("max 0.002 mean 0.002 | within the factor (max 0.5, mean 0.5)")
    assert "max not finite mean not finite | outside the factor" in second
    assert third.endswith("not run      it is not installed")
