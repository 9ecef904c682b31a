"""The detections of each picture, as outputs hold them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from paritygate.validate.detections.boxes import Detections, corners_of, is_turned
from paritygate.validate.detections.rule import MatchRule
from paritygate.validate.gate.valid_positions import left_out_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Outputs = Mapping[str, NDArray[np.generic]]

__all__ = ["counted_of", "finite_of", "lowest_of", "pictures_of", "places_of", "reported_of"]

_BOX_RANK = 3


def pictures_of(rule: MatchRule, outputs: Outputs, rows: int) -> list[Detections] | str:
    """Return the detections of each row, or why the outputs hold none."""
    arrays = {name: outputs[name] for name in rule.outputs}
    for name, array in arrays.items():
        if array.dtype.kind not in "fiubV":
            return f"{name!r} is of dtype {array.dtype}"
    boxes = _by_row(arrays[rule.boxes], _BOX_RANK, rows)
    lists = {
        name: _by_row(arrays[name], _BOX_RANK - 1, rows) for name in (rule.scores, rule.classes) if name is not None
    }
    if boxes is None or boxes.shape[2] != 4:  # noqa: PLR2004 - the numbers of a box
        return f"{rule.boxes!r} has shape {list(arrays[rule.boxes].shape)} for {rows} rows"
    for name, listed in lists.items():
        if listed is None or listed.shape != boxes.shape[:2]:
            return f"{name!r} has shape {list(arrays[name].shape)} beside boxes of {list(arrays[rule.boxes].shape)}"
    counts = np.full(rows, boxes.shape[1])
    if rule.num is not None:
        counts = np.asarray(arrays[rule.num]).astype(np.int64).reshape(-1)
        if counts.shape != (rows,) or (counts < 0).any() or (counts > boxes.shape[1]).any():
            return f"{rule.num!r} is {counts.tolist()[:8]} for {rows} rows of at most {boxes.shape[1]} detections"
    scores = lists[rule.scores]
    classes = np.zeros(boxes.shape[:2]) if rule.classes is None else lists[rule.classes]
    assert scores is not None  # noqa: S101 - looked at above
    assert classes is not None  # noqa: S101 - looked at above
    return [
        Detections(
            boxes=boxes[row, :count],
            corners=corners_of(boxes[row, :count], rule.format),
            is_turned=is_turned(boxes[row, :count], rule.format),
            scores=scores[row, :count],
            classes=classes[row, :count],
        )
        for row, count in enumerate(counts)
    ]


def counted_of(
    pictures: list[Detections], rule: MatchRule, outputs: Outputs, reference: Outputs
) -> list[Detections] | str:
    """Return the detections at places that count, or why these are not known.

    Args:
        pictures: The detections of each row.
        rule: What is matched.
        outputs: The outputs that they are of.
        reference: The reference's, which say what does not count: a place where one of its outputs is left out.
    """
    rows, places = len(pictures), places_of(rule, reference)
    left_out = np.zeros((rows, places), dtype=bool)
    for name in rule.outputs:
        found = left_out_of(reference[name])
        if found is not None:
            by_place = found.reshape(rows, -1)
            left_out |= by_place.reshape(rows, places, -1).any(axis=2) if name != rule.num else by_place
    if not left_out.any():
        return pictures
    if places_of(rule, outputs) != places:
        return f"{places_of(rule, outputs)} places, and the reference has {places}, of which some do not count"
    return [_chosen(picture, ~out[: len(picture.scores)]) for picture, out in zip(pictures, left_out, strict=True)]


def places_of(rule: MatchRule, outputs: Outputs) -> int:
    """Return how many detections of a picture the outputs have room for; they are such that hold detections."""
    return int(outputs[rule.boxes].shape[-2])


def lowest_of(side: Detections, rule: MatchRule, places: int) -> float:
    """Return the lowest score of a full list: what scores alike may have been cut off. Else minus infinity.

    It is where each of its places holds a finite detection above the score floor: models fill up with what is none. A
    list of one place would be nothing but its end, so it has none.
    """
    if places == 1 or not len(side.scores) or len(side.scores) < places:
        return -math.inf
    lowest = float(side.scores.min())
    return lowest if lowest > rule.score_floor else -math.inf


def _by_row(array: NDArray[np.generic], rank: int, rows: int) -> NDArray[np.float64] | None:
    """Return the array with its rows along axis 0; a picture alone may come without that axis."""
    wide = np.asarray(array).astype(np.float64)
    if wide.ndim == rank - 1 and rows == 1:
        wide = wide[np.newaxis]
    return wide if wide.ndim == rank and wide.shape[0] == rows else None


def _chosen(side: Detections, chosen: NDArray[np.bool_]) -> Detections:
    return Detections(
        boxes=side.boxes[chosen],
        corners=side.corners[chosen],
        is_turned=side.is_turned[chosen],
        scores=side.scores[chosen],
        classes=side.classes[chosen],
    )


def finite_of(side: Detections) -> tuple[Detections, int]:
    """Return the detections without those that are NaN or infinite, and how many these were."""
    is_finite = np.isfinite(side.boxes).all(axis=1) & np.isfinite(side.scores) & np.isfinite(side.classes)
    if is_finite.all():
        return side, 0
    return _chosen(side, is_finite), int(np.count_nonzero(~is_finite))


def reported_of(side: Detections, rule: MatchRule) -> Detections:
    """Return the detections that may be at or above the score floor."""
    return _chosen(side, side.scores >= rule.score_floor - rule.score_tolerance)
