"""Keras models are timed as graphs, which is how they are served; where that cannot be, it is said."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from paritygate.errors import BackendError
from paritygate.models.loading import LoadedModel
from paritygate.models.source import ModelRef, SourceKind
from paritygate.pipelines.benchmark.calls import COMPILED, EAGER, open_to_time
from paritygate.pipelines.benchmark.result import SOURCE
from paritygate.signature import Signature, TensorSpec
from paritygate.validate.runners.opening import open_model

_KERAS = """
import keras


def model():
    keras.utils.set_random_seed(0)
    x = keras.Input((4,), name="x")
    return keras.Model({"x": x}, {"logits": keras.layers.Dense(3, name="dense")(x)})


class Asking(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(3)

    def call(self, x):
        # What only an eager tensor has.
        return {"logits": self.dense(x) * (1.0 if x.numpy().sum() > 0 else 2.0)}


def asking():
    return Asking()
"""


@pytest.fixture
def keras_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModelRef]:
    """Return a function that names a Keras model of the module above."""
    (tmp_path / "keras_that.py").write_text(_KERAS)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "keras_that", raising=False)
    signature = Signature(
        inputs=(TensorSpec(name="x", dtype="float32", shape=("batch", 4)),),
        outputs=(TensorSpec(name="logits", dtype="float32", shape=("batch", 3)),),
    )
    return lambda name: ModelRef(
        text=f"keras_that:{name}", folder=tmp_path, kind=SourceKind.CALLABLE, name=SOURCE, signature=signature
    )


@pytest.mark.tensorflow
def test_keras_is_timed_as_a_graph_that_answers_the_same(keras_model: Callable[[str], ModelRef]) -> None:
    model = keras_model("model")
    eager = open_model(model, "cpu")

    graph, notes = open_to_time(model, "cpu")

    assert notes == (COMPILED,)
    assert graph.facts.optimisation == "graph"
    for rows in (1, 5):
        inputs = {"x": np.random.default_rng(rows).standard_normal((rows, 4)).astype(np.float32)}
        actual, expected = (runner.run(inputs)["logits"].astype(np.float64) for runner in (graph, eager))
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)
    with pytest.raises(BackendError, match=r"x: float32\[1, 7\]"):
        graph.run({"x": np.zeros((1, 7), dtype=np.float32)})


@pytest.mark.tensorflow
def test_keras_that_cannot_be_a_graph_is_timed_eagerly_and_that_is_said(keras_model: Callable[[str], ModelRef]) -> None:
    weights: list[int] = []

    def look(loaded: LoadedModel) -> None:
        weights.append(len(loaded.model.weights))

    runner, notes = open_to_time(keras_model("asking"), "cpu", look)

    # As it was when the reference was recorded: before a call made its weights.
    assert weights == [0]
    assert notes[0].startswith(f"{EAGER}: ")
    assert runner.run({"x": np.ones((2, 4), dtype=np.float32)})["logits"].shape == (2, 3)
