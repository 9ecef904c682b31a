"""What a run requires of itself depends on where it runs: no CPU is asked for an engine, and a GPU is."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from paritygate.backends import backend_state
from paritygate.pipelines import workspace
from paritygate.pipelines.run import exit_code_of_run
from paritygate.pipelines.spec_loading import parse_spec
from paritygate.pipelines.workspace import FailedVariant, RunFolder, required_variants

_TARGETS = ["onnx-fp32", "tensorrt-fp16", "tensorrt-rtx-fp16"]
_STATE = backend_state("onnxruntime")


def _run(folder: Path, **parts: object) -> RunFolder:
    data = {
        "model": {"name": "tiny", "source": "model.onnx"},
        "samples": {"source": "inputs.npz"},
        "targets": _TARGETS,
        **parts,
    }
    resolved = parse_spec(yaml.safe_dump(data), folder=Path("/spec"), origin="spec.yaml")
    return RunFolder(folder=folder, resolved=resolved, samples_path=None)


@pytest.fixture(autouse=True)
def _all_but_tensorrt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        workspace, "backend_state", lambda name: replace(_STATE, version=None if name == "tensorrt" else "1.0")
    )


@pytest.mark.parametrize(
    ("device", "required"), [("cpu", ("onnx-fp32",)), ("cuda", ("onnx-fp32", "tensorrt-rtx-fp16"))]
)
def test_engines_whose_packages_are_installed_are_required_on_a_gpu(
    tmp_path: Path, device: str, required: tuple[str, ...]
) -> None:
    assert required_variants(_run(tmp_path), device) == required


@pytest.mark.parametrize(
    ("evidence", "required"),
    [
        (None, ("onnx-fp32",)),
        ({"device": "cpu"}, ("onnx-fp32",)),
        ({"device": "cuda:sm90"}, ("onnx-fp32", "tensorrt-rtx-fp16")),
        ([], ("onnx-fp32",)),
    ],
)
def test_where_no_device_is_named_it_is_that_of_the_evidence(
    tmp_path: Path, evidence: object, required: tuple[str, ...]
) -> None:
    if evidence is not None:
        (tmp_path / "evidence.json").write_text(json.dumps(evidence), encoding="utf-8")

    assert required_variants(_run(tmp_path)) == required


def test_an_engine_that_could_not_be_built_counts_where_it_is_required(tmp_path: Path) -> None:
    failures = {
        name: FailedVariant(variant=name, message="no GPU", hint="", exit_code=5)
        for name in ("tensorrt-fp16", "tensorrt-rtx-fp16")
    }
    measured = {"onnx-fp32": FailedVariant(variant="onnx-fp32", message="", hint="", exit_code=0)}

    assert exit_code_of_run(_run(tmp_path), {}, {**failures, **measured}, device="cpu") == 0
    assert exit_code_of_run(_run(tmp_path), {}, {**failures, **measured}, device="cuda") == 5
    declared = _run(tmp_path, required=["tensorrt-fp16"])
    assert exit_code_of_run(declared, {}, {**failures, **measured}, device="cpu") == 5
