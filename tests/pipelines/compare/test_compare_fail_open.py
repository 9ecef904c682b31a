"""What lets other gates pass a model that nobody should serve: each row must end in something else here.

The cases are those in which a widely used comparator of models returns success.
"""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from paritygate.machine import gpu_of_machine

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from tests.pipelines.conftest import Bench


def _column(values: NDArray[np.generic]) -> dict[str, NDArray[np.generic]]:
    return {"logits": values.reshape(-1, 1)}


def test_two_inputs_against_a_hundred_saved_outputs_are_not_measured(bench: Bench) -> None:
    expected = bench.npz("expected.npz", {"logits": bench.normal(100, 3)})

    outcome = bench.compare(expected, bench.linear("candidate"), "--samples", bench.samples(2))

    assert (outcome.code, outcome.result["verdict"]) == (5, "error")
    assert "the same rows are needed on both sides" in outcome.err
    assert "hold 100 rows of 'logits', the samples 2" in outcome.err


def test_a_hundred_inputs_against_two_saved_outputs_are_not_measured(bench: Bench) -> None:
    expected = bench.npz("expected.npz", {"logits": bench.normal(2, 3)})

    outcome = bench.compare(expected, bench.linear("candidate"), "--samples", bench.samples(100))

    assert (outcome.code, outcome.result["verdict"]) == (5, "error")
    assert "hold 2 rows of 'logits', the samples more than that" in outcome.message


@pytest.mark.parametrize("arrays", [None, {}, {"x": np.zeros((0, 4), dtype=np.float32)}], ids=["csv", "none", "no-row"])
def test_no_inputs_at_all_are_wrong_usage(bench: Bench, arrays: dict[str, NDArray[np.generic]] | None) -> None:
    (bench.folder / "rows.csv").write_text("a,b,c,d\n")
    samples = str(bench.folder / "rows.csv")
    if arrays is not None:
        samples = bench.npz("inputs.npz", arrays)

    outcome = bench.compare(bench.linear("reference"), bench.linear("candidate"), "--samples", samples)

    assert outcome.code == 2
    assert outcome.message.startswith("samples ")
    assert outcome.message.endswith(" hold no rows")


def test_an_empty_folder_of_saved_outputs_is_wrong_usage(bench: Bench) -> None:
    empty = bench.folder / "saved"
    empty.mkdir()

    outcome = bench.compare(str(empty), bench.linear("candidate"), "--samples", bench.samples())

    assert outcome.code == 2
    assert "is a folder without a model and without recorded outputs" in outcome.err


@pytest.mark.parametrize("side", ["reference", "candidate"])
def test_saved_outputs_without_an_array_are_not_measured(bench: Bench, side: str) -> None:
    sides = {"reference": bench.linear("reference"), "candidate": bench.linear("candidate")}
    sides[side] = bench.npz("saved.npz", {})

    outcome = bench.compare(sides["reference"], sides["candidate"], "--samples", bench.samples())

    assert outcome.code != 0
    assert outcome.result["verdict"] != "pass"


def test_saved_outputs_that_are_not_there_are_wrong_usage(bench: Bench) -> None:
    outcome = bench.compare(str(bench.folder / "none.npz"), bench.linear("candidate"), "--samples", bench.samples())

    assert outcome.code == 2
    assert f"recorded outputs {bench.folder / 'none.npz'} do not exist" in outcome.err


def test_one_side_alone_is_wrong_usage(tool: list[str], tmp_path: Path) -> None:
    alone = subprocess.run(
        [*tool, "compare", "only.onnx", "--samples", "x.npz"], cwd=tmp_path, capture_output=True, text=True, check=False
    )

    assert alone.returncode == 2
    assert "Missing argument 'CANDIDATE'" in alone.stderr


def test_a_model_against_itself_is_not_a_comparison(bench: Bench) -> None:
    model = bench.linear("model")

    outcome = bench.compare(model, model, "--samples", bench.samples())

    assert outcome.code == 2
    assert "a file always equals itself" in outcome.check("distinct")["detail"]


def test_a_file_is_compared_with_itself_in_a_precision_that_is_emulated(bench: Bench) -> None:
    model = bench.linear("model")

    outcome = bench.compare(model, model, "--samples", bench.samples(), "--precision", "bf16", "--emulate")

    assert outcome.code == 0
    assert outcome.check("distinct")["status"] == "pass"
    assert all(output["max_abs_diff"] > 0 for output in outcome.result["outputs"].values())


def test_a_copy_of_a_model_is_the_model_itself(bench: Bench) -> None:
    model = Path(bench.linear("model"))
    copy = bench.folder / "renamed.onnx"
    copy.write_bytes(model.read_bytes())

    outcome = bench.compare(str(model), str(copy), "--samples", bench.samples())

    assert (outcome.code, outcome.status("distinct")) == (5, "error")


@pytest.mark.parametrize(("expected_rows", "actual_rows"), [(3, 0), (0, 3), (0, 0)])
def test_outputs_without_rows_are_not_measured(bench: Bench, expected_rows: int, actual_rows: int) -> None:
    outcome = bench.given(
        {"logits": bench.normal(expected_rows, 3)}, {"logits": bench.normal(actual_rows, 3, seed=1)}, rows=3
    )

    assert (outcome.code, outcome.result["verdict"]) == (5, "error")


def test_an_output_that_the_candidate_lacks_fails(bench: Bench) -> None:
    expected = {"logits": bench.normal(8, 3), "pooled": bench.normal(8, 2, seed=1)}

    outcome = bench.given(expected, {"logits": expected["logits"]})

    assert outcome.code == 1
    (words,) = outcome.check("contract.outputs", "pooled")["words"]
    assert words == {"key": "contract.no_output", "values": {"output": "pooled", "outputs": ["logits"]}}


def test_an_output_that_only_the_candidate_has_fails(bench: Bench) -> None:
    expected = {"logits": bench.normal(8, 3)}

    outcome = bench.given(expected, {**expected, "pooled": bench.normal(8, 2)})

    assert outcome.code == 1
    assert outcome.check("contract.outputs", "pooled")["detail"] == (
        "the candidate has an output 'pooled' that the reference lacks"
    )


def test_outputs_of_other_names_are_not_matched_by_position(bench: Bench) -> None:
    reference, candidate = bench.linear("reference", output="logits"), bench.linear("candidate", output="prob")

    outcome = bench.compare(reference, candidate, "--samples", bench.samples())

    assert outcome.code == 1
    assert outcome.status("contract.outputs", "logits") == outcome.status("contract.outputs", "prob") == "fail"
    assert outcome.result["outputs"]["logits"]["compared"] == 0


@pytest.mark.parametrize("shape", [(0, 4), (4, 0)])
def test_empty_tensors_are_not_measured(bench: Bench, shape: tuple[int, int]) -> None:
    empty = {"logits": np.zeros(shape, dtype=np.float32)}

    outcome = bench.given(empty, dict(empty), rows=4)

    assert outcome.code == 5
    assert "hold no values" in outcome.message


def test_an_output_without_values_beside_one_that_has_some_is_not_measured(bench: Bench) -> None:
    outputs = {"logits": bench.normal(8, 3), "boxes": np.zeros((8, 0), dtype=np.float32)}

    outcome = bench.given(outputs, {**outputs, "logits": outputs["logits"] * np.float32(1 + 1e-6)})

    assert outcome.code == 5
    assert outcome.check("measured", "boxes")["detail"].endswith(
        "outputs: {boxes: {ignore: REASON}} in the spec, or --ignore boxes=REASON"
    )


@pytest.mark.parametrize("options", [(), ("--tolerance", "max_abs_diff=1e-5", "--tolerance", "max_row_rel_diff=0.1")])
def test_a_relative_limit_does_not_excuse_what_the_absolute_one_forbids(bench: Bench, options: tuple[str, ...]) -> None:
    expected = np.array([105.0, 100.0, 110.0], dtype=np.float32)

    outcome = bench.given(_column(expected), _column(expected + np.float32([5, 0, 0])), *options)

    assert outcome.code == 1
    assert outcome.status("max_abs_diff", "logits") == "fail"


def test_one_of_a_thousand_values_that_is_off_fails(bench: Bench) -> None:
    expected = bench.normal(1000)
    actual = expected.copy()
    actual[617] += 1000

    outcome = bench.given(_column(expected), _column(actual))

    assert outcome.code == 1
    worst = outcome.result["outputs"]["logits"]["worst_rows"][0]
    assert (worst["row_id"], worst["max_abs_diff"]) == ("617", pytest.approx(1000, abs=1e-3))
    assert outcome.result["outputs"]["logits"]["p50_abs_diff"] == 0


def test_one_of_a_hundred_samples_far_beyond_the_limit_is_not_averaged_away(bench: Bench) -> None:
    expected = bench.normal(100, 1000)
    actual = expected.copy()
    actual[42, 3] += np.float32(50 * 1e-4)

    outcome = bench.given({"logits": expected}, {"logits": actual})

    assert outcome.code == 1
    assert outcome.status("mean_abs_diff", "logits") == "pass"
    assert outcome.status("max_abs_diff", "logits") == "fail"


def test_half_of_every_value_fails_although_it_points_the_same_way(bench: Bench) -> None:
    expected = bench.normal(64, 8) * np.float32(0.001)

    outcome = bench.given({"logits": expected}, {"logits": expected * np.float32(0.5)})

    assert outcome.code == 1
    assert outcome.result["outputs"]["logits"]["cosine_similarity"] == pytest.approx(1)
    assert outcome.check("max_row_rel_diff", "logits")["measured"] == pytest.approx(0.5)


def test_a_metric_that_does_not_exist_is_wrong_usage(bench: Bench) -> None:
    outcome = bench.compare(
        bench.linear("a"), bench.linear("b"), "--samples", bench.samples(), "--tolerance", "lpips=0.1"
    )

    assert outcome.code == 2
    assert "error: tolerance 'lpips' is not known (allowed: max_abs_diff, mean_abs_diff," in outcome.err
    assert (
        "hint: write max_abs_diff: 1e-3 below the variant in the spec, or --tolerance max_abs_diff=1e-3" in outcome.err
    )


@pytest.mark.parametrize("limit", ["decision_mismatches=0", "mismatch_rate_upper_95=0.01"])
def test_a_limit_on_decisions_without_a_decision_is_wrong_usage(bench: Bench, limit: str) -> None:
    outcome = bench.compare(bench.linear("a"), bench.linear("b"), "--samples", bench.samples(), "--tolerance", limit)

    assert outcome.code == 2
    assert f"tolerance {limit.partition('=')[0]} is declared, but no decision is" in outcome.message


@pytest.mark.skipif(gpu_of_machine() is not None, reason="this machine has the device that is asked for")
def test_a_device_that_is_not_there_is_not_measured(bench: Bench) -> None:
    outcome = bench.compare(bench.linear("a"), bench.linear("b"), "--samples", bench.samples(), "--device", "cuda")

    assert (outcome.code, outcome.result["verdict"]) == (5, "error")


def test_integers_that_differ_by_one_in_a_billion_fail(bench: Bench) -> None:
    ids = np.full((4, 2), 2**30, dtype=np.int64)
    ids[1] = 7
    wrong = ids.copy()
    wrong[3, 1] += 1

    outcome = bench.given({"ids": ids}, {"ids": wrong})

    assert outcome.code == 1
    assert outcome.check("exact", "ids")["measured"] == 1


def test_a_label_that_flips_at_the_threshold_fails_where_none_may(bench: Bench) -> None:
    expected = np.linspace(-2, 2, 200, dtype=np.float32)
    expected[20] = 0.49999
    actual = expected.copy()
    actual[20] = 0.50001

    outcome = bench.given(
        _column(expected), _column(actual), "--decision", "logits:threshold=0.5", "--tolerance", "decision_mismatches=0"
    )

    assert (outcome.code, outcome.failed) == (1, {"decision_mismatches"})
    assert outcome.result["decisions"]["logits"] | {"rule": "", "classes": {}, "constant": ""} == {
        "rule": "",
        "classes": {},
        "constant": "",
        "rows": 200,
        "decisions": 200,
        "mismatches": 1,
        "inside_band": 1,
        "outside_band": 0,
        "rows_mismatched": 1,
        "mismatch_rate_upper_95": pytest.approx(0.02350, abs=1e-4),
        "examples": ["20"],
    }


def test_labels_that_flip_at_the_threshold_fail_by_default_from_the_second_in_a_hundred(bench: Bench) -> None:
    expected = np.linspace(-2, 2, 100, dtype=np.float32)
    expected[[20, 30]] = 0.49999
    actual = expected.copy()
    actual[[20, 30]] = 0.50001

    outcome = bench.given(_column(expected), _column(actual), "--decision", "logits:threshold=0.5")

    assert (outcome.code, outcome.failed) == (1, {"decision_mismatches"})
    check = outcome.check("decision_mismatches", "logits")
    assert (check["measured"], check["limit"]) == (2, 1)


def test_a_flip_that_the_tolerance_cannot_explain_fails_though_the_difference_is_within_a_looser_limit(
    bench: Bench,
) -> None:
    expected = np.linspace(-2, 2, 200, dtype=np.float32)
    actual = expected.copy()
    actual[150] = -5
    loose = [f"--tolerance={name}=100" for name in ("mean_abs_diff", "max_row_rel_diff")]

    outcome = bench.given(_column(expected), _column(actual), "--decision", "logits:threshold=0.5", *loose)

    assert outcome.check("decision_mismatches", "logits")["status"] == "fail"
    assert outcome.check("decision_mismatches", "logits")["words"][-1]["values"]["ids"] == ["150"]


@pytest.mark.parametrize(
    ("expected", "actual"),
    [(1.0, np.nan), (1.0, np.inf), (np.nan, np.nan), (np.nan, 1.0)],
    ids=["nan-for-a-number", "infinity-for-a-number", "nan-on-both-sides", "number-for-a-nan"],
)
def test_nan_and_infinity_never_pass(bench: Bench, expected: float, actual: float) -> None:
    logits = bench.normal(16, 2)
    wrong = logits.copy()
    logits[5, 1], wrong[5, 1] = expected, actual

    outcome = bench.given({"logits": logits}, {"logits": wrong})

    assert outcome.code == (5 if np.isnan(expected) else 1)
    assert outcome.result["verdict"] != "pass"


@pytest.mark.parametrize(
    ("error", "code", "verdict"), [(0.0, 0, "pass"), (0.1, 1, "fail"), (None, 2, None), (1e-3, 5, "error")]
)
def test_each_cause_has_its_exit_code_in_a_real_process(
    isolated_bench: Bench, tool: list[str], error: float | None, code: int, verdict: str | None
) -> None:
    bench = isolated_bench
    reference, samples = bench.linear("reference"), bench.samples()
    candidate = "missing.onnx" if error is None else bench.linear("candidate", error=error)
    # No process starts in so little time.
    limit = ["--time-limit", "0.001"] if code == 5 else []

    process = subprocess.run(
        [*tool, "compare", reference, candidate, "--samples", samples, "--json", "-", *limit],
        cwd=bench.folder,
        capture_output=True,
        text=True,
        check=False,
    )

    assert process.returncode == code
    # Standard output holds the JSON and nothing else.
    assert (json.loads(process.stdout)["verdict"] if process.stdout else None) == verdict


def test_too_few_rows_for_the_claim_are_inconclusive_in_a_real_process(isolated_bench: Bench, tool: list[str]) -> None:
    bench = isolated_bench
    process = subprocess.run(
        [
            *tool,
            "compare",
            bench.linear("a"),
            bench.linear("b"),
            "--samples",
            bench.samples(8),
            "--probes",
            "none",
        ],
        capture_output=True,
        text=True,
        check=False,
    )

    assert process.returncode == 3
    printed = " ".join(process.stdout.split())
    assert re.search(r"\b8 rows .*\b30\b.*\b31 %", printed)
    assert "--min-rows 8" in printed
    assert process.stdout.rstrip().endswith("verdict: inconclusive")
