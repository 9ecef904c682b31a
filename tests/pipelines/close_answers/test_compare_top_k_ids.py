"""Ids of the best scores: near ties may change places, and every other change fails."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from onnx import helper

if TYPE_CHECKING:
    from tests.pipelines.conftest import Bench, Outcome

_K, _CLASSES = 4, 12
_DECLARED = ("--argmax-of", "ids=scores")


def _samples(bench: Bench, *, near: bool) -> str:
    """Write scores that are far from each other; where `near`, not those of the second and third place."""
    random = np.random.default_rng(0)
    rows = []
    for row in range(40):
        scores = np.linspace(6, 0, _CLASSES) * random.uniform(0.8, 1.2)
        if near:
            scores[2] = scores[1] - 1e-6
            # Which of two is the last: that is counted, and allowed once.
            scores[_K] = scores[_K - 1] - 1e-6 if row == 0 else scores[_K]
        rows.append(scores[random.permutation(_CLASSES)])
    return bench.npz("inputs.npz", {"x": np.array(rows, dtype=np.float32)})


def _ranker(bench: Bench, name: str, *, noise: float = 0.0, fault: str = "", shows_all: bool = False) -> str:
    """Write a model that returns the ids of the best scores, and these or all of them."""
    bias = np.random.default_rng(1).uniform(-noise, noise, _CLASSES).astype(np.float32)
    node = helper.make_node
    nodes = [node("Add", ["x", "bias"], ["all"]), node("TopK", ["all", "k"], ["best", "found"], axis=1)]
    nodes.append(node("Identity", ["all" if shows_all else "best"], ["scores"]))
    order = {"swapped": [1, 0, 2, 3], "ends": [3, 1, 2, 0], "doubled": [0, 1, 1, 3]}.get(fault, range(_K))
    nodes.append(node("Gather", ["found", "order"], ["ordered"], axis=1))
    nodes.append(node("Add", ["ordered", "more"], ["ids"]))
    return bench.model(
        name,
        nodes,
        inputs={"x": ("float", ["batch", _CLASSES])},
        outputs={"ids": ("int64", ["batch", _K]), "scores": ("float", ["batch", _CLASSES if shows_all else _K])},
        weights={
            "bias": bias,
            "k": np.array([_K]),
            "order": np.array(order, dtype=np.int64),
            "more": np.array([0, _CLASSES if fault == "unknown" else 0, 0, 0]),
        },
    )


def _compared(bench: Bench, samples: str, *, shows_all: bool, noise: float = 0.0, fault: str = "") -> Outcome:
    reference = _ranker(bench, "ref.onnx", shows_all=shows_all)
    candidate = _ranker(bench, "candidate.onnx", shows_all=shows_all, noise=noise, fault=fault)
    return bench.compare(reference, candidate, "--samples", samples, *_DECLARED)


@pytest.mark.parametrize("shows_all", [False, True])
def test_ids_of_near_ties_may_change_places(bench: Bench, shows_all: bool) -> None:  # noqa: FBT001 - a parameter
    outcome = _compared(bench, _samples(bench, near=True), shows_all=shows_all, noise=1e-5)

    assert outcome.result["verdict"] == "pass"
    # Only the end of the list is another set.
    assert outcome.result["decisions"]["ids"]["mismatches"] <= 1
    assert outcome.result["decisions"]["ids"]["outside_band"] == 0


@pytest.mark.parametrize("shows_all", [False, True])
@pytest.mark.parametrize("fault", ["swapped", "ends", "doubled", "unknown"])
def test_any_other_change_of_ids_fails(bench: Bench, fault: str, shows_all: bool) -> None:  # noqa: FBT001 - a parameter
    outcome = _compared(bench, _samples(bench, near=False), shows_all=shows_all, fault=fault)

    assert outcome.failed == {"decision_mismatches"}
    assert outcome.check("decision_mismatches", "ids")["measured"] > 0


def test_a_list_that_is_not_of_the_best_is_no_such_list(bench: Bench) -> None:
    samples = _samples(bench, near=False)
    reference = _ranker(bench, "ref.onnx", shows_all=True, fault="unknown")

    outcome = bench.compare(reference, _ranker(bench, "b.onnx", shows_all=True), "--samples", samples, *_DECLARED)

    assert outcome.code == 2
