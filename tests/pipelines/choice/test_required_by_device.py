"""What a run requires of itself depends on where it runs: no CPU is asked for an engine, and a GPU is."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest
import yaml
from msgspec.structs import replace

from paritygate.backends import backend_state
from paritygate.pipelines.choice.eligibility import can_run_on
from paritygate.pipelines.run import workspace
from paritygate.pipelines.run.evidence import Evidence, ReferenceFacts, SamplesFacts
from paritygate.pipelines.run.validate import _why_not_run
from paritygate.pipelines.run.workspace import FailedVariant, RunFolder, required_variants
from paritygate.pipelines.run_spec import exit_code_of_run
from paritygate.pipelines.spec.loading import parse_spec
from paritygate.precision import Variant

if TYPE_CHECKING:
    from paritygate.artifact import Artifact

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


def test_what_runs_on_the_cpu_only_is_not_required_on_a_gpu(tmp_path: Path) -> None:
    run = _run(tmp_path, targets=["onnx-fp32", "openvino-fp32", "tflite-fp32"])

    assert required_variants(run, "cpu") == ("onnx-fp32", "openvino-fp32", "tflite-fp32")
    assert required_variants(run, "cuda") == ("onnx-fp32",)


@pytest.mark.parametrize(
    ("device", "required"),
    [
        (None, ("onnx-fp32",)),
        ("cpu", ("onnx-fp32",)),
        ("cuda:sm90", ("onnx-fp32", "tensorrt-rtx-fp16")),
        ("", ("onnx-fp32",)),
    ],
)
def test_where_no_device_is_named_it_is_that_of_the_evidence(
    tmp_path: Path, device: str | None, required: tuple[str, ...]
) -> None:
    if device is not None:
        evidence = Evidence(
            paritygate="0.2.0",
            model="tiny",
            run="run",
            device=device,
            machine={"cores": 4},
            samples=SamplesFacts(digest="digest of samples", rows=100),
            reference=ReferenceFacts(model={}, digest="digest of outputs", runtime={}),
            variants=(),
        )
        evidence.write(tmp_path / "evidence.json")
    if device == "":
        (tmp_path / "evidence.json").write_text("[]", encoding="utf-8")

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


@pytest.mark.parametrize(
    ("variant", "devices"),
    [
        ("onnx-fp32", ["cpu", "cuda:sm89"]),
        ("openvino-fp32", ["cpu"]),
        ("tflite-int8", ["cpu"]),
        ("tensorrt-fp16", ["cuda:sm89"]),
        ("tensorrt-rtx-fp16", ["cuda:sm89"]),
    ],
)
def test_a_release_asks_of_a_format_only_what_it_runs_on(variant: str, devices: list[str]) -> None:
    assert [device for device in ("cpu", "cuda:sm89") if can_run_on(variant, device)] == devices


@pytest.mark.parametrize(
    ("variant", "device", "words"),
    [
        ("openvino-fp32", "cuda", "OpenVINO is run on the CPU only: validate it on the CPU too: --device cpu"),
        ("tensorrt-fp16", "cpu", "engines run on NVIDIA GPUs only: validate it where it runs, or accept the emulated"),
        ("onnx-fp32", "cpu", ""),
    ],
)
def test_what_is_not_run_on_the_device_says_where_it_is(variant: str, device: str, words: str) -> None:
    reason = _why_not_run(cast("Artifact", SimpleNamespace(variant=Variant.parse(variant))), device)

    assert reason.startswith(words)
    assert bool(reason) == bool(words)
