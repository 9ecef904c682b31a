"""The one screen as data: why a variant is not a pass in one sentence, and every remark once with its variants."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from rich.cells import cell_len
from tests.pipelines.report.conftest import HOSTILE_OUTPUT

from paritygate.pipelines.compare.result import (
    ComparisonResult,
    ErrorResult,
    LimitRange,
    OutputResult,
    ProbeFailureResult,
    SideResult,
)
from paritygate.pipelines.report.report_data import ReportData, VariantReport, collect_report
from paritygate.pipelines.report.summary import (
    comparison_remarks,
    comparison_summary,
    findings_of,
    run_remarks,
    run_summary,
    variants_in_words,
)
from paritygate.pipelines.report.terminal.screen import WIDTH, screen_table, wrapped
from paritygate.pipelines.report.why import headline_check, why, why_of_variant
from paritygate.pipelines.run.workspace import RunFolder, open_run
from paritygate.signature import TensorSpec
from paritygate.validate.measure.check import Check
from paritygate.validate.measure.figures import DecisionStatistics, WorstRow
from paritygate.validate.words.sentence import say

if TYPE_CHECKING:
    from tests.pipelines.conftest import Desk

_WIDE = "유사도 점수가 한계를 넘었다 "


def _output(*, beyond: int | None = 1, row: str = "158") -> OutputResult:
    worst = WorstRow(row_id=row, max_abs_diff=4.53, index=[0], actual=5.0, expected=0.47, limit=0.062)
    limit = LimitRange(lowest=0.062, highest=0.062)
    none = dict.fromkeys(
        (
            "min_abs_diff", "mean_abs_diff", "std_abs_diff", "p50_abs_diff", "p90_abs_diff", "p99_abs_diff",
            "p999_abs_diff", "bias", "bias_low_95", "bias_high_95", "std_diff", "cosine_similarity", "max_rel_diff",
            "repeat_max_abs_diff",
        )
    )  # fmt: skip
    return OutputResult(
        dtype="float32", axis=None, scale=1.0, rows=161, values=161, compared=161, max_abs_diff=4.53,
        max_row_rel_diff=0.9, max_row_rel_id="7", mismatches=None, non_finite=0, limits={"max_abs_diff": limit},
        worst_rows=[worst], rows_beyond=beyond, **none,
    )  # fmt: skip


def _check(name: str, status: str = "fail", **parts: object) -> Check:
    given = {"output": "logits", "measured": 4.53, "limit": 0.062, **parts}
    if not {"detail", "words"} & parts.keys():
        given["words"] = say("above", measured=4.53, limit=0.062) + say("text", text=", worst at row '158'")
    return Check(name=name, status=status, **given)  # type: ignore[arg-type]  # fields by name


def _result(*checks: Check, verdict: str = "fail", **parts: object) -> ComparisonResult:
    side = SideResult(name="model.onnx", kind="onnx")
    given = {"outputs": {"logits": _output()}, "rows": 161, **parts}
    return ComparisonResult(
        verdict=verdict, exit_code=0, precision="fp32", reference=side, candidate=side, samples="s.npz",
        checks=list(checks), **given,  # type: ignore[arg-type]  # fields by name
    )  # fmt: skip


def test_the_sharpest_finding_is_said_first_with_rows_difference_and_limit() -> None:
    checks = (_check("probe_masks", detail="at an empty row"), _check("decision_mismatches"), _check("max_abs_diff"))
    words = "1 of 161 rows differs (row '158'): 4.53 against a limit of 0.062"

    assert why(_result(*checks)) == f"{words} (and 2 more checks)"
    assert why(_result(_check("max_abs_diff"))) == words


def test_another_output_that_fails_the_same_check_is_counted() -> None:
    of_both = [_check("max_abs_diff"), _check("max_abs_diff", output="embedding", measured=0.07)]

    assert why(_result(*of_both)).endswith("against a limit of 0.062 (and 1 more output)")
    found = why(_result(*of_both, _check("finite", output="embedding", detail="3 values are NaN", measured=3.0)))
    assert found.endswith("(and 1 more check, 1 more output)")


def test_names_that_only_the_candidate_has_are_no_more_outputs_of_the_model() -> None:
    lacks = [
        _check("contract.outputs", output=f"output_{index}", words=say("contract.no_output", output="a", outputs=["b"]))
        for index in range(2)
    ]
    more = [
        _check("contract.outputs", output=name, words=say("contract.more_output", output=name)) for name in ("b", "c")
    ]
    assert why(_result(*lacks, *more)).endswith("(and 1 more output)")
    assert why(_result(*more)).endswith("(and 1 more output)")


@pytest.mark.parametrize(
    ("check", "words"),
    [
        (_check("max_row_rel_diff", measured=0.9), "1 of 161 rows differs (row '7'): 0.9 of the row against a limit"),
        (_check("mean_abs_diff"), "the mean difference is 4.53 against a limit of 0.062"),
        (
            _check(
                "min_cosine_similarity",
                words=say("below_limit", measured=0.5, limit=0.9) + say("text", text=", lowest at row 'a'"),
                measured=0.5,
                limit=0.9,
            ),
            "min_cosine_similarity is 0.5 against a limit of at least 0.9, lowest at row 'a'",
        ),
        (_check("finite", detail="3 values are NaN"), "3 values are NaN"),
        (_check("probe_masks", detail="at an empty row: max_abs_diff"), "probe masks: at an empty row: max_abs_diff"),
        (_check("something_new", detail="a check that comes later"), "a check that comes later"),
    ],
)
def test_each_kind_of_check_is_a_sentence(check: Check, words: str) -> None:
    assert why(_result(check)).startswith(words)


def test_answers_that_are_none_come_before_numbers_and_numbers_before_decisions() -> None:
    checks = (_check("decision_mismatches"), _check("max_abs_diff"), _check("finite", detail="3 values are NaN"))

    assert why(_result(*checks)).startswith("3 values are NaN")
    assert why(_result(*checks[:2])).startswith("1 of 161 rows")


def test_several_rows_a_hidden_row_and_several_outputs_are_said_right() -> None:
    check = _check("max_abs_diff")
    many = _result(check, outputs={"logits": _output(beyond=12)})
    hidden = _result(check, outputs={"logits": _output(row="(hidden)")})
    two = _result(check, outputs={"logits": _output(), "other": _output()})

    assert why(many).startswith("12 of 161 rows differ (worst: row '158'): 4.53")
    assert why(hidden).startswith("1 of 161 rows differs: 4.53")
    assert why(two).startswith("logits: 1 of 161 rows differs")


def test_the_output_with_most_rows_beyond_a_limit_is_said_first() -> None:
    checks = _check("exact", output="label", measured=1.0, limit=0.0), _check("max_abs_diff")
    few, many, all_rows = _output(beyond=1), _output(beyond=157), _output(beyond=None)

    assert headline_check(_result(*checks, outputs={"label": few, "logits": many})) == checks[1]
    assert headline_check(_result(*checks, outputs={"label": many, "logits": few})) == checks[0]
    # Its rows are not known.
    assert headline_check(_result(*checks, outputs={"label": many, "logits": all_rows})) == checks[1]


def test_a_pass_has_no_reason_and_an_error_its_first_line() -> None:
    error = ErrorResult(kind="BackendError", message="it crashed\n  | line of a log", hint="look")

    assert why(_result(_check("bias", "warning"), verdict="pass")) == ""
    assert why(_result(verdict="error", error=error)) == "it crashed"


def _report(run: RunFolder, *variants: VariantReport) -> ReportData:
    return replace(collect_report(run), variants=variants, benchmark=None)


def _variant(name: str, result: ComparisonResult | None, verdict: str, **parts: object) -> VariantReport:
    given = {"is_required": True, "exit_code": 0, **parts}
    return VariantReport(name=name, verdict=verdict, result=result, **given)  # type: ignore[arg-type]  # fields by name


def test_a_reason_that_several_variants_share_is_said_once_with_their_names(passing_run: RunFolder) -> None:
    missing = [
        _variant(f"openvino-{name}", None, "error", reason="openvino is not installed") for name in ("a", "b", "c")
    ]
    report = _report(passing_run, *missing, _variant("onnx-int8", None, "error", reason="alone"))

    assert [row[0].remark for row in run_summary(report).rows] == ["", "", "", "alone"]
    (remark,) = (item for item in run_remarks(report) if item.kind == "error")
    assert (remark.names, remark.words) == (("openvino-a", "openvino-b", "openvino-c"), "openvino is not installed")


def _warning(detail: str, **parts: object) -> ComparisonResult:
    return _result(_check("bias", "warning", detail=detail, **parts), verdict="pass")


def test_each_variant_has_its_own_warning_unless_it_is_the_same_word_for_word(passing_run: RunFolder) -> None:
    same = [_variant(f"onnx-{name}", _warning("0.1, above 0.05"), "pass") for name in ("a", "b")]
    other = _variant("tflite-fp16", _warning("0.2, above 0.05"), "pass")

    said = [(item.kind, item.names, item.words) for item in run_remarks(_report(passing_run, *same, other))]

    assert said == [
        ("warning", ("onnx-a", "onnx-b"), "bias of logits: 0.1, above 0.05"),
        ("warning", ("tflite-fp16",), "bias of logits: 0.2, above 0.05"),
    ]


def test_of_many_variants_each_warning_is_one_line_and_none_is_left_out_for_a_second_output(
    passing_run: RunFolder,
) -> None:
    def of(number: int) -> ComparisonResult:
        details = [f"0.{number}{place}, above 0.05 in channel 1 of 2, half the limit of the mean" for place in (1, 2)]
        outputs = zip(("logits", "other"), details, strict=True)
        return _result(*(_check("bias", "warning", output=name, detail=text) for name, text in outputs), verdict="pass")

    report = _report(passing_run, *(_variant(f"onnx-variant-{number}", of(number), "pass") for number in range(9)))
    remarks = run_remarks(report)

    assert [item.names for item in remarks] == [*((f"onnx-variant-{number}",) for number in range(9)), ()]
    lines = [line for line in _lines(report) if "bias" in line]
    assert len(lines) == 9
    assert max(map(cell_len, _lines(report))) <= WIDTH


def test_what_a_difference_looks_like_is_said_once_with_the_variants_that_it_is_seen_in(
    passing_run: RunFolder,
) -> None:
    result = _result(_check("max_abs_diff"), outputs={"logits": replace(_output(), looks_like=["scaled: 2 times"])})
    report = _report(passing_run, *(_variant(f"onnx-{name}", result, "fail") for name in ("a", "b")))

    said = [remark for remark in run_remarks(report) if remark.kind == "looks like"]
    assert [(remark.names, remark.words) for remark in said] == [(("onnx-a", "onnx-b"), "scaled: 2 times")]


def test_an_edge_finding_is_said_once_with_what_to_declare(passing_run: RunFolder) -> None:
    finding = ProbeFailureResult(
        batch=0, about="an empty row", check="max_abs_diff", detail="0.1 > 0.01", edge="an empty row of mask",
        if_it_occurs="roles: {mask: {empty: true}}", if_it_never_occurs="roles: {mask: {empty: false}}", probe="masks",
    )  # fmt: skip
    result = _result(verdict="pass", edge_findings=[finding])
    report = _report(passing_run, *(_variant(f"onnx-{name}", result, "pass") for name in ("a", "b", "c")))

    (remark,) = run_remarks(report)
    assert (remark.kind, variants_in_words(remark.names)) == ("out-of-sample finding", "onnx-* (3)")
    assert "an empty row of mask, unlike every sample: outputs differ: max_abs_diff: 0.1 > 0.01" in remark.words
    assert remark.words.endswith(
        "if it can occur, write below roles in the spec: mask: {empty: true}; "
        "if it never can, write below roles in the spec: mask: {empty: false}"
    )
    assert {row[0].text for row in run_summary(report).rows} == {"pass, edge"}

    failing = _result(_check("max_abs_diff"), edge_findings=[finding])
    with_failure = _report(passing_run, _variant("onnx-a", result, "pass"), _variant("onnx-b", failing, "fail"))
    said = [(remark.kind, remark.names) for remark in run_remarks(with_failure)]
    assert said == [("out-of-sample finding", ("onnx-a",)), ("out-of-sample findings", ("onnx-b",))]
    # The report goes on listing them all.
    (found,) = findings_of(with_failure)
    assert (found.kind, found.names) == ("out-of-sample finding", ("onnx-a", "onnx-b"))


def test_figures_are_mismatches_and_the_share_of_the_nearest_limit() -> None:
    decision = DecisionStatistics(
        rule="logits:argmax", rows=161, decisions=161, mismatches=3, inside_band=3, outside_band=0, rows_mismatched=3,
        mismatch_rate_upper_95=0.05, classes={}, examples=[],
    )  # fmt: skip
    checks = (_check("max_abs_diff", "pass", measured=0.031), _check("mean_abs_diff", "pass", measured=0.001))
    ((verdict, _, mismatches, share),) = comparison_summary(
        _result(*checks, verdict="pass", decisions={"logits": decision}, mismatches=3)
    ).rows

    assert (verdict.text, mismatches.text, share.text) == ("pass", "3", "50 %")
    ((_, _, mismatches, share),) = comparison_summary(_result(_check("max_abs_diff", measured=None))).rows
    assert (mismatches.text, share.text) == ("-", "beyond")


def test_the_first_operator_that_is_unsupported_is_the_reason(mixed_run: RunFolder) -> None:
    (variant,) = (item for item in collect_report(mixed_run).variants if item.name == "onnx-int8")

    assert why_of_variant(variant) == "1 operator is unsupported: CustomOp<b> at encoder/layer|3: no translation"


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["onnx-fp32"], "onnx-fp32"),
        (["onnx-fp32", "onnx-fp16", "tflite-fp16"], "onnx-fp32, onnx-fp16, tflite-fp16"),
        (["onnx-a", "onnx-b", "tflite-fp16", "onnx-c", "onnx-d"], "onnx-* (4), tflite-fp16"),
        (["tensorrt-rtx-a", "tensorrt-rtx-b", "tensorrt-rtx-c"], "tensorrt-rtx-* (3)"),
        (["onnx-a", "onnx-b", "onnx-b emulated"], "onnx-a, onnx-b"),
        (
            ["onnx-a emulated", "onnx-b emulated", "onnx-c emulated"],
            "onnx-a emulated, onnx-b emulated, onnx-c emulated",
        ),
        (["onnx-a", "onnx-a emulated", "onnx-b", "onnx-c", "onnx-d emulated"], "onnx-* (3), onnx-d emulated"),
    ],
)
def test_many_variants_of_a_format_are_named_together(names: list[str], words: str) -> None:
    assert variants_in_words(names) == words


def test_constants_that_became_others_are_said_of_what_fails(passing_run: RunFolder) -> None:
    (first, *_) = collect_report(passing_run).variants
    assert first.artifact is not None
    changed = ["scale: 1 value, 1e+06 became 65504", "mask: 1 value, -1e+09 became -65504"]
    artifact = replace(first.artifact, made_by={"facts": {"constants_clamped": changed}})
    failed = replace(_variant("onnx-fp16", _result(_check("max_abs_diff")), "fail"), artifact=artifact)

    def notes(variant: VariantReport) -> list[tuple[tuple[str, ...], str]]:
        return [(item.names, item.words) for item in run_remarks(_report(passing_run, variant)) if item.kind == "note"]

    words = f"constants beyond the range of its precision were changed: {changed[0]}; and 1 more: see the report"
    assert notes(failed) == [(("onnx-fp16",), words)]
    assert notes(replace(failed, verdict="pass")) == []
    assert notes(replace(failed, artifact=replace(artifact, made_by={"facts": {"constants_clamped": []}}))) == []


def _lines(report: ReportData) -> list[str]:
    words = [f"{item.kind}: {variants_in_words(item.names)}: {item.words}" for item in run_remarks(report)]
    return [*screen_table(run_summary(report)), *(line for text in words for line in wrapped(text))]


@pytest.mark.parametrize(
    ("name", "most"), [("onnx-{}", 36), ("tensorrt-rtx-fp16@batch={},sequence=128,and_more=1024", 46)]
)
def test_ten_variants_that_fail_each_in_their_own_way_fit_one_screen_of_80_columns(
    passing_run: RunFolder, name: str, most: int
) -> None:
    names = [name.format(number) for number in range(10)]
    variants = [
        _variant(name, _result(_check("finite", detail=f"{at} {_WIDE * 30}"), _check("bias", "warning")), "fail")
        for at, name in enumerate(names)
    ]

    lines = _lines(_report(passing_run, *variants))

    assert max(map(cell_len, lines)) <= WIDTH
    assert len(lines) <= most
    assert sum(line.startswith("fail ") for line in lines) == 10
    joined = "".join(line.strip() for line in lines)
    assert joined.count(_WIDE.split(maxsplit=1)[0]) >= 10


def test_a_run_of_every_outcome_fits_80_columns_and_says_each_reason(mixed_run: RunFolder) -> None:
    lines = _lines(collect_report(mixed_run))
    text = " ".join(line.strip() for line in lines)

    # The path of a folder elsewhere is copied in one piece.
    assert max(cell_len(line) for line in lines if str(mixed_run.folder) not in line) <= WIDTH
    assert len(lines) <= 40
    assert "\n" not in "".join(lines)
    assert HOSTILE_OUTPUT in text
    for said in ("rows differ", "model.onnx was changed", "1 operator is unsupported", "it was not exported"):
        assert said in text


def test_a_long_word_is_folded_and_a_command_can_be_copied() -> None:
    folder = Path("/a") / "/".join(["long-name"] * 9)
    lines = wrapped(f"hint: do it again: convert-and-validate validate --run {folder} --scratch --probes ids")

    assert lines[0] == "hint: do it again:"
    assert lines[1:] == [
        "  convert-and-validate validate --run \\",
        f"    {folder} \\",
        "    --scratch --probes ids",
    ]
    assert max(map(cell_len, wrapped("가" * 100))) <= WIDTH
    assert "".join(line.strip() for line in wrapped("x" * 300)) == "x" * 300


def test_a_command_with_commas_and_quoted_braces_can_be_copied() -> None:
    command = (
        "convert-and-validate compare reference.onnx candidate.onnx --samples failures/values.npz "
        "--probes batches,masks --role 'attention_mask={empty: false, padding: right}' --edge fail"
    )

    lines = wrapped(f"hint: to see the failure of probe masks alone: {command}")

    assert lines[0] == "hint: to see the failure of probe masks alone:"
    assert all(line.endswith(" \\") for line in lines[1:-1])
    assert shlex.split(" ".join(line.removesuffix("\\") for line in lines[1:])) == shlex.split(command)


def test_a_command_within_a_sentence_is_filled_as_words_are() -> None:
    words = f"run convert-and-validate plan (which does nothing), {'or read what follows here ' * 4}"

    assert not any(line.endswith("\\") for line in wrapped(words))


def test_a_variant_of_which_most_operators_stay_fp32_is_noted(desk: Desk) -> None:
    mean = "m = ReduceMean <axes=[1]> (x) d = Sub(x, m) s = Mul(d, d) v = ReduceMean <axes=[1]> (s)"
    head = '<ir_version: 9, opset_import: ["": 17]> norm (float[n,3] x) => (float[n,3] y)'
    text = f"{head} {{ e = Constant <value_float = 0.00001> () {mean} u = Add(v, e) r = Sqrt(u) y = Div(d, r) }}"
    onnx.save(onnx.parser.parse_model(text), desk.folder / "norm.onnx")
    samples = np.random.default_rng(0).standard_normal((120, 3)).astype(np.float32)
    np.savez(desk.folder / "norm.npz", x=samples)
    desk.spec(
        model={"name": "tiny", "source": "norm.onnx"},
        samples={"source": "norm.npz"},
        decisions={},
        targets=["onnx-fp32", "onnx-fp16"],
        probes="none",
    )
    assert desk.call("run", "spec.yaml", "--no-promote").code == 0

    report = collect_report(open_run(desk.run_folder))

    (noted,) = (remark for remark in run_remarks(report) if remark.names == ("onnx-fp16",))
    (facts,) = (
        item.artifact.made_by["facts"] for item in report.variants if item.name == "onnx-fp16" and item.artifact
    )
    kept = len(facts["nodes_kept"])
    assert kept > facts["nodes_converted"]
    assert f"{kept} of {kept + facts['nodes_converted']} " in noted.words
    # Of a model that is converted as a whole, nothing is noted.
    whole = {**facts, "nodes_kept": []}
    variants = [
        replace(item, artifact=item.artifact and replace(item.artifact, made_by={"facts": whole}))
        for item in report.variants
    ]
    remarks = run_remarks(replace(report, variants=tuple(variants)))
    assert not any(remark.names == ("onnx-fp16",) for remark in remarks)


@pytest.mark.parametrize(
    ("found", "judged", "verdict", "is_named"),
    [
        ("fp16", "fp32", "fail", True),
        ("int8", "fp32", "fail", True),
        ("fp32", "fp32", "fail", False),
        ("fp16", "fp16", "fail", False),
        ("fp16", "fp32", "pass", False),
    ],
)
def test_a_failed_candidate_of_lower_precision_names_the_option(
    found: str, judged: str, verdict: str, *, is_named: bool
) -> None:
    result = _result(_check("max_abs_diff", verdict), verdict=verdict)
    result = replace(result, precision=judged, candidate=replace(result.candidate, precision_found=found))

    remarks = comparison_remarks(result)

    assert (bool(remarks) and f"--precision {found}" in remarks[0].words) is is_named


@pytest.mark.parametrize(("verdict", "precision", "is_hinted"), [("fail", "fp16", True), ("fail", "fp32", False)])
def test_what_fails_in_a_lower_precision_has_a_page_to_read(
    passing_run: RunFolder, verdict: str, precision: str, *, is_hinted: bool
) -> None:
    result = replace(_result(_check("max_abs_diff", verdict), verdict=verdict), precision=precision)

    remarks = run_remarks(_report(passing_run, _variant("onnx-a", result, verdict)))

    assert any("docs/variant-fails.md" in remark.words for remark in remarks) == is_hinted


@pytest.mark.parametrize(
    ("verdicts", "repaired"),
    [
        ({"onnx-fp32": "pass", "onnx-fp16": "fail"}, ["onnx-fp16"]),
        ({"onnx-int8": "fail", "onnx-fp16": "pass"}, ["onnx-int8"]),
        ({"onnx-fp32": "fail", "onnx-fp16": "fail"}, ["onnx-fp32"]),
        ({"onnx-fp32": "error", "onnx-fp16": "fail"}, []),
        ({"onnx-fp16": "fail", "onnx-mixed": "pass"}, []),
        ({"openvino-int8": "fail"}, []),
    ],
)
def test_a_repair_is_named_where_it_can_be_made(
    passing_run: RunFolder, verdicts: dict[str, str], repaired: list[str]
) -> None:
    variants = [
        _variant(name, _result(_check("rows", verdict), verdict=verdict), verdict) for name, verdict in verdicts.items()
    ]

    remarks = run_remarks(_report(passing_run, *variants))

    assert [remark.names[0] for remark in remarks if " repair --run " in remark.words] == repaired


def test_scores_without_a_decision_are_noted_once(passing_run: RunFolder) -> None:
    recording = collect_report(passing_run).recording
    assert recording is not None
    scores = TensorSpec(name="scores", dtype="float32", shape=("batch", 4))
    recording = replace(recording, signature=replace(recording.signature, outputs=(scores,)))
    decision = DecisionStatistics(
        rule="argmax", rows=9, decisions=9, mismatches=0, inside_band=0, outside_band=0, rows_mismatched=0,
        mismatch_rate_upper_95=0.3, classes={}, examples=(),
    )  # fmt: skip
    for decisions, count in (({}, 1), ({"scores": decision}, 0)):
        result = _result(_check("bias", "pass"), verdict="pass", outputs={"scores": _output()}, decisions=decisions)
        report = _report(passing_run, *(_variant(name, result, "pass") for name in ("a", "b")))

        remarks = run_remarks(replace(report, recording=recording))

        assert sum("decisions: {scores:" in remark.words for remark in remarks) == count
