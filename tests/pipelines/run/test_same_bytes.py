"""The same source becomes the same files in every process, so that no new version is released of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.pipelines.conftest import Desk

pytestmark = [pytest.mark.tensorflow, pytest.mark.slow, pytest.mark.thorough]

TARGETS = ["onnx-fp32", "openvino-fp32", "tflite-fp32"]
# All conversions in one process, so that TensorFlow is imported once.
_EXPORT = """
import os
import sys

from tests.pipelines.conftest import jobs_done_here
from paritygate.__main__ import _run

os.chdir(sys.argv[1])
with jobs_done_here():
    sys.exit(_run(["export", "spec.yaml", "--root", sys.argv[2], "--json", f"{sys.argv[2]}.json"]))
"""


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """Return a Keras model with what tf2onnx orders by chance: an einsum, and equal nodes in two directions."""
    from paritygate.models.tensorflow.importing import import_keras

    keras: Any = import_keras()
    keras.utils.set_random_seed(0)
    taken = keras.Input((5,), dtype="int32", name="ids")
    hidden = keras.layers.Embedding(20, 4)(taken)
    hidden = keras.layers.Bidirectional(keras.layers.LSTM(3, return_sequences=True, unroll=True))(hidden)
    hidden = keras.layers.LayerNormalization()(hidden + keras.layers.MultiHeadAttention(2, 2)(hidden, hidden))
    logits = keras.layers.Dense(3, name="logits")(keras.layers.GlobalMaxPooling1D()(hidden))
    keras.Model(taken, logits).save(tmp_path / "model.keras")
    np.savez(tmp_path / "inputs.npz", ids=np.random.default_rng(0).integers(0, 20, (40, 5)).astype(np.int32))
    made = Desk(folder=tmp_path)
    made.spec(model={"name": "tiny", "source": "model.keras"}, targets=TARGETS)
    return made


def _exported(desk: Desk, project_root: Path, root: str, seed: str) -> dict[str, Any]:
    subprocess.run(
        [sys.executable, "-c", _EXPORT, str(desk.folder), root],
        cwd=project_root,
        env={**os.environ, "PYTHONHASHSEED": seed},
        check=True,
        capture_output=True,
    )
    found: dict[str, Any] = json.loads((desk.folder / f"{root}.json").read_text(encoding="utf-8"))["artifacts"]
    return found


@pytest.mark.openvino
@pytest.mark.litert
def test_two_exports_are_the_same_bytes(desk: Desk, project_root: Path) -> None:
    # By another seed, Python orders sets otherwise. What ran before in the process of the tests counts names on.
    first, second = (_exported(desk, project_root, root, seed) for root, seed in (("one", "1"), ("two", "2")))

    assert list(first) == TARGETS
    assert {name: made["files"] for name, made in first.items()} == {
        name: made["files"] for name, made in second.items()
    }
