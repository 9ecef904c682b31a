"""Small models of pictures in three designs, in which one fault at a time is planted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import helper

from paritygate.validate.causes import naming

if TYPE_CHECKING:
    from onnx import NodeProto
    from tests.pipelines.conftest import Bench, Outcome

Array = NDArray[np.generic]
SIZE = 12
DESIGNS = ("convolutions", "dense", "softmax")


@pytest.fixture(autouse=True)
def _has_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no trial be skipped because the machine is busy."""
    monkeypatch.setattr(naming, "_LEAST_SECONDS", 600.0)


def normal(*shape: int, seed: int = 0) -> NDArray[np.float32]:
    """Return normal values, the same for the same arguments."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def pictures(rows: int = 24, kind: str = "unit", *, seed: int = 5) -> NDArray[np.float32]:
    """Return pictures [N, 3, H, W] whose channels, height and width differ, in one of three ranges of values."""
    drawn = np.random.default_rng(seed).uniform(0, 1, (rows, 3, SIZE, SIZE))
    drawn *= np.array([1.0, 0.7, 0.4]).reshape(1, 3, 1, 1) * np.linspace(0.5, 1, SIZE).reshape(1, 1, SIZE, 1)
    if kind == "bytes":
        drawn = np.rint(drawn * 255)
    if kind == "normal":
        drawn = (drawn - 0.45) / 0.225
    return drawn.astype(np.float32)


def node(op: str, inputs: Sequence[str], output: str, **attributes: Any) -> NodeProto:  # noqa: ANN401 - as ONNX has them
    """Return a node with one output."""
    return helper.make_node(op, list(inputs), [output], **attributes)


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """What is other in one model: nodes before it, which begin at `x` and end at `x1`, and weights of its own."""

    nodes: Sequence[NodeProto] = ()
    weights: Mapping[str, Array] = field(default_factory=dict)
    instead: Mapping[str, Array] = field(default_factory=dict)
    shape: Sequence[int | str] = ("batch", 3, SIZE, SIZE)


NONE = Fault()


def _body(design: str, first: str) -> tuple[list[NodeProto], dict[str, Array]]:
    if design == "dense":
        weights: dict[str, Array] = {
            "a": normal(3 * SIZE * SIZE, 8, seed=1) / np.float32(8),
            "b": normal(8, 5, seed=2),
        }
        nodes = [
            node("Flatten", [first], "flat"),
            node("MatMul", ["flat", "a"], "h"),
            node("Tanh", ["h"], "t"),
            node("MatMul", ["t", "b"], "y"),
        ]
        return nodes, weights
    weights = {"a": normal(6, 3, 3, 3, seed=3), "c": normal(6, seed=4), "b": normal(6 * 2 * 2, 5, seed=6)}
    last = "y" if design == "convolutions" else "logits"
    nodes = [
        node("Conv", [first, "a", "c"], "h"),
        node("Relu", ["h"], "r"),
        node("AveragePool", ["r"], "p", kernel_shape=[5, 5], strides=[5, 5]),
        node("Flatten", ["p"], "flat"),
        node("MatMul", ["flat", "b"], last),
    ]
    if design == "softmax":
        nodes += [node("Mul", ["logits", "small"], "scaled"), node("Softmax", ["scaled"], "y", axis=1)]
        weights["small"] = np.array(0.2, np.float32)
    return nodes, weights


def model(bench: Bench, name: str, design: str, fault: Fault = NONE) -> str:
    """Write a model of a design, with a fault, and return its path."""
    nodes, weights = _body(design, "x1" if fault.nodes else "x")
    return bench.model(
        name,
        [*fault.nodes, *nodes],
        inputs={"x": ("float", fault.shape)},
        outputs={"y": ("float", ["batch", 5])},
        weights={**weights, **fault.weights, **fault.instead},
    )


def compared(
    bench: Bench,
    design: str,
    *,
    reference: Fault = NONE,
    candidate: Fault = NONE,
    kind: str = "unit",
    options: Sequence[str] = (),
) -> Outcome:
    """Compare two models of one design on pictures."""
    samples = bench.npz("pictures.npz", {"x": pictures(kind=kind)})
    sides = (model(bench, name, design, fault) for name, fault in (("a", reference), ("b", candidate)))
    return bench.compare(*sides, "--samples", samples, *options)


def named(outcome: Outcome) -> list[str]:
    """Return the kinds of the causes that are named."""
    return [cause["kind"] for cause in outcome.result["causes"] if cause["outcome"] == "named"]
