"""A run names the operator at which an FP16 variant overflows, on this machine and as emulated."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from tests.pipelines.conftest import make_desk

from paritygate.pipelines.run.workspace import open_run

_MODEL = """<ir_version: 8, opset_import: ["": 17]> norm (float[n,8] x) => (float[n,16] logits)
{ c = Concat<axis = 1>(x, x) s = Mul(c, c) m = ReduceMean<axes = [1]>(s) r = Sqrt(m) logits = Div(c, r) }"""


@pytest.mark.parametrize(
    # ONNX Runtime computes most of FP16 in FP32, and rounds the larger values before Concat.
    ("size", "verdict", "operator", "largest"),
    [(300.0, "inconclusive", "Mul", 300.0**2), (1e5, "fail", "Cast", 1e5)],
)
def test_the_operator_that_overflows_is_named(
    tmp_path: Path, size: float, verdict: str, operator: str, largest: float
) -> None:
    desk = make_desk(tmp_path)
    onnx.save(onnx.parser.parse_model(_MODEL), tmp_path / "model.onnx")
    rows = np.random.default_rng(0).uniform(-1, 1, (120, 8)).astype(np.float32) * np.float32(size)
    rows[:, 0] = size
    np.savez(tmp_path / "inputs.npz", x=rows)
    desk.spec(model={"name": "tiny", "source": "model.onnx"}, decisions={}, targets=["onnx-fp32", "onnx-fp16"])

    called = desk.json("run", "spec.yaml", "--quiet", "--no-benchmark", "--no-promote")

    evidence = open_run(desk.run_folder).evidence()
    assert evidence is not None
    entries = {entry.variant: entry for entry in evidence.variants}
    assert (called.code, entries["onnx-fp16"].verdict) == (1 if verdict == "fail" else 3, verdict)
    (entry,) = [entries["onnx-fp16"]] if verdict == "fail" else evidence.emulated
    assert entry.result is not None
    assert entry.result.verdict == "fail"
    assert [(cause.kind, cause.outcome) for cause in entry.result.causes] == [("overflow", "named")]
    values = entry.result.causes[0].words[0].values
    assert values["operators"] == [operator]
    assert values["difference"][0]["values"]["largest"] == pytest.approx(largest, rel=1e-2)
