"""TFLite models of Keras nets: run from a spec, and compared with the SavedModel they were made from."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from paritygate.models.tensorflow.importing import import_tensorflow

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from tests.pipelines.conftest import Bench, Called, Desk

pytestmark = [pytest.mark.tensorflow, pytest.mark.litert]

_NET = """
import keras


def model():
    keras.utils.set_random_seed(0)
    image = keras.Input((12, 12, 3), name="image")
    hidden = keras.layers.Conv2D(8, 3, padding="same", use_bias=False)(image)
    hidden = keras.layers.ReLU()(keras.layers.BatchNormalization()(hidden))
    hidden = keras.layers.MaxPooling2D()(keras.layers.DepthwiseConv2D(3, padding="same")(hidden))
    hidden = keras.layers.GlobalAveragePooling2D()(keras.layers.Conv2D(16, 3, activation="gelu")(hidden))
    return keras.Model({"image": image}, {"logits": keras.layers.Dense(4)(hidden)})
"""
_TARGETS = ["tflite-fp32", "tflite-fp16"]


@pytest.fixture(scope="module")
def conv(tmp_path_factory: pytest.TempPathFactory, finished: Desk) -> tuple[Desk, Called]:
    """Return the desk and the run of a small convolutional net on images in NHWC."""
    desk = type(finished)(folder=tmp_path_factory.mktemp("conv"))
    desk.module("net", _NET)
    images = np.random.default_rng(0).standard_normal((120, 12, 12, 3)).astype(np.float32)
    np.savez(desk.folder / "inputs.npz", image=images)
    model = {"name": "tiny", "source": "net:model", "dims": {"batch": {"min": 1, "opt": 16, "max": 32}}}
    model["inputs"] = {"image": {"dtype": "float32", "shape": ["batch", 12, 12, 3]}}
    model["outputs"] = {"logits": {"dtype": "float32", "shape": ["batch", 4]}}
    desk.spec(model=model, targets=_TARGETS)
    return desk, desk.json("run", "--verbose", "spec.yaml")


@pytest.mark.slow
@pytest.mark.thorough
def test_every_variant_of_a_conv_net_passes_and_says_what_ran(conv: tuple[Desk, Called]) -> None:
    desk, called = conv

    assert called.code == 0, str(called)
    variants = called.data["runs"][0]["variants"]
    assert {name: variants[name]["verdict"] for name in _TARGETS} == dict.fromkeys(_TARGETS, "pass")
    assert [variants[name]["candidate"]["runtime"] for name in _TARGETS] == ["litert", "litert"]
    assert [variants[name]["candidate"]["precision_found"] for name in _TARGETS] == ["fp32", "fp16"]
    differences = {name: variants[name]["outputs"]["logits"]["max_abs_diff"] for name in _TARGETS}
    assert differences["tflite-fp32"] < 1e-5 < differences["tflite-fp16"] < 1e-2
    assert any("compute in float32" in note for note in variants["tflite-fp16"]["candidate"]["notes"])
    record = json.loads((desk.run_folder / "tflite-fp16/artifact.json").read_text(encoding="utf-8"))
    assert record["made_by"]["base"]["variant"] == "savedmodel-fp32"
    assert record["signature"]["inputs"][0]["shape"] == ["batch", 12, 12, 3]
    sizes = [(desk.run_folder / name / "model.tflite").stat().st_size for name in _TARGETS]
    assert sizes[1] < sizes[0]


_WEIGHTS = np.random.default_rng(7).standard_normal((4, 8)).astype(np.float32)


def _save(
    path: Path,
    function: Callable[[Any, Any, Any], Mapping[str, Any]],
    *,
    weights: NDArray[np.float32] = _WEIGHTS,
    dtype: str = "float32",
) -> str:
    tf = import_tensorflow()
    module = tf.Module()
    module.weights = tf.Variable(weights)
    module.serve = tf.function(
        lambda x: function(tf, module.weights, x),
        input_signature=[tf.TensorSpec((None, 4), tf.as_dtype(dtype), name="x")],
    )
    tf.saved_model.save(module, str(path), signatures={"serving_default": module.serve})
    return str(path)


def _tflite(saved: str) -> str:
    converter = import_tensorflow().lite.TFLiteConverter.from_saved_model(saved, signature_keys=["serving_default"])
    path = Path(f"{saved}.tflite")
    path.write_bytes(converter.convert())
    return str(path)


def _two(tf: Any, weights: Any, x: Any) -> dict[str, Any]:  # noqa: ANN401 - TensorFlow ships no types
    logits = tf.matmul(tf.nn.relu(x), weights)
    return {"logits": logits, "scores": tf.nn.softmax(logits)}


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Return a SavedModel with two outputs of one shape, and the TFLite model made from it."""
    saved = _save(tmp_path_factory.mktemp("pair") / "model", _two)
    return saved, _tflite(saved)


def test_a_tflite_model_is_compared_with_its_savedmodel(bench: Bench, pair: tuple[str, str]) -> None:
    outcome = bench.compare(*pair, "--samples", bench.samples(), "--decision", "logits:argmax")

    assert outcome.code == 0, outcome.err
    candidate = outcome.result["candidate"]
    assert (candidate["runtime"], candidate["device"], candidate["precision_found"]) == ("litert", "cpu", "fp32")
    assert candidate["optimisation"].startswith("xnnpack, ")
    assert outcome.status("contract") == "pass"


@pytest.mark.children
@pytest.mark.slow
def test_a_model_that_refuses_a_single_row_as_its_first_call_is_found(isolated_bench: Bench) -> None:
    # The converter keeps the shape behind a look-up of text as it was: LiteRT refuses one row, but not after more.
    keras = import_tensorflow().keras
    keras.utils.set_random_seed(0)
    word, size = keras.Input((1,), dtype="string", name="word"), keras.Input((2,), name="size")
    places = keras.layers.Embedding(9, 4)(keras.layers.StringLookup(vocabulary=["a", "b", "c"])(word))
    both = keras.layers.Concatenate()([keras.layers.Flatten()(places), size])
    saved = str(isolated_bench.folder / "saved")
    keras.Model([word, size], keras.layers.Dense(1, name="score")(both)).export(saved)
    random = np.random.default_rng(0)
    samples = isolated_bench.folder / "words.npz"
    np.savez(samples, word=random.choice(["a", "b", "c"], (60, 1)), size=random.random((60, 2), np.float32))

    outcome = isolated_bench.compare(saved, _tflite(saved), "--samples", str(samples), "--probes", "batches,fresh")

    assert (outcome.code, outcome.failed) == (1, {"probe_fresh"}), outcome.err
    detail = outcome.check("probe_fresh")["detail"]
    assert "num_input_elements" in detail
    assert "in the first call in a new process" in detail


def test_one_changed_weight_fails(bench: Bench, pair: tuple[str, str]) -> None:
    weights = _WEIGHTS.copy()
    weights[2, 1] += 0.01
    other = _save(bench.folder / "other", _two, weights=weights)

    outcome = bench.compare(other, pair[1], "--samples", bench.samples())

    assert outcome.code == 1, outcome.err
    assert "max_abs_diff" in outcome.failed


def test_swapped_outputs_fail(bench: Bench, pair: tuple[str, str]) -> None:
    def swapped(tf: Any, weights: Any, x: Any) -> dict[str, Any]:  # noqa: ANN401 - TensorFlow ships no types
        found = _two(tf, weights, x)
        return {"logits": found["scores"], "scores": found["logits"]}

    candidate = _tflite(_save(bench.folder / "swapped", swapped))

    outcome = bench.compare(pair[0], candidate, "--samples", bench.samples())

    assert outcome.code == 1, outcome.err
    assert {outcome.status("max_abs_diff", name) for name in ("logits", "scores")} == {"fail"}


def test_ids_beyond_float32_are_exact_and_through_float32_they_fail(bench: Bench) -> None:
    def exact(tf: Any, weights: Any, x: Any) -> dict[str, Any]:  # noqa: ANN401 - TensorFlow ships no types
        return {"next": x + 1, "row": tf.gather(weights, tf.math.floormod(x, 4))}

    def rounded(tf: Any, weights: Any, x: Any) -> dict[str, Any]:  # noqa: ANN401 - TensorFlow ships no types
        return exact(tf, weights, tf.cast(tf.cast(x, tf.float32), tf.int64))

    ids = 2**24 + np.random.default_rng(0).integers(0, 2**40, (32, 4))
    samples = bench.npz("ids.npz", {"x": ids})
    saved = _save(bench.folder / "exact", exact, dtype="int64")
    through_float = _tflite(_save(bench.folder / "rounded", rounded, dtype="int64"))

    assert bench.compare(saved, _tflite(saved), "--samples", samples).code == 0
    outcome = bench.compare(saved, through_float, "--samples", samples)
    assert outcome.code == 1, outcome.err
