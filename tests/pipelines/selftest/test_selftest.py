"""`selftest`: faults planted into a user's own model, what catches them, and what is said of those that are missed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import numpy as np
import onnx
import pytest
from msgspec.structs import replace

from paritygate.codec import from_data, to_data
from paritygate.pipelines.jobs import selftest as selftest_job
from paritygate.pipelines.run.comparisons import comparison_job
from paritygate.pipelines.run.workspace import open_run
from paritygate.pipelines.selftest.mutations.mutation import MUTATIONS, Mutated, MutationContext, mutate_file
from paritygate.pipelines.selftest.page import lines_below, page_of
from paritygate.pipelines.selftest.result import (
    EffectResult,
    FindingResult,
    PlantResult,
    SelftestRequest,
    SelftestResult,
    schema_of_selftest,
    why_missed,
)
from paritygate.pipelines.selftest.trial import open_mutated, try_file

if TYPE_CHECKING:
    from tests.pipelines.conftest import Called, Desk

_TEXT = """
<ir_version: 9, opset_import: ["" : 17]>
text (int64[batch, seq] ids, int64[batch, seq] mask) => (float[batch, 3] logits)
{
  embedded = Gather (table, ids)
  is_real = Cast <to = 1> (mask)
  columns = Unsqueeze (is_real, last_axis)
  kept = Mul (embedded, columns)
  positions = Shape <start = 1, end = 2> (ids)
  mixed = LayerNormalization <axis = -1> (kept, gain)
  weighed = Mul (mixed, columns)
  total = ReduceSum <keepdims = 0> (weighed, sequence_axis)
  length = ReduceSum <keepdims = 0> (columns, sequence_axis)
  one_at_least = Max (length, one)
  pooled = Div (total, one_at_least)
  logits = Gemm (pooled, head, bias)
}
"""


def _faults(*names: str) -> list[str]:
    return [part for name in names for part in ("--fault", name)]


def _write_text_model(desk: Desk) -> None:
    """Put a model of texts, and right-padded texts with the ids 1 to 39 of 60, in place of the desk's own."""
    random = np.random.default_rng(0)
    model = onnx.parser.parse_model(_TEXT)
    weights: dict[str, Any] = {
        "table": random.standard_normal((60, 8)).astype(np.float32),
        "gain": np.ones(8, dtype=np.float32),
        "head": random.standard_normal((8, 3)).astype(np.float32),
        "bias": np.zeros(3, dtype=np.float32),
        "one": np.ones((1, 1), dtype=np.float32),
        "last_axis": np.array([2], dtype=np.int64),
        "sequence_axis": np.array([1], dtype=np.int64),
    }
    model.graph.initializer.extend(onnx.numpy_helper.from_array(value, name) for name, value in weights.items())
    onnx.save(model, str(desk.folder / "model.onnx"))
    lengths = random.integers(3, 13, 120)
    mask = (np.arange(12) < lengths[:, None]).astype(np.int64)
    np.savez(desk.folder / "inputs.npz", ids=random.integers(1, 40, (120, 12)) * mask, mask=mask)
    desk.spec(
        probes=None,
        model={
            "name": "tiny",
            "source": "model.onnx",
            "dims": {"batch": {"min": 1, "opt": 8, "max": 32}, "seq": {"min": 1, "opt": 12, "max": 24}},
        },
    )


def _plants(called: Called) -> dict[str, dict[str, Any]]:
    return {plant["name"]: plant for plant in called.data["plants"]}


@pytest.mark.children
def test_a_user_learns_what_is_caught_what_is_missed_and_that_nothing_is_alarmed_by(desk: Desk) -> None:
    desk.spec(probes=None)

    called = desk.json(
        "selftest",
        "spec.yaml",
        "--verbose",
        *_faults("offset-added", "output-nan-cleared", "tensors-renamed", "gelu-tanh"),
    )

    assert called.code == 0, str(called)
    jsonschema.validate(called.data, schema_of_selftest())
    plants = _plants(called)
    assert plants["offset-added"]["outcome"] == "caught by both"
    assert "max_abs_diff" in {finding["check"] for finding in plants["offset-added"]["by_samples"]}
    assert plants["output-nan-cleared"]["outcome"] == "missed"
    assert plants["tensors-renamed"]["outcome"] == "passed"
    assert plants["gelu-tanh"]["outcome"] == "not applicable"
    assert called.data["unchanged"] == "pass"
    assert called.data["summary"] == (
        "2 faults planted: 1 caught on the samples, 0 more by probes, "
        "1 missed (1 of them without effect on these inputs); 1 equivalent rewrite: 0 false alarms"
    )
    assert called.data["summary"] in called.out
    assert "faults planted into onnx-fp32 of tiny" in called.out
    assert (
        "missed: output-nan-cleared: no sample and no probe has an answer that changes beyond rounding; " in called.out
    )
    assert "not applicable to this model (1): gelu-tanh" in called.out
    page = (desk.run_folder / "selftest.md").read_text(encoding="utf-8")
    assert f"page: {desk.run_folder / 'selftest.md'}" in called.out
    assert "| offset-added | caught by both |" in page
    assert json.loads((desk.run_folder / "selftest.json").read_text(encoding="utf-8")) == called.data
    # What was planted is not left lying about, where somebody might take it for the model.
    assert [path.parent.name for path in desk.run_folder.rglob("*.onnx")] == ["onnx-fp32"]


def test_on_ordinary_texts_the_probes_catch_what_the_samples_do_not_reach(desk: Desk) -> None:
    _write_text_model(desk)
    faults = ("embedding-row-lost", "mask-as-length", "rows-beyond-seen", "size-baked", "mask-dropped")

    with_probes = desk.json("selftest", "--verbose", "spec.yaml", *_faults(*faults))
    without = desk.json("selftest", "--verbose", "spec.yaml", *_faults(*faults), "--probes", "none")

    assert with_probes.code == without.code == 0, str(with_probes)
    found = {name: plant["outcome"] for name, plant in _plants(with_probes).items()}
    # Padding elsewhere than in the samples is at the edge.
    at_edge = {"mask-as-length": "missed", "mask-dropped": "caught by both"}
    assert found == {**dict.fromkeys(faults, "caught by probes"), **at_edge}
    why = _plants(with_probes)["mask-as-length"]["why"]
    assert why.startswith("a finding of probe_masks: where no sample is, or at padding")
    (ids,) = _plants(with_probes)["embedding-row-lost"]["by_probes"]
    assert ids["check"] == "probe_ids"
    missed = {name: plant["outcome"] for name, plant in _plants(without).items()}
    assert missed == {**dict.fromkeys(faults, "missed"), "mask-dropped": "caught by samples"}
    why = _plants(without)["size-baked"]["why"]
    assert "this would show it: a seq other than 12; probes that did not run: batches, " in why
    assert "probes that did not run: batches, shapes, masks, ids, values, flat, sensitivity" in without.out
    assert without.data["probe_rows"] == {}


@pytest.mark.thorough
def test_two_selftests_with_one_seed_find_the_same(desk: Desk) -> None:
    _write_text_model(desk)
    command = ("selftest", "spec.yaml", *_faults("weight-row-zeroed", "row-noise", "bias-dropped"), "--seed", "5")

    first, second = desk.json(*command), desk.json(*command)

    def steady(called: Called) -> list[dict[str, Any]]:
        return [{**plant, "seconds": 0} for plant in called.data["plants"]]

    assert first.data["seed"] == 5
    assert steady(first) == steady(second)
    other = desk.json(*command[:-1], "6")
    assert [plant["what"] for plant in other.data["plants"]] != [plant["what"] for plant in first.data["plants"]]


def test_a_tolerance_that_rounding_breaks_is_a_false_alarm(desk: Desk) -> None:
    desk.spec(tolerance={"onnx-fp32": {"max_abs_diff": 1e-12, "mean_abs_diff": 1e-12}})

    called = desk.json(
        "selftest", "--verbose", "spec.yaml", *_faults("sums-reassociated", "tensors-renamed"), "--probes", "none"
    )

    assert called.code == called.data["exit_code"] == 1, str(called)
    assert _plants(called)["sums-reassociated"]["outcome"] == "false alarm"
    assert "false alarm: sums-reassociated: max_abs_diff[logits]: " in called.out
    assert "0 faults planted: 0 caught on the samples, 0 more by probes, 0 missed; " in called.out
    assert "2 equivalent rewrites: 1 false alarm" in called.out
    page = (desk.run_folder / "selftest.md").read_text(encoding="utf-8")
    assert "- false alarm: sums-reassociated: " in page


def test_what_a_loose_tolerance_misses_is_measured_and_what_would_catch_it_said(desk: Desk) -> None:
    desk.spec(tolerance={"onnx-fp32": {"max_abs_diff": 1, "mean_abs_diff": 1, "max_row_rel_diff": 1}})

    called = desk.json("selftest", "--verbose", "spec.yaml", *_faults("offset-added"), "--probes", "none")

    plant = _plants(called)["offset-added"]
    assert (called.code, plant["outcome"]) == (0, "missed"), str(called)
    offset = float(plant["what"].split()[0])
    (effect,) = plant["effects"]
    assert (effect["output"], effect["where"], effect["is_rounding"]) == ("logits", "samples", False)
    assert effect["max_abs_diff"] == pytest.approx(offset, rel=0.01)
    # The declared limit is 1: so many of it are the difference itself.
    assert effect["in_limits"] == pytest.approx(effect["max_abs_diff"])
    assert f"a max_abs_diff below {effect['max_abs_diff']:.2g} would catch it" in called.out
    assert "1 fault planted: 0 caught on the samples, 0 more by probes, 1 missed; 0 equivalent rewrites" in called.out


def _write_unlike_columns(desk: Desk, **parts: object) -> None:
    """Put a model of a column of size 1e-5 beside one of size 100 in place of the desk's own."""
    model = onnx.parser.parse_model("""
        <ir_version: 9, opset_import: ["" : 17]>
        unlike (float[batch, 4] x) => (float[batch, 2] y)
        <float[4, 2] w = {1, 0, 0, 20, 0, 0, 0, 0}, float[2] b = {0, 100}, float[1] small = {0.00001}>
        {
          product = MatMul (x, w)
          shifted = Add (product, b)
          first, second = Split <axis = 1> (shifted)
          share = Sigmoid (first)
          scaled = Mul (share, small)
          y = Concat <axis = 1> (scaled, second)
        }
    """)
    onnx.save(model, str(desk.folder / "model.onnx"))
    desk.spec(model={"name": "tiny", "source": "model.onnx"}, decisions={}, **parts)


def test_a_small_column_that_is_lost_is_caught_beside_a_large_one(desk: Desk) -> None:
    _write_unlike_columns(desk)

    called = desk.json("selftest", "spec.yaml", "--verbose", *_faults("column-zeroed", "sums-reassociated"))

    plant = _plants(called)["column-zeroed"]
    assert plant["outcome"] == "caught by samples"
    assert plant["what"].startswith("column 0 of y")
    assert {finding["output"] for finding in plant["by_samples"]} == {"y"}
    assert called.data["unchanged"] == "pass"


def test_a_small_column_that_is_lost_is_no_rounding_of_the_large_one(desk: Desk) -> None:
    _write_unlike_columns(desk, tolerance={"onnx-fp32": {"max_abs_diff": 1, "mean_abs_diff": 1, "max_row_rel_diff": 1}})

    called = desk.json("selftest", "spec.yaml", "--verbose", *_faults("column-zeroed"))

    plant = _plants(called)["column-zeroed"]
    assert plant["outcome"] == "missed"
    assert [effect["is_rounding"] for effect in plant["effects"]] == [False]


def test_a_probe_that_was_failed_is_not_asked_on(desk: Desk) -> None:
    request = _request(desk, probes="batches")
    job = request.job
    source = job.candidate
    target = desk.folder / "scaled.onnx"
    context = MutationContext(random=np.random.default_rng(0))
    assert isinstance(mutate_file(source.path, "output-scaled", context, target), Mutated)
    trials = [
        try_file(open_mutated(job, path), job, request.folder, lambda *_: None, "it") for path in (source.path, target)
    ]

    unchanged, scaled = trials
    assert [check.status for check in unchanged.probe_checks] == ["pass"]
    assert [check.status for check in scaled.probe_checks] == ["fail"]
    assert 0 < scaled.probe_rows["batches"] < unchanged.probe_rows["batches"]


def test_too_few_rows_are_inconclusive_and_said_so(desk: Desk) -> None:
    desk.spec(min_rows=500, probes=None)

    called = desk.json("selftest", "--verbose", "spec.yaml", *_faults("output-scaled"))

    assert called.code == called.data["exit_code"] == 3, str(called)
    assert called.data["unchanged"] == "inconclusive"
    assert _plants(called)["output-scaled"]["outcome"] == "caught by both"
    assert "unchanged onnx-fp32: rows: 120 rows in " in called.out


def test_json_to_standard_output_is_json_alone(desk: Desk) -> None:
    called = desk.call(
        "selftest", "spec.yaml", *_faults("output-scaled"), "--probes", "none", "--json", "-", "--verbose"
    )

    assert called.code == 0, str(called)
    assert json.loads(called.out)["plants"][0]["outcome"] == "caught by samples"
    assert "1 fault planted: 1 caught on the samples" in called.err


def test_a_spec_of_other_targets_is_tested_by_its_onnx(desk: Desk) -> None:
    desk.spec(targets=["onnx-fp16"], required=["onnx-fp16"], tolerance={"onnx-fp16": {"max_abs_diff": 1}})

    called = desk.json("selftest", "--verbose", "spec.yaml", *_faults("output-scaled"), "--probes", "none")

    assert called.code == 0, str(called)
    assert (called.data["variant"], called.data["precision"]) == ("onnx-fp32", "fp32")
    assert _plants(called)["output-scaled"]["outcome"] == "caught by samples"


def test_an_unknown_fault_is_refused_before_anything_is_done(desk: Desk) -> None:
    called = desk.call("selftest", "--verbose", "spec.yaml", "--fault", "gremlin")

    assert called.code == 2
    assert "error: --fault 'gremlin' is not a planted fault or equivalent rewrite" in called.err
    assert "are planted" in called.err
    near = desk.call("selftest", "--verbose", "spec.yaml", "--fault", "ofset-added")
    assert "equivalent rewrite: did you mean 'offset-added'?\nhint: write one of: offset-added, " in near.err
    assert desk.runs == []


def test_a_model_that_cannot_be_exported_has_nothing_to_plant_faults_into(desk: Desk) -> None:
    desk.module("broken", "def model():\n    raise RuntimeError('no weights here')\n")
    desk.module_spec("broken:model")

    called = desk.call("selftest", "--verbose", "spec.yaml")

    assert called.code != 0
    assert "error: nothing to plant faults into: " in called.err


def _request(desk: Desk, *, probes: str = "none") -> SelftestRequest:
    """Return the request of a run that was exported and recorded, on which faults are planted in this process."""
    assert desk.call("selftest", "--verbose", "spec.yaml", "--fault", "output-scaled", "--probes", probes).code == 0
    run = open_run(desk.run_folder)
    folder = desk.folder / "planted"
    folder.mkdir()
    job = comparison_job(run, run.artifact("onnx-fp32"), "cpu")
    return SelftestRequest(job=job, mutations=("output-scaled",), most_rows=None, folder=folder, run=run.folder, seed=0)


def test_where_the_unchanged_artifact_fails_nothing_is_planted(desk: Desk) -> None:
    request = _request(desk)
    desk.onnx("other.onnx", fill=0.5, output="logits")
    other = replace(request.job.candidate, text="other.onnx", folder=desk.folder)
    request = replace(request, job=replace(request.job, candidate=other))

    result = from_data(SelftestResult, selftest_job.run(to_data(request), lambda *_: None))

    assert (result.unchanged, result.exit_code, result.plants) == ("fail", 1, [])
    assert result.summary == "nothing was planted: the unchanged onnx-fp32 does not pass"
    assert any(line.startswith("unchanged onnx-fp32: max_abs_diff[logits]: ") for line in lines_below(result))


def test_faults_that_do_not_apply_are_counted_where_not_all_are_named() -> None:
    result = _result(*(replace(_plant("not applicable"), name=f"fault-{number}") for number in range(5)))

    begin = "not applicable to this model (5): fault-0, fault-1"
    assert f"{begin} and 3 more: see the page, or -v" in lines_below(result, most=2)
    assert f"{begin}, fault-2, fault-3, fault-4" in lines_below(result)


def test_a_file_that_the_runtime_refuses_is_not_applicable(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    request = _request(desk)

    def no_model(source: Path, name: str, context: object, target: Path) -> Mutated:
        del source, name, context
        target.write_bytes(b"no model")
        return Mutated(what="broken")

    monkeypatch.setattr(selftest_job, "mutate_file", no_model)

    result = from_data(SelftestResult, selftest_job.run(to_data(request), lambda *_: None))

    assert [plant.outcome for plant in result.plants] == ["not applicable"]
    assert result.plants[0].what.startswith("ONNX Runtime does not accept the result: ")


def _effect(**fields: Any) -> EffectResult:  # noqa: ANN401 - any field
    known: dict[str, Any] = {
        "output": "logits",
        "max_abs_diff": 3e-5,
        "where": "samples",
        "in_limits": 0.3,
        "is_rounding": False,
    }
    return EffectResult(**{**known, **fields})


_SILENT = _effect(max_abs_diff=1e-7, in_limits=0.001, is_rounding=True)


@pytest.mark.parametrize(
    ("effects", "reached_by", "probes_off", "words"),
    [
        (
            [_SILENT],
            "",
            [],
            "no sample and no probe has an answer that changes beyond rounding, so on these inputs it is not a fault",
        ),
        (
            [_SILENT],
            "a row with a tie",
            ["values"],
            (
                "no sample and no probe has an answer that changes beyond rounding; "
                "this would show it: a row with a tie; probes that did not run: values"
            ),
        ),
        (
            [_SILENT, _effect()],
            "",
            [],
            "logits changes by 3e-05 at most (samples), 0.3 of the limit: a max_abs_diff below 3e-05 would catch it",
        ),
        (
            [_effect()],
            "a row with a tie",
            [],
            (
                "logits changes by 3e-05 at most (samples), 0.3 of the limit: "
                "a max_abs_diff below 3e-05 would catch it; shown better by: a row with a tie"
            ),
        ),
        (
            [_effect(where="probe values", max_abs_diff=2.0, in_limits=200.0)],
            "",
            [],
            (
                "logits changes by 2 at most (probe values), 2e+02 limits of the samples: "
                "the limit is wider where answers are larger"
            ),
        ),
        (
            [_effect(max_abs_diff=None, in_limits=None)],
            "",
            [],
            "logits changes to or from NaN or infinity (samples), which is not counted",
        ),
        (
            [_effect(max_abs_diff=1.0, in_limits=None, where="probe ids")],
            "",
            [],
            "logits changes by 1 at most (probe ids), in answers that are held to finiteness and contract alone",
        ),
    ],
)
def test_why_a_fault_was_missed(
    effects: list[EffectResult], reached_by: str, probes_off: list[str], words: str
) -> None:
    assert why_missed(effects, reached_by=reached_by, probes_off=probes_off) == words


def test_a_fault_that_shows_only_where_no_sample_is_says_what_would_catch_it() -> None:
    assert why_missed([], reached_by="", probes_off=[], at_edge=["probe_values"]) == (
        "a finding of probe_values: where no sample is, or at padding; edge: fail would catch it"
    )


def _result(*plants: PlantResult, unchanged: str = "pass") -> SelftestResult:
    return SelftestResult(
        model="tiny",
        run="runs/tiny/1",
        variant="onnx-fp32",
        precision="fp32",
        rows=120,
        probe_rows={"batches": 64},
        probes_off=["ids"],
        seed=0,
        unchanged=unchanged,
        unchanged_findings=[],
        plants=list(plants),
        seconds=3.0,
    )


def _plant(outcome: str, *, name: str = "offset-added", **fields: Any) -> PlantResult:  # noqa: ANN401 - any field
    kind = MUTATIONS[name]
    known: dict[str, Any] = {"what": "a | b", "title": kind.title, "is_innocent": kind.is_equivalent}
    return PlantResult(name=name, outcome=outcome, **{**known, **fields})


@pytest.mark.parametrize(
    ("outcomes", "unchanged", "code"),
    [
        (["missed", "passed"], "pass", 0),
        (["false alarm"], "pass", 1),
        ([], "fail", 1),
        (["passed"], "inconclusive", 3),
        (["false alarm"], "inconclusive", 1),
        ([], "error", 5),
    ],
)
def test_a_miss_is_information_and_an_alarm_is_not(outcomes: list[str], unchanged: str, code: int) -> None:
    assert _result(*map(_plant, outcomes), unchanged=unchanged).exit_code == code


def test_the_result_survives_json_and_follows_its_schema() -> None:
    finding = FindingResult(check="probe_ids", output=None, detail="at ids 1 to 9")
    result = _result(_plant("caught by probes", by_probes=[finding]), _plant("missed", effects=[_effect()], why="so"))
    data = json.loads(json.dumps(to_data(result)))

    jsonschema.validate(data, schema_of_selftest())
    assert from_data(SelftestResult, data) == result


def test_the_page_escapes_what_would_break_its_tables() -> None:
    page = page_of(_result(_plant("missed", why="so it is")))

    assert "a \\| b |" in page
    assert "| offset-added | so it is |" in page
    assert "- probes that did not run: ids" in page
