"""OpenVINO to INT8: weights stored as integers, computed as such, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from tests.convert.conftest import Bench, Converted

from paritygate.convert.conversion import Calibration
from paritygate.errors import ConversionError, UsageError
from paritygate.models.openvino.model import precision_of_openvino, read_openvino
from paritygate.models.openvino.settings import compile_openvino, read_settings
from paritygate.precision import Precision

pytestmark = [pytest.mark.openvino, pytest.mark.nncf]


def _normal(*shape: int, seed: int) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def _source(folder: Path, *, has_weights: bool = True) -> Path:
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("MatMul", ["f", "w2"], ["y"]),
    ]
    weights = {"w1": _normal(8, 3, 3, 3, seed=1) * 0.2, "w2": _normal(8, 5, seed=2)}
    graph = helper.make_graph(
        nodes if has_weights else [helper.make_node("Relu", ["x"], ["y"])],
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in weights.items() if has_weights],
    )
    path = folder / "source.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))
    return path


def _calibration() -> Calibration:
    batches = [{"x": _normal(8, 3, 8, 8, seed=seed)} for seed in range(10, 16)]
    return Calibration(
        read=lambda: iter(batches), tool="onnxruntime", method="entropy", activations="uint8", facts={"rows": 48}
    )


def _to_int8(bench: Bench, path: Path, calibration: Calibration | None) -> Converted:
    base = Bench(folder=bench.folder / "base").convert("onnx", path, to="openvino")
    return bench.convert(
        "openvino",
        base.main,
        to="openvino",
        precision=Precision.INT8,
        signature=base.conversion.signature,
        calibration=calibration,
    )


@pytest.fixture(scope="module")
def converted(tmp_path_factory: pytest.TempPathFactory) -> Converted:
    """Return a converted convolution and product; not to be changed."""
    folder = tmp_path_factory.mktemp("openvino-int8")
    return _to_int8(Bench(folder=folder), _source(folder), _calibration())


def test_weights_are_stored_as_integers_and_found_as_int8(converted: Converted) -> None:
    assert precision_of_openvino(read_openvino(converted.main)) is Precision.INT8
    assert converted.conversion.facts["quantized"]["nodes"] == {"Convolution": 1, "MatMul": 1}
    assert converted.conversion.notes[0].startswith("quantized to int8 by nncf ")


def test_the_settings_ask_for_f32_where_it_is_not_computed_in_integers(converted: Converted) -> None:
    assert set(converted.files) == {"model.xml", "model.bin", "model.config.json"}
    assert json.loads(converted.files["model.config.json"]) == {"CPU": {"INFERENCE_PRECISION_HINT": "f32"}}


def test_it_answers_like_the_source_but_not_to_the_bit(converted: Converted) -> None:
    inputs = {"x": _normal(4, 3, 8, 8, seed=99)}
    compiled = compile_openvino(read_openvino(converted.main), read_settings(converted.main)).model
    session = onnxruntime.InferenceSession(
        str(converted.job.folder.parent / "source.onnx"), providers=["CPUExecutionProvider"]
    )
    (expected,) = session.run(["y"], inputs)
    worst = float(np.abs(compiled(inputs)["y"] - expected).max())
    assert 0 < worst < 0.2 * float(expected.std())


def test_the_record_names_the_tool_that_was_used_and_not_the_ways_of_another(converted: Converted) -> None:
    assert converted.conversion.facts["calibration"] == {"rows": 48, "tool": "nncf"}


def test_dims_stay_open(converted: Converted) -> None:
    (spec,) = converted.conversion.signature.inputs
    assert spec.shape is not None
    assert not isinstance(spec.shape[0], int)


def test_without_a_calibration_nothing_is_quantized(bench: Bench) -> None:
    with pytest.raises(UsageError, match="int8 needs real inputs for calibration"):
        _to_int8(bench, _source(bench.folder), None)


def test_a_model_without_weights_is_refused(bench: Bench) -> None:
    with pytest.raises(ConversionError, match="no product with constant weights"):
        _to_int8(bench, _source(bench.folder, has_weights=False), _calibration())
