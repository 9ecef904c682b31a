"""An FP16 variant that overflows only on devices that compute in FP16 does not pass on a CPU."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from tests.pipelines.conftest import jobs_done_here, make_desk

from paritygate.pipelines.run import fp16_range
from paritygate.pipelines.run.overflow import OverflowFinding
from paritygate.precision import Precision

if TYPE_CHECKING:
    from tests.pipelines.conftest import Called, Desk

# Squares of 300 end FP16. In the second model they become 0 again, and the outputs are finite and wrong.
_MODELS = {
    "infinite": "s = Mul(x, x) m = ReduceMean<axes = [1]>(s) logits = Sqrt(m)",
    "hidden": "s = Mul(x, x) t = Div(s, thousand) u = Add(t, one) logits = Div(x, u)",
}
_TEXT = """<ir_version: 8, opset_import: ["": 17]> small (float[n,8] x) => (float[n,m] logits)
<float thousand = {{1000}}, float one = {{1}}> {{ {nodes} }}"""


def _desk(folder: Path, model: str, size: float, *, rows: int = 120, every: int = 5, **parts: Any) -> Desk:  # noqa: ANN401 - of a spec
    desk = make_desk(folder)
    onnx.save(onnx.parser.parse_model(_TEXT.format(nodes=_MODELS[model])), folder / "model.onnx")
    inputs = np.random.default_rng(0).uniform(-1, 1, (rows, 8)).astype(np.float32)
    inputs[::every] *= np.float32(size)
    np.savez(folder / "inputs.npz", x=inputs)
    desk.spec(
        **{
            "model": {"name": "tiny", "source": "model.onnx"},
            "decisions": {},
            "targets": ["onnx-fp32", "onnx-fp16"],
            "required": ["onnx-fp16"],
            **parts,
        }
    )
    return desk


def _fp16(called: Called) -> tuple[str, list[str]]:
    """Return the verdict of the FP16 variant, and the statuses of its check of the range."""
    result = called.data["runs"][0]["variants"]["onnx-fp16"]
    return result["verdict"], [check["status"] for check in result["checks"] if check["name"] == "fp16_range"]


@pytest.mark.parametrize("model", list(_MODELS))
def test_a_required_variant_that_overflows_on_a_gpu_is_not_released(tmp_path: Path, model: str) -> None:
    desk = _desk(tmp_path, model, 500.0)

    called = desk.json("run", "spec.yaml", "--quiet", "--no-benchmark", "--no-diagnose")

    assert _fp16(called) == ("inconclusive", ["inconclusive"]), called
    assert called.data["runs"][0]["emulated"]["onnx-fp16"]["verdict"] == "fail"
    assert (called.code, called.data["runs"][0]["release"]) == (3, None)
    assert desk.releases == []


def test_few_of_many_rows_that_overflow_on_the_way_are_found(tmp_path: Path) -> None:
    desk = _desk(tmp_path, "hidden", 500.0, rows=1500, every=800)

    called = desk.json("run", "spec.yaml", "--quiet", "--no-benchmark", "--no-diagnose")

    assert (called.code, *_fp16(called)) == (3, "inconclusive", ["inconclusive"]), called


def test_a_range_that_cannot_be_checked_is_not_released(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    late = OverflowFinding(precision=Precision.FP16, not_checked="it took longer than 600 s")
    monkeypatch.setattr(fp16_range, "find_overflow", lambda *_, **__: late)
    desk = _desk(tmp_path, "hidden", 500.0)

    with jobs_done_here():
        called = desk.json("run", "spec.yaml", "--quiet", "--no-benchmark", "--no-diagnose")

    assert (called.code, *_fp16(called)) == (3, "inconclusive", ["inconclusive"]), called


def test_a_release_that_is_declared_for_cpus_alone_is_warned_of(tmp_path: Path) -> None:
    desk = _desk(tmp_path, "infinite", 500.0, promote={"for": ["cpu"], "prefer": ["onnx-fp16"]})

    called = desk.json("run", "spec.yaml", "--quiet", "--no-benchmark", "--no-diagnose")

    assert _fp16(called) == ("pass", ["warning"]), called
    assert (called.code, list(called.data["runs"][0]["release"]["variants"])) == (0, ["onnx-fp16"])


@pytest.mark.parametrize("model", list(_MODELS))
def test_values_within_the_range_pass(tmp_path: Path, model: str) -> None:
    called = _desk(tmp_path, model, 20.0).json("run", "spec.yaml", "--quiet", "--no-benchmark", "--no-diagnose")

    assert (called.code, *_fp16(called)) == (0, "pass", []), called
