"""The script that measures on a GPU: what it lists, what it says without one, and a rehearsal of it on the CPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from paritygate.pipelines.spec.loading import load_spec

NO_GPU = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
WAYS = {
    ("tensorrt", "fp32"), ("tensorrt", "fp16"),
    ("onnxruntime-cuda", "fp32"), ("onnxruntime-cuda", "fp16"),
    ("onnxruntime-tensorrt", "fp32"), ("onnxruntime-tensorrt", "fp16"),
    ("torch", "fp32"), ("torch", "tf32"), ("torch", "fp16"), ("torch", "bf16"),
}  # fmt: skip


def ways(entries: list[dict[str, str]], model: str) -> set[tuple[str, str]]:
    """Return what ran in which precision, of one model."""
    return {(entry["runner"], entry["precision"]) for entry in entries if entry["model"] == model}


def test_every_way_is_listed(script: ModuleType) -> None:
    assert set(script.all_ways()) == WAYS


def test_specs_make_what_the_ways_run(script: ModuleType, project_root: Path) -> None:
    for model in script.MODELS:
        spec = load_spec(str(project_root / f"benchmarks/gpu/{model.name}.yaml"))

        assert {way.variant for way in script.WAYS} <= set(spec.target_names)
        assert script.EMULATED["fp16"] in spec.target_names
        assert model.torch is None or script.EMULATED["bf16"] in spec.target_names


def test_what_was_not_made_is_an_error_of_its_variant(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    (sts, _) = script.MODELS
    way = next(way for way in script.WAYS if way.variant == "onnx-fp16")
    run = script.Run(model=sts, folder=Path("nowhere"), failures={"onnx-fp16": "it overflows"}, device="cuda")
    monkeypatch.setattr(script, "compared", lambda *_: pytest.fail("there is nothing to compare"))

    entry = script.of_a_way(run, way)

    assert entry.state is script.State.ERROR
    assert entry.reason == "it overflows"


@pytest.mark.parametrize(("runner", "state"), [("onnxruntime-tensorrt", "not run"), ("onnxruntime-cuda", "error")])
def test_only_the_tensorrt_provider_may_lack_its_libraries(
    script: ModuleType, judgement: ModuleType, monkeypatch: pytest.MonkeyPatch, runner: str, state: str
) -> None:
    way = next(way for way in script.WAYS if way.runner == runner)
    run = script.Run(model=script.MODELS[0], folder=Path("nowhere"), failures={}, device="cuda")
    reason = f"onnxruntime 1.31.1 could not start it: {script._NO_LIBRARIES}"
    monkeypatch.setattr(script.Artifact, "read_record", lambda folder: SimpleNamespace(path=folder / "model.onnx"))
    monkeypatch.setattr(script, "compared", lambda *_: judgement.failed("sts", runner, way.precision, reason))

    entry = script.of_a_way(run, way)

    assert entry.state.value == state
    assert entry.reason == reason


def test_the_runner_says_missing_libraries_as_the_script_knows_it(script: ModuleType, project_root: Path) -> None:
    runner = (project_root / "validate/runners/onnxruntime.py").read_text(encoding="utf-8")

    assert script._NO_LIBRARIES in runner


def test_a_failed_export_leaves_an_entry_for_every_way(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script, "tool", lambda *_, **__: {"stderr": "error: no such spec", "failures": {}})

    entries = list(script.measured(script.MODELS[0], Path("nowhere"), "cuda"))

    assert {(entry.runner, entry.precision) for entry in entries} == WAYS
    assert {entry.reason for entry in entries} == {"the model was not exported: error: no such spec"}
    assert script.exit_code(entries, is_strict=False) == 5


def test_an_entry_whose_emulation_failed_is_an_error(script: ModuleType, judgement: ModuleType) -> None:
    ran = judgement.Entry(
        model="m", runner="tensorrt", precision="fp16", state=judgement.State.PASS, figures={"max_abs_diff": 1e-3}
    )

    entry = script.with_prediction(ran, judgement.failed("m", "emulation", "fp16", "out of memory"), 1e-6)

    assert entry.state is judgement.State.ERROR
    assert entry.reason == "not emulated: out of memory"


def test_fp32_and_tf32_are_not_predicted_and_that_is_said(script: ModuleType, judgement: ModuleType) -> None:
    ran = judgement.Entry(model="m", runner="torch", precision="tf32", state=judgement.State.PASS, figures={})

    entry = script.with_prediction(ran, None, 1e-6)

    assert entry.state is judgement.State.PASS
    assert entry.why_not_predicted == "tf32 is not emulated"


@pytest.mark.parametrize(
    ("precision", "change", "state"), [("tf32", 0, "error"), ("tf32", 1e-3, "pass"), ("fp32", 0, "pass")]
)
def test_a_precision_that_changes_no_bit_was_not_honoured(
    script: ModuleType, judgement: ModuleType, precision: str, change: float, state: str
) -> None:
    in_fp32 = np.linspace(0, 5, 8, dtype=np.float32)[:, None]
    ran = judgement.Entry(model="m", runner="torch", precision=precision, state=judgement.State.PASS)

    entry = script.honoured(ran, in_fp32 + np.float32(change), in_fp32)

    assert entry.state.value == state
    assert entry.reason == ("tf32 gave FP32's answers to the bit" if state == "error" else "")


def test_without_a_gpu_the_script_ends_with_one_line_and_not_green(project_root: Path, tmp_path: Path) -> None:
    out = tmp_path / "figures.json"
    command = [sys.executable, str(project_root / "benchmarks/gpu_parity.py"), "--out", str(out)]

    ran = subprocess.run(command, check=False, capture_output=True, text=True, env=NO_GPU)

    assert ran.returncode == 5
    assert ran.stderr.strip() == "gpu_parity: the CUDA driver shows no NVIDIA GPU to this process: nothing was run"
    assert not out.exists()


def test_without_a_gpu_make_gpu_test_ends_with_one_line_before_it_installs_anything(project_root: Path) -> None:
    environment = project_root / ".venv-gpu"
    was_there = environment.exists()

    ran = subprocess.run(
        ["make", "--no-print-directory", "gpu-test"],
        cwd=project_root,
        check=False,
        capture_output=True,
        text=True,
        env=NO_GPU,
    )

    first = ran.stderr.splitlines()[0]
    assert ran.returncode != 0
    assert first == "gpu-test: the CUDA driver shows no NVIDIA GPU to this process: nothing was run"
    assert ran.stdout == ""
    assert environment.exists() == was_there


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.torch
def test_a_rehearsal_on_the_cpu_predicts_what_pytorch_then_computes(project_root: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    out = tmp_path / "figures.json"
    command = [sys.executable, str(project_root / "benchmarks/gpu_parity.py"), "--out", str(out)]

    ran = subprocess.run(
        [*command, "--device", "cpu", "--models", "sts"], check=False, capture_output=True, text=True, env=NO_GPU
    )

    assert ran.returncode == 0, ran.stdout + ran.stderr
    result = json.loads(out.read_text(encoding="utf-8"))
    entries = result["entries"]
    torch = {entry["precision"]: entry for entry in entries if entry["runner"] == "torch" and entry["model"] == "sts"}
    assert result["is_rehearsal"]
    assert ways(entries, "sts") == ways(entries, "face_resnet50") == WAYS
    assert {name: entry["state"] for name, entry in torch.items()} == {
        "fp32": "pass",
        "tf32": "not run",
        "fp16": "pass",
        "bf16": "pass",
    }
    # Real FP16 and BF16 arithmetic of this processor, and what the emulation said of it.
    assert torch["fp16"]["prediction"] == torch["bf16"]["prediction"] == "within the factor"
    assert torch["fp32"]["figures"]["max_abs_diff"] < torch["fp16"]["figures"]["max_abs_diff"]
    assert torch["fp32"]["ran"]["tf32"] is False
    assert {entry["reason"] for entry in entries if entry["model"] == "face_resnet50"} == {"left out by --models"}
