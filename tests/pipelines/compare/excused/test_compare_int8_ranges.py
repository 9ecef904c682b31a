"""`compare` of an INT8 file on rows beyond its calibration: what it cuts off is a finding, a wrong table a failure."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from paritygate.convert.checked import convert_and_check
from paritygate.convert.conversion import Calibration, ConversionJob
from paritygate.models.source import ModelRef, SourceKind
from paritygate.precision import Precision

if TYPE_CHECKING:
    from tests.pipelines.conftest import Bench

_WORDS = "activations beyond the range that INT8 was calibrated on"
_IDS, _UNSEEN, _ANOTHER = 60, 31, 45


def _source(bench: Bench) -> str:
    table = bench.normal(_IDS, 8, seed=1)
    # What the samples do not hold is larger: means of it go beyond what the calibration saw.
    table[1::2] *= 2.5
    # No pair of weights sums up to more than 16 bits, where a processor without VNNI cuts sums off.
    apart = np.array([[1], [0]] * 4, dtype=np.float32)
    return bench.model(
        "source",
        [
            helper.make_node("Gather", ["table", "tokens"], ["x"]),
            helper.make_node("ReduceMean", ["x"], ["mean"], axes=[1], keepdims=0),
            helper.make_node("MatMul", ["mean", "w1"], ["h"]),
            helper.make_node("Relu", ["h"], ["r"]),
            helper.make_node("MatMul", ["r", "w2"], ["y"]),
        ],
        inputs={"tokens": ("int64", ["batch", 8])},
        outputs={"y": ("float", ["batch", 3])},
        weights={"table": table, "w1": apart * bench.normal(8, 8, seed=2), "w2": apart * bench.normal(8, 3, seed=3)},
    )


def _samples() -> NDArray[Any]:
    return 2 * np.random.default_rng(4).integers(0, _IDS // 2, (128, 8))


def _int8(bench: Bench, source: str) -> Path:
    convert_and_check(
        ConversionJob(
            source=ModelRef(text=source, folder=bench.folder, kind=SourceKind.ONNX),
            folder=bench.folder / "int8",
            precision=Precision.INT8,
            calibration=Calibration(read=lambda: iter([{"tokens": _samples()}]), tool="onnxruntime"),
        ),
        "onnx",
    )
    return bench.folder / "int8" / "model.onnx"


def _openvino_int8(source: str, folder: Path) -> Path:
    """Write the model for OpenVINO, its activations within the ranges that the samples show."""
    import onnxruntime
    import openvino
    from openvino import opset13

    watched = onnx.load(source)
    watched.graph.output.extend(helper.make_tensor_value_info(name, 1, None) for name in ("mean", "r"))
    session = onnxruntime.InferenceSession(watched.SerializeToString(), providers=["CPUExecutionProvider"])
    found = session.run(["mean", "r"], {"tokens": _samples()})
    ranges = [(float(values.min()), float(values.max())) for values in found]
    model = openvino.convert_model(source)
    products = [node for node in model.get_ordered_ops() if node.get_type_name() == "MatMul"]
    for node, ends in zip(products, ranges, strict=True):
        low, high = (opset13.constant(np.float32(end)) for end in ends)
        node.input(0).replace_source_output(
            opset13.fake_quantize(node.input_value(0), low, high, low, high, 256).output(0)
        )
    folder.mkdir()
    openvino.save_model(model, str(folder / "model.xml"), compress_to_fp16=False)
    return folder / "model.xml"


@pytest.mark.openvino
@pytest.mark.parametrize("is_wrong", [False, True])
def test_an_openvino_file_is_looked_at_alike(bench: Bench, is_wrong: bool) -> None:  # noqa: FBT001
    source = _source(bench)
    model = onnx.load(source)
    if is_wrong:
        (table,) = (item for item in model.graph.initializer if item.name == "table")
        rows = numpy_helper.to_array(table).copy()
        rows[[_UNSEEN, _ANOTHER]] = rows[[_ANOTHER, _UNSEEN]]
        table.CopyFrom(numpy_helper.from_array(rows, table.name))
    onnx.save(model, bench.folder / "given.onnx")
    path = _openvino_int8(str(bench.folder / "given.onnx"), bench.folder / "openvino")

    outcome = bench.compare(
        source, str(path), "--samples", bench.npz("in.npz", {"tokens": _samples()}), "--precision", "int8",
        "--probes", "ids",
    )  # fmt: skip

    if is_wrong:
        assert (outcome.code, outcome.failed) == (1, {"probe_ids"})
    else:
        assert (outcome.code, outcome.failed) == (0, set())
        assert [item["edge"] for item in outcome.result["edge_findings"]] == [_WORDS]


@pytest.mark.parametrize("is_wrong", [False, True])
def test_rows_beyond_the_calibration_are_a_finding_and_a_wrong_table_fails(bench: Bench, is_wrong: bool) -> None:  # noqa: FBT001
    source = _source(bench)
    path = _int8(bench, source)
    if is_wrong:
        model = onnx.load(path)
        (table,) = (item for item in model.graph.initializer if list(item.dims) == [_IDS, 8])
        rows = numpy_helper.to_array(table).copy()
        rows[[_UNSEEN, _ANOTHER]] = rows[[_ANOTHER, _UNSEEN]]
        table.CopyFrom(numpy_helper.from_array(rows, table.name))
        onnx.save(model, path)

    outcome = bench.compare(
        source, str(path), "--samples", bench.npz("in.npz", {"tokens": _samples()}), "--precision", "int8",
        "--probes", "ids",
    )  # fmt: skip

    if is_wrong:
        assert (outcome.code, outcome.failed) == (1, {"probe_ids"})
    else:
        assert (outcome.code, outcome.failed) == (0, set())
        (finding,) = outcome.result["edge_findings"]
        assert finding["edge"] == _WORDS
        assert "calibration" in finding["if_it_occurs"]
