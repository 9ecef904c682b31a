"""An engine of mixed precision is built from the file of onnx-mixed, with its operators in FP32."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.pipelines.repair.conftest import loud_desk

_MIXED = {"name": "onnx-mixed", "lower": "fp16"}


@pytest.mark.rtx
@pytest.mark.slow
@pytest.mark.thorough
def test_the_engine_computes_in_both_precisions_and_is_emulated(tmp_path: Path) -> None:
    dims = {"batch": {"min": 1, "opt": 8, "max": 240}}
    desk = loud_desk(
        tmp_path,
        model={"name": "tiny", "source": "model.onnx", "dims": dims},
        targets=[_MIXED, "tensorrt-rtx-mixed"],
        decisions={},
        required=["onnx-mixed"],
    )

    called = desk.json("run", "spec.yaml", "--quiet", "--no-promote", "--no-benchmark", "--no-diagnose")

    run = called.data["runs"][0]
    assert run["failures"] == {}, called
    assert run["variants"]["tensorrt-rtx-mixed"]["verdict"] == "not run here"
    assert run["emulated"]["tensorrt-rtx-mixed"]["verdict"] == "pass"
    counts = json.loads((desk.run_folder / "tensorrt-rtx-mixed/engine.json").read_text(encoding="utf-8"))[
        "dtype_counts"
    ]
    assert counts["HALF"]["MATRIX_MULTIPLY"] == 3
    assert counts["FLOAT"]["ELEMENTWISE"] == 2


@pytest.mark.parametrize(
    ("targets", "options"),
    [
        (["onnx-fp32", "tensorrt-rtx-mixed"], ()),
        ([{"name": "onnx-mixed", "lower": "int8"}, "tensorrt-mixed"], ()),
        ([_MIXED, "tensorrt-mixed"], ("--target", "tensorrt-mixed")),
    ],
)
def test_an_engine_without_its_file_is_refused(tmp_path: Path, targets: list[object], options: tuple[str, ...]) -> None:
    desk = loud_desk(tmp_path, targets=targets, required=[])

    called = desk.call("plan", "spec.yaml", *options)

    assert called.code == 2, called
    assert "lower: fp16" in called.err
