"""`build`: a run that was exported elsewhere gets its engines from what it has, and never from its source."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from paritygate.errors import MissingBackendError
from paritygate.formats import ENGINE_FORMATS
from paritygate.machine import gpu_of_machine
from paritygate.pipelines.process import child
from paritygate.pipelines.run import variant_maker

if TYPE_CHECKING:
    from tests.pipelines.conftest import Called, Desk

    from paritygate.pipelines.process.child import ChildJob, Progress

_TARGETS = ["onnx-fp32", "tensorrt-fp16"]


class _Builder:
    """Stands in for the children that build engines: no library, no GPU; no two builds are the same bytes."""

    def __init__(self) -> None:
        self.is_there = True
        self.built: list[str] = []
        self.jobs: list[ChildJob] = []
        self._do_other = child.run_child

    def __call__(self, job: ChildJob, progress: Progress = lambda *_: None) -> Any:  # noqa: ANN401 - the job's JSON
        self.jobs.append(job)
        if job.args.get("format") not in ENGINE_FORMATS:
            return self._do_other(job, progress)
        if not self.is_there:
            msg = "no engine is built here"
            raise MissingBackendError(msg, hint="pip install 'paritygate[gpu]'")
        self.built.append(f"{job.args['format']}-{job.args['precision']}")
        Path(job.args["folder"], "model.plan").write_text(f"engine {len(self.built)}", encoding="utf-8")
        return {
            "main": "model.plan",
            "signature": job.args["source"]["signature"],
            "notes": [],
            "facts": {},
            "source": {},
        }


@pytest.fixture
def builder(monkeypatch: pytest.MonkeyPatch) -> _Builder:
    """Return what builds engines in place of their libraries."""
    found = _Builder()
    monkeypatch.setattr(child, "run_child", found)
    monkeypatch.setattr(variant_maker, "require_builder", lambda _: None)
    return found


@pytest.fixture
def exported(desk: Desk, builder: _Builder) -> Desk:
    """Return a desk with a run whose engine could not be built, and without its source."""
    desk.spec(targets=_TARGETS)
    builder.is_there = False
    called = desk.call("export", "--verbose", "spec.yaml")
    assert called.code == 0, str(called)
    builder.is_there = True
    builder.jobs.clear()
    (desk.folder / "model.onnx").unlink()
    return desk


def _build(desk: Desk, *options: str) -> Called:
    return desk.json("build", "--verbose", "--run", str(desk.run_folder), *options)


def _record(desk: Desk, place: str) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((desk.run_folder / place / "artifact.json").read_text(encoding="utf-8"))
    return data


def _failures(desk: Desk) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((desk.run_folder / "export-failures.json").read_text(encoding="utf-8"))
    return data


def test_an_engine_that_cannot_be_built_here_says_how_to_build_it_elsewhere(desk: Desk, builder: _Builder) -> None:
    desk.spec(targets=_TARGETS, required=["tensorrt-fp16"])
    builder.is_there = False

    called = desk.json("export", "--verbose", "spec.yaml")

    assert called.code == 5
    assert "error: tensorrt-fp16: no engine is built here" in called.err
    assert (
        f"hint: pip install 'paritygate[gpu]'; or build it elsewhere: convert-and-validate pack --run "
        f"{desk.run_folder}; there: convert-and-validate unpack PACK; then: convert-and-validate build --run DIR\n"
    ) in called.err
    assert called.data["failures"]["tensorrt-fp16"]["exit_code"] == 5
    assert (desk.run_folder / "bases/onnx-fp16/artifact.json").is_file()


@pytest.mark.skipif(gpu_of_machine() is not None, reason="says what happens where there is no GPU")
@pytest.mark.parametrize("target", ["tensorrt-fp32", "tensorrt-fp16"])
def test_without_a_gpu_the_run_is_to_be_taken_to_one(desk: Desk, target: str) -> None:
    desk.spec(targets=[target], required=[target])

    called = desk.json("export", "--verbose", "spec.yaml")

    assert called.code == 5
    assert (
        f"not run here: {target}: TensorRT builds engines on the GPU that runs them, but this machine has none\n"
    ) in called.err
    assert (
        f"hint: build it elsewhere: convert-and-validate pack --run {desk.run_folder}; there: "
        "convert-and-validate unpack PACK; then: convert-and-validate build --run DIR\n"
    ) in called.err
    assert "pip install" not in called.err


def test_what_is_missing_is_built_from_the_run_alone(exported: Desk, builder: _Builder) -> None:
    assert list(_failures(exported)) == ["tensorrt-fp16"]

    called = _build(exported)

    assert called.code == 0, str(called)
    assert builder.built == ["tensorrt-fp16"]
    assert [job.args.get("format") for job in builder.jobs if job.name == "export"] == ["tensorrt"]
    record = _record(exported, "tensorrt-fp16")
    assert record["made_by"]["base"]["variant"] == "onnx-fp16"
    assert record["made_by"]["base"]["digest"] == _record(exported, "bases/onnx-fp16")["digest"]
    assert called.data["artifacts"]["tensorrt-fp16"]["digest"] == record["digest"]
    assert record["digest"][:19] in called.out
    assert _failures(exported) == {}


def test_what_still_cannot_be_built_stays_a_failure(exported: Desk, builder: _Builder) -> None:
    builder.is_there = False

    called = _build(exported)

    assert called.code == 5
    assert "error: tensorrt-fp16: no engine is built here" in called.err
    assert list(_failures(exported)) == ["tensorrt-fp16"]


def test_what_is_there_is_built_only_if_asked(exported: Desk, builder: _Builder) -> None:
    assert _build(exported).code == 0
    first = _record(exported, "tensorrt-fp16")["digest"]

    again = _build(exported)

    assert (again.code, builder.built) == (0, ["tensorrt-fp16"])
    assert "nothing to build: everything that can be made for this run exists" in again.out
    assert _build(exported, "--rebuild").code == 0
    assert builder.built == ["tensorrt-fp16"] * 2
    assert _record(exported, "tensorrt-fp16")["digest"] != first
    assert _build(exported, "--rebuild", "--target", "tensorrt-fp16").code == 0
    assert builder.built == ["tensorrt-fp16"] * 3


def test_a_damaged_engine_is_built_again(exported: Desk, builder: _Builder) -> None:
    assert _build(exported).code == 0
    (exported.run_folder / "tensorrt-fp16/model.plan").write_text("cut")

    assert _build(exported).code == 0
    assert builder.built == ["tensorrt-fp16"] * 2
    (exported.run_folder / "tensorrt-fp16/artifact.json").write_text("{")
    assert _build(exported).code == 0
    assert builder.built == ["tensorrt-fp16"] * 3
    _record(exported, "tensorrt-fp16")


@pytest.mark.parametrize("place", ["bases/onnx-fp16", "onnx-fp32"])
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda folder: (folder / "model.onnx").open("ab").write(b"\0"), "model.onnx was changed"),
        (lambda folder: (folder / "weights.bin").write_bytes(b"\0"), "weights.bin was added"),
        (lambda folder: (folder / "model.onnx").unlink(), "model.onnx is missing"),
    ],
)
def test_what_was_changed_on_the_way_is_refused_by_name(
    exported: Desk, builder: _Builder, place: str, change: Callable[[Path], object], words: str
) -> None:
    change(exported.run_folder / place)

    called = _build(exported)

    assert called.code == 5
    assert f"artifact {Path(place).name} in {exported.run_folder / place} is corrupt: {words}" in called.err
    assert builder.jobs == []


def test_names_that_are_no_targets_are_wrong_usage(exported: Desk) -> None:
    called = _build(exported, "--target", "tensorrt-fp32")

    assert called.code == 2
    assert (
        "--target 'tensorrt-fp32' is not a target of spec spec.yaml (targets: tensorrt-fp16, onnx-fp32)" in called.err
    )


@pytest.mark.parametrize("is_there", [True, False])
def test_what_is_made_from_the_source_is_not_made_by_build(exported: Desk, *, is_there: bool) -> None:
    if not is_there:
        shutil.rmtree(exported.run_folder / "onnx-fp32")

    called = _build(exported, "--target", "onnx-fp32", "--rebuild")

    assert called.code == 2
    assert "onnx-fp32 is made from the source or from missing files" in called.err
    assert "hint: make it on the machine with the source:\n  convert-and-validate export SPEC" in called.err


def test_what_needs_the_source_does_not_keep_the_engines_from_being_built(exported: Desk, builder: _Builder) -> None:
    shutil.rmtree(exported.run_folder / "onnx-fp32")

    called = _build(exported)

    assert called.code == 0, str(called)
    assert builder.built == ["tensorrt-fp16"]
    assert "note: onnx-fp32 is missing; make it on the machine with the source: export" in called.out
    assert called.data["needs_source"] == ["onnx-fp32"]
    # The base it was made from is there, and what that was made from is not.
    notes = _record(exported, "tensorrt-fp16")["made_by"]["notes"]
    assert "not checked for overflow before the build: the fp32 model it was made from is not in the run" in notes


def test_build_needs_a_run(desk: Desk) -> None:
    called = desk.call("build")

    assert called.code == 2
    assert "error: build needs --run DIR\n" in called.err
    assert "convert-and-validate build --run latest" in called.err


def test_json_of_a_build_to_standard_output_has_nothing_beside_it(exported: Desk) -> None:
    called = exported.call("build", "--run", str(exported.run_folder), "--json", "-")

    assert called.code == 0, str(called)
    assert json.loads(called.out)["schema_version"] == 1


def test_evidence_of_the_engine_before_does_not_count_for_a_rebuilt_one(exported: Desk) -> None:
    run = str(exported.run_folder)
    assert _build(exported).code == 0
    digest = _record(exported, "tensorrt-fp16")["digest"]
    exported.onnx()
    assert exported.call("record", "--run", run).code == 0
    assert exported.call("validate", "--verbose", "--run", run).code == 0
    # As if it had been validated on a machine that runs it.
    path = exported.run_folder / "evidence.json"
    evidence = json.loads(path.read_text(encoding="utf-8"))
    passed, engine = evidence["variants"]
    assert engine["artifact"] == digest
    there = exported.entry_on({**passed, "variant": "tensorrt-fp16"}, "cuda:sm90", artifact=digest)
    evidence["variants"] = [{**passed, "stage": exported.stage("onnx-fp32", "cuda:sm90")}, there]
    evidence["device"] = "cuda:sm90"
    path.write_text(json.dumps(evidence), encoding="utf-8")
    chosen = exported.call("choose", "--run", run, "--prefer", "smallest")
    assert chosen.code == 0, str(chosen)

    assert _build(exported, "--rebuild").code == 0
    called = exported.call("promote", "--verbose", "--run", run)

    assert called.code == 5
    rebuilt = _record(exported, "tensorrt-fp16")["digest"]
    assert f"the evidence of tensorrt-fp16 is about {digest}, not about {rebuilt}" in called.err
    assert exported.releases == []


def test_only_the_base_of_an_int8_engine_is_calibrated(desk: Desk, builder: _Builder) -> None:
    desk.spec(targets=["tensorrt-int8"])

    called = desk.call("export", "--verbose", "spec.yaml")

    assert called.code == 0, str(called)
    calibrated = {job.args["format"]: job.args["calibration"] is not None for job in builder.jobs}
    assert [job.args["format"] for job in builder.jobs] == ["onnx", "onnx", "tensorrt"]
    assert calibrated == {"onnx": True, "tensorrt": False}
    # On a share of the samples, as any other int8.
    assert builder.jobs[1].args["calibration"]["source"]["split"] == {"share": 0.2, "seed": 0}
