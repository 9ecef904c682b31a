"""The search keeps few nodes in FP32: on small drawn graphs, no set of two thirds as many would do."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from paritygate.models.onnx.file import signature_of_onnx
from paritygate.pipelines.repair.lowering import LoweredModel, open_fp16
from paritygate.pipelines.repair.search import Nodes, Runs, Trial, search

_WIDE, _ROWS = 4, 16
_AIM, _MOST = 0.9, 60
_Feed = dict[str, NDArray[np.float32]]


class _Drawing:
    """Draws a graph of up to twelve operators, some of which overflow or lose digits in FP16."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def _constant(self, values: Any) -> str:  # noqa: ANN401 - whatever NumPy takes
        self.weights.append(numpy_helper.from_array(np.asarray(values, np.float32), f"c{len(self.weights)}"))
        return self.weights[-1].name

    def _node(self, kind: str, *inputs: str) -> str:
        self.nodes.append(
            helper.make_node(kind, inputs, [f"v{len(self.nodes)}"], name=f"node {len(self.nodes)} {kind}")
        )
        return str(self.nodes[-1].output[0])

    def _step(self, value: str, others: list[str]) -> str:
        kind = int(self.random.integers(7))
        if kind == 0:
            return self._node("MatMul", value, self._constant(self.random.normal(size=(_WIDE, _WIDE)) * 0.5))
        if kind in {1, 2}:
            power = int(self.random.integers(2, 7)) * (1 if kind == 1 else -1)
            return self._node("Mul", value, self._constant(10.0**power))
        if kind == 3:
            large = self._constant(10.0 ** int(self.random.integers(1, 5)))
            return self._node("Sub", self._node("Add", value, large), large)
        if kind == 4:
            return self._node("Add", value, others[int(self.random.integers(len(others)))])
        return self._node("Tanh" if kind == 5 else "Relu", value)

    def model(self) -> onnx.ModelProto:
        values, count = ["x"], int(self.random.integers(4, 12))
        while len(self.nodes) < count:
            values.append(self._step(values[-1], values))
        ends = [
            helper.make_tensor_value_info("x", 1, ["n", _WIDE]),
            helper.make_tensor_value_info(values[-1], 1, ["n", _WIDE]),
        ]
        graph = helper.make_graph(self.nodes, "drawn", ends[:1], ends[1:], self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


class _Drawn:
    """A drawn model with its rows, and how much of a tolerance of half a percent of the spread any choice uses."""

    def __init__(self, seed: int, folder: Path) -> None:
        drawing = _Drawing(seed)
        model = drawing.model()
        onnx.save(model, folder / "model.onnx")
        self.lowered: LoweredModel = open_fp16(folder / "model.onnx", signature_of_onnx(model))
        self.feed: _Feed = {"x": drawing.random.normal(size=(_ROWS, _WIDE)).astype(np.float32)}
        self.expected = self._answer(self.switches)
        self.limit = float(self.expected.std()) * 5e-3

    @property
    def switches(self) -> tuple[str, ...]:
        return self.lowered.model.switches

    def _answer(self, kept: Collection[str]) -> NDArray[np.generic]:
        (answer,) = self.lowered.model.keeping(kept).run(self.feed).values()
        return answer

    def trial(self, kept: Collection[str]) -> Trial:
        answer = self._answer(kept)
        if not np.isfinite(answer).all():
            return Trial(share=float("inf"), failed=("finite",))
        return Trial(share=float(np.abs(answer - self.expected).max()) / self.limit)

    @property
    def is_of_use(self) -> bool:
        """Whether it varies, fails in FP16, and does not need FP32 everywhere."""
        if not np.isfinite(self.expected).all() or self.limit == 0 or self.trial(()).is_within(_AIM):
            return False
        return any(self.trial(set(self.switches) - {name}).is_within(_AIM) for name in self.switches)


def _drawn(seeds: range, folder: Path) -> Iterator[tuple[int, _Drawn]]:
    for seed in seeds:
        drawn = _Drawn(seed, folder)
        if drawn.is_of_use:
            yield seed, drawn


@pytest.mark.parametrize("seeds", [range(20), pytest.param(range(20, 300), marks=pytest.mark.thorough)])
def test_no_much_smaller_set_is_within_the_limits(seeds: range, tmp_path: Path) -> None:
    of_use = 0
    for seed, drawn in _drawn(seeds, tmp_path):
        runs = Runs(drawn.trial, most=_MOST, aim=_AIM)

        choice = search(Nodes(names=drawn.switches), runs)

        of_use += 1
        assert choice.is_within, seed
        assert runs.used <= _MOST
        assert drawn.trial(choice.kept).is_within(_AIM), seed
        sizes = range(int(np.ceil(len(choice.kept) / 1.5)))
        smaller = itertools.chain.from_iterable(itertools.combinations(drawn.switches, size) for size in sizes)
        assert not [names for names in smaller if drawn.trial(names).is_within(_AIM)], seed
    assert of_use > len(seeds) / 4


def test_a_search_without_runs_left_is_no_success() -> None:
    runs = Runs(lambda kept: Trial(share=10.0 - len(kept)), most=3, aim=_AIM)

    choice = search(Nodes(names=[f"node {at}" for at in range(10)]), runs)

    assert (choice.is_within, runs.used) == (False, 3)


def test_a_search_leaves_the_runs_in_reserve() -> None:
    runs = Runs(lambda kept: Trial(share=10.0 - len(kept)), most=8, aim=_AIM, reserve=3)

    search(Nodes(names=[f"node {at}" for at in range(30)]), runs)

    assert runs.used == 5


def test_nothing_is_kept_where_nothing_is_beyond_the_limits() -> None:
    runs = Runs(lambda _: Trial(share=0.5), most=_MOST, aim=_AIM)

    choice = search(Nodes(names=["one", "other"], overflowing=["one"]), runs)

    assert (choice.is_within, choice.kept, runs.used) == (True, frozenset(), 1)


def test_a_failed_check_counts_although_the_differences_are_small() -> None:
    runs = Runs(
        lambda kept: Trial(share=0.1, failed=() if "one" in kept else ("decision_mismatches",)), most=_MOST, aim=_AIM
    )

    choice = search(Nodes(names=["one", "other"]), runs)

    assert (choice.is_within, choice.kept) == (True, frozenset({"one"}))
