"""What a run ends in: exit code, message, evidence, release; on an ONNX model, without any framework."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from paritygate.backends import backend_state
from paritygate.pipelines.compare.redaction import without_inputs
from paritygate.pipelines.compare.result import ComparisonResult, SideResult
from paritygate.pipelines.report.figures import number
from paritygate.pipelines.run import workspace
from paritygate.pipelines.run.evidence import EvidenceEntry
from paritygate.pipelines.run.fp32_base import fp32_entry, with_fp32_base
from paritygate.pipelines.run.workspace import FailedVariant, RunFolder, required_variants, worst_code
from paritygate.pipelines.run_spec import exit_code_of_run
from paritygate.pipelines.spec.loading import parse_spec
from paritygate.pipelines.spec.target_choice import needed_backends
from paritygate.precision import Variant
from paritygate.validate.measure.check import Check, Status

if TYPE_CHECKING:
    from tests.pipelines.conftest import Desk


def test_a_run_that_passes_releases_the_variant(finished: Desk) -> None:
    said = json.loads((finished.folder / "said.json").read_text(encoding="utf-8"))
    (run,) = said["runs"]

    assert said["exit_code"] == run["exit_code"] == 0
    assert run["required"] == ["onnx-fp32"]
    assert run["variants"]["onnx-fp32"]["verdict"] == "pass"
    assert run["variants"]["onnx-fp32"]["rows"] == 120
    assert run["failures"] == {}
    assert run["not_released"] == ""
    assert run["release"]["variants"] == ["onnx-fp32"]
    assert (run["release"]["version"], run["release"]["alias"], run["release"]["reason"]) == (1, "prod", "")
    assert finished.releases == ["tiny/1"]
    released = finished.folder / "artifacts/repository/store/tiny/1/onnx-fp32/model.onnx"
    assert released.read_bytes() == (finished.run_folder / "onnx-fp32/model.onnx").read_bytes()


def test_the_evidence_of_a_run_names_the_bytes_and_where_they_ran(finished: Desk) -> None:
    evidence = finished.evidence()
    record = json.loads((finished.run_folder / "onnx-fp32/artifact.json").read_text(encoding="utf-8"))
    recording = json.loads((finished.run_folder / "reference/record.json").read_text(encoding="utf-8"))
    (entry,) = evidence["variants"]

    assert entry["artifact"] == record["digest"]
    assert (entry["evidence"], entry["verdict"], entry["exit_code"]) == ("verified", "pass", 0)
    assert (
        entry["result"]["candidate"]["runtime"],
        entry["result"]["candidate"]["device"],
        entry["result"]["candidate"]["precision_found"],
    ) == ("onnxruntime", "cpu", "fp32")
    assert entry["result"]["candidate"]["version"]
    assert entry["result"]["rows"] == evidence["samples"]["rows"] == 120
    assert entry["result"]["outputs"]["logits"]["max_abs_diff"] == 0
    assert entry["result"]["decisions"]["logits"]["mismatches"] == 0
    assert {check["status"] for check in entry["result"]["checks"]} <= {"pass", "warning"}
    assert entry["result"]["looser_than_default"] == []
    assert evidence["samples"]["digest"] == recording["samples_digest"]
    assert evidence["reference"]["model"]["digest"] == recording["model"]["digest"]
    assert [name for name, _ in evidence["reference"]["health"]] == [
        "reference_finite",
        "reference_varies",
        "reference_repeats",
        "reference_noise",
    ]
    assert evidence["device"] == "cpu"
    assert evidence["run"] == finished.run_folder.name


def test_the_release_holds_the_evidence_and_what_it_was_judged_with(finished: Desk) -> None:
    release = finished.folder / "artifacts/repository/store/tiny/1"
    manifest = json.loads((release / "manifest.json").read_text(encoding="utf-8"))

    # As it leaves this machine, without what shows how single rows were answered.
    kept = json.loads((release / "evidence.json").read_text(encoding="utf-8"))
    assert kept == without_inputs(finished.evidence())
    assert (release / "report.html").is_file()
    assert manifest["provenance"]["samples"] == finished.evidence()["samples"]["digest"]
    assert manifest["provenance"]["source"] == finished.evidence()["reference"]["model"]["digest"]
    assert manifest["provenance"]["tools"]["onnxruntime"]
    assert manifest["provenance"]["spec"]["targets"] == ["onnx-fp32"]
    assert manifest["provenance"]["looser_tolerances"] == {}


def test_the_table_agrees_with_the_json(desk: Desk) -> None:
    called = desk.json("run", "--verbose", "spec.yaml")

    result = called.data["runs"][0]["variants"]["onnx-fp32"]
    decision, output = result["decisions"]["logits"], result["outputs"]["logits"]
    (row,) = [line for line in called.out.splitlines() if "onnx-fp32" in line and "verified" in line]
    cells = re.split(r" {2,}", row)
    bound = float(cells.pop(4).strip("< %")) / 100
    # A bound that is rounded must stay one.
    assert decision["mismatch_rate_upper_95"] <= bound <= decision["mismatch_rate_upper_95"] + 0.001
    assert cells == [
        "onnx-fp32",
        "logits",
        str(result["rows"]),
        str(decision["mismatches"]),
        *(number(output[name]) for name in ("max_abs_diff", "min_abs_diff", "mean_abs_diff", "std_abs_diff")),
        "cpu",
        "verified",
        "pass",
    ]
    assert "released tiny version 1, alias prod: onnx-fp32" in called.out
    assert f"run: {desk.run_folder}" in called.out
    # A line a stage where standard error is not a terminal.
    stages = ["tiny: exported 1 of 1 variant in", "tiny: recorded the reference in", "tiny: compared 1 of 1 variant in"]
    assert [line.rpartition(" in ")[0] + " in" for line in called.err.splitlines()] == stages


def test_json_to_standard_output_has_nothing_beside_it(desk: Desk) -> None:
    called = desk.call("run", "spec.yaml", "--json", "-", "--no-promote")

    assert json.loads(called.out)["exit_code"] == 0
    assert "verdict: pass: tiny: " in called.err
    assert "next: convert-and-validate promote --run " in called.err
    assert desk.releases == []


def test_too_few_rows_are_inconclusive_and_release_nothing(desk: Desk) -> None:
    desk.samples(99)

    called = desk.json("run", "--verbose", "spec.yaml")

    assert called.code == called.data["exit_code"] == 3, str(called)
    (run,) = called.data["runs"]
    assert run["variants"]["onnx-fp32"]["verdict"] == "inconclusive"
    assert re.search(r"onnx-fp32: inconclusive: rows: 99 rows\b[^:]*\b100\b", called.out)
    assert run["release"] is None
    assert "required and not passed: onnx-fp32 (inconclusive)" in called.out
    assert called.data["runs"][0]["not_released"].endswith("and alias prod is neither set nor moved")
    assert "such as with more samples, and run it again" in called.out
    assert desk.releases == []


def test_the_source_is_released_as_the_file_that_it_is(desk: Desk) -> None:
    desk.spec(targets=["onnx-fp16"], tolerance={"onnx-fp16": {"max_abs_diff": 1e-12}}, required=[])

    called = desk.json("run", "spec.yaml", "--verbose")

    assert called.code == 0, str(called)
    source = desk.folder / "artifacts/repository/store/tiny/1/source"
    assert (source / "model.onnx").read_bytes() == (desk.folder / "model.onnx").read_bytes()


@pytest.mark.parametrize("fallback", ["source", "none"])
def test_a_run_that_ends_in_wrong_usage_releases_nothing_and_the_alias_stays(desk: Desk, fallback: str) -> None:
    desk.spec(samples={"source": "inputs.npz", "strata": ["zz"]}, promote={"fallback": fallback})

    called = desk.json("run", "spec.yaml", "--verbose")

    assert called.code == 2, str(called)
    assert called.data["runs"][0]["release"] is None
    assert "not released: required and not passed: onnx-fp32 (error)" in called.out
    assert desk.releases == []


def test_an_inconclusive_run_without_fallback_releases_nothing(desk: Desk) -> None:
    desk.samples(99)
    desk.spec(required=[], promote={"fallback": "none"})

    called = desk.json("run", "--verbose", "spec.yaml")

    assert called.code == 0
    assert called.data["runs"][0]["release"] is None
    assert "nothing to release: no converted variant passed for cpu (onnx-fp32: inconclusive)" in called.out
    assert "the spec has no fallback" in called.data["runs"][0]["not_released"]
    assert desk.releases == []


def test_a_target_that_is_the_source_itself_is_said_to_be_that(desk: Desk) -> None:
    desk.onnx(output="logits")
    desk.spec(model={"name": "tiny", "source": "model.onnx"}, promote={"fallback": "none"})

    called = desk.json("run", "--verbose", "spec.yaml")

    assert called.code == 0
    assert "warning: distinct: " in called.out
    assert "nothing was converted or compared" in called.out
    assert "answers like the source" not in called.out
    assert desk.releases == ["tiny/1"]


def test_a_looser_tolerance_is_said_in_evidence_and_manifest(desk: Desk) -> None:
    desk.spec(tolerance={"onnx-fp32": {"max_abs_diff": 1.0, "mean_abs_diff": 1e-6}})

    assert desk.json("run", "--verbose", "spec.yaml").code == 0

    (entry,) = desk.evidence()["variants"]
    manifest = json.loads((desk.folder / "artifacts/repository/store/tiny/1/manifest.json").read_text(encoding="utf-8"))
    assert entry["result"]["looser_than_default"] == ["max_abs_diff"]
    assert entry["result"]["tolerance"]["max_abs_diff"] == 1.0
    assert manifest["provenance"]["looser_tolerances"] == {"onnx-fp32": ["max_abs_diff"]}
    assert manifest["provenance"]["tolerances"]["onnx-fp32"]["max_abs_diff"] == 1.0


def test_of_two_specs_the_second_runs_though_the_first_fails(desk: Desk) -> None:
    desk.samples(0, name="empty.npz")
    desk.spec("first.yaml", samples={"source": "empty.npz"})

    called = desk.json("run", "--verbose", "first.yaml", "spec.yaml")

    assert called.code == called.data["exit_code"] == 2
    first, second = called.data["runs"]
    assert (first["exit_code"], second["exit_code"]) == (2, 0)
    assert second["release"]["version"] == 1
    assert desk.releases == ["tiny/1"]


def test_a_wrong_second_spec_stops_before_the_first_costs_time(desk: Desk) -> None:
    called = desk.call("run", "--verbose", "spec.yaml", "absent.yaml")

    assert called.code == 2
    assert "spec absent.yaml does not exist" in called.err
    assert desk.runs == []


def test_the_root_moves_runs_and_repository(desk: Desk) -> None:
    before = {path.name for path in desk.folder.iterdir()}

    called = desk.json("run", "--verbose", "spec.yaml", "--root", "elsewhere")

    assert called.code == 0, str(called)
    # Nothing else is written where the user works.
    assert {path.name for path in desk.folder.iterdir()} - before == {"elsewhere", "said.json"}
    assert len(list((desk.folder / "elsewhere/runs/tiny").iterdir())) == 1
    assert (desk.folder / "elsewhere/repository/store/tiny/1/manifest.json").is_file()


def test_paths_are_relative_to_the_spec_and_samples_to_the_user(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "specs").mkdir()
    for name in ("spec.yaml", "model.onnx", "inputs.npz"):
        (tmp_path / name).rename(tmp_path / "specs" / name)
    desk.samples(130, name="other.npz")

    own = desk.json("run", "--verbose", "specs/spec.yaml", "--no-promote")
    given = desk.json("run", "--verbose", "specs/spec.yaml", "--no-promote", "--samples", "other.npz")

    assert (own.code, given.code) == (0, 0), f"{own}\n{given}"
    assert own.data["runs"][0]["variants"]["onnx-fp32"]["rows"] == 120
    assert given.data["runs"][0]["variants"]["onnx-fp32"]["rows"] == 130


def test_repository_and_alias_of_the_command_line_stand_above_the_spec(desk: Desk) -> None:
    called = desk.json("run", "--verbose", "spec.yaml", "--repository", "releases", "--alias", "canary")

    assert called.code == 0
    assert called.data["runs"][0]["release"]["alias"] == "canary"
    assert (desk.folder / "releases/store/tiny/1").is_dir()
    assert desk.releases == []


def test_an_alias_that_cannot_be_one_is_refused_before_any_work(desk: Desk) -> None:
    called = desk.call("run", "--verbose", "spec.yaml", "--alias", "1")

    assert called.code == 2
    assert "alias name '1' is a number" in called.err
    assert desk.runs == []


def test_json_of_an_earlier_call_is_not_left_to_be_taken_for_this_ones(desk: Desk) -> None:
    (desk.folder / "said.json").write_text('{"schema_version": 1, "exit_code": 0}', encoding="utf-8")

    called = desk.json("run", "--verbose", "absent.yaml")

    assert called.code == 2
    assert not (desk.folder / "said.json").exists()


def test_a_decision_on_an_output_that_the_model_lacks_is_wrong_usage(desk: Desk) -> None:
    desk.spec(decisions={"scores": {"argmax": True}})

    called = desk.json("run", "--verbose", "spec.yaml")

    assert called.code == 2, str(called)
    assert "scores" in called.err


def _result(code: int) -> ComparisonResult:
    side = SideResult(name="tiny", kind="onnx")
    verdict = {0: "pass", 1: "fail", 3: "inconclusive", 5: "error"}[code]
    return ComparisonResult(
        verdict=verdict, exit_code=code, rows=1, precision="fp32", reference=side, candidate=side, samples="inputs.npz"
    )


@pytest.mark.parametrize(
    ("verdict", "code", "status"),
    [("pass", 0, "pass"), ("inconclusive", 0, "pass"), ("fail", 1, "fail"), ("error", 5, "error")],
)
def test_a_base_that_was_not_measured_is_no_failed_one(verdict: str, code: int, status: str) -> None:
    held = with_fp32_base(replace(_result(0), checks=[Check(name="rows", status=Status.PASS)]), "onnx-fp32", verdict)

    assert (held.exit_code, held.checks[-1].status) == (code, status)


@pytest.mark.parametrize(("own", "base"), [("fail", "openvino-fp32"), ("error", None)])
def test_a_mixed_model_is_held_to_an_fp32_target_of_its_format_that_fails(own: str, base: str | None) -> None:
    entry = EvidenceEntry(variant="openvino-fp32", evidence="none", verdict=own, exit_code=1)

    found = fp32_entry(Variant.parse("openvino-mixed"), "onnx-fp32", {entry.variant: entry})

    assert (None if found is None else found.variant) == base


def _run_of(**parts: object) -> RunFolder:
    data = {
        "model": {"name": "tiny", "source": "model.onnx"},
        "samples": {"source": "inputs.npz"},
        "targets": ["onnx-fp32", "savedmodel-fp32"],
        **parts,
    }
    resolved = parse_spec(yaml.safe_dump(data), folder=Path("/spec"), origin="spec.yaml")
    return RunFolder(folder=Path("/run"), resolved=resolved, samples_path=None)


@pytest.mark.parametrize("pair", [(5, 4), (5, 1), (5, 3), (5, 0), (4, 1), (4, 3), (4, 0), (1, 3), (1, 0), (3, 0)])
@pytest.mark.parametrize("is_swapped", [False, True])
def test_of_two_codes_the_worse_is_that_of_the_run(pair: tuple[int, int], *, is_swapped: bool) -> None:
    worse, better = pair

    assert worst_code([better, worse] if is_swapped else [worse, better]) == worse


def test_only_required_variants_decide_the_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        workspace, "backend_state", lambda name: replace(_STATE, version=None if name == "tensorflow" else "1.0")
    )
    results = {"onnx-fp32": _result(0)}
    crashed = {
        "savedmodel-fp32": FailedVariant(variant="savedmodel-fp32", message="crashed", hint="", exit_code=4),
    }

    optional = _run_of(required=["onnx-fp32"])
    strict = _run_of(required=["savedmodel-fp32"])

    assert exit_code_of_run(optional, results, crashed) == 0
    assert exit_code_of_run(strict, results, crashed) == 4
    # Neither made nor failed: it was not measured.
    assert exit_code_of_run(strict, results, {}) == 5
    assert exit_code_of_run(optional, {"onnx-fp32": _result(1)}, crashed) == 1


_STATE = backend_state("onnxruntime")


@pytest.mark.parametrize(
    ("missing", "required"),
    [
        ((), ("onnx-fp32", "savedmodel-fp32")),
        (("tensorflow",), ("onnx-fp32",)),
        # A run that can measure nothing has not passed.
        (("tensorflow", "onnxruntime"), ("onnx-fp32", "savedmodel-fp32")),
    ],
)
def test_targets_whose_runtime_is_installed_are_required_by_default(
    monkeypatch: pytest.MonkeyPatch, missing: tuple[str, ...], required: tuple[str, ...]
) -> None:
    monkeypatch.setattr(
        workspace, "backend_state", lambda name: replace(_STATE, version=None if name in missing else "1.0")
    )

    assert required_variants(_run_of()) == required


@pytest.mark.parametrize(
    ("tool", "missing", "required"),
    [
        ("onnxruntime", (), ("onnx-fp32", "onnx-int8", "openvino-int8")),
        ("onnxruntime", ("nncf",), ("onnx-fp32", "onnx-int8")),
        ("nncf", ("nncf",), ("onnx-fp32",)),
        ("nncf", ("openvino",), ("onnx-fp32", "onnx-int8")),
    ],
)
def test_int8_targets_that_nothing_here_can_quantize_are_not_required_by_default(
    monkeypatch: pytest.MonkeyPatch, tool: str, missing: tuple[str, ...], required: tuple[str, ...]
) -> None:
    monkeypatch.setattr(
        workspace, "backend_state", lambda name: replace(_STATE, version=None if name in missing else "1.0")
    )
    targets = ["onnx-fp32", "onnx-int8", "openvino-int8"]

    assert required_variants(_run_of(targets=targets, calibration={"tool": tool})) == required


@pytest.mark.parametrize(
    ("variant", "tool", "needed"),
    [
        ("onnx-fp32", "nncf", ("onnxruntime",)),
        ("onnx-int8", "onnxruntime", ("onnxruntime",)),
        ("onnx-int8", "nncf", ("onnxruntime", "nncf")),
        ("openvino-bf16", "nncf", ("openvino",)),
        ("openvino-int8", "onnxruntime", ("openvino", "nncf")),
        ("tflite-int8", "nncf", ("litert",)),
        ("torch-fp32", "nncf", ("torch",)),
    ],
)
def test_a_variant_needs_what_runs_it_and_what_quantizes_it(variant: str, tool: str, needed: tuple[str, ...]) -> None:
    spec = _run_of(calibration={"tool": tool}).resolved.spec

    assert needed_backends(Variant.parse(variant), spec) == needed
