"""A SavedModel of several signatures: each format is made from the one that was chosen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from tests.convert.conftest import Bench, Lazy, assert_near

from paritygate.convert.checked import convert_and_check
from paritygate.errors import InputFileError
from paritygate.models.tensorflow.importing import import_tensorflow
from paritygate.models.tensorflow.savedmodel import load_savedmodel

pytestmark = pytest.mark.tensorflow

tf: Any = Lazy(import_tensorflow)
_X = np.float32([[1, 2], [3, -4]])


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a SavedModel that doubles under serving_default, and multiplies by its weights under `score.1`."""
    module = tf.Module()
    module.weights = tf.Variable(np.float32([[1, 5], [2, -1]]))
    spec = tf.TensorSpec((None, 2), tf.float32, name="x.1")
    module.double = tf.function(lambda x: {"y": x * 2}, input_signature=[spec])
    module.score = tf.function(lambda x: {"z": x @ module.weights, "a": x + 1}, input_signature=[spec])
    signatures = {
        "serving_default": module.double.get_concrete_function(),
        "score": module.score.get_concrete_function(),
    }
    path = tmp_path_factory.mktemp("saved") / "model"
    tf.saved_model.save(module, str(path), signatures=signatures)
    return path


def test_onnx_is_made_from_the_signature_that_is_named(bench: Bench, saved: Path) -> None:
    job = bench.job("savedmodel", saved)
    job = replace(job, source=replace(job.source, signature_key="score"))
    conversion = convert_and_check(job, "onnx")
    assert [spec.name for spec in conversion.signature.outputs] == ["a", "z"]


def test_what_is_served_by_default_is_the_signature_that_is_named(bench: Bench, saved: Path) -> None:
    job = bench.job("savedmodel", saved)
    job = replace(job, source=replace(job.source, signature_key="score"))
    conversion = convert_and_check(job, "savedmodel")
    assert [spec.name for spec in conversion.signature.inputs] == ["x.1"]
    found = load_savedmodel(job.folder)({"x.1": _X})
    assert_near(found["z"].numpy(), _X @ np.float32([[1, 5], [2, -1]]))
    assert_near(found["a"].numpy(), _X + 1)
    # TFLite is made of it, and so is of that signature too.
    tflite = bench.job("savedmodel", job.folder)
    tflite = replace(tflite, folder=bench.folder / "tflite")
    assert [spec.name for spec in convert_and_check(tflite, "tflite").signature.outputs] == ["a", "z"]


def test_without_a_name_a_savedmodel_is_copied_as_it_is(bench: Bench, saved: Path) -> None:
    files = bench.convert("savedmodel", saved, to="savedmodel").files
    assert files["saved_model.pb"] == (saved / "saved_model.pb").read_bytes()


@pytest.mark.parametrize("to", ["onnx", "savedmodel"])
def test_a_signature_that_is_not_there_is_said_with_those_that_are(bench: Bench, saved: Path, to: str) -> None:
    job = bench.job("savedmodel", saved)
    job = replace(job, source=replace(job.source, signature_key="rank"))
    with pytest.raises(InputFileError, match=r"no signature 'rank' \(it has: score, serving_default\)"):
        convert_and_check(job, to)
