"""Nodes kept in FP32 by quantization: the switchable model answers like the file, and a run repairs INT8."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from tests.pipelines.repair.conftest import loud_desk, loud_model

from paritygate.convert.conversion import Calibration, ConversionJob
from paritygate.convert.onnx import onnx_to_int8
from paritygate.models.onnx.file import signature_of_onnx
from paritygate.models.source import ModelRef, SourceKind
from paritygate.pipelines.repair.lowering import open_int8
from paritygate.precision import Precision
from paritygate.validate.runners.opening import open_model

if TYPE_CHECKING:
    from tests.pipelines.conftest import Desk


def _job(folder: Path, kept: tuple[str, ...]) -> ConversionJob:
    model = loud_model()
    onnx.save(model, folder / "model.onnx")
    rows = {"x": np.random.default_rng(1).normal(size=(64, 8)).astype(np.float32)}
    made = folder / "made"
    made.mkdir()
    return ConversionJob(
        source=ModelRef(
            text="model.onnx", folder=folder, kind=SourceKind.ONNX, name="loud", signature=signature_of_onnx(model)
        ),
        folder=made,
        precision=Precision.MIXED,
        lower=Precision.INT8,
        calibration=Calibration(read=lambda: iter([rows]), tool="onnxruntime"),
        kept=dict.fromkeys(kept, "chosen"),
    )


@pytest.mark.parametrize("kept", [(), ("second product",), ("first product", "third product")])
def test_every_choice_answers_like_the_quantized_file(kept: tuple[str, ...], tmp_path: Path) -> None:
    job = _job(tmp_path, kept)
    (tmp_path / "quantized").mkdir()
    signature = job.source.signature
    assert signature is not None
    lowered = open_int8(job, signature, tmp_path / "quantized")
    made = onnx_to_int8.convert(job)
    file = open_model(ModelRef(text=made.main, folder=job.folder, kind=SourceKind.ONNX, name="made"), "cpu")
    rows = {"x": np.random.default_rng(2).normal(size=(40, 8)).astype(np.float32)}

    (answer,) = lowered.model.keeping(lowered.closed(kept)).run(rows).values()
    (expected,) = file.run(rows).values()
    (exact,) = lowered.model.keeping(lowered.model.switches).run(rows).values()

    assert lowered.model.switches == ("first product", "second product", "third product")
    # Nothing but the order of sums differs, which is far below what rounding to INT8 changes.
    assert np.abs(answer - expected).max() < 0.05 * np.abs(exact - expected).max()


def _desk_of_units(folder: Path, *targets: object) -> Desk:
    """Return a desk whose model reads columns of very different units, which one scale of INT8 cannot hold."""
    desk = loud_desk(folder, targets=list(targets), required=[])
    units = 10.0 ** np.arange(-1, 7)
    model = onnx.load(folder / "model.onnx")
    # Bounded values, which rows that were not calibrated on do not leave.
    model.graph.node[2].op_type = "Identity"
    model.graph.node[3].op_type = "Tanh"
    del model.graph.node[3].input[1:]
    model.graph.node[1].input[1] = "one"
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.float32(1), "one"))
    (first,) = (tensor for tensor in model.graph.initializer if tensor.name == "first")
    weight = (onnx.numpy_helper.to_array(first) / units[:, None]).astype(np.float32)
    first.CopyFrom(onnx.numpy_helper.from_array(weight, "first"))
    onnx.save(model, folder / "model.onnx")
    rows = np.random.default_rng(4).uniform(-1, 1, size=(240, 8)) * units
    np.savez(folder / "inputs.npz", x=rows.astype(np.float32))
    return desk


@pytest.mark.openvino
def test_an_openvino_model_keeps_the_same_node_and_computes_the_others_in_integers(tmp_path: Path) -> None:
    from paritygate.models.openvino.model import read_openvino
    from paritygate.models.openvino.settings import compile_openvino

    desk = _desk_of_units(tmp_path, {"name": "openvino-mixed", "lower": "int8"})

    called = desk.json("run", "spec.yaml", "--quiet", "--no-benchmark", "--no-diagnose")
    (run,) = called.data["runs"]
    folder = desk.run_folder / "openvino-mixed"
    record = json.loads((folder / "repair.json").read_text(encoding="utf-8"))
    operators = compile_openvino(read_openvino(folder / "model.xml"), None).operators

    assert run["variants"]["openvino-mixed"]["verdict"] == "pass", called
    assert record["nodes_to_exclude"] == ["first product"]
    assert sum(operators.get(name, 0) for name in ("i8", "u8")) == 2
    assert operators["f32"]


def _is_float(model: onnx.ModelProto, names: list[str]) -> bool:
    """Return whether these nodes are there, and none reads a value that was quantized."""
    makers = {name: node.op_type for node in model.graph.node for name in node.output}
    kept = [node for node in model.graph.node if node.name in names]
    quantized = [name for node in kept for name in node.input if makers.get(name) == "DequantizeLinear"]
    return len(kept) == len(names) and not quantized


def _quantized_by_the_tool_itself(desk: Desk, names: list[str]) -> onnx.ModelProto:
    """Return the FP32 file of the run, quantized by a call of ONNX Runtime's tool as its users write it."""
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_static

    rows = iter([{"x": np.load(desk.folder / "inputs.npz")["x"]}])

    class _Rows(CalibrationDataReader):  # type: ignore[misc]  # onnxruntime has no types
        def get_next(self) -> dict[str, object] | None:
            return next(rows, None)

    (exported,) = desk.run_folder.glob("**/onnx-fp32/model.onnx")
    path = desk.folder / "theirs.onnx"
    quantize_static(str(exported), str(path), _Rows(), quant_format=QuantFormat.QDQ, nodes_to_exclude=names)
    return onnx.load(path)


def test_a_run_keeps_the_node_in_fp32_that_int8_fails_by(tmp_path: Path) -> None:
    desk = _desk_of_units(tmp_path, "onnx-int8", {"name": "onnx-mixed", "lower": "int8"})

    called = desk.json("run", "spec.yaml", "--quiet")
    (run,) = called.data["runs"]
    record = json.loads((desk.run_folder / "onnx-mixed/repair.json").read_text(encoding="utf-8"))

    assert run["variants"]["onnx-int8"]["verdict"] == "fail", called
    assert run["variants"]["onnx-mixed"]["verdict"] == "pass", called
    assert "onnx-mixed" in run["release"]["variants"]
    assert record["nodes_to_exclude"] == ["first product"]
    quantized = onnx.load(desk.run_folder / "onnx-mixed/model.onnx")
    assert _is_float(quantized, record["nodes_to_exclude"])
    assert _is_float(_quantized_by_the_tool_itself(desk, record["nodes_to_exclude"]), record["nodes_to_exclude"])
