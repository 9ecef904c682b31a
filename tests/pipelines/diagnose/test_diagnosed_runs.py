"""A run names the operators of ONNX variants that fail, and `diagnose --run` does so later."""

from __future__ import annotations

import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
import pytest
from msgspec.structs import replace
from tests.pipelines.conftest import Desk, make_desk
from tests.pipelines.lost_column import losing_a_column

from paritygate.errors import BackendError, InputFileError
from paritygate.pipelines.diagnose.diagnose import DiagnosisRequest
from paritygate.pipelines.process.child import ChildJob
from paritygate.pipelines.run import diagnosis
from paritygate.pipelines.run.diagnosis import variant_to_diagnose
from paritygate.pipelines.run.workspace import open_run
from paritygate.precision import Variant


@pytest.fixture(scope="module", autouse=True)
def _planted() -> Iterator[None]:
    """Plant the fault of this file."""
    with losing_a_column():
        yield


def _run(folder: Path, *options: str) -> tuple[Desk, dict[str, Any]]:
    """Return a desk, and the JSON of a run whose FP32 variant is wrong and whose FP16 variant is not."""
    desk = make_desk(folder)
    desk.spec(targets=["onnx-fp32", "onnx-fp16"])
    called = desk.json("run", "spec.yaml", "--quiet", *options)
    assert called.code == 1
    return desk, called.data["runs"][0]


@pytest.fixture(scope="module")
def failed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Desk, dict[str, Any]]:
    """Return such a run."""
    return _run(tmp_path_factory.mktemp("failed"))


def _causes(data: dict[str, Any], variant: str) -> list[dict[str, Any]]:
    return [cause for cause in data["variants"][variant]["causes"] if cause["kind"] == "operators"]


def test_the_cause_of_a_failed_variant_has_the_operator(failed: tuple[Desk, dict[str, Any]]) -> None:
    desk, data = failed
    (cause,) = _causes(data, "onnx-fp32")

    assert data["variants"]["onnx-fp32"]["verdict"] == "fail"
    assert cause["outcome"] == "named"
    assert cause["words"][0]["values"]["operators"] == ["MatMul"]
    assert "(MatMul)" in (desk.run_folder / "report.html").read_text(encoding="utf-8")


def test_a_variant_that_passes_is_not_diagnosed(failed: tuple[Desk, dict[str, Any]]) -> None:
    desk, data = failed

    assert data["variants"]["onnx-fp16"]["verdict"] == "pass"
    assert [path.name for path in desk.run_folder.glob("jobs/diagnose*")] == ["diagnose-onnx-fp32"]


def test_without_diagnosis_only_the_cause_is_missing(failed: tuple[Desk, dict[str, Any]], tmp_path: Path) -> None:
    desk, data = _run(tmp_path, "--no-diagnose")

    checks = [
        [(check["name"], check["status"]) for check in each["variants"]["onnx-fp32"]["checks"]]
        for each in (data, failed[1])
    ]
    assert checks[0] == checks[1]
    assert _causes(data, "onnx-fp32") == []
    assert not list(desk.run_folder.glob("jobs/diagnose*"))


def test_a_search_beyond_its_budget_claims_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnosis, "_MOST_TENSORS", 1)

    _, data = _run(tmp_path)

    assert data["variants"]["onnx-fp32"]["verdict"] == "fail"
    assert [cause["outcome"] for cause in _causes(data, "onnx-fp32")] == ["no_time"]


def test_a_diagnosis_that_fails_is_named_with_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = DiagnosisRequest.job

    def crashing(request: DiagnosisRequest, place: Path, *more: Any) -> ChildJob:  # noqa: ANN401 - of the job
        def fail(*_: object) -> None:
            msg = f"it failed\n  log: {place / 'diagnose.log'}"
            raise BackendError(msg, hint="look into the log")

        monkeypatch.setattr("paritygate.pipelines.jobs.diagnose.run", fail)
        return job(request, place, *more)

    monkeypatch.setattr(DiagnosisRequest, "job", crashing)
    desk = make_desk(tmp_path)
    desk.spec(targets=["onnx-fp32"])

    called = desk.json("run", "spec.yaml")

    (cause,) = _causes(called.data["runs"][0], "onnx-fp32")
    log = f"artifacts/runs/tiny/{desk.run_folder.name}/jobs/diagnose-onnx-fp32/diagnose.log"
    assert cause["outcome"] == "fault"
    assert log in cause["words"][0]["values"]["reason"]
    assert log in "".join(called.out.split())


def test_an_interrupted_diagnosis_leaves_the_verdicts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = []

    def interrupted(_: DiagnosisRequest, _place: Path, _what: str, time_limit_s: float) -> None:
        limits.append(time_limit_s)
        raise KeyboardInterrupt

    monkeypatch.setattr(DiagnosisRequest, "job", interrupted)
    desk = make_desk(tmp_path)
    desk.spec(targets=["onnx-fp32", "onnx-fp16"])

    desk.call("run", "spec.yaml", "--quiet", "--time-limit", "3000")

    verdicts = {entry.variant: entry.verdict for entry in open_run(desk.run_folder).evidence().variants}
    assert verdicts == {"onnx-fp32": "fail", "onnx-fp16": "pass"}
    assert limits == [600.0]


def test_a_variant_of_a_run_is_diagnosed_later(failed: tuple[Desk, dict[str, Any]], tmp_path: Path) -> None:
    desk, _ = failed
    call = ["diagnose", "--run", str(desk.run_folder), "--variant", "onnx-fp32", "--quiet"]
    found = desk.json(*call, "--export-minimal", str(tmp_path / "small"))

    assert found.code == 1
    assert found.data["outcome"] == "located"
    assert found.data["reference"] == str(desk.folder / "model.onnx")
    assert found.data["located"][0]["op_types"] == ["MatMul"]
    assert found.data["located"][0]["proven"]
    assert found.data["minimal"]["candidate_nodes"] == 1
    assert onnx.load(tmp_path / "small/candidate.onnx").graph.node[0].op_type == "MatMul"


@pytest.mark.parametrize(
    "call", [["--variant", "onnx-fp16"], ["model.onnx", "--samples", "inputs.npz"], ["a", "b", "--run", "latest"]]
)
def test_half_a_request_is_refused(failed: tuple[Desk, dict[str, Any]], call: list[str]) -> None:
    assert failed[0].call("diagnose", *call).code == 2


@pytest.mark.parametrize(
    ("variant", "built_from"),
    [
        ("openvino-int8", ""),
        ("tflite-fp32", ""),
        ("savedmodel-fp32", ""),
        ("torchscript-fp32", ""),
        ("pt2-fp32", ""),
        ("tensorrt-fp16", "onnx-fp16"),
    ],
)
def test_only_an_engine_is_diagnosed_by_the_file_that_it_was_built_from(
    failed: tuple[Desk, dict[str, Any]], tmp_path: Path, variant: str, built_from: str
) -> None:
    run = open_run(failed[0].copy(tmp_path).run_folder)
    base = run.artifact("onnx-fp16")
    shutil.copytree(base.folder, run.variant_folder(variant))
    # All of them may have been made from an ONNX file.
    made_by = {**base.made_by, "base": {"variant": "onnx-fp16", "digest": base.digest}}
    replace(base, variant=Variant.parse(variant), folder=run.variant_folder(variant), made_by=made_by).save()

    found = variant_to_diagnose(run, variant, None, is_export_right=True)

    assert found.built_from == built_from
    assert found.request.candidate.path.is_relative_to(run.variant_folder(built_from or variant))


def test_the_export_stands_for_a_source_of_another_kind(failed: tuple[Desk, dict[str, Any]], tmp_path: Path) -> None:
    desk = failed[0].copy(tmp_path)
    with zipfile.ZipFile(desk.folder / "model.pt2", "w"):
        pass
    spec = desk.run_folder / "spec.json"
    spec.write_text(spec.read_text().replace("model.onnx", "model.pt2"))
    run = open_run(desk.run_folder)

    found = variant_to_diagnose(run, "onnx-fp16", None, is_export_right=True)
    of_a_wrong_export = variant_to_diagnose(run, "onnx-fp16", None, is_export_right=False)
    of_the_export = variant_to_diagnose(run, "onnx-fp32", None, is_export_right=True)

    assert found.compared_with == "onnx-fp32"
    assert found.request.reference.path.parent.name == "onnx-fp32"
    assert {each.request.reference.text for each in (of_a_wrong_export, of_the_export)} == {"model.pt2"}
    spec.write_text(spec.read_text().replace("model.pt2", "model.npz"))
    (desk.folder / "model.npz").touch()
    with pytest.raises(InputFileError):
        variant_to_diagnose(open_run(desk.run_folder), "onnx-fp32", None, is_export_right=True)
