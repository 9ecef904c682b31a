"""What stands in the tables: the numbers of the comparison, and what there is to know of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.pipelines.report.conftest import HOSTILE_OUTPUT

from paritygate.pipelines.compare.result import OutputResult
from paritygate.pipelines.report.figures import number
from paritygate.pipelines.report.report_data import ReportData, collect_report
from paritygate.pipelines.report.sections import VariantSection, variant_sections
from paritygate.pipelines.report.tables.machines import machine_tables
from paritygate.pipelines.report.tables.parity import parity_table
from paritygate.pipelines.report.tables.run import artifact_table, reference_tables
from paritygate.pipelines.report.tables.table import Table
from paritygate.pipelines.report.tables.variants import agreement_table
from paritygate.pipelines.run.workspace import RunFolder
from paritygate.validate.measure.bounds import mismatch_rate_upper_95
from paritygate.validate.measure.check import Check


@pytest.fixture(scope="module")
def report(mixed_run: RunFolder) -> ReportData:
    return collect_report(mixed_run)


def rows_of(table: Table) -> list[dict[str, str]]:
    """Return the rows by the titles of their columns."""
    titles = [column.title for column in table.columns]
    return [dict(zip(titles, (cell.text for cell in row), strict=True)) for row in table.rows]


def facts_of(table: Table) -> dict[str, str]:
    """Return a table of facts as a mapping."""
    return {row[0].text: row[1].text for row in table.rows}


def section_of(report: ReportData, name: str) -> VariantSection:
    """Return the section of one variant."""
    (found,) = (section for section in variant_sections(report) if section.variant.name == name)
    return found


def table_of(section: VariantSection, caption: str) -> Table:
    """Return the one table of that caption in a section."""
    inner = [table for output in section.outputs for table in output.tables]
    (found,) = (
        table
        for table in (*section.before, *inner, *section.apart, *section.after)
        if table.caption.startswith(caption)
    )
    return found


def output_of(report: ReportData, name: str) -> OutputResult:
    """Return the float output of one variant."""
    result = next(variant.result for variant in report.variants if variant.name == name)
    assert result is not None
    return result.outputs[HOSTILE_OUTPUT]


def test_the_parity_table_holds_what_the_published_one_does(report: ReportData) -> None:
    row = rows_of(parity_table(report))[2]

    assert row == {
        "variant": "onnx-fp16",
        "output": HOSTILE_OUTPUT,
        "rows": "128",
        # Every difference is half, and 27 of the reference's scores lie between -0.5 and 0.
        "0/1 mismatches": "27",
        "95 % bound": "< 27.90 %",
        "max diff": "0.5",
        "min diff": "0.5",
        "mean diff": "0.5",
        "std of diff": row["std of diff"],
        "device": "cpu",
        "evidence": "verified",
        "verdict": "fail",
    }
    assert 0.2789 < mismatch_rate_upper_95(27, 128) < 0.2790


@pytest.mark.parametrize(
    ("name", "verdict"), [("onnx-bf16", "error"), ("onnx-int8", "error"), ("onnx-tf32", "not measured")]
)
def test_what_was_not_measured_is_said_to_be(report: ReportData, name: str, verdict: str) -> None:
    # The row of what ran here comes before the one whose precision was emulated.
    row = next(row for row in rows_of(parity_table(report)) if row["variant"] == name)

    figures = [row[title] for title in ("max diff", "min diff", "mean diff", "std of diff", "0/1 mismatches", "device")]
    assert figures == ["-"] * 6
    assert (row["rows"], row["evidence"], row["verdict"]) == ("0", "none", verdict)


def test_variants_that_do_not_count_are_marked(report: ReportData) -> None:
    rows = parity_table(report).rows
    remarks = {row[0].text: row[0].remark for row in rows if row[0].remark != "emulated"}

    assert {row[0].text for row in rows if row[0].remark == "emulated"} == {"onnx-fp16", "onnx-bf16"}
    assert remarks == {
        "onnx-fp32": "",
        "onnx-fp16": "",
        "onnx-bf16": "optional",
        "onnx-int8": "optional",
        "onnx-tf32": "optional",
    }


def test_the_checks_that_failed_come_first(report: ReportData) -> None:
    statuses = [row["status"] for row in rows_of(table_of(section_of(report, "onnx-fp16"), "Checks"))]

    assert statuses[0] == "fail"
    assert statuses == sorted(statuses, key=["fail", "error", "inconclusive", "warning", "pass"].index)


def test_a_check_shows_what_part_of_its_limit_was_used(report: ReportData) -> None:
    table = table_of(section_of(report, "onnx-fp16"), "Checks")
    row = next(row for row in table.rows if row[0].text == "max_abs_diff")

    assert row[5].fraction is not None
    assert row[5].fraction == pytest.approx(0.5 / output_of(report, "onnx-fp16").limits["max_abs_diff"].lowest)


def test_the_least_number_of_rows_is_no_limit_to_stay_below(report: ReportData) -> None:
    (row,) = (row for row in rows_of(table_of(section_of(report, "onnx-fp32"), "Checks")) if row["check"] == "rows")

    assert (row["measured"], row["limit"], row["tolerance used"]) == ("128", "at least 100", "-")


def test_a_limit_that_is_looser_than_the_default_is_marked(report: ReportData) -> None:
    section = section_of(report, "onnx-fp32")
    rows = {row["limit"]: row for row in rows_of(table_of(section, "Limits"))}

    assert rows["max_abs_diff"]["against the default"] == "looser"
    assert rows["max_abs_diff"]["set by"] == "declared: holds as written"
    assert (rows["max_abs_diff"]["value"], rows["max_abs_diff"]["default for fp32"]) == ("0.5", "0.0001")
    assert rows["mean_abs_diff"]["against the default"] == "-"
    assert rows["max_row_rel_diff"]["set by"] == "default"
    assert "limits looser than the default for fp32: max_abs_diff" in section.notes


def test_the_decisions_show_both_classes(report: ReportData) -> None:
    (row,) = rows_of(table_of(section_of(report, "onnx-fp16"), "Decisions"))

    assert row["reference decides"] == "positive: 62 (48.4 %), negative: 66 (51.6 %)"
    assert (row["mismatches"], row["near the boundary"], row["away from it"]) == ("27 of 128", "0", "27")


def test_the_strata_have_numbers_of_their_own(report: ReportData) -> None:
    rows = rows_of(table_of(section_of(report, "onnx-fp16"), "By source"))

    found = {(row["rows of"], row["rows"], row["mismatches"]) for row in rows if row["output"] == HOSTILE_OUTPUT}
    assert found == {("news|1", "32", "10"), ("web", "96", "17")}


def test_a_note_that_two_sides_make_stands_once(report: ReportData) -> None:
    notes = section_of(report, "onnx-fp32").notes

    assert len(notes) == len(set(notes)) > 1


def test_of_an_error_only_the_reason_is_shown(report: ReportData) -> None:
    section = section_of(report, "onnx-bf16")

    assert "model.onnx was changed" in section.variant.reason
    assert (section.before, section.outputs, section.after) == ((), (), ())


def test_the_reference_and_the_machine_are_described(report: ReportData) -> None:
    assert report.recording is not None
    health, facts, signature = reference_tables(report.recording)
    (machine,) = machine_tables(report)

    assert "finite" in facts_of(health)["reference_finite"]
    assert facts_of(facts)["digest of the samples"] == report.recording.samples_digest
    assert rows_of(signature)[0] == {"name": "x", "side": "input", "dtype": "float32", "shape": "[batch, 4]"}
    assert machine.caption == "Measured on this machine: onnx-fp32, onnx-fp16"
    assert {"processor", "GPU", "Python", "onnxruntime"} <= set(facts_of(machine))


def test_the_artifacts_are_named_by_their_digests(report: ReportData, mixed_run: RunFolder) -> None:
    rows = rows_of(artifact_table(report))

    digest = mixed_run.artifact("onnx-fp32").digest
    assert {"variant": "onnx-fp32", "file": "all files", "digest": digest, "size": rows[1]["size"]} in rows
    assert [row["digest"] for row in rows if row["variant"] == "onnx-tf32"] == ["not made"]


def test_a_missing_file_of_an_artifact_is_said(mixed_run: RunFolder, tmp_path: Path) -> None:
    import shutil

    from paritygate.pipelines.run.workspace import open_run

    shutil.copytree(mixed_run.folder, tmp_path / "run")
    (tmp_path / "run" / "onnx-fp16" / "model.onnx").unlink()

    rows = rows_of(artifact_table(collect_report(open_run(tmp_path / "run"))))

    assert {row["size"] for row in rows if row["variant"] == "onnx-fp16"} == {"a file is missing"}


def test_fill_values_are_among_the_facts_where_there_are_any(report: ReportData) -> None:
    output = output_of(report, "onnx-fp16")

    found = facts_of(agreement_table(replace(output, fill_values=12, fill_mismatches=1)))

    assert "fill values, compared exactly" not in facts_of(agreement_table(output))
    assert found["fill values, compared exactly"] == "12, of which 1 differs"


def test_the_noise_of_an_output_is_among_its_facts(report: ReportData) -> None:
    name = "signal-to-quantization-noise ratio"
    output = output_of(report, "onnx-fp16")

    assert facts_of(agreement_table(output))[name] == f"{output.sqnr_db:.4g} dB"
    equal = replace(output, max_abs_diff=0.0, sqnr_db=None)
    assert facts_of(agreement_table(equal))[name] == "no difference"
    assert facts_of(agreement_table(replace(output, sqnr_db=None)))[name] == "not measured"


def test_a_check_whose_number_was_not_finite_says_so(report: ReportData) -> None:
    from paritygate.pipelines.report.tables.variants import checks_table

    result = next(variant.result for variant in report.variants if variant.name == "onnx-fp16")
    assert result is not None
    check = Check(name="max_abs_diff", status="fail", detail="nan > 0.01", output="y", measured=None, limit=0.01)

    (row,) = rows_of(checks_table(replace(result, checks=[check])))

    assert (row["measured"], row["limit"]) == ("not finite", number(0.01))
