"""Keras models that take text: what serves them, what cannot, and that each answers as the source does."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest

if TYPE_CHECKING:
    from tests.pipelines.conftest import Desk

pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]

_NET = """
import keras
from keras import layers


def looked_up():
    keras.utils.set_random_seed(0)
    words = keras.Input((2,), name="words", dtype="string")
    ids = layers.StringLookup(vocabulary=["a", "bb", "c c", "é", "한국"])(words)
    return keras.Model(words, layers.Dense(3, name="logits")(layers.Flatten()(layers.Embedding(6, 4)(ids))))


def split():
    keras.utils.set_random_seed(0)
    text = keras.Input((1,), name="text", dtype="string")
    ids = layers.TextVectorization(vocabulary=["the", "cat", "sat"], output_sequence_length=4)(text)
    return keras.Model(text, layers.Dense(3, name="logits")(layers.Flatten()(layers.Embedding(5, 4)(ids))))
"""
_WORDS = ["a", "bb", "c c", "é", "한국", "A", "", "unknown"]


def _samples(desk: Desk, name: str, rows: list[object]) -> dict[str, str]:
    lines = (json.dumps({name: row}, ensure_ascii=False) + "\n" for row in rows)
    (desk.folder / "texts.jsonl").write_text("".join(lines), encoding="utf-8")
    return {"source": "texts.jsonl"}


def _model(source: str, name: str, width: int) -> dict[str, object]:
    return {
        "name": "tiny",
        "source": f"net:{source}",
        "inputs": {name: {"dtype": "string", "shape": ["batch", width]}},
        "outputs": {"logits": {"dtype": "float32", "shape": ["batch", 3]}},
    }


def test_text_that_is_looked_up_is_served_by_onnx_tflite_and_tensorflow(desk: Desk) -> None:
    desk.module("net", _NET)
    words = np.random.default_rng(0).choice(_WORDS, (120, 2)).tolist()
    targets = ["onnx-fp32", "onnx-fp16", "savedmodel-fp32", "tflite-fp32", "openvino-fp32"]
    model = _model("looked_up", "words", 2)
    called = desk.json("run", desk.spec(model=model, samples=_samples(desk, "words", words), targets=targets))
    assert called.code == 0, str(called)
    run = called.data["runs"][0]
    for name in ("onnx-fp32", "onnx-fp16", "savedmodel-fp32", "tflite-fp32"):
        assert run["variants"][name]["verdict"] == "pass", name
    assert run["variants"]["onnx-fp32"]["outputs"]["logits"]["max_abs_diff"] < 1e-6
    failure = run["failures"]["openvino-fp32"]
    assert failure["verdict"] == "not available for this model"
    assert "ai.onnx.ml::LabelEncoder" in failure["message"]


@pytest.mark.thorough
def test_text_that_is_split_is_served_by_tensorflow_alone_and_the_operators_are_named(desk: Desk) -> None:
    desk.module("net", _NET)
    texts = [" ".join(words) for words in np.random.default_rng(0).choice(["The", "cat", "sat!", "é"], (120, 3))]
    targets = ["savedmodel-fp32", "onnx-fp32"]
    model = _model("split", "text", 1)
    called = desk.json("run", desk.spec(model=model, samples=_samples(desk, "text", [*texts]), targets=targets))
    assert called.code == 0, str(called)
    run = called.data["runs"][0]
    assert run["variants"]["savedmodel-fp32"]["verdict"] == "pass"
    failure = run["failures"]["onnx-fp32"]
    assert failure["verdict"] == "not available for this model"
    assert {row[0] for row in failure["operators"]} == {"StringLower", "StaticRegexReplace", "StringSplitV2"}
