"""The models that this project brings along, as TensorRT-RTX engines: what they compute in, and what is known."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from tests.pipelines.conftest import Desk

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.rtx, pytest.mark.slow, pytest.mark.thorough]

_FP32, _FP16 = "tensorrt-rtx-fp32", "tensorrt-rtx-fp16"


@dataclass(frozen=True, kw_only=True, slots=True)
class _Fixture:
    """A packaged spec, and of what a few samples are made.

    Attributes:
        name: The spec's name.
        samples: The samples it names.
        decisions: Its decisions.
        dims: Its dims.
        layers: How many layers of these types compute, whatever the precision.
    """

    name: str
    samples: str
    decisions: dict[str, Any]
    dims: dict[str, Any]
    layers: dict[str, int]


_RESNET = _Fixture(
    name="face-resnet50",
    samples="face_resnet50:images",
    decisions={"output_1": {"argmax": True}},
    dims={"batch": {"min": 1, "opt": 8, "max": 16}},
    layers={"CONVOLUTION": 53},
)
_STS = _Fixture(
    name="klue-sts",
    samples="sts:evaluation_pairs",
    decisions={"logits": {"threshold": 3.0}},
    dims={"batch": {"min": 1, "opt": 8, "max": 64}, "sequence": {"min": 8, "opt": 64, "max": 128}},
    layers={"MATRIX_MULTIPLY": 18, "SOFTMAX": 2},
)


def _done(desk: Desk, *args: str) -> None:
    called = desk.call(*args)
    assert called.code == 0, f"{args}: {called}"


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(_RESNET, marks=pytest.mark.tensorflow, id=_RESNET.name),
        pytest.param(_STS, marks=pytest.mark.torch, id=_STS.name),
    ],
)
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[_Fixture, Desk]:
    """Return the fixture and a desk with its engines, validated on a few samples; the framework is used once."""
    fixture: _Fixture = request.param
    desk = Desk(folder=tmp_path_factory.mktemp(fixture.name))
    _done(desk, "export", fixture.name, "--target", "onnx-fp32", "--quiet")
    (source,) = desk.folder.glob(f"artifacts/runs/{fixture.name}/*/onnx-fp32/model.onnx")
    module, _, name = fixture.samples.partition(":")
    desk.module(
        "few",
        f"""
        from itertools import islice

        from paritygate.fixtures import {module}


        def samples(path):
            yield from islice({module}.{name}(), 1)
        """,
    )
    desk.spec(
        model={"name": "tiny", "source": str(source), "dims": fixture.dims},
        samples={"source": "few:samples"},
        min_rows=1,
        decisions=fixture.decisions,
        targets=["onnx-fp32", _FP32, _FP16],
        tensorrt_rtx={"compute_capabilities": ["8.6", "8.9"]},
        probes="none",
        promote={"accept": {_FP16: "emulated"}},
    )
    _done(desk, "export", "spec.yaml", "--quiet")
    for stage in ("record", "validate"):
        _done(desk, stage, "--run", str(desk.run_folder), "--quiet")
    return fixture, desk


def _record(folder: Path, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / name).read_text(encoding="utf-8"))
    return found


def test_both_engines_compute_in_their_precision_without_tf32(built: tuple[_Fixture, Desk]) -> None:
    fixture, desk = built
    for name, dtype in ((_FP32, "FLOAT"), (_FP16, "HALF")):
        record = _record(desk.run_folder / name, "engine.json")
        facts = _record(desk.run_folder / name, "artifact.json")["made_by"]["facts"]
        other = record["dtype_counts"].get("FLOAT" if dtype == "HALF" else "HALF", {})
        for layer, count in fixture.layers.items():
            assert record["dtype_counts"][dtype][layer] == count, f"{name}: {record['dtype_counts']}"
            assert layer not in other, f"{name}: {record['dtype_counts']}"
        assert (record["tf32"], facts["tf32"]) == (False, False)
        assert record["settings"]["compute_capabilities"] == ["8.6", "8.9"]
        assert record["targets"] == "compute capability 8.6, 8.9"


def test_weights_take_half_the_room_in_fp16(built: tuple[_Fixture, Desk]) -> None:
    _, desk = built
    whole, half = ((desk.run_folder / name / "model.plan").stat().st_size for name in (_FP32, _FP16))
    weights = (desk.run_folder / "onnx-fp32/model.onnx").stat().st_size
    # The code of kernels, which an engine holds besides, is not of the same size: normalisations have one of their own.
    assert whole - half > 0.35 * weights


def test_engines_are_built_and_emulated_and_released_only_as_the_spec_accepts(built: tuple[_Fixture, Desk]) -> None:
    _, desk = built
    run = str(desk.run_folder)
    evidence = desk.evidence()
    assert {entry["variant"]: entry["evidence"] for entry in evidence["variants"]} == {
        "onnx-fp32": "verified", _FP32: "built", _FP16: "built",
    }  # fmt: skip
    emulated = {entry["variant"]: entry for entry in evidence["emulated"]}
    assert [(name, entry["evidence"], entry["verdict"]) for name, entry in emulated.items()] == [
        (name, "emulated", "pass") for name in (_FP32, _FP16)
    ]
    differences = [output["max_abs_diff"] for output in emulated[_FP16]["result"]["outputs"].values()]
    assert all(0 < difference < 0.05 for difference in differences), differences

    spec = desk.run_folder / "spec.json"
    accepting = spec.read_text(encoding="utf-8")
    data = json.loads(accepting)
    data["spec"]["promote"]["accept"] = {}
    spec.write_text(json.dumps(data), encoding="utf-8")
    refused = desk.call("promote", "--verbose", "--run", run, "--for", "cuda:sm89")
    spec.write_text(accepting, encoding="utf-8")
    accepted = desk.json("promote", "--verbose", "--run", run, "--for", "cuda:sm89")

    assert refused.code == 2
    assert "nothing in this run was verified on 'cuda:sm89' (verified on: cpu)" in refused.err
    assert accepted.data["variants"] == [_FP16], str(accepted)
    assert desk.releases == ["tiny/1"]
