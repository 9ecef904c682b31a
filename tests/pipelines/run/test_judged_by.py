"""Evidence counts for as long as the run's spec asks for the rules that it was judged by."""

from __future__ import annotations

import json
import shlex
import shutil
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace
from tests.pipelines.conftest import make_desk

from paritygate.artifact import Artifact
from paritygate.codec import digest_of
from paritygate.errors import MeasurementError
from paritygate.files import digest_of_json, write_json_atomically
from paritygate.pipelines.compare.job import ComparisonJob, failed_comparison
from paritygate.pipelines.compare.models import recorded_model
from paritygate.pipelines.run import comparisons, validate
from paritygate.pipelines.run.comparisons import comparison_job, comparison_of
from paritygate.pipelines.run.stage import Stage
from paritygate.pipelines.run.workspace import open_run
from paritygate.precision import Precision
from paritygate.signature import Signature, TensorSpec
from paritygate.validate.detections.rule import make_match_rule
from paritygate.validate.gate.rules import EdgeRule, GateRules
from paritygate.validate.gold.rule import parse_gold_rule
from paritygate.validate.measure.decisions import parse_decision
from paritygate.validate.probes.inputs.roles import DeclaredRole
from paritygate.validate.reference.recording import Recording
from paritygate.validate.samples.source import SampleSource
from paritygate.validate.samples.split import SampleSplit

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.pipelines.conftest import Called, Desk

    from paritygate.pipelines.compare.result import ComparisonResult

_GPU = "cuda:sm90"
_TARGETS = ["onnx-fp32", "onnx-fp16"]
_OTHERWISE = "was judged by other rules than the run's spec has now"
_RECORDED_OTHERWISE = "was recorded by other rules than the run's spec has now"


@pytest.fixture(scope="module")
def validated(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    """Return a desk with a run of two variants that passed, and that was asked one probe; to be copied."""
    desk = make_desk(tmp_path_factory.mktemp("validated"))
    desk.spec(targets=_TARGETS, probes=["batches"])
    called = desk.json("run", "spec.yaml", "--verbose", "--no-promote")
    assert called.code == 0, str(called)
    return desk


@pytest.fixture
def run(validated: Desk, tmp_path: Path) -> Desk:
    """Return a desk with a copy of that run."""
    return validated.copy(tmp_path)


def _ask(desk: Desk, **parts: object) -> None:
    """Change what the spec in the run folder asks for."""
    path = desk.run_folder / "spec.json"
    data = json.loads(path.read_text(encoding="utf-8"))
    data["spec"].update(parts)
    path.write_text(json.dumps(data), encoding="utf-8")


def _call(desk: Desk, command: str, *options: str) -> Called:
    return desk.json(command, "--run", str(desk.run_folder), *options)


def _write(desk: Desk, evidence: dict[str, Any]) -> None:
    write_json_atomically(desk.run_folder / "evidence.json", evidence)


def _with_gpu(desk: Desk) -> dict[str, Any]:
    """Write the evidence as it is after a validation on a GPU as well, and return the part of that."""
    evidence = desk.evidence()
    gpu = deepcopy({key: value for key, value in evidence.items() if key != "others"})
    gpu["device"] = _GPU
    gpu["variants"] = [desk.entry_on(entry, _GPU) for entry in gpu["variants"]]
    _write(desk, {**evidence, "others": [gpu]})
    return gpu


def test_as_long_as_nothing_is_changed_what_passed_is_released(run: Desk) -> None:
    _with_gpu(run)

    assert _call(run, "choose", "--prefer", "smallest").code == 0
    assert _call(run, "promote", "--for", "cpu", "--for", _GPU).data["variants"] == _TARGETS


@pytest.mark.parametrize(
    "change",
    [
        {"tolerance": {"onnx-fp32": {"max_abs_diff": 0.5}}},
        {"decisions": {}},
        {"decisions": {"logits": {"threshold": 0.5}}},
        {"gold": [{"metric": "accuracy", "output": "logits"}]},
        {"min_rows": 1},
        {"repeat": 2},
        {"samples": {"source": "inputs.npz", "strata": ["source"]}},
        {"probes": ["values"]},
        {"probes": None},
        {"outputs": {"other": {"ignore": "of no use"}}},
    ],
    ids=str,
)
def test_a_spec_that_asks_for_other_rules_than_were_judged_by_releases_nothing(
    run: Desk, change: dict[str, object]
) -> None:
    _ask(run, **change)

    for command in ("choose", "promote"):
        called = _call(run, command)
        assert called.code == 5, str(called)
        assert _OTHERWISE in called.err or _RECORDED_OTHERWISE in called.err
    assert run.releases == []


def test_what_was_loosened_is_named_with_its_device_and_what_helps(run: Desk) -> None:
    _ask(run, tolerance={"onnx-fp16": {"max_abs_diff": 0.5}})

    called = _call(run, "promote")

    assert f"the evidence of onnx-fp16 on cpu {_OTHERWISE}" in called.err
    assert f"hint: convert-and-validate validate --run {run.run_from_here}" in called.err
    assert _call(run, "validate").code == 0
    assert _call(run, "promote").data["variants"] == _TARGETS


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 1},
        {"non_finite": "match"},
        {"axes": {"logits": 1}},
        {"roles": {"x": {"role": "mask"}}},
        {"samples": {"source": "inputs.npz", "batch_size": 4}},
    ],
    ids=str,
)
def test_a_reference_that_was_recorded_otherwise_is_not_judged_by(run: Desk, change: dict[str, object]) -> None:
    _ask(run, **change)

    for command in ("validate", "choose", "promote"):
        called = _call(run, command)
        assert called.code == 5, str(called)
        assert _RECORDED_OTHERWISE in called.err
        assert f"convert-and-validate record --run {run.run_from_here}" in called.err
    assert run.releases == []


def test_a_reference_recorded_by_other_rules_and_a_spec_put_back_are_told_apart(run: Desk) -> None:
    _ask(run, axes={"logits": 1})
    assert _call(run, "record").code == 0
    _ask(run, axes={})

    called = _call(run, "validate")

    assert (called.code, _RECORDED_OTHERWISE in called.err) == (5, True)


def test_what_a_release_is_chosen_by_may_be_changed_afterwards(run: Desk) -> None:
    path = run.run_folder / "spec.json"
    promote = json.loads(path.read_text(encoding="utf-8"))["spec"]["promote"]
    _ask(run, promote={**promote, "prefer": "smallest", "alias": "canary"})

    assert _call(run, "promote").data["alias"] == "canary"


def test_another_reference_with_the_same_answers_is_another_one(
    run: Desk, tmp_path_factory: pytest.TempPathFactory
) -> None:
    # Same model and samples, so the same chunks; other probes, in a record of their own that is sound.
    other = make_desk(tmp_path_factory.mktemp("other"))
    other.spec(targets=["onnx-fp32"], probes=["values"])
    assert other.call("run", "spec.yaml", "--verbose", "--no-promote").code == 0
    chunks = [Recording.load(desk.run_folder / "reference").chunks for desk in (run, other)]
    assert chunks[0] == chunks[1]
    shutil.rmtree(run.run_folder / "reference")
    shutil.copytree(other.run_folder / "reference", run.run_folder / "reference")

    called = _call(run, "promote")

    assert (called.code, run.releases) == (5, [])
    assert "is about another reference than the one in" in called.err


def test_profiles_that_limits_follow_from_belong_to_the_reference(run: Desk) -> None:
    path = run.run_folder / "reference/record.json"
    data = json.loads(path.read_text(encoding="utf-8"))
    assert data["digest"] == run.evidence()["reference"]["digest"]
    assert data.pop("digest") == Recording.load(path.parent).digest
    (profile,) = data["profiles"].values()
    profile["spread"] = [1000.0 * value for value in profile["spread"]]
    path.write_text(json.dumps({**data, "digest": digest_of_json(data)}), encoding="utf-8")

    called = _call(run, "promote")

    assert (called.code, run.releases) == (5, [])
    assert "is about another reference than the one in" in called.err


def test_evidence_of_another_device_judged_by_other_limits_is_refused(run: Desk) -> None:
    gpu = _with_gpu(run)
    # As if the spec had been loosened on the machine with the GPU alone.
    original = (run.run_folder / "spec.json").read_text(encoding="utf-8")
    _ask(run, tolerance={"onnx-fp16": {"max_abs_diff": 0.5}})
    gpu["variants"][1]["stage"] = run.stage("onnx-fp16", _GPU)
    (run.run_folder / "spec.json").write_text(original, encoding="utf-8")
    _write(run, {**run.evidence(), "others": [gpu]})

    called = _call(run, "promote", "--for", _GPU)

    assert (called.code, run.releases) == (5, [])
    assert f"the evidence of onnx-fp16 on {_GPU} {_OTHERWISE}" in called.err


def test_a_validation_keeps_of_other_devices_what_was_judged_alike(run: Desk) -> None:
    gpu = _with_gpu(run)
    _ask(run, tolerance={"onnx-fp16": {"max_abs_diff": 0.5}})

    assert _call(run, "validate").code == 0

    (kept,) = run.evidence()["others"]
    assert kept["variants"] == gpu["variants"][:1]
    assert kept["emulated"] == []
    refused = _call(run, "promote", "--for", _GPU)
    assert refused.code == 5
    assert "required and not passed: onnx-fp16 (not measured)" in refused.err
    _ask(run, required=[])
    assert _call(run, "promote", "--for", _GPU).data["variants"] == ["onnx-fp32"]
    # That nothing counts of the GPU any more does not make it absent.
    promote = {"accept": {"onnx-fp16": "emulated"}, "prefer": ["onnx-fp16"], "fallback": "replace"}
    spec = json.loads((run.run_folder / "spec.json").read_text(encoding="utf-8"))["spec"]
    _ask(run, promote={**spec["promote"], **promote})
    assert _call(run, "promote", "--for", _GPU).data["variants"] == ["source"]


def test_the_provider_that_the_spec_asks_for_on_a_gpu_is_a_rule_there_alone(run: Desk) -> None:
    _with_gpu(run)
    _ask(run, onnxruntime={"provider": "tensorrt"})

    called = _call(run, "promote", "--for", "cpu", "--for", _GPU)

    assert called.code == 5
    assert f"the evidence of onnx-fp32 on {_GPU} {_OTHERWISE}" in called.err


def test_an_emulated_row_judged_by_other_rules_does_not_stand_in(run: Desk) -> None:
    spec = json.loads((run.run_folder / "spec.json").read_text(encoding="utf-8"))["spec"]
    _ask(run, promote={**spec["promote"], "accept": {"onnx-fp16": "emulated"}})
    evidence = run.evidence()
    evidence["emulated"][0]["stage"]["rules"] = "sha256:" + "0" * 64
    assert _call(run, "promote", "--for", _GPU).data["variants"] == ["onnx-fp16"]
    _write(run, evidence)

    called = _call(run, "promote", "--for", _GPU)

    assert (called.code, len(run.releases)) == (5, 1), str(called)
    assert f"the evidence of onnx-fp16 on emulated:fp16 {_OTHERWISE}" in called.err


@pytest.mark.parametrize("where", ["own", "others"])
def test_evidence_from_before_rules_were_kept_is_refused(run: Desk, where: str) -> None:
    gpu = _with_gpu(run)
    evidence = run.evidence()
    for entry in (evidence if where == "own" else gpu)["variants"]:
        del entry["stage"]
    _write(run, {**evidence, "others": [gpu]})

    called = _call(run, "promote")

    assert (called.code, run.releases) == (2, [])
    assert "the evidence of onnx-fp32: it does not name what it follows from" in called.err
    assert f"hint: convert-and-validate validate --run {run.run_from_here}" in called.err


def test_a_recording_from_before_rules_were_kept_is_refused(run: Desk) -> None:
    path = run.run_folder / "reference/record.json"
    data = json.loads(path.read_text(encoding="utf-8"))
    data.pop("digest")
    del data["settings"]["rules_digest"]
    path.write_text(json.dumps({**data, "digest": digest_of_json(data)}), encoding="utf-8")

    called = _call(run, "validate")

    assert called.code == 5
    assert "lacks the rules of its recording" in called.err


def test_what_is_tried_in_scratch_leaves_evidence_results_and_reports(run: Desk) -> None:
    names = ("evidence.json", "report.html", "report.md")
    before = {name: (run.run_folder / name).read_bytes() for name in names}

    called = _call(run, "validate", "--verbose", "--scratch", "--probes", "none")

    assert called.code == 0, str(called)
    assert "note: the result is in" in called.out
    assert before == {name: (run.run_folder / name).read_bytes() for name in names}
    scratch = json.loads((run.run_folder / "scratch/evidence.json").read_text(encoding="utf-8"))
    assert scratch["variants"][0]["result"]["probes"]["asked"] == {}
    assert run.call("pack", "--run", str(run.run_folder), "--output", "run.tar").code == 0


def test_evidence_stands_where_the_run_was_unpacked_calibration_rows_included(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    here, there = (make_desk(tmp_path_factory.mktemp(name)) for name in ("here", "there"))
    here.samples(1000)
    loose = {"max_abs_diff": 5, "mean_abs_diff": 1, "max_row_rel_diff": 1, "decision_mismatches": 200}
    here.spec(targets=["onnx-int8"], tolerance={"onnx-int8": loose})
    made = here.json("run", "spec.yaml", "--verbose", "--no-promote")
    assert made.code == 0, str(made)
    assert here.call("pack", "--run", str(here.run_folder), "--output", "run.tar").code == 0
    unpacked = there.json("unpack", str(here.folder / "run.tar"))
    assert unpacked.code == 0, str(unpacked)
    shutil.rmtree(here.folder)

    promoted = _call(there, "promote", "--trust", unpacked.data["digest"])

    assert promoted.data["variants"] == ["onnx-int8"], str(promoted)


@pytest.mark.parametrize(("device", "option"), [("cpu", ""), ("cuda", " --device cuda")])
def test_the_command_that_asks_a_failed_probe_again_leaves_what_failed_as_it_is(
    run: Desk, monkeypatch: pytest.MonkeyPatch, device: str, option: str
) -> None:
    seen: list[ComparisonJob] = []

    def note(job: ComparisonJob, **_: object) -> ComparisonResult:
        seen.append(job)
        return failed_comparison(job, MeasurementError("not made"))

    before = (run.run_folder / "evidence.json").read_bytes()
    folder = open_run(run.run_folder)
    with monkeypatch.context() as patched:
        patched.setattr(validate, "compare", note)
        patched.setattr(validate, "device_name", str)
        validate.validate_stage(folder, time_limit_s=600, progress=lambda *_: None, device=device)
    (run.run_folder / "evidence.json").write_bytes(before)

    assert seen[0].again == f"convert-and-validate validate --run {folder.folder} --scratch{option}"
    words = shlex.split(f"{seen[0].again} --probes batches")[1:]
    if device == "cpu":
        assert run.call(*words).code == 0
        assert (run.run_folder / "evidence.json").read_bytes() == before


def _job(desk: Desk) -> ComparisonJob:
    run = open_run(desk.run_folder)
    return comparison_job(run, Artifact.read_record(run.variant_folder("onnx-fp16")), "cpu")


def _stage(desk: Desk, job: ComparisonJob, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """Return what the comparison would follow from if this were its job."""
    run = open_run(desk.run_folder)
    artifact = Artifact.read_record(run.variant_folder("onnx-fp16"))
    with monkeypatch.context() as patched:
        patched.setattr(comparisons, "comparison_job", lambda *_: job)
        return comparison_of(run, artifact, Recording.load(run.reference), "cpu").stage


_CHANGES: dict[str, Callable[[ComparisonJob], object]] = {
    "candidate": lambda job: replace(
        job.candidate, signature=Signature(inputs=(TensorSpec(name="x", dtype="float32", shape=(1,)),), outputs=())
    ),
    "samples": lambda job: replace(job.samples, split=SampleSplit(share=0.5)),
    "rules": lambda job: replace(job.rules, tolerance=replace(job.rules.tolerance, mean_abs_diff=1.0)),
    "may_be_the_source": lambda _: False,
    "is_emulated": lambda _: True,
    "calibrated_rows": lambda _: Path(__file__),
}
_RULES: dict[str, Callable[[GateRules], object]] = {
    "tolerance": lambda rules: replace(rules.tolerance, precision=Precision.INT8),
    "decisions": lambda _: (parse_decision("logits:top_k=2"),),
    "outputs": lambda _: ("logits",),
    "argmax_of": lambda _: {"label": "logits"},
    "gold": lambda _: (parse_gold_rule("accuracy:logits"),),
    "matches": lambda _: (make_match_rule("boxes", boxes="boxes", scores="scores"),),
    "ignored": lambda _: {"logits": "why not"},
    "axes": lambda _: {"logits": 1},
    "columns": lambda _: {"logits": ("yes", "no")},
    "passes": lambda _: 3,
    "min_rows": lambda _: 7,
    "is_non_finite_declared": lambda _: True,
    "min_cosine_similarity": lambda _: {"logits": 0.9},
    "min_sqnr": lambda _: {"logits": 20.0},
    "valid_where": lambda _: {"logits": "mask"},
    "strata": lambda _: ("source",),
    "probes": lambda _: ("values",),
    "edge": lambda _: EdgeRule.FAIL,
    "seed": lambda _: 9,
}
_PLACES: dict[str, Callable[[ComparisonJob], object]] = {
    "reference": lambda _: recorded_model(Path("/elsewhere/reference"), name="elsewhere"),
    "failures": lambda _: Path("/elsewhere"),
    "again": lambda _: "again",
    "source": lambda _: None,
    "device": lambda _: "cuda",
    # In a run they are what the reference was recorded by.
    "roles": lambda _: {"x": DeclaredRole(nan=True)},
}


def test_every_part_of_a_comparison_is_a_rule_or_known_to_be_none() -> None:
    assert {*ComparisonJob.__struct_fields__} == {*_CHANGES, *_PLACES}
    assert {*GateRules.__struct_fields__} == {*_RULES}


@pytest.mark.parametrize("part", _CHANGES)
def test_each_part_that_is_a_rule_counts(validated: Desk, part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    job = _job(validated)
    changes: dict[str, Any] = {part: _CHANGES[part](job)}

    assert _stage(validated, replace(job, **changes), monkeypatch) != _stage(validated, job, monkeypatch)


@pytest.mark.parametrize("rule", _RULES)
def test_each_rule_of_the_gate_counts(validated: Desk, rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    job = _job(validated)
    changes: dict[str, Any] = {rule: _RULES[rule](job.rules)}

    assert _stage(validated, replace(job, rules=replace(job.rules, **changes)), monkeypatch) != _stage(
        validated, job, monkeypatch
    )


@pytest.mark.parametrize("part", _PLACES)
def test_what_is_bound_otherwise_does_not_count(validated: Desk, part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    job = _job(validated)
    changes: dict[str, Any] = {part: _PLACES[part](job)}

    assert _stage(validated, replace(job, **changes), monkeypatch) == _stage(validated, job, monkeypatch)


def test_of_files_only_what_is_in_them_counts(validated: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = _job(validated)
    rows = [tmp_path / name for name in ("a.json", "b.json", "c.json")]
    for path, text in zip(rows, ("1", "1", "2"), strict=True):
        path.write_text(text, encoding="utf-8")
    same, alike, other, gone = (
        digest_of(_stage(validated, replace(job, calibrated_rows=path), monkeypatch))
        for path in (*rows, tmp_path / "gone.json")
    )
    moved = SampleSource(text="moved.npz", folder=tmp_path, path="x", batch_size=job.samples.batch_size)

    assert same == alike
    assert len({same, other, gone, digest_of(_stage(validated, job, monkeypatch))}) == 4
    assert _stage(validated, replace(job, samples=moved), monkeypatch) == _stage(validated, job, monkeypatch)
