"""A second run reuses every job, whatever made the model: frameworks read and start much that counts nothing."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.pipelines.conftest import Desk

pytestmark = [
    pytest.mark.children,
    pytest.mark.skipif(os.uname().sysname != "Linux", reason="only Linux tells what a process reads"),
]

_LOGITS = {"name": "tiny", "rename": {"output_0": "logits"}}
_NETWORK = """
    import torch

    def model():
        torch.manual_seed(0)
        return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3)).eval()
"""


_BERT = """
    import torch
    from transformers import BertConfig, BertForSequenceClassification

    def model():
        torch.manual_seed(0)
        config = BertConfig(
            vocab_size=64, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
            max_position_embeddings=32, num_labels=3,
        )
        return BertForSequenceClassification(config).eval()
"""


def _of_onnx(desk: Desk) -> None:
    desk.onnx()
    desk.spec(targets=["onnx-fp32", "onnx-fp16"])


def _of_scikit_learn(desk: Desk) -> None:
    from skl2onnx import to_onnx
    from skl2onnx.common.data_types import FloatTensorType
    from sklearn.linear_model import LogisticRegression

    rows = np.random.default_rng(1).standard_normal((200, 4)).astype(np.float32)
    fitted = LogisticRegression().fit(rows, rows.argmax(axis=1) % 3)
    given = [("x", FloatTensorType([None, 4]))]
    made = to_onnx(fitted, initial_types=given, options={"zipmap": False}, target_opset=17)
    (desk.folder / "model.onnx").write_bytes(made.SerializeToString())
    desk.spec(model={"name": "tiny", "source": "model.onnx", "rename": {"probabilities": "logits"}})


def _of_openvino_int8(desk: Desk) -> None:
    desk.onnx()
    # Few rows that are unlike the others would fail.
    np.savez(desk.folder / "inputs.npz", x=np.random.default_rng(0).uniform(-1, 1, (200, 4)).astype(np.float32))
    desk.spec(targets=["openvino-int8"], tolerance={"openvino-int8": {"max_abs_diff": 1.0, "decision_mismatches": 30}})


def _of_torch(desk: Desk) -> None:
    desk.module("network", _NETWORK)
    desk.module_spec("network:model")


def _of_transformers(desk: Desk) -> None:
    ids = np.random.default_rng(0).integers(4, 64, (120, 8))
    np.savez(desk.folder / "inputs.npz", input_ids=ids, attention_mask=np.ones_like(ids))
    desk.module("network", _BERT)
    given = {"dtype": "int64", "shape": ["batch", "sequence"]}
    dims = {"batch": {"min": 1, "opt": 8, "max": 64}, "sequence": {"min": 4, "opt": 8, "max": 32}}
    model = {
        "name": "tiny",
        "source": "network:model",
        "inputs": {"input_ids": given, "attention_mask": given},
        "outputs": {"logits": {"dtype": "float32", "shape": ["batch", 3]}},
        "dims": dims,
    }
    desk.spec(model=model)


def _keras() -> Any:  # noqa: ANN401 - keras.Model
    import keras

    keras.utils.set_random_seed(0)
    given = keras.Input((4,), name="x")
    return keras.Model(given, keras.layers.Dense(3, name="logits")(given))


def _of_keras(desk: Desk) -> None:
    _keras().save(desk.folder / "model.keras")
    desk.spec(model={"name": "tiny", "source": "model.keras"})


def _of_savedmodel(desk: Desk) -> None:
    _keras().export(desk.folder / "model", verbose=False)
    desk.spec(model={**_LOGITS, "source": "model"})


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(_of_onnx, id="ONNX"),
        pytest.param(_of_scikit_learn, id="scikit-learn", marks=pytest.mark.thorough),
        pytest.param(_of_torch, id="PyTorch", marks=[pytest.mark.torch, pytest.mark.thorough]),
        pytest.param(_of_transformers, id="transformers", marks=[pytest.mark.torch, pytest.mark.thorough]),
        pytest.param(_of_keras, id="Keras", marks=[pytest.mark.tensorflow, pytest.mark.thorough]),
        pytest.param(_of_savedmodel, id="SavedModel", marks=[pytest.mark.tensorflow, pytest.mark.thorough]),
        pytest.param(
            _of_openvino_int8,
            id="OpenVINO INT8",
            marks=[pytest.mark.openvino, pytest.mark.nncf, pytest.mark.thorough],
        ),
    ],
)
def test_a_second_run_reuses_every_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Desk], None]
) -> None:
    monkeypatch.delenv("PARITYGATE_CACHE", raising=False)
    desk = Desk(folder=tmp_path)
    desk.samples()
    make(desk)
    _run_and_reuse(desk)


@pytest.mark.torch
@pytest.mark.thorough
def test_the_run_after_an_edit_is_reused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PARITYGATE_CACHE", raising=False)
    desk = Desk(folder=tmp_path)
    desk.samples()
    _of_torch(desk)
    assert desk.json("run", "spec.yaml").code == 0

    desk.module("network", f"{_NETWORK}\n    # A comment.\n")

    _run_and_reuse(desk)


def _run_and_reuse(desk: Desk) -> None:
    """Do all jobs of a run, and reuse all of them twice."""
    first = desk.json("run", "spec.yaml")
    assert first.code == 0, str(first)
    (made,) = first.data["runs"]
    assert [(job["job"], job["taken_from"], job["not_kept"]) for job in made["jobs"]] == [
        (job["job"], "", "") for job in made["jobs"]
    ]

    # Each job is looked at by itself; without `--verbose`, the run is known as a whole.
    for words in (("--verbose",), ()):
        (again,) = desk.json("run", "spec.yaml", *words).data["runs"]
        assert [(job["job"], job["taken_from"]) for job in again["jobs"]] == [
            (job["job"], Path(made["run"]).name) for job in made["jobs"]
        ]
