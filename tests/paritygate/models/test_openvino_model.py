"""OpenVINO models on disk: which files belong to one, what their digest covers, where weights are found."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from paritygate.models.digest import digest_of_model
from paritygate.models.openvino.model import (
    import_openvino,
    openvino_files,
    openvino_reason,
    precision_of_openvino,
    settings_file,
)
from paritygate.models.openvino.settings import read_settings, write_settings
from paritygate.models.source import parse_source
from paritygate.precision import Precision


def _digest(path: Path) -> str | None:
    return digest_of_model(parse_source(path.name, path.parent))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Return a model by its three files; their content does not matter to what is tested with it."""
    path = tmp_path / "m.xml"
    path.write_text("<net/>")
    path.with_suffix(".bin").write_bytes(b"weights")
    write_settings(path, Precision.BF16)
    return path


def test_the_files_of_a_model_are_graph_weights_and_settings(model: Path) -> None:
    names = {what: path.name for what, path in openvino_files(model).items()}
    assert names == {"model": "m.xml", "weights": "m.bin", "settings": "m.config.json"}
    model.with_suffix(".bin").unlink()
    assert set(openvino_files(model)) == {"model", "settings"}


@pytest.mark.parametrize("file", ["m.xml", "m.bin", "m.config.json"])
def test_the_digest_covers_every_file_of_the_model(model: Path, file: str) -> None:
    before = _digest(model)
    (model.parent / file).write_bytes((model.parent / file).read_bytes() + b" ")
    assert _digest(model) != before


def test_the_same_model_with_other_settings_is_another_one(model: Path) -> None:
    with_bf16 = _digest(model)
    write_settings(model, Precision.FP32)
    with_f32 = _digest(model)
    settings_file(model).unlink()
    assert len({with_bf16, with_f32, _digest(model)}) == 3


def test_a_copy_under_another_name_has_the_same_digest(model: Path) -> None:
    for path in openvino_files(model).values():
        (path.parent / path.name.replace("m.", "copy.")).write_bytes(path.read_bytes())
    assert _digest(model.with_name("copy.xml")) == _digest(model)


@pytest.mark.parametrize(
    ("precision", "hint"),
    [(Precision.FP32, "f32"), (Precision.BF16, "bf16"), (Precision.FP16, "f16"), (Precision.INT8, "f32")],
)
def test_settings_are_read_as_they_were_written(model: Path, precision: Precision, hint: str) -> None:
    write_settings(model, precision)
    assert read_settings(model) == {"INFERENCE_PRECISION_HINT": hint}


def test_settings_without_a_precision_are_those_of_f32(model: Path) -> None:
    settings_file(model).write_text('{"CPU": {"NUM_STREAMS": 2}}')
    assert read_settings(model) == {"INFERENCE_PRECISION_HINT": "f32", "NUM_STREAMS": 2}


def test_the_reason_of_an_error_is_without_the_places_in_openvino_s_code() -> None:
    text = (
        "Exception from src/inference/src/cpp/core.cpp:84:\n"
        "Check 'is_valid(a, 'b')' failed at src/core/xml.cpp:900:\nWhile validating node 'opset1::Add x (y)':\n"
        "Incorrect weights\nin bin file!\n\n"
    )
    assert openvino_reason(RuntimeError(text)) == "Incorrect weights in bin file!"
    assert openvino_reason(RuntimeError("Summary:")) == "Summary:"
    assert openvino_reason(RuntimeError("")) == "RuntimeError"
    assert len(openvino_reason("long " * 100)) < 310


@pytest.mark.openvino
def test_weights_inside_an_if_are_weights(tmp_path: Path) -> None:
    text = """
    < ir_version: 8, opset_import: ["" : 17] >
    choice (float[N, 4] x, bool c) => (float[N, 4] y) {
        y = If (c) <
            then_branch = yes () => (float[N, 4] a) { a = MatMul (x, w) },
            else_branch = no () => (float[N, 4] b) { b = Neg (x) }
        >
    }
    """
    parsed = onnx.parser.parse_model(text)
    weights = np.random.default_rng(0).standard_normal((4, 4)).astype(np.float16).astype(np.float32)
    branch = next(attribute.g for attribute in parsed.graph.node[0].attribute if attribute.name == "then_branch")
    branch.initializer.append(numpy_helper.from_array(weights, "w"))
    onnx.save(parsed, str(tmp_path / "m.onnx"))
    found = import_openvino().Core().read_model(str(tmp_path / "m.onnx"))
    assert precision_of_openvino(found) is Precision.FP16
