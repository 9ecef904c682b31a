"""Pairs the same detections of two lists: one to one, of one class, by intersection over union."""

from __future__ import annotations

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray


class Detections(Struct, frozen=True, kw_only=True):
    """The detections of one picture.

    `boxes` are as the model gives them, `corners` the same with the lower corner first, both `(n, 4)`. `is_turned`,
    `(n, 2)`, marks the axes along which the model gives the higher corner first. `scores` and `classes` (whole numbers)
    are `(n,)`; `others`, `(n, m)`, holds all other numbers of a detection.
    """

    boxes: NDArray[np.float64]
    corners: NDArray[np.float64]
    is_turned: NDArray[np.bool_]
    scores: NDArray[np.float64]
    classes: NDArray[np.float64]
    others: NDArray[np.float64]


def corners_of(boxes: NDArray[np.float64], form: str) -> NDArray[np.float64]:
    """Return boxes of a format as two corners, the lower one first, shape `(n, 4)`."""
    first, second = boxes[:, :2], boxes[:, 2:]
    if form == "xywh":
        second = first + second
    elif form == "cxcywh":
        first, second = first - second / 2, first + second / 2
    return np.concatenate([np.minimum(first, second), np.maximum(first, second)], axis=1)


def is_turned(boxes: NDArray[np.float64], form: str) -> NDArray[np.bool_]:
    """Return along which axis, `(n, 2)`, a box has the higher corner first or a negative size: its crop is empty."""
    is_reversed: NDArray[np.bool_] = boxes[:, 2:] < (boxes[:, :2] if form == "xyxy" else 0)
    return is_reversed


def intersection_over_union(first: NDArray[np.float64], second: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the shared area of two boxes over the area they cover, `(n, m)`; without area 1 where equal, else 0.

    Corners come with the lower one first. Source: Jaccard (1912); for boxes Everingham et al. (2010), The PASCAL Visual
    Object Classes Challenge, 4.2.
    """
    low = np.maximum(first[:, None, :2], second[None, :, :2])
    high = np.minimum(first[:, None, 2:], second[None, :, 2:])
    shared = np.prod(np.clip(high - low, 0.0, None), axis=2)
    areas = [np.prod(boxes[:, 2:] - boxes[:, :2], axis=1) for boxes in (first, second)]
    covered = areas[0][:, None] + areas[1][None, :] - shared
    with np.errstate(invalid="ignore", divide="ignore"):
        ratios: NDArray[np.float64] = np.where(covered > 0, shared / covered, 0.0)
    is_equal = (first[:, None] == second[None]).all(axis=2)
    return np.where(is_equal, 1.0, ratios)


def match_detections(
    actual: Detections, expected: Detections, *, iou: float
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Return the indices of matched detections on both sides, and the IoU of each pair.

    The most pairs win, then the largest IoU, then of equal boxes the nearest scores; the order makes no difference.
    Source: Kuhn (1955), the Hungarian method, as `scipy.optimize.linear_sum_assignment`.
    """
    from scipy.optimize import linear_sum_assignment

    overlap = intersection_over_union(actual.corners, expected.corners)
    is_same = (overlap >= iou) & (actual.classes[:, None] == expected.classes[None, :])
    is_same &= (actual.is_turned[:, None] == expected.is_turned[None]).all(axis=2)
    apart = np.minimum(1.0, np.abs(actual.scores[:, None] - expected.scores[None, :]))
    # A pair more outweighs whatever the others gain or lose by it.
    pair = 2.0 * min(is_same.shape, default=0) + 1.0
    worth = np.where(is_same, pair + overlap - apart, 0.0)
    rows, columns = linear_sum_assignment(worth, maximize=True)
    is_match = is_same[rows, columns]
    rows, columns = rows[is_match], columns[is_match]
    return rows, columns, overlap[rows, columns]
