"""A difference where no sample is: an out-of-sample finding wherever a result is shown, and no failure."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pytest
from msgspec.structs import replace
from onnx import helper

from paritygate.codec import from_data
from paritygate.pipelines.compare.result import ComparisonResult, reasons
from paritygate.pipelines.report.repro_commands import repro_commands
from paritygate.pipelines.report.tables.probes import FOUND_AT, probe_tables, probe_words
from paritygate.pipelines.report.terminal.comparison_details import finding_lines
from paritygate.pipelines.selftest import trial
from paritygate.precision import Precision
from paritygate.validate.gate.declared_limits import parse_tolerance
from paritygate.validate.gate.rules import GateRules
from paritygate.validate.probes.recording import ProbesRecording
from paritygate.validate.probes.run import ProbeQuestion

if TYPE_CHECKING:
    from tests.pipelines.conftest import Bench, Outcome

_EDGE = "an empty row of attention_mask"


def _model(bench: Bench, name: str, *, of_nothing: float) -> str:
    """Write a mean over what the mask covers, plus what is added where it covers nothing."""
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["emb"]),
        helper.make_node("Cast", ["attention_mask"], ["m"], to=1),
        helper.make_node("Unsqueeze", ["m", "two"], ["m3"]),
        helper.make_node("Mul", ["emb", "m3"], ["kept"]),
        helper.make_node("ReduceSum", ["kept", "one"], ["total"], keepdims=0),
        helper.make_node("ReduceSum", ["m", "one"], ["count"], keepdims=1),
        helper.make_node("Max", ["count", "onef"], ["safe"]),
        helper.make_node("Div", ["total", "safe"], ["pooled"]),
        helper.make_node("Less", ["count", "onef"], ["none"]),
        helper.make_node("Cast", ["none"], ["nonef"], to=1),
        helper.make_node("Mul", ["nonef", "of_nothing"], ["more"]),
        helper.make_node("Add", ["pooled", "more"], ["logits"]),
    ]
    weights = {
        "table": np.random.default_rng(1).normal(size=(50, 4)).astype(np.float32),
        "one": np.array([1]),
        "two": np.array([2]),
        "onef": np.float32(1),
        "of_nothing": np.float32(of_nothing),
    }
    shape = ("int64", ["batch", "length"])
    return bench.model(
        name,
        nodes,
        inputs={"ids": shape, "attention_mask": shape},
        outputs={"logits": ("float", ["batch", 4])},
        weights={key: np.asarray(value) for key, value in weights.items()},
    )


def _samples(bench: Bench, *, empty: int | None = None) -> str:
    random = np.random.default_rng(0)
    length = random.integers(2, 7, size=(48, 1))
    if empty is not None:
        length[empty] = 0
    mask = (np.arange(6) < length).astype(np.int64)
    return bench.npz("samples.npz", {"ids": random.integers(1, 50, (48, 6)) * mask, "attention_mask": mask})


def _compare(bench: Bench, *options: str, empty: int | None = None, of_nothing: float = 0.4) -> Outcome:
    sides = _model(bench, "a", of_nothing=0.0), _model(bench, "b", of_nothing=of_nothing)
    return bench.compare(*sides, "--samples", _samples(bench, empty=empty), "--probes", "masks", *options)


def test_a_finding_passes_and_says_how_the_row_is_unlike_the_samples_and_what_to_write(bench: Bench) -> None:
    found = _compare(bench)

    assert (found.code, found.result["verdict"], found.status("probe_masks")) == (0, "pass", "edge")
    assert re.search(
        rf"^out-of-sample finding: probe_masks: {_EDGE}, [^\n]* at an empty row alone "
        r"\(attention_mask\), and 1 more batch: max_abs_diff: 0\.4 > \S+, worst [^\n]*\n"
        r"  if the service can receive such a row, let it fail: give --role 'attention_mask={empty: true}', "
        r"or add one to the samples\n"
        r"  if it never can, leave such rows out: give --role 'attention_mask={empty: false}'\n"
        r"  to see this alone: convert-and-validate compare .*$",
        found.out,
        re.MULTILINE,
    )
    assert re.search(r"^verdict: pass, 1 out-of-sample finding$", found.out, re.MULTILINE)
    (finding,) = found.result["edge_findings"]
    assert (finding["probe"], finding["edge"], finding["check"], finding["batches"]) == (
        "masks",
        _EDGE,
        "max_abs_diff",
        2,
    )
    assert finding["if_it_never_occurs"] == "roles: {attention_mask: {empty: false}}"
    assert found.result["probes"]["asked"]["masks"]["failures"] == []


def test_edge_fail_makes_a_failure_of_a_finding(bench: Bench) -> None:
    found = _compare(bench, "--edge", "fail")

    assert (found.code, found.status("probe_masks")) == (1, "fail")
    assert f"at an empty row alone (attention_mask) ({_EDGE}, " in found.out
    assert "verdict: fail, 1 out-of-sample finding" in found.out
    # The command that asks the probe alone asks no less.
    assert "--edge fail" in found.result["edge_findings"][0]["again"]
    assert "if it never can, leave such rows out: give --role 'attention_mask={empty: false}'" in found.out


def test_edge_off_asks_nothing_of_the_kind_and_says_so(bench: Bench) -> None:
    found = _compare(bench, "--edge", "off")

    assert (found.code, found.result["edge_findings"]) == (0, [])
    assert found.result["probes"]["edge"] == "off"
    assert re.search(
        r"^probes: \d+ batches unlike every sample did not run because of edge: off$", found.out, re.MULTILINE
    )
    assert "verdict: pass\n" in found.out


@pytest.mark.parametrize("roles", [(), ("--role", "attention_mask={empty: true}")])
def test_an_empty_row_of_a_sample_has_to_hold(bench: Bench, roles: tuple[str, ...]) -> None:
    found = _compare(bench, *roles, empty=5)

    assert found.code == 1
    assert {"max_abs_diff", "probe_masks"} <= found.failed


def test_an_empty_row_of_a_sample_that_never_occurs_is_a_finding(bench: Bench) -> None:
    found = _compare(bench, "--role", "attention_mask={empty: false}", empty=5)

    assert (found.code, found.status("undeclared_padding")) == (0, "edge")


def test_the_command_of_a_finding_shows_it_alone(bench: Bench) -> None:
    found = _compare(bench, "--failures", str(bench.folder / "kept"))
    (finding,) = found.result["probes"]["asked"]["masks"]["findings"]

    words = shlex.split(finding["again"])
    alone = bench.compare(*words[2:4], *words[4:])

    assert Path(finding["inputs"]).parent == bench.folder / "kept"
    assert words[:2] == ["convert-and-validate", "compare"]
    assert (alone.code, "max_abs_diff" in alone.failed) == (1, True)


def test_variants_that_share_a_finding_share_its_line(bench: Bench) -> None:
    one, two = (from_data(ComparisonResult, _compare(bench, of_nothing=value).result) for value in (0.4, 0.3))
    right = replace(one, edge_findings=[])

    line, *to_do = finding_lines({"onnx-fp32": one, "onnx-fp16": two, "openvino-fp32": right})

    assert [words.split(",")[0] for words in to_do[:2]] == [
        "  if the service can receive such a row",
        "  if it never can",
    ]
    assert line.startswith(f"out-of-sample finding: onnx-fp32, onnx-fp16: probe_masks: {_EDGE}, ")
    assert "max_abs_diff: 0.4 > 0.0001" in line
    assert line.endswith("(numbers of onnx-fp32)")
    assert not any("probe_masks" in reason for reason in reasons(one, with_findings=False))
    assert any("probe_masks" in reason for reason in reasons(one))


def test_the_report_lists_findings_apart_from_failures(bench: Bench) -> None:
    result = from_data(ComparisonResult, _compare(bench, "--failures", str(bench.folder / "kept")).result)

    tables = {table.caption: table for table in probe_tables(result, bench.folder)}

    (row,) = tables[FOUND_AT].rows
    assert [cell.text for cell in row][:4] == ["masks", _EDGE, "an empty row alone (attention_mask)", "2"]
    assert row[4].text.startswith("max_abs_diff: 0.4 > 0.0001")
    assert [row[5].text, row[6].text] == [f"roles: {{attention_mask: {{empty: {said}}}}}" for said in ("true", "false")]
    assert row[7].text.startswith("kept/masks-")
    assert "out-of-sample finding, which fails nothing unless the spec has edge: fail." in " ".join(probe_words(result))
    (alone,) = repro_commands(result, bench.folder)
    assert alone.title == "masks, an empty row alone (attention_mask)"


def test_a_selftest_goes_on_behind_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    stopped: dict[bool, bool] = {}

    def run_probes(_: object, stopping: Any, question: ProbeQuestion, **__: object) -> tuple[()]:  # noqa: ANN401
        # It judges by all that was recorded.
        assert all(getattr(stopping, name) == getattr(recording, name) for name in recording.__struct_fields__)
        for is_finding in (True, False):
            question.keep("masks", cast("Any", SimpleNamespace(is_finding=is_finding)))
            stopped[is_finding] = "masks" in stopping.failed
        return ()

    monkeypatch.setattr(trial, "run_probes", run_probes)
    question = ProbeQuestion(rules=GateRules(tolerance=parse_tolerance(Precision.FP32, {})), outputs=())
    monkeypatch.setattr(trial, "question_of", lambda *_: question)
    recording = ProbesRecording(folder=Path(), probes=(), roles={}, profiles={}, seed=5, runtime="a runtime")
    job = SimpleNamespace(rules=SimpleNamespace(probes=("masks",)))

    trial.ask_until_failed(
        cast("Any", job), cast("Any", None), recording, (), lambda *_: None, unclipped=cast("Any", None)
    )

    assert stopped == {True: False, False: True}
