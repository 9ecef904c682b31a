"""A model that overflows in FP16, with rows, and specs about it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from tests.pipelines.conftest import Desk

_WIDE = 8


def loud_model() -> onnx.ModelProto:
    """Return two layers, between which values of about 1e6 are made and taken back."""
    random = np.random.default_rng(3)
    weights = {
        "first": random.normal(size=(_WIDE, 96)) * 0.4,
        "second": random.normal(size=(96, 96)) * 0.1,
        "third": random.normal(size=(96, 3)) * 0.2,
        "large": np.float32(1e6),
        "small": np.float32(1e-6),
    }
    nodes = [
        helper.make_node("MatMul", ["x", "first"], ["a"], name="first product"),
        helper.make_node("Mul", ["a", "large"], ["b"], name="grow"),
        helper.make_node("Relu", ["b"], ["c"], name="cut"),
        helper.make_node("Mul", ["c", "small"], ["d"], name="shrink"),
        helper.make_node("MatMul", ["d", "second"], ["e"], name="second product"),
        helper.make_node("Tanh", ["e"], ["f"], name="squash"),
        helper.make_node("MatMul", ["f", "third"], ["output_0"], name="third product"),
    ]
    graph = helper.make_graph(
        nodes,
        "loud",
        [helper.make_tensor_value_info("x", 1, ["batch", _WIDE])],
        [helper.make_tensor_value_info("output_0", 1, ["batch", 3])],
        [numpy_helper.from_array(np.asarray(values, np.float32), name) for name, values in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def loud_desk(folder: Path, **parts: object) -> Desk:
    """Return a desk with the loud model, 240 rows and a spec."""
    desk = Desk(folder=folder)
    onnx.save(loud_model(), folder / "model.onnx")
    np.savez(folder / "inputs.npz", x=np.random.default_rng(4).normal(size=(240, _WIDE)).astype(np.float32))
    desk.spec(**parts)
    return desk


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """Return a desk whose FP16 variant overflows."""
    return loud_desk(tmp_path, targets=["onnx-fp32", "onnx-fp16"], required=["onnx-fp32"])
