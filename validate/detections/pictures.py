"""The detections of each picture, as outputs hold them."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from paritygate.validate.detections.boxes import Detections, corners_of, is_turned
from paritygate.validate.detections.lists import DetectionLists
from paritygate.validate.detections.rule import MatchRule
from paritygate.validate.measure.valid_positions import left_out_of

_BOX_RANK = 3


def pictures_of(rule: MatchRule, lists: DetectionLists, rows: int) -> list[Detections] | str:
    """Return the detections of each row, or why the lists hold none."""
    boxes = _by_row(lists.boxes, _BOX_RANK, rows)
    if boxes is None or boxes.shape[2] != 4:  # noqa: PLR2004 - the numbers of a box
        return f"{rule.boxes!r} has shape {list(lists.boxes.shape)} for {rows} rows"
    arrays = {"scores": lists.scores, "classes": lists.classes}
    by_row = {}
    for key, array in arrays.items():
        listed = np.zeros(boxes.shape[:2]) if array is None else _by_row(array, _BOX_RANK - 1, rows)
        if array is not None and (listed is None or listed.shape != boxes.shape[:2]):
            return f"{getattr(rule, key)!r} has shape {list(array.shape)} beside boxes of {list(lists.boxes.shape)}"
        assert listed is not None  # noqa: S101 - looked at above
        by_row[key] = listed
    others = np.zeros((*boxes.shape[:2], 0)) if lists.others is None else _by_row(lists.others, _BOX_RANK, rows)
    assert others is not None  # noqa: S101 - of the same array as the boxes
    counts = np.full(rows, boxes.shape[1])
    if lists.num is not None:
        counts = np.asarray(lists.num).astype(np.int64).reshape(-1)
        if counts.shape != (rows,) or (counts < 0).any() or (counts > boxes.shape[1]).any():
            return f"{rule.num!r} is {counts.tolist()[:8]} for {rows} rows of at most {boxes.shape[1]} detections"
    return [
        Detections(
            boxes=boxes[row, :count],
            corners=corners_of(boxes[row, :count], rule.format),
            is_turned=is_turned(boxes[row, :count], rule.format),
            scores=by_row["scores"][row, :count],
            # A class that was computed in low precision is near its number.
            classes=np.rint(by_row["classes"][row, :count]),
            others=others[row, :count],
        )
        for row, count in enumerate(counts)
    ]


def counted_of(pictures: list[Detections], lists: DetectionLists, reference: DetectionLists) -> list[Detections] | str:
    """Return the detections at places that count, or why these are unknown.

    A place does not count where one of the reference's outputs is left out.
    """
    rows, places = len(pictures), reference.places
    left_out = np.zeros((rows, places), dtype=bool)
    for array in reference.by_place():
        mask = left_out_of(array)
        if mask is not None:
            left_out |= mask.reshape(rows, places, -1).any(axis=2)
    of_rows = None if reference.num is None else left_out_of(reference.num)
    if of_rows is not None:
        left_out |= of_rows.reshape(rows, -1)
    if not left_out.any():
        return pictures
    if lists.places != places:
        return f"{lists.places} places, and the reference has {places}, of which some do not count"
    return [_chosen(picture, ~out[: len(picture.scores)]) for picture, out in zip(pictures, left_out, strict=True)]


def lowest_of(side: Detections, rule: MatchRule, places: int) -> float:
    """Return the lowest score of a full list, below which a model may have cut off detections; else minus infinity.

    Models pad lists, so a full one has a finite detection above the score floor in each place. One place is not a list.
    """
    if places == 1 or not len(side.scores) or len(side.scores) < places:
        return -math.inf
    lowest = float(side.scores.min())
    return lowest if lowest > rule.score_floor else -math.inf


def _by_row(array: NDArray[np.generic], rank: int, rows: int) -> NDArray[np.float64] | None:
    """Return the array with its rows along axis 0, which a single picture may lack."""
    wide = np.asarray(array).astype(np.float64)
    if wide.ndim == rank - 1 and rows == 1:
        wide = wide[np.newaxis]
    return wide if wide.ndim == rank and wide.shape[0] == rows else None


def _chosen(side: Detections, chosen: NDArray[np.bool_]) -> Detections:
    return Detections(**{name: getattr(side, name)[chosen] for name in side.__struct_fields__})


def finite_of(side: Detections) -> tuple[Detections, int]:
    """Return the detections without those that are NaN or infinite, and how many these were."""
    is_finite = np.isfinite(side.boxes).all(axis=1) & np.isfinite(side.scores) & np.isfinite(side.classes)
    is_finite &= np.isfinite(side.others).all(axis=1)
    if is_finite.all():
        return side, 0
    return _chosen(side, is_finite), int(np.count_nonzero(~is_finite))


def reported_of(side: Detections, rule: MatchRule) -> Detections:
    """Return the detections that may be at or above the score floor."""
    return _chosen(side, side.scores >= rule.score_floor - rule.score_tolerance)
