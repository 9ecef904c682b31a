"""Diagnosis keeps no more bytes of inner tensors for a larger graph, or for more batches."""

from __future__ import annotations

import weakref
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from paritygate.validate.divergence import forcing
from paritygate.validate.divergence.locate import locate
from paritygate.validate.divergence.result import LOCATED
from paritygate.validate.tensors import inner_values, onnx_values
from paritygate.validate.tensors.inner_values import Feed

_ROWS, _WIDTH = 64, 64
_TENSOR = 4 * _ROWS * _WIDTH
_BUDGET = 12 * _TENSOR


class _Alive:
    """Counts the bytes of all arrays that ONNX Runtime has returned and nobody has dropped."""

    def __init__(self) -> None:
        self.now = self.most = 0

    def add(self, array: np.ndarray[Any, Any]) -> None:
        """Count an array until it goes."""
        self.now += array.nbytes
        self.most = max(self.most, self.now)
        weakref.finalize(array, self._drop, array.nbytes)

    def _drop(self, size: int) -> None:
        self.now -= size


@pytest.fixture
def alive(monkeypatch: pytest.MonkeyPatch) -> _Alive:
    """Count the arrays of all runs, with parts and caches small enough for small models to fill them."""
    alive, run = _Alive(), onnx_values._run

    def counted(*arguments: Any) -> list[Any]:  # noqa: ANN401 - those of the function
        answers = run(*arguments)
        for answer in answers:
            alive.add(answer)
        return answers

    monkeypatch.setattr(onnx_values, "_run", counted)
    monkeypatch.setattr(inner_values, "_FIRST", 4)
    monkeypatch.setattr(inner_values, "_BYTES_AT_ONCE", _BUDGET)
    monkeypatch.setattr(forcing, "_MOST_BYTES", _BUDGET)
    return alive


def _layers(count: int, wrong: int | None) -> onnx.ModelProto:
    random = np.random.default_rng(2)
    weight = numpy_helper.from_array(random.normal(size=(_WIDTH, _WIDTH)).astype(np.float32) / 8, "w")
    nodes = []
    for at in range(count):
        operator = "Softsign" if at == wrong else "Tanh"
        nodes.append(helper.make_node("MatMul", [f"x{at}", "w"], [f"m{at}"], name=f"product{at}"))
        nodes.append(helper.make_node(operator, [f"m{at}"], [f"x{at + 1}"], name=f"bent{at}"))
    inputs, outputs = ([helper.make_tensor_value_info(name, 1, ["n", _WIDTH])] for name in ("x0", f"x{count}"))
    graph = helper.make_graph(nodes, "layers", inputs, outputs, [weight])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _feeds(count: int) -> list[Feed]:
    random = np.random.default_rng(1)
    return [{"x0": random.normal(size=(_ROWS, _WIDTH)).astype(np.float32)} for _ in range(count)]


@pytest.mark.parametrize(("layers", "batches"), [(6, 3), (24, 3), (6, 24)])
def test_bytes_of_inner_tensors_do_not_grow(tmp_path: Path, alive: _Alive, layers: int, batches: int) -> None:
    for name, wrong in (("reference", None), ("candidate", layers // 2)):
        onnx.save(_layers(layers, wrong), tmp_path / f"{name}.onnx")

    found = locate(tmp_path / "reference.onnx", tmp_path / "candidate.onnx", _feeds(batches))

    assert found.outcome == LOCATED
    assert found.located[0].reference_nodes == (f"bent{layers // 2}",)
    # One part being read, and what is kept of the tensors that were tried.
    assert alive.most < 2 * _BUDGET
