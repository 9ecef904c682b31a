"""`compare --match`: detectors with NonMaxSuppression, whose detections come in any order and number."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from onnx import helper

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from tests.pipelines.conftest import Bench, Outcome

pytestmark = pytest.mark.usefixtures("asks_probes")

_MATCH = "detections:boxes=found_boxes,scores=found_scores,classes=labels"
_BOXES = 12
_FLOOR = 0.3


def _detector(
    bench: Bench,
    name: str,
    *,
    score_error: float = 0.0,
    box_error: float = 0.0,
    label: int = 0,
    reverse: bool = False,
    blind: bool = False,
) -> str:
    """Write a detector of one picture: 12 boxes and their scores go in, those that NMS keeps come out.

    Args:
        bench: Where to write.
        name: Of the file.
        score_error: Added to every score before NMS.
        box_error: Added to every coordinate after NMS.
        label: Added to the class, which is 0 otherwise.
        reverse: Whether the detections come in reverse order.
        blind: Whether the class is another one where a coordinate is below zero.
    """
    node = helper.make_node
    nodes = [
        node("Add", ["scores", "score_error"], ["moved"]),
        node("NonMaxSuppression", ["boxes", "moved", "most", "iou", "floor"], ["kept"]),
        # Of (picture, class, box) the last one.
        node("Gather", ["kept", "two"], ["index"], axis=1),
        *(
            [node("Slice", ["index", "minus_one", "lowest", "zero", "minus_one"], ["order"])]
            if reverse
            else [node("Identity", ["index"], ["order"])]
        ),
        node("Gather", ["boxes", "order"], ["plain_boxes"], axis=1),
        node("Add", ["plain_boxes", "box_error"], ["found_boxes"]),
        node("Squeeze", ["moved", "one"], ["flat"]),
        node("Gather", ["flat", "order"], ["found_scores"], axis=1),
        node("Cast", ["found_scores"], ["as_integer"], to=7),
        node("Mul", ["as_integer", "zero"], ["zeros"]),
        node("Add", ["zeros", "label"], ["labels" if not blind else "right"]),
    ]
    if blind:
        nodes += [
            node("ReduceMin", ["boxes"], ["lowest_coordinate"], keepdims=0),
            node("Less", ["lowest_coordinate", "floor_of_boxes"], ["is_below"]),
            node("Cast", ["is_below"], ["wrong"], to=7),
            node("Add", ["right", "wrong"], ["labels"]),
        ]
    weights: dict[str, NDArray[np.generic]] = {
        "score_error": np.full(1, score_error, dtype=np.float32),
        "box_error": np.full(1, box_error, dtype=np.float32),
        "most": np.array([100], dtype=np.int64),
        "iou": np.array([0.5], dtype=np.float32),
        "floor": np.array([_FLOOR], dtype=np.float32),
        "zero": np.array([0], dtype=np.int64),
        "one": np.array([1], dtype=np.int64),
        "two": np.array(2, dtype=np.int64),
        "minus_one": np.array([-1], dtype=np.int64),
        "lowest": np.array([-(2**31)], dtype=np.int64),
        "label": np.array([label], dtype=np.int64),
        "floor_of_boxes": np.array(0, dtype=np.float32),
    }
    return bench.model(
        name,
        nodes,
        inputs={"boxes": ("float", [1, _BOXES, 4]), "scores": ("float", [1, 1, _BOXES])},
        outputs={
            "found_boxes": ("float", [1, "found", 4]),
            "found_scores": ("float", [1, "found"]),
            "labels": ("int64", [1, "found"]),
        },
        weights=weights,
    )


def _samples(bench: Bench, *, near_floor: bool = False) -> str:
    random = np.random.default_rng(0)
    arrays = {}
    for case in range(8):
        corner = random.uniform(0, 100, (1, _BOXES, 2))
        boxes = np.concatenate([corner, corner + random.uniform(10, 30, (1, _BOXES, 2))], axis=2)
        scores = random.uniform(0.05, 0.95, (1, 1, _BOXES))
        # None so near the floor that an error moves it across, unless that is what is asked for.
        scores[np.abs(scores - _FLOOR) < 0.02] = 0.6
        if near_floor:
            scores[0, 0, 0] = _FLOOR - 0.001
            boxes[0, 0] = [400, 400, 420, 420]
        arrays[f"{case}/boxes"] = boxes.astype(np.float32)
        arrays[f"{case}/scores"] = scores.astype(np.float32)
    return bench.npz("inputs.npz", arrays)


def _compare(bench: Bench, candidate: str, *options: str, near_floor: bool = False) -> Outcome:
    samples = _samples(bench, near_floor=near_floor)
    return bench.compare(_detector(bench, "reference"), candidate, "--samples", samples, *options)


def test_detections_in_another_order_pass_only_where_they_are_matched(bench: Bench) -> None:
    candidate = _detector(bench, "candidate", reverse=True)

    plain = _compare(bench, candidate, "--probes", "none")
    matched = _compare(bench, candidate, "--match", _MATCH)

    assert plain.code == 1
    assert matched.code == 0, matched.out
    found = matched.result["matches"]["detections"]
    assert found["expected"] == found["actual"] == found["matched"] > 20
    assert (found["missing"], found["extra"], found["max_score_diff"], found["min_iou"]) == (0, 0, 0, 1)
    assert found["outputs"] == ["found_boxes", "found_scores", "labels"]
    assert matched.result["outputs"] == {}
    assert matched.status("detections_matched", "detections") == "pass"


# What no sample reaches differs at the edge alone.
_AT_EDGE = ("--probes", "values", "--edge", "fail")


def test_probes_judge_detections_by_the_same_matcher(bench: Bench) -> None:
    right = _compare(bench, _detector(bench, "right", reverse=True), "--match", _MATCH, "--probes", "values,repeats")
    asked = right.result["probes"]["asked"]

    assert right.code == 0, right.out
    assert sum(probe["batches"] for probe in asked.values()) > 0
    assert {probe["status"] for probe in asked.values()} <= {"pass", "warning"}

    blind = _compare(bench, _detector(bench, "blind", blind=True), "--match", _MATCH, *_AT_EDGE)

    assert (blind.code, blind.failed) == (1, {"probe_values"})
    (failure, *_) = blind.result["probes"]["asked"]["values"]["failures"]
    assert failure["check"] == "detections_matched"
    assert failure["detail"].startswith("detections: 0 of ")


@pytest.mark.parametrize(
    ("fault", "check"),
    [
        ({"box_error": 8.0}, "detections_matched"),
        ({"label": 1}, "detections_matched"),
        ({"score_error": 0.015}, "match_score_diff"),
        ({"score_error": -0.5}, "detections_matched"),
    ],
)
def test_a_fault_of_the_detector_is_caught(bench: Bench, fault: dict[str, float], check: str) -> None:
    candidate = _detector(bench, "candidate", reverse=True, **fault)  # type: ignore[arg-type]  # of the right kinds

    outcome = _compare(bench, candidate, "--match", _MATCH, "--probes", "none")

    assert outcome.code == 1
    assert check in outcome.failed
    assert not {"max_abs_diff", "exact", "contract.shape"} & outcome.failed


def test_an_honest_error_near_the_floor_is_excused_where_the_floor_is_said(bench: Bench) -> None:
    candidate = _detector(bench, "candidate", score_error=0.002)

    without = _compare(bench, candidate, "--match", _MATCH, "--probes", "none", near_floor=True)
    said = _compare(bench, candidate, "--match", f"{_MATCH},score_floor=0.3", "--probes", "none", near_floor=True)

    assert without.failed == {"detections_matched"}
    assert "0 missing, 8 extra" in without.check("detections_matched")["detail"]
    assert said.code == 0, said.out
    assert said.result["matches"]["detections"]["near_floor"] == 8


def test_a_missing_output_of_detections_is_a_breach_of_contract(bench: Bench) -> None:
    random = np.random.default_rng(0)
    expected = {
        "boxes": np.sort(random.uniform(0, 9, (4, 3, 4)).astype(np.float32), axis=2),
        "scores": random.uniform(0.5, 1, (4, 3)).astype(np.float32),
    }

    outcome = bench.given(expected, {"boxes": expected["boxes"]}, "--match", "found:boxes=boxes,scores=scores")

    assert outcome.code == 1
    assert "the candidate has no output 'scores'" in outcome.check("contract.outputs")["detail"]


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("d:boxes=absent,scores=found_scores", "match 'd' names 'absent', which is not an output that is compared"),
        ("d:boxes=found_scores,scores=labels", "the reference's outputs hold no detections: 'found_scores' has shape"),
    ],
)
def test_a_match_that_does_not_fit_the_model_is_a_usage_error(bench: Bench, option: str, message: str) -> None:
    outcome = _compare(bench, _detector(bench, "candidate"), "--match", option, "--probes", "none")

    assert outcome.code == 2
    assert message in outcome.message


def test_a_wrong_option_is_said_before_anything_runs(bench: Bench) -> None:
    outcome = _compare(bench, _detector(bench, "candidate"), "--match", "boxes")

    assert outcome.code == 2
    assert "is not of the form NAME:boxes=OUTPUT" in outcome.err
