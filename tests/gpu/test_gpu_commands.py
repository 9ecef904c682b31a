"""On a GPU, through the public commands alone: from a model to a released engine, and PyTorch on CUDA."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from paritygate.backends import backend_state
from paritygate.machine import device_name

pytestmark = [pytest.mark.gpu]

SPEC = """
model:
  name: scores
  source: model.onnx
  dims: {batch: {min: 1, opt: 8, max: 16}}
samples: {source: inputs.npz}
decisions: {logits: {threshold: 0}}
targets: [onnx-fp32, tensorrt-fp32, tensorrt-fp16]
required: [onnx-fp32, tensorrt-fp32, tensorrt-fp16]
promote: {prefer: [tensorrt-fp16]}
"""
NET = """
import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.convolution = torch.nn.Conv2d(3, 64, 3, padding=1)
        self.recurrent = torch.nn.LSTM(64, 16, batch_first=True)

    def forward(self, image):
        rows = torch.relu(self.convolution(image)).mean(3).transpose(1, 2)
        return self.recurrent(rows + torch.arange(rows.shape[1], device=image.device)[None, :, None])[0].mean(1)


def load():
    return Net().eval()
"""
NET_SPEC = """
model:
  name: net
  source: net:load
  inputs: {image: {dtype: float32, shape: [batch, 3, 16, 16]}}
  outputs: {logits: {dtype: float32, shape: [batch, 16]}}
  dims: {batch: {min: 1, opt: 8, max: 64}}
samples: {source: inputs.npz}
decisions: {logits: {argmax: true}}
targets: [onnx-fp32, torchscript-fp32, pt2-fp32]
"""
TORCH_SPEC = """
model:
  name: gpu-sts-torch
  source: paritygate.fixtures.sts:torch_model
  inputs:
    input_ids: {dtype: int64, shape: [batch, sequence]}
    attention_mask: {dtype: int64, shape: [batch, sequence]}
  outputs: {logits: {dtype: float32, shape: [batch, 1]}}
  dims: {batch: {min: 1, opt: 8, max: 64}, sequence: {min: 8, opt: 64, max: 128}}
samples: {source: "paritygate.fixtures.sts:evaluation_pairs"}
decisions: {logits: {threshold: 3.0}}
targets: [torch-fp32]
"""


def tool(folder: Path, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder, expect its exit code, and return what it said."""
    command = [sys.executable, "-m", "paritygate", *arguments]
    ran = subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True)
    assert ran.returncode == code, (
        f"{arguments} ended with {ran.returncode}, expected {code}:\n{ran.stdout}{ran.stderr}"
    )
    return ran


def result_of(folder: Path, *arguments: str, code: int = 0) -> dict[str, Any]:
    """Return the JSON that a command writes."""
    tool(folder, *arguments, "--json", "result.json", code=code)
    found: dict[str, Any] = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    return found


def released_variants(printed: str) -> str:
    """Return what a promotion says it released; empty if nothing."""
    found = re.search(r"^released .*?: (.*?)(?:, because|$)", printed, re.MULTILINE)
    return found[1] if found else ""


@pytest.fixture
def needs_tensorrt() -> None:
    state = backend_state("tensorrt")
    if not state.is_available:
        pytest.skip(f"{state.reason}: {state.install}")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with a model of three layers, inputs and a spec."""
    random = np.random.default_rng(0)
    model = onnx.parser.parse_model(
        '< ir_version: 8, opset_import: ["" : 17] > '
        "g (float[batch,64] x) => (float[batch,1] logits) { a = MatMul (x, v) b = Tanh (a) logits = MatMul (b, w) }"
    )
    for name, shape in (("v", (64, 64)), ("w", (64, 1))):
        weights = random.standard_normal(shape).astype(np.float32) / 8
        model.graph.initializer.append(onnx.numpy_helper.from_array(weights, name))
    onnx.save(model, str(tmp_path / "model.onnx"))
    np.savez(tmp_path / "inputs.npz", x=random.standard_normal((200, 64)).astype(np.float32))
    (tmp_path / "spec.yaml").write_text(SPEC, encoding="utf-8")
    return tmp_path


@pytest.mark.usefixtures("needs_tensorrt")
def test_a_model_becomes_a_released_engine_on_one_machine(folder: Path) -> None:
    result = result_of(folder, "run", "spec.yaml", "--device", "cuda", "--verbose")

    (run,) = result["runs"]
    evidence = json.loads((Path(run["run"]) / "evidence.json").read_text(encoding="utf-8"))
    entries = {entry["variant"]: entry for entry in evidence["variants"]}
    for name in ("onnx-fp32", "tensorrt-fp32", "tensorrt-fp16"):
        assert entries[name]["verdict"] == "pass", entries[name]
        assert entries[name]["evidence"] == "verified"
        assert entries[name]["result"]["candidate"]["device"] == device_name("cuda")
    # FP16 that is not there would answer as FP32 does.
    assert entries["tensorrt-fp16"]["result"]["candidate"]["precision_found"] == "fp16"
    largest = {name: entry["result"]["outputs"]["logits"]["max_abs_diff"] for name, entry in entries.items()}
    assert largest["tensorrt-fp16"] > largest["tensorrt-fp32"]
    tool(folder, "verify", "scores", "prod")


@pytest.mark.usefixtures("needs_tensorrt")
def test_a_rebuilt_engine_is_not_released_before_it_is_validated(folder: Path) -> None:
    (run,) = result_of(folder, "run", "spec.yaml", "--device", "cuda", "--no-promote", "--verbose")["runs"]
    where = ("--run", run["run"])

    tool(folder, "build", *where, "--target", "tensorrt-fp16", "--rebuild", "--verbose")
    refused = subprocess.run(
        [sys.executable, "-m", "paritygate", "promote", *where, "--for", device_name("cuda")],
        cwd=folder,
        check=False,
        capture_output=True,
        text=True,
    )
    tool(folder, "validate", *where, "--device", "cuda", "--verbose")
    released = tool(folder, "promote", *where, "--for", device_name("cuda"))

    assert "tensorrt-fp16" not in released_variants(refused.stdout)
    assert "tensorrt-fp16" in released_variants(released.stdout)


@pytest.mark.torch
def test_pytorch_on_cuda_answers_as_on_the_cpu_without_tf32(tmp_path: Path) -> None:
    import torch

    if not torch.cuda.is_available():
        pytest.skip(f"this build of torch ({torch.__version__}) does not run on CUDA here")
    (tmp_path / "spec.yaml").write_text(TORCH_SPEC, encoding="utf-8")

    exported = result_of(tmp_path, "export", "spec.yaml", "--verbose")
    where = ("--run", exported["run"])
    tool(tmp_path, "record", *where, "--quiet")
    tool(tmp_path, "validate", *where, "--device", "cuda", "--verbose")

    evidence = json.loads((Path(exported["run"]) / "evidence.json").read_text(encoding="utf-8"))
    (entry,) = evidence["variants"]
    assert evidence["device"] == entry["result"]["candidate"]["device"] == device_name("cuda")
    assert entry["verdict"] == "pass"
    # Another processor rounds otherwise: no difference at all would be that of the CPU.
    assert 0 < entry["result"]["outputs"]["logits"]["max_abs_diff"] < 1e-4


@pytest.mark.torch
def test_torchscript_made_without_a_gpu_answers_on_one_in_float32(tmp_path: Path) -> None:
    import torch

    if not torch.cuda.is_available():
        pytest.skip(f"this build of torch ({torch.__version__}) does not run on CUDA here")
    (tmp_path / "net.py").write_text(NET, encoding="utf-8")
    (tmp_path / "spec.yaml").write_text(NET_SPEC, encoding="utf-8")
    x = np.random.default_rng(0).standard_normal((200, 3, 16, 16)).astype(np.float32)
    np.savez(tmp_path / "inputs.npz", image=x)

    (first,) = result_of(tmp_path, "run", "spec.yaml", "--device", "cuda")["runs"]
    (second,) = result_of(tmp_path, "run", "spec.yaml", "--device", "cuda")["runs"]

    verdicts = {name: result["verdict"] for name, result in first["variants"].items()}
    assert verdicts == dict.fromkeys(("onnx-fp32", "torchscript-fp32", "pt2-fp32"), "pass")
    # Where the CUDA driver keeps what it compiled, and which daemon it looks for, is nothing that answers follow from.
    assert second["run"] == first["run"], second["jobs"]
