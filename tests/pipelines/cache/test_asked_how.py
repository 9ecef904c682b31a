"""How often a model is asked belongs to what is asked: answers that were kept do not stand for more of them."""

from __future__ import annotations

import os
from pathlib import Path

import onnx
import pytest
from tests.pipelines.conftest import Desk

pytestmark = [
    pytest.mark.children,
    pytest.mark.skipif(os.uname().sysname != "Linux", reason="only Linux tells what a process reads"),
]

_WITHIN = 1e-6


def _draw_answers(path: Path) -> None:
    """Add to each answer of a model what is drawn anew every time, far within the limits."""
    model = onnx.load(path)
    graph = model.graph
    graph.node[0].output[0] = "exact"
    graph.node.extend(
        [
            onnx.helper.make_node("RandomUniformLike", ["exact"], ["drawn"], low=-_WITHIN, high=_WITHIN),
            onnx.helper.make_node("Add", ["exact", "drawn"], ["output_0"]),
        ]
    )
    onnx.save(model, path)


def _spec(desk: Desk, repeat: int) -> None:
    desk.spec(
        repeat=repeat,
        probes=[],
        reason="drawn",
        tolerance={"onnx-fp32": {"max_abs_diff": 1e-3, "repeat_max_abs_diff": 0}},
    )


def test_more_passes_are_asked_and_not_looked_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PARITYGATE_CACHE", raising=False)
    desk = Desk(folder=tmp_path)
    desk.onnx()
    _draw_answers(tmp_path / "model.onnx")
    desk.samples()
    _spec(desk, 1)
    assert desk.json("run", "spec.yaml", "--no-promote").code == 0

    _spec(desk, 4)
    again = desk.json("run", "spec.yaml", "--no-promote")

    (compared,) = (job for job in again.data["runs"][0]["jobs"] if "comparison of" in job["job"])
    assert (compared["taken_from"], compared["is_judged_anew"]) == ("", False)
    assert again.code == 1
