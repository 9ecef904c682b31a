"""What the report says of each variant: never a pass that the evidence does not hold."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.pipelines.report.conftest import add_artifact, new_model_run

from paritygate.errors import InputFileError
from paritygate.pipelines.report.report_data import ReportData, VariantReport, collect_report
from paritygate.pipelines.run.record import record_stage
from paritygate.pipelines.run.workspace import FailedVariant, RunFolder, open_run


def variant_of(report: ReportData, name: str) -> VariantReport:
    """Return the one variant of that name."""
    (found,) = (variant for variant in report.variants if variant.name == name)
    return found


@pytest.fixture
def copied_run(passing_run: RunFolder, tmp_path: Path) -> RunFolder:
    """Return a copy of the passing run, to be changed."""
    shutil.copytree(passing_run.folder, tmp_path / "run")
    return open_run(tmp_path / "run")


def test_each_variant_has_the_verdict_of_its_comparison(mixed_run: RunFolder) -> None:
    report = collect_report(mixed_run)

    found = {variant.name: (variant.verdict, variant.exit_code, variant.evidence) for variant in report.variants}
    assert found == {
        "onnx-fp32": ("pass", 0, "verified"),
        "onnx-fp16": ("fail", 1, "verified"),
        "onnx-bf16": ("error", 5, "none"),
        "onnx-int8": ("error", 4, "none"),
        "onnx-tf32": ("not measured", 5, "none"),
    }


def test_the_run_has_the_worst_verdict_of_the_required_variants(mixed_run: RunFolder) -> None:
    report = collect_report(mixed_run)

    assert (report.verdict, report.exit_code) == ("fail", 1)
    assert report.headline == "1 of 2 required variants passed (fail: onnx-fp16)."


def test_a_run_that_passes_says_what_passed(passing_run: RunFolder) -> None:
    report = collect_report(passing_run)

    assert (report.verdict, report.exit_code) == ("pass", 0)
    assert report.headline == "onnx-fp32 answers like the source, within the limits."


def test_why_a_variant_could_not_be_made_is_said_with_its_operators(mixed_run: RunFolder) -> None:
    variant = variant_of(collect_report(mixed_run), "onnx-int8")

    assert (variant.reason, variant.hint) == ("1 operator is unsupported", "see the table")
    assert variant.operators == (("CustomOp<b>", "encoder/layer|3", "no translation", "serve the model as it is"),)


def test_a_run_of_which_nothing_was_done_is_not_measured(tmp_path: Path) -> None:
    report = collect_report(new_model_run(tmp_path, ["onnx-fp32"]))

    assert (report.verdict, report.exit_code) == ("error", 5)
    variant = variant_of(report, "onnx-fp32")
    assert (variant.verdict, variant.reason) == ("not measured", "it was not exported")
    assert variant.hint == f"convert-and-validate run {tmp_path / 'sts.yaml'}"
    assert report.recording is None


def test_a_run_that_requires_nothing_says_so_and_what_passed(passing_run: RunFolder) -> None:
    spec = passing_run.resolved.spec.model_copy(update={"required": []})
    report = collect_report(replace(passing_run, resolved=replace(passing_run.resolved, spec=spec)))

    assert (report.verdict, report.exit_code) == ("nothing required", 0)
    assert report.headline.endswith("1 variant, not required, passed.")
    assert not variant_of(report, "onnx-fp32").is_required


def test_a_result_without_evidence_is_not_measured(copied_run: RunFolder) -> None:
    copied_run.evidence_file.unlink()

    variant = variant_of(collect_report(copied_run), "onnx-fp32")

    assert (variant.verdict, variant.result) == ("not measured", None)
    assert "no evidence of a comparison was written" in variant.reason
    assert variant.hint == f"convert-and-validate validate --run {copied_run.folder}"


def test_evidence_that_contradicts_the_result_in_it_is_damaged(copied_run: RunFolder) -> None:
    evidence = json.loads(copied_run.evidence_file.read_text(encoding="utf-8"))
    evidence["variants"][0]["verdict"] = "fail"
    copied_run.evidence_file.write_text(json.dumps(evidence), encoding="utf-8")

    with pytest.raises(InputFileError, match=r"its verdict is fail .*, and that of its result pass"):
        collect_report(copied_run)


def test_a_variant_that_was_exported_again_is_not_measured(copied_run: RunFolder) -> None:
    shutil.rmtree(copied_run.variant_folder("onnx-fp32"))
    add_artifact(copied_run, "onnx-fp32", error=3.0)

    variant = variant_of(collect_report(copied_run), "onnx-fp32")

    assert variant.verdict == "not measured"
    assert "exported again after the comparison" in variant.reason


def test_a_variant_that_can_no_longer_be_made_is_an_error_whatever_it_was_before(copied_run: RunFolder) -> None:
    failure = FailedVariant(variant="onnx-fp32", message="the converter crashed", hint="", exit_code=4)
    copied_run.save_failures({"onnx-fp32": failure})

    report = collect_report(copied_run)

    assert variant_of(report, "onnx-fp32").verdict == "error"
    assert (report.verdict, report.exit_code) == ("error", 4)


def test_a_reference_recorded_again_on_other_samples_makes_the_result_void(copied_run: RunFolder) -> None:
    spec = copied_run.resolved.spec
    samples = spec.samples.model_copy(update={"source": "report_samples:other_rows"})
    resolved = replace(copied_run.resolved, spec=spec.model_copy(update={"samples": samples}))
    run = replace(copied_run, resolved=resolved)
    record_stage(run, time_limit_s=600, progress=lambda *_: None)

    variant = variant_of(collect_report(run), "onnx-fp32")

    assert variant.verdict == "not measured"
    assert "recorded again on other samples after the comparison" in variant.reason
