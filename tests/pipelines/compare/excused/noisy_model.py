"""A model whose outputs for some values depend on the number of rows in the batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import helper

if TYPE_CHECKING:
    from tests.pipelines.conftest import Bench


def noisy_model(bench: Bench, name: str, *, noise: float, is_always: bool = False) -> str:
    """Write x, and a bit more where x is above 0.9: always, or in batches of an odd number of rows."""
    nodes = [
        helper.make_node("Shape", ["x"], ["rows"], end=1),
        helper.make_node("Mod", ["rows", "two"], ["odd"]),
        helper.make_node("Cast", ["one" if is_always else "odd"], ["some"], to=1),
        helper.make_node("Greater", ["x", "high"], ["is_high"]),
        helper.make_node("Cast", ["is_high"], ["high_ones"], to=1),
        helper.make_node("Mul", ["high_ones", "noise"], ["of_high"]),
        helper.make_node("Mul", ["of_high", "some"], ["more"]),
        helper.make_node("Add", ["x", "more"], ["y"]),
    ]
    weights: dict[str, Any] = {
        "two": np.array([2]),
        "one": np.array([1]),
        "high": np.float32(0.9),
        "noise": np.float32(noise),
    }
    return bench.model(
        name,
        nodes,
        inputs={"x": ("float", ["batch", 3])},
        outputs={"y": ("float", ["batch", 3])},
        weights={key: np.asarray(value) for key, value in weights.items()},
    )
