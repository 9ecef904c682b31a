"""What a reader sees first: detections, labels and verdicts in the overview, the release, how it was made."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

import pytest
from tests.pipelines.report.conftest import HOSTILE_OUTPUT
from tests.pipelines.report.test_report_tables import facts_of, rows_of, section_of

from paritygate.pipelines.compare.result import (
    ComparisonResult,
    ProbeFailureResult,
    ProbeResult,
    ProbesResult,
    RoleResult,
)
from paritygate.pipelines.report.figures import shorten
from paritygate.pipelines.report.html_report import render_html
from paritygate.pipelines.report.markdown_report import render_markdown
from paritygate.pipelines.report.report_data import ReportData, collect_report
from paritygate.pipelines.report.repro_commands import repro_commands
from paritygate.pipelines.report.tables.conversion import conversion_table
from paritygate.pipelines.report.tables.parity import parity_table
from paritygate.pipelines.report.tables.probes import probe_tables, probe_words
from paritygate.pipelines.report.tables.run import evidence_words, release_table
from paritygate.pipelines.report.tables.variants import checks_table
from paritygate.pipelines.run.workspace import RunFolder
from paritygate.validate.detections.figures import MatchStatistics
from paritygate.validate.measure.check import Check
from paritygate.validate.words.sentence import say

_RELEASE = {
    "model": "sts", "version": "1", "alias": "prod", "variants": ["onnx-fp32"], "reason": "", "folder": "store/sts/1",
    "manifest": "sha256:0",
}  # fmt: skip
_MATCH = MatchStatistics(
    outputs=["boxes", "scores"], iou=0.9, score_tolerance=0.01, score_floor=0.0, rows=120, expected=1200, actual=1200,
    matched=1199, missing=1, extra=1, near_floor=0, non_finite=0, min_iou=0.99, max_box_diff=3.814e-6,
    max_score_diff=1.79e-7, examples=[],
)  # fmt: skip


@pytest.fixture(scope="module")
def report(mixed_run: RunFolder) -> ReportData:
    return collect_report(mixed_run)


def _result(report: ReportData, name: str) -> ComparisonResult:
    (found,) = (variant.result for variant in report.variants if variant.name == name)
    assert found is not None
    return found


def _with(report: ReportData, result: ComparisonResult) -> ReportData:
    """Return a report of the one variant with that result."""
    variant = replace(report.variants[1], result=result, verdict=result.verdict, emulated=None)
    return replace(report, variants=(variant,))


def test_detections_stand_in_the_overview(report: ReportData) -> None:
    result = replace(_result(report, "onnx-fp16"), outputs={}, decisions={}, matches={"objects": _MATCH}, checks=[])

    (row,) = rows_of(parity_table(_with(report, result)))

    assert (row["output"], row["rows"]) == ("objects", "128")
    assert row["0/1 mismatches"] == "1,199 of 1,200 matched"
    assert row["max diff"] == "scores 1.79e-7, boxes 3.81e-6"
    assert [row[title] for title in ("95 % bound", "min diff", "mean diff", "std of diff")] == ["-"] * 4
    # Nothing matched, nothing differs.
    none = replace(_MATCH, matched=0, max_box_diff=None, max_score_diff=None)
    (row,) = rows_of(parity_table(_with(report, replace(result, matches={"objects": none}))))
    assert (row["0/1 mismatches"], row["max diff"]) == ("0 of 1,200 matched", "-")


def test_labels_that_are_held_to_their_scores_stand_in_the_overview(report: ReportData) -> None:
    result = _result(report, "onnx-fp16")
    decisions = {**result.decisions, "choice": result.decisions[HOSTILE_OUTPUT]}

    rows = rows_of(parity_table(_with(report, replace(result, decisions=decisions))))

    assert [row["output"] for row in rows] == [HOSTILE_OUTPUT, "label", "choice"]
    assert (rows[1]["0/1 mismatches"], rows[2]["0/1 mismatches"], rows[2]["max diff"]) == ("0 values", "27", "-")


def test_a_verdict_says_what_it_comes_from(report: ReportData) -> None:
    result = _result(report, "onnx-fp16")
    failed = [
        Check(name=name, status="fail", detail="", output=output)
        for name, output in (("max_abs_diff", "label"), ("mean_abs_diff", "label"), ("bias", "label"))
    ]
    probe = Check(name="probe_values", status="fail", detail="at zeros")

    def remarks(checks: list[Check]) -> list[str]:
        return [row[-1].remark for row in parity_table(_with(report, replace(result, checks=checks))).rows]

    assert remarks([probe]) == ["probe_values", "probe_values"]
    assert remarks(failed[:1]) == ["max_abs_diff of label", "max_abs_diff"]
    assert remarks([*failed, probe]) == ["probe_values", "max_abs_diff, mean_abs_diff and 2 more"]
    assert {row[-1].remark for row in parity_table(report).rows if row[-1].text == "pass"} == {""}
    assert "(probe_values)" in render_markdown(_with(report, replace(result, checks=[probe]))).replace("\\", "")


def test_every_row_of_a_variant_leads_to_it(report: ReportData) -> None:
    assert all(row[0].anchor for row in parity_table(report).rows)


def test_why_nothing_was_measured_stands_once_below_the_overview(report: ReportData) -> None:
    words = [line for line in evidence_words(report) if line.startswith("not measured, and why: ")]

    assert "not measured, and why: onnx-int8: 1 operator is unsupported" in words
    assert sum("onnx-tf32" in line for line in words) == 1


@pytest.mark.parametrize(
    ("words", "length", "expected"),
    [
        ("one two three", 13, "one two three"),
        ("one two, three four", 13, "one two …"),
        ("one two three four", 13, "one two …"),
        ("one two three: four (five six) seven", 28, "one two three: four …"),
        ("one two (three, four) five, six seven", 31, "one two (three, four) five …"),
        ("one (two three four five six seven)", 28, "one (two three four five …)"),
        ("one (two three, four five six seven)", 28, "one (two three …)"),
        ("one (two, three [four five six seven])", 31, "one (two, three [four five …])"),
        ("one [two (three four five) six seven]", 30, "one [two (three four five) …]"),
        ("one (two three four five six seven)", 26, "one (two three four …)"),
        ("one two. Three four five six", 22, "one two …"),
        ("of 1.5 and 2.5 rows", 13, "of 1.5 and …"),
    ],
)
def test_a_text_is_cut_between_clauses_and_never_in_brackets_where_enough_is_left(
    words: str, length: int, expected: str
) -> None:
    assert shorten(words, length) == expected
    assert len(expected) <= length


def test_a_release_beside_a_variant_that_failed_says_so(report: ReportData) -> None:
    found = facts_of(release_table(_RELEASE, report))

    assert found["reason"] == "passed"
    assert (
        found["outcome of the run"]
        == "fail: passing variants are released; required ones that did not pass: onnx-fp16 (fail)"
    )


def test_a_release_of_all_that_was_required_says_no_more(passing_run: RunFolder) -> None:
    assert "outcome of the run" not in facts_of(release_table(_RELEASE, collect_report(passing_run)))


def test_what_a_converter_recorded_is_said_in_words(report: ReportData) -> None:
    nodes = [
        {"name": f"node/{at}", "operator": name, "reason": "why"} for at, name in enumerate(("Cast", "If", "Cast"))
    ]
    table = conversion_table(
        {
            "opset": 18,
            "nodes_kept": nodes,
            "constants_clamped": [],
            "producer": "",
            "fixed": {},
            "constants_flushed": ["a became b", "c became d"],
            "operators": {"ADD": 2, "MUL": 1},
            "quantized": {"nodes": {"Gemm": 5}, "weights": 1500, "by_channel": True},
            "attempts": [{"exporter": "dynamo", "said": "no"}, {"exporter": "torchscript", "said": "converted"}],
        }
    )

    assert table is not None
    assert facts_of(table) == {
        "opset": "18",
        "nodes kept": "3: 2 Cast, 1 If",
        "constants flushed": "a became b; c became d",
        "operators": "ADD 2, MUL 1",
        "quantized": "nodes: Gemm 5; weights 1,500; by channel yes",
        "attempts": "dynamo: no; torchscript: converted",
    }
    assert conversion_table({"nodes_kept": []}) is None
    made = section_of(report, "onnx-fp32").made
    assert made is not None
    assert facts_of(made) == {"opset": "17"}


def _failed(report: ReportData, again: str) -> ComparisonResult:
    failures = [
        ProbeFailureResult(batch=at, about=f"x: {what}", check="max_abs_diff", detail=f"{what} failed", again=again,
                           inputs=f"{report.folder}/probes/onnx-fp16/values-{at}.npz")
        for at, what in enumerate(("zeros", "ones"))
    ]  # fmt: skip
    probe = ProbeResult(
        looks_for="rare values", status="fail", detail="a long story", batches=9, rows=36, dropped=0, unfit=0,
        unfit_first=[], failed=4, failures=failures, seconds=0.1, reference_seconds=0.1,
    )  # fmt: skip
    check = Check(name="probe_values", status="fail", detail="a long story")
    probes = ProbesResult(asked={"values": probe}, roles={"x": RoleResult(role="number", why="its dtype")})
    return replace(_result(report, "onnx-fp16"), probes=probes, checks=[check])


def test_what_a_probe_failed_at_stands_in_one_place(report: ReportData) -> None:
    result = _failed(report, "convert-and-validate validate --probes values")
    asked, failed, *_ = probe_tables(result, report.folder)

    (check,) = rows_of(checks_table(result))
    assert check["message"] == "failed at x: zeros, and at 3 more: see Probes"
    assert rows_of(asked)[0]["message"] == "failed at x: zeros, and at 3 more: see below"
    first = rows_of(failed)[0]
    assert (first["what failed"], first["inputs, in the run's folder"]) == (
        "max_abs_diff: zeros failed",
        "probes/onnx-fp16/values-0.npz",
    )
    # What fits no input of numbers is no example.
    assert probe_words(result)[-1] == "What an input was taken for is inferred; the spec overrules it."


def test_the_command_to_see_a_failure_alone_is_a_block_that_runs_from_anywhere(report: ReportData) -> None:
    again = shlex.join(["validate", f"{report.folder}/a b.npz", "--run", str(report.folder), "--tolerance", "x=1 2"])
    result = _failed(report, again)

    (alone,) = repro_commands(result, report.folder)

    assert alone.title == "values, x: zeros; values, x: ones"
    assignment, _, command = alone.command.partition("; ")
    assert assignment == f"RUN={shlex.quote(str(report.folder))}"
    assert command == "validate \"$RUN\"'/a b.npz' --run \"$RUN\" --tolerance 'x=1 2'"
    page = render_html(_with(report, result))
    assert '<pre class="command"><code>RUN=' in page
    assert f"{alone.command}\n" in render_markdown(_with(report, result))
    # The folder once is as short where it stands, and another folder is another one.
    for other in ("validate --probes values", f"validate --run {report.folder}", f"validate {report.folder}2/a --b c"):
        assert [item.command for item in repro_commands(_failed(report, other), report.folder)] == [other]
    assert repro_commands(_failed(report, ""), Path("/")) == ()


@pytest.mark.parametrize(
    ("key", "rest", "words"),
    [
        ("at_most", "", "within the limit"),
        ("above", "", "beyond the limit"),
        ("at_most", ", worst at row 'a-2'", "within the limit, worst at row 'a-2'"),
        ("", "120 rows in 15 batches", "120 rows in 15 batches"),
    ],
)
def test_a_check_says_its_numbers_once(report: ReportData, key: str, rest: str, words: str) -> None:
    pair = say(key, measured=1e-6, limit=1e-3) if key else ()
    said = pair + (say("text", text=rest) if rest else ())
    check = Check(name="max_abs_diff", status="pass", words=said, output="y", measured=1e-6, limit=1e-3)

    (row,) = rows_of(checks_table(replace(_result(report, "onnx-fp16"), checks=[check])))

    assert row["message"] == words
