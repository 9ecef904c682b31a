"""What `--format` writes: JUnit XML that CI systems read, annotations and a summary of GitHub, and the same JSON."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from paritygate.errors import InputFileError
from paritygate.pipelines.compare.result import ComparisonResult, ProbeFailureResult, SideResult
from paritygate.pipelines.report.ci.cases import Case, CaseStatus, Suite, suite_of_comparison, suite_of_error
from paritygate.pipelines.report.ci.github import Annotation, annotation_lines, annotations_of
from paritygate.pipelines.report.ci.junit import junit_xml
from paritygate.pipelines.report.markdown_report import render_comparison
from paritygate.validate.measure.check import Check
from paritygate.validate.words.sentence import render, without_inputs

if TYPE_CHECKING:
    from tests.pipelines.conftest import Bench, Called, Desk

# The part of junit-10.xsd, the schema of Jenkins, that we write: children and attributes of each element.
CHILDREN = {
    "testsuites": {"testsuite"},
    "testsuite": {"properties", "testcase", "system-out", "system-err"},
    "properties": {"property"},
    "property": set[str](),
    "testcase": {"skipped", "error", "failure", "system-out", "system-err"},
    "skipped": set[str](),
    "error": set[str](),
    "failure": set[str](),
    "system-out": set[str](),
}
REQUIRED = {
    "testsuite": {"name", "tests", "failures", "errors"},
    "property": {"name", "value"},
    "testcase": {"name"},
}
ALLOWED = {
    "testsuites": {"name", "time", "tests", "failures", "errors"},
    "testsuite": {"name", "tests", "failures", "errors", "skipped", "time", "timestamp", "hostname", "id", "package"},
    "property": {"name", "value"},
    "testcase": {"name", "classname", "time"},
    "skipped": {"message", "type"},
    "error": {"message", "type"},
    "failure": {"message", "type"},
}
TIME = re.compile(r"\d{1,3}(,\d{3})*\.\d{3}|\d+\.\d{3}")


def read_junit(text: str) -> ET.Element:
    """Return the document, once it is of the shape that the schema asks for and its counts are right."""
    root = ET.fromstring(text.encode())  # noqa: S314 - it is our own
    assert root.tag == "testsuites"
    for element in root.iter():
        assert {child.tag for child in element} <= CHILDREN[element.tag]
        assert element.attrib.keys() <= ALLOWED.get(element.tag, set())
        assert element.attrib.keys() >= REQUIRED.get(element.tag, set())
    for suite in root:
        cases = suite.findall("testcase")
        assert suite.get("tests") == str(len(cases))
        for attribute, tag in {"failures": "failure", "errors": "error", "skipped": "skipped"}.items():
            assert suite.get(attribute) == str(sum(case.find(tag) is not None for case in cases))
        assert TIME.fullmatch(suite.get("time", ""))
        names = [case.get("name") for case in cases]
        assert len(set(names)) == len(names), "two cases have one name"
    return root


def cases_of(root: ET.Element, suite: str) -> dict[str, ET.Element]:
    """Return the test cases of a suite by name."""
    (found,) = (item for item in root if item.get("name") == suite)
    return {str(case.get("name")): case for case in found.findall("testcase")}


def github_lines(called: Called) -> list[str]:
    """Return the lines that GitHub reads as commands."""
    lines, token = [], ""
    for line in called.out.splitlines():
        begin = re.fullmatch(r"::stop-commands::([0-9a-f]{32})", line)
        if token:
            token = "" if line == f"::{token}::" else token
        elif begin:
            token = begin[1]
        else:
            lines.append(line)
    assert not token, "commands were stopped and never resumed"
    return lines


@pytest.fixture
def summary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file that a job on GitHub takes its summary from."""
    path = tmp_path / "summary.md"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(path))
    return path


def test_a_run_is_a_suite_a_variant_and_a_case_a_check(desk: Desk) -> None:
    desk.spec(targets=["onnx-fp32", "onnx-fp16"], required=["onnx-fp32"])

    called = desk.json("run", "spec.yaml", "--no-promote", "--format", "junit")

    assert called.code == 0
    root = read_junit(called.out)
    assert [suite.get("name") for suite in root] == [
        "tiny onnx-fp32",
        *(["tiny onnx-fp16"]),
        *(["tiny onnx-fp16 emulated"] if called.data["runs"][0]["emulated"] else []),
    ]
    checks = called.data["runs"][0]["variants"]["onnx-fp32"]["checks"]
    names = {f"{item['name']}[{item['output']}]" if item["output"] else item["name"] for item in checks}
    assert names <= cases_of(root, "tiny onnx-fp32").keys()
    assert all(
        case.get("classname") == "paritygate.tiny.onnx-fp32" for case in cases_of(root, "tiny onnx-fp32").values()
    )
    # Progress and the screen are for people.
    assert "verdict: pass" in called.err


def test_a_failure_says_why_in_our_words(desk: Desk) -> None:
    desk.spec(tolerance={"onnx-fp16": {"max_abs_diff": 1e-9}}, targets=["onnx-fp16"])

    called = desk.json("run", "spec.yaml", "--no-promote", "--format", "junit")

    assert called.code == 1
    failed = cases_of(read_junit(called.out), "tiny onnx-fp16")["max_abs_diff[logits]"].find("failure")
    (check,) = (
        item for item in called.data["runs"][0]["variants"]["onnx-fp16"]["checks"] if item["name"] == "max_abs_diff"
    )
    assert failed is not None
    # What leaves this machine names no rows unless the spec says so.
    words = render(without_inputs(check["words"]))
    assert failed.get("message") == words
    assert words in str(failed.text)


def test_what_is_not_required_fails_no_case(desk: Desk) -> None:
    desk.spec(
        tolerance={"onnx-fp16": {"max_abs_diff": 1e-9}}, targets=["onnx-fp32", "onnx-fp16"], required=["onnx-fp32"]
    )

    called = desk.call("run", "spec.yaml", "--no-promote", "--format", "junit")

    assert called.code == 0
    root = read_junit(called.out)
    assert not list(root.iter("failure"))
    skipped = cases_of(root, "tiny onnx-fp16")["max_abs_diff[logits]"].find("skipped")
    assert skipped is not None
    assert str(skipped.get("message")).startswith("it is not required; failed: ")


def test_what_is_required_and_not_run_here_is_an_error(desk: Desk) -> None:
    desk.spec(targets=["onnx-fp32", "tensorrt-fp16"], required=["onnx-fp32", "tensorrt-fp16"])

    called = desk.call("run", "spec.yaml", "--no-promote", "--format", "junit")

    assert called.code != 0
    root = read_junit(called.out)
    assert cases_of(root, "tiny tensorrt-fp16")["compared"].find("error") is not None


def test_what_is_not_run_here_and_not_required_is_skipped(desk: Desk) -> None:
    desk.spec(targets=["onnx-fp32", "tensorrt-fp16"])

    called = desk.call("run", "spec.yaml", "--no-promote", "--format", "junit")

    assert called.code == 0
    assert cases_of(read_junit(called.out), "tiny tensorrt-fp16")["compared"].find("skipped") is not None


def test_a_spec_that_ends_in_an_error_is_a_case_of_its_own(desk: Desk) -> None:
    desk.module("broken", "def load():\n    raise RuntimeError('no weights')\n")
    desk.module_spec("broken:load")

    called = desk.call("run", "spec.yaml", "--format", "junit")

    assert called.code != 0
    root = read_junit(called.out)
    assert list(root.iter("error"))


def test_a_release_that_cannot_be_made_is_an_error(desk: Desk) -> None:
    (desk.folder / "artifacts").mkdir()
    (desk.folder / "artifacts/repository").write_text("no folder", encoding="utf-8")

    called = desk.call("run", "spec.yaml", "--format", "junit")

    assert called.code == 5
    error = cases_of(read_junit(called.out), "tiny release")["release"].find("error")
    assert error is not None
    assert "artifacts/repository" in str(error.get("message"))


def test_json_is_the_same_by_either_option(finished: Desk, tmp_path: Path) -> None:
    desk = finished.copy(tmp_path)
    validate = ("validate", "--run", str(desk.run_folder), "--scratch")

    by_format = json.loads(desk.call(*validate, "--format", "json").out)
    by_json = json.loads(desk.call(*validate, "--json", "-").out)

    assert by_format.keys() == by_json.keys()
    assert by_format["exit_code"] == by_json["exit_code"] == 0


def test_json_goes_to_a_file_beside_another_format(bench: Bench) -> None:
    a, b = bench.linear("a"), bench.linear("b")

    outcome = bench.compare(a, b, "--samples", bench.samples(), "--format", "junit")

    assert outcome.code == 0
    root = read_junit(outcome.out)
    assert [suite.get("name") for suite in root] == [f"{a} {b}"]
    assert outcome.result["verdict"] == "pass"


def test_standard_output_holds_one_thing(bench: Bench) -> None:
    a, b = bench.linear("a"), bench.linear("b")

    called = bench.compare(a, b, "--samples", bench.samples(), "--format", "junit", "--json", "-")

    assert called.code == 2
    assert "error: --json - and --format junit both write to standard output" in called.err


def test_validate_has_the_same_formats(finished: Desk, tmp_path: Path) -> None:
    desk = finished.copy(tmp_path)

    called = desk.call("validate", "--run", str(desk.run_folder), "--scratch", "--format", "junit")

    assert called.code == 0
    assert "max_abs_diff[logits]" in cases_of(read_junit(called.out), "tiny onnx-fp32")


def test_github_is_told_of_a_failure_and_gets_the_report(desk: Desk, summary: Path) -> None:
    summary.write_text("of another step\n", encoding="utf-8")
    desk.spec(tolerance={"onnx-fp16": {"max_abs_diff": 1e-9}}, targets=["onnx-fp16"])

    called = desk.call("run", "spec.yaml", "--no-promote", "--format", "github")

    assert called.code == 1
    errors = [line for line in github_lines(called) if line.startswith("::error ")]
    assert len(errors) == 1
    assert errors[0].startswith("::error title=tiny onnx-fp16%3A fail::")
    assert "max_abs_diff[logits]: " in errors[0]
    assert "verdict: fail" in called.out
    text = summary.read_text(encoding="utf-8")
    assert text.startswith("of another step\n")
    assert "## onnx-fp16: ✗ fail" in text


def test_github_is_told_of_nothing_where_all_passed(desk: Desk) -> None:
    called = desk.call("run", "spec.yaml", "--no-promote", "--format", "github")

    assert called.code == 0
    assert [line for line in github_lines(called) if line.startswith("::error")] == []


def test_a_comparison_has_a_summary_too(bench: Bench, summary: Path) -> None:
    reference, candidate = bench.linear("a"), bench.linear("b", error=0.5)

    outcome = bench.compare(reference, candidate, "--samples", bench.samples(), "--format", "github")

    assert outcome.code == 1
    assert f"::error title={reference} {candidate}%3A fail::" in outcome.out
    text = summary.read_text(encoding="utf-8")
    assert text.startswith("# ✗ fail: ")
    assert "- fail: max_abs_diff" in text


def test_a_summary_that_is_full_gets_no_more_and_the_log_says_so(bench: Bench, summary: Path) -> None:
    summary.write_bytes(b"x" * (1024 * 1024 - 10))

    outcome = bench.compare(bench.linear("a"), bench.linear("b"), "--samples", bench.samples(), "--format", "github")

    assert outcome.code == 0
    assert "b.onnx::the summary of a step takes 1 MiB" in outcome.out
    assert summary.stat().st_size < 1024 * 1024


def test_a_summary_that_cannot_be_written_changes_no_exit_code(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path))

    outcome = bench.compare(bench.linear("a"), bench.linear("b"), "--samples", bench.samples(), "--format", "github")

    assert outcome.code == 0
    assert "title=no summary of " in outcome.out


def result_of(*checks: Check, **changes: object) -> ComparisonResult:
    """Return a comparison with these checks."""
    side = SideResult(name="m.onnx", kind="onnx")
    found = {
        "verdict": "fail",
        "exit_code": 1,
        "rows": 8,
        "precision": "fp32",
        "reference": side,
        "candidate": side,
        "samples": "inputs.npz",
        "checks": list(checks),
        **changes,
    }
    return ComparisonResult(**found)  # type: ignore[arg-type]  # fields by name


def test_two_checks_of_one_name_are_two_cases() -> None:
    check = Check(name="contract.outputs", status="fail", detail="an output is missing")

    suite = suite_of_comparison(result_of(check, check))

    assert [case.name for case in suite.cases] == ["contract.outputs", "contract.outputs (2)"]


def test_a_finding_passes_and_is_said() -> None:
    finding = ProbeFailureResult(
        probe="rare", batch=0, about="NaN in x", check="finite", detail="nan against 0", edge="NaN in x"
    )
    probe = Check(name="probe_rare", status="edge", detail="1 finding")
    warning = Check(name="bias", status="warning", detail="it leans", output="logits")

    suite = suite_of_comparison(result_of(probe, warning, verdict="pass", exit_code=0, edge_findings=[finding]))

    root = read_junit(junit_xml([suite]))
    cases = cases_of(root, "m.onnx m.onnx")
    assert (
        cases["probe_rare"].findtext("system-out")
        == "edge: 1 finding\nout-of-sample finding: NaN in x: finite: nan against 0"
    )
    assert cases["bias[logits]"].findtext("system-out") == "warning: it leans"
    assert [item.kind for item in annotations_of([suite])] == ["warning"]


def test_what_is_too_uncertain_is_an_error_and_no_failure() -> None:
    check = Check(name="rows", status="inconclusive", detail="8 rows of 100")

    suite = suite_of_comparison(result_of(check, verdict="inconclusive", exit_code=3))

    assert [(case.status, case.message) for case in suite.cases] == [
        (CaseStatus.ERROR, "inconclusive: 8 rows of 100"),
    ]


@pytest.mark.parametrize("text", ["\x00\x1b[31m", "a\u202eb", "\ufffe\uffff", "\ud800", "]]>", "<&\"'>", "\r\n\t"])
def test_any_text_makes_xml_that_can_be_read(text: str) -> None:
    case = Case(name=f"n{text}", status=CaseStatus.FAILED, message=text, details=text, output=text)
    suite = Suite(model=text, name=text, verdict="fail", cases=(case,), properties={"rows": text})

    read_junit(junit_xml([suite]))


def test_a_message_cannot_make_a_command_of_its_own() -> None:
    text = "50 %0A\r\n::error::mine"

    (line,) = annotation_lines([Annotation(kind="error", title="a: b, c", message=text)])

    assert line == "::error title=a%3A b%2C c::50 %250A\\u000d%0A::error::mine"


def test_the_screen_cannot_make_a_command(bench: Bench) -> None:
    folder = bench.folder / "::error::x"
    folder.mkdir()

    outcome = bench.compare(
        bench.linear("a"), str(folder / "no.onnx"), "--samples", bench.samples(), "--format", "github"
    )

    assert outcome.code == 2
    assert not [line for line in outcome.out.splitlines() if line.lstrip().startswith("::error::x")]


def test_what_github_does_not_show_is_counted() -> None:
    found = [Annotation(kind="error", title=f"v{at}", message="m") for at in range(13)]

    lines = annotation_lines(found)

    assert len(lines) == 10
    assert lines[-1] == "::error title=4 more of this kind::v9, v10, v11, v12"


def test_an_error_has_its_hint() -> None:
    suite = suite_of_error("tiny", InputFileError("there is no model.onnx", hint="name another file"))

    (line,) = annotation_lines(annotations_of([suite]))

    assert line == "::error title=tiny run%3A error::run: there is no model.onnx%0Ahint: name another file"


def test_a_summary_of_a_comparison_stays_below_what_a_comment_takes() -> None:
    checks = [Check(name=f"check{at}", status="fail", detail="x" * 300) for at in range(400)]

    text = render_comparison(result_of(*checks))

    assert len(text) <= 60_000
    assert "cut off at 60,000 characters" in text
