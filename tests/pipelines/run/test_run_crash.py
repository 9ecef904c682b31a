"""A target whose runtime crashes is an error of its own: the others go on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest

if TYPE_CHECKING:
    from tests.pipelines.conftest import Desk

pytestmark = pytest.mark.children

# With all optimisations, ONNX Runtime 1.31.1 makes one Transpose of the two, and dies in FP16 of its fusion with the
# MatMul.
_MODEL = """
<ir_version: 8, opset_import: ["" : 17]>
turned (float[batch, seq, 24] x) => (float[seq, batch, 8] output_0)
{
  once = Transpose <perm = [1, 2, 0]> (x)
  turned = Transpose <perm = [0, 2, 1]> (once)
  output_0 = MatMul (turned, weight)
}
"""
_LOAD = "import sys, onnxruntime; onnxruntime.InferenceSession(sys.argv[1], providers=['CPUExecutionProvider'])"


def _write(path: Path, dtype: type[np.generic]) -> None:
    model = onnx.parser.parse_model(_MODEL)
    weight = np.random.default_rng(0).standard_normal((24, 8)).astype(dtype)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "weight"))
    if dtype is np.float16:
        for value in (*model.graph.input, *model.graph.output):
            value.type.tensor_type.elem_type = onnx.TensorProto.FLOAT16
    onnx.save(model, str(path))


def test_a_runtime_that_crashes_is_an_error_of_its_target_alone(desk: Desk, tmp_path: Path) -> None:
    _write(tmp_path / "half.onnx", np.float16)
    loaded = subprocess.run(
        [sys.executable, "-c", _LOAD, str(tmp_path / "half.onnx")], check=False, capture_output=True
    )
    if loaded.returncode == 0:
        pytest.skip("this version of ONNX Runtime loads what 1.31.1 crashes on")
    _write(desk.folder / "model.onnx", np.float32)
    x = np.random.default_rng(1).standard_normal((8, 5, 24)).astype(np.float32)
    np.savez(desk.folder / "inputs.npz", x=x)
    desk.spec(
        model={"name": "turned", "source": "model.onnx"},
        samples={"source": "inputs.npz"},
        targets=["onnx-fp16", "onnx-fp32"],
        decisions={},
        min_rows=1,
        probes="none",
    )

    called = desk.json("run", "spec.yaml")

    run = called.data["runs"][0]
    assert called.code == 4
    assert run["variants"]["onnx-fp32"]["verdict"] == "pass"
    failure = run["failures"]["onnx-fp16"]
    assert "SIGSEGV" in failure["message"]
    # The frame in which it died, and not those in which every child begins.
    assert "_create_inference_session" in failure["message"]
