"""A run whose samples are pictures: prepared as the spec says, and reported by subfolder."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from onnx import helper

if TYPE_CHECKING:
    from pathlib import Path

    from tests.pipelines.conftest import Desk

Image = pytest.importorskip("PIL.Image", reason="the extra `images` is not installed")

_IMAGES = {"input": "pixels", "size": [8, 8], "shorter": 9, "mean": [0.5], "std": [0.25]}


def _pictures(folder: Path, count: int) -> None:
    chance = np.random.default_rng(0)
    for number in range(count):
        path = folder / ("cat" if number % 2 else "dog") / f"{number:03d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(chance.integers(0, 256, (10, 14, 3)).astype(np.uint8)).save(path)


def _model(path: Path) -> None:
    graph = helper.make_graph(
        [
            helper.make_node("GlobalAveragePool", ["pixels"], ["mean"]),
            helper.make_node("Flatten", ["mean"], ["colours"]),
        ],
        "colours",
        [helper.make_tensor_value_info("pixels", onnx.TensorProto.FLOAT, ["batch", 3, 8, 8])],
        [helper.make_tensor_value_info("colours", onnx.TensorProto.FLOAT, ["batch", 3])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    model.ir_version = 9
    onnx.save(model, str(path))


def test_pictures_are_the_samples_of_a_run(desk: Desk) -> None:
    _model(desk.folder / "model.onnx")
    _pictures(desk.folder / "pictures", 100)
    spec = desk.spec(
        model={"name": "tiny", "source": "model.onnx", "rename": {"colours": "logits"}},
        samples={"source": "pictures", "images": _IMAGES, "strata": ["folder"]},
    )

    called = desk.call("run", "--verbose", spec, "--no-promote")

    assert called.code == 0, str(called)
    result = desk.evidence()["variants"][0]["result"]
    assert result["rows"] == 100
    strata = result["strata"]["folder"]
    assert {value: item["rows"] for value, item in strata.items()} == {"cat": 50, "dog": 50}


def test_a_damaged_picture_ends_the_run_and_is_named(desk: Desk) -> None:
    _model(desk.folder / "model.onnx")
    _pictures(desk.folder / "pictures", 4)
    damaged = desk.folder / "pictures/dog/002.png"
    damaged.write_bytes(damaged.read_bytes()[:100])
    spec = desk.spec(
        model={"name": "tiny", "source": "model.onnx", "rename": {"colours": "logits"}},
        samples={"source": "pictures", "images": _IMAGES},
    )

    called = desk.call("run", "--verbose", spec, "--no-promote")

    assert called.code == 2, str(called)
    assert "the picture of row 'dog/002.png' cannot be read" in called.err
