"""An OpenVINO model is the reference of an ONNX file, or the candidate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from paritygate.models.source import ModelRef, SourceKind
from paritygate.validate.divergence.locate import locate_in
from paritygate.validate.divergence.result import EQUAL, LOCATED, Divergence
from paritygate.validate.tensors.opening import open_graphs

pytestmark = pytest.mark.openvino

_TEXT = """<ir_version: 9, opset_import: ["": 17]> net (float[n,4] x) => (float[n,4] y, float[n,4] z)
<float[4,4] w, float[4] b = {0.5, -2, 1.5, 3}> {
  a = MatMul(x, w) c = Add(a, b) d = OPERATOR(c)
  e = Mul(d, b) f = Softmax<axis = 1>(e) y = Sub(f, x) z = Identity(d) }"""
_FEEDS = [{"x": np.random.default_rng(at).normal(size=(3, 4)).astype(np.float32)} for at in range(3)]


def _model(operator: str) -> onnx.ModelProto:
    model = onnx.parser.parse_model(_TEXT.replace("OPERATOR", operator).replace("<float[4,4] w, ", "<"))
    weight = np.random.default_rng(7).normal(size=(4, 4)).astype(np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    return model


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> ModelRef:
    """Return the model as OpenVINO has it."""
    import openvino

    folder = tmp_path_factory.mktemp("openvino")
    onnx.save(_model("Sigmoid"), folder / "source.onnx")
    openvino.save_model(openvino.convert_model(folder / "source.onnx"), folder / "model.xml", compress_to_fp16=False)
    return ModelRef(text="model.xml", folder=folder, kind=SourceKind.OPENVINO)


def _file(operator: str, folder: Path) -> ModelRef:
    onnx.save(_model(operator), folder / "file.onnx")
    return ModelRef(text="file.onnx", folder=folder, kind=SourceKind.ONNX)


def _located(reference: ModelRef, candidate: ModelRef) -> Divergence:
    return locate_in(*open_graphs(reference, candidate, _FEEDS), _FEEDS)


def _operators(found: Divergence) -> list[tuple[Any, ...]]:
    return [(place.op_types, place.reference_op_types, place.proven) for place in found.located]


def test_a_right_file_is_equal_on_either_side(network: ModelRef, tmp_path: Path) -> None:
    file = _file("Sigmoid", tmp_path)

    assert [_located(network, file).outcome, _located(file, network).outcome] == [EQUAL, EQUAL]


def test_the_operator_that_differs_is_named_and_proven_on_either_side(network: ModelRef, tmp_path: Path) -> None:
    file = _file("Tanh", tmp_path)

    found, turned = _located(network, file), _located(file, network)

    assert (found.outcome, turned.outcome) == (LOCATED, LOCATED)
    assert _operators(found) == [(("Tanh",), ("Sigmoid",), True)]
    assert _operators(turned) == [(("Sigmoid",), ("Tanh",), True)]


def test_a_layer_that_is_written_otherwise_is_no_reason_but_its_epsilon_is(tmp_path: Path) -> None:
    import openvino

    text = """<ir_version: 9, opset_import: ["": 17]> net (float[n,4] x) => (float[n,4] y)
    <float[4] w = {0.5, -2, 1.5, 3}, float[4] b = {1, 0, 2, -1}> {
      a = Sigmoid(x) c = LayerNormalization<epsilon = EPSILON>(a, w, b) y = Tanh(c) }"""
    for name, epsilon in (("source", "1e-5"), ("file", "1e-2")):
        onnx.save(onnx.parser.parse_model(text.replace("EPSILON", epsilon)), tmp_path / f"{name}.onnx")
    openvino.save_model(
        openvino.convert_model(tmp_path / "source.onnx"), tmp_path / "model.xml", compress_to_fp16=False
    )
    reference = ModelRef(text="model.xml", folder=tmp_path, kind=SourceKind.OPENVINO)

    found = _located(reference, ModelRef(text="file.onnx", folder=tmp_path, kind=SourceKind.ONNX))

    (place,) = found.located
    assert (place.op_types, place.proven) == (("LayerNormalization",), True)
    assert [(each.key, each.values["name"]) for each in place.words] == [("divergence.attribute", "epsilon")]
