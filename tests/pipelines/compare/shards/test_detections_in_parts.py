"""Detections and repeated passes in any number of parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from onnx import helper
from tests.pipelines.compare.shards.parts import assert_one_verdict, compared_in_parts

if TYPE_CHECKING:
    from tests.pipelines.conftest import Bench, Desk

_PLACES = 6
_OPTIONS = ("--samples", "pictures.npz", "--batch-size", "4", "--probes", "none", "--min-rows", "1")
_MATCH = ("--match", "found:boxes=boxes,scores=scores,classes=labels")


def _detector(bench: Bench, name: str, *, above: float, random: bool = False) -> None:
    """Write a detector whose scores are as they come in; above a number, they lose a tenth, always or at random."""
    node = helper.make_node
    draw = [node("RandomUniformLike", ["scores_in"], ["drawn"], dtype=1)] if random else []
    nodes = [
        node("Split", ["x", "sizes"], ["boxes_in", "scores_in", "labels_in"], axis=2),
        *draw,
        node("Greater", ["drawn" if random else "scores_in", "above"], ["is_lost"]),
        node("Cast", ["is_lost"], ["lost"], to=1),
        node("Mul", ["lost", "tenth"], ["less"]),
        node("Sub", ["scores_in", "less"], ["kept"]),
        node("Squeeze", ["kept", "last"], ["scores"]),
        node("Squeeze", ["labels_in", "last"], ["flat"]),
        node("Cast", ["flat"], ["labels"], to=7),
        node("Identity", ["boxes_in"], ["boxes"]),
    ]
    weights: dict[str, Any] = {
        "sizes": np.array([4, 1, 1]),
        "last": np.array([2]),
        "above": np.float32(above),
        "tenth": np.float32(0.1),
    }
    bench.model(
        name,
        nodes,
        inputs={"x": ("float", ["batch", _PLACES, 6])},
        outputs={
            "boxes": ("float", ["batch", _PLACES, 4]),
            "scores": ("float", ["batch", _PLACES]),
            "labels": ("int64", ["batch", _PLACES]),
        },
        weights={key: np.asarray(value) for key, value in weights.items()},
    )


@pytest.fixture
def pictures(desk: Desk, bench: Bench) -> Desk:
    """Return a desk with a recorded detector and 26 pictures."""
    random = np.random.default_rng(0)
    corner = random.uniform(0, 80, (26, _PLACES, 2))
    sides = [corner, corner + random.uniform(8, 15, corner.shape), random.uniform(0.3, 0.95, (26, _PLACES, 1))]
    x = np.concatenate([*sides, random.integers(0, 3, (26, _PLACES, 1))], axis=2)
    np.savez(desk.folder / "pictures.npz", x=x.astype(np.float32))
    _detector(bench, "a", above=2)
    called = desk.call("record", "a.onnx", *_OPTIONS[:4], "--out", "reference")
    assert called.code == 0, called
    return desk


@pytest.mark.parametrize(("above", "code"), [(3.0, 0), (0.9, 1)])
def test_detections_have_one_verdict(pictures: Desk, bench: Bench, above: float, code: int) -> None:
    _detector(bench, "b", above=above)

    found = compared_in_parts(pictures, (1, 3, 7), "b.onnx", *_OPTIONS, *_MATCH, "--repeat", "2")

    assert_one_verdict(found, code)
    assert [found[of].data[name] for of in (0, 3) for name in ("passes", "rows")] == [2, 26] * 2
    assert found[3].data["matches"] == found[0].data["matches"]


def test_outputs_that_change_from_pass_to_pass_fail(pictures: Desk, bench: Bench) -> None:
    _detector(bench, "b", above=0.5, random=True)

    found = compared_in_parts(pictures, (3,), "b.onnx", *_OPTIONS, "--repeat", "2")

    for called in found.values():
        failed = {check["name"] for check in called.data["checks"] if check["status"] == "fail"}
        assert (called.code, "repeat_max_abs_diff" in failed) == (1, True)
    assert found[3].data["passes"] == 2
