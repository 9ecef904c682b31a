"""Arrays of detections: from outputs of their own, or from the numbers of one output."""

from __future__ import annotations

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from paritygate.batch import Arrays
from paritygate.validate.detections.rule import MatchRule

# Of two axes that can both hold the numbers of a detection, the first one does where the other is so many times longer.
_CLEARLY_LONGER = 2
_BATCHED_RANK = 3
_LAST = 2


class DetectionLists(Struct, frozen=True, kw_only=True):
    """The detections of a batch, one list a row; masked where the reference does not count.

    `boxes` are `(rows, N, 4)`, `scores` and `classes` `(rows, N)`, `others` `(rows, N, M)`; a single row may lack its
    axis. `classes` is None for one class. `num` is how many of the N count, a number a row; None for all. `others` are
    numbers that the rule does not name. Of one output, `numbers` numbers of a detection lie along `axis`. Its column
    `picture` holds the place of the row; None where each row has its list.
    """

    boxes: NDArray[np.generic]
    scores: NDArray[np.generic]
    classes: NDArray[np.generic] | None = None
    num: NDArray[np.generic] | None = None
    others: NDArray[np.generic] | None = None
    axis: int | None = None
    picture: int | None = None
    numbers: int = 0

    @property
    def places(self) -> int:
        """Return the length of the lists."""
        return int(self.boxes.shape[-2])

    def by_place(self) -> tuple[NDArray[np.generic], ...]:
        """Return the arrays that have an axis of places."""
        return tuple(array for array in (self.boxes, self.scores, self.classes, self.others) if array is not None)


def lists_of(
    rule: MatchRule, outputs: Arrays, rows: int, *, like: DetectionLists | None = None
) -> DetectionLists | str:
    """Return the lists of detections that outputs hold, or why they hold none.

    Axis and columns are those of the reference's lists, `like`; None to find them.
    """
    for name in rule.outputs:
        if outputs[name].dtype.kind not in "fiubV":
            return f"{name!r} is of dtype {outputs[name].dtype}"
    num = None if rule.num is None else outputs[rule.num]
    if rule.output is None:
        classes = None if rule.classes is None else outputs[rule.classes]
        return DetectionLists(boxes=outputs[rule.boxes], scores=outputs[rule.scores], classes=classes, num=num)
    array = outputs[rule.output]
    shown = f"{rule.output!r} has shape {list(array.shape)} for {rows} rows"
    picture = _picture_column(rule, array, rows) if like is None else like.picture
    if picture is not None:
        return _by_picture(rule, array, rows, picture, shown)
    if array.ndim == _BATCHED_RANK - 1 and rows == 1:
        array = array[np.newaxis]
    if array.ndim != _BATCHED_RANK or array.shape[0] != rows:
        return f"{shown}, expected (rows, N, numbers) or (rows, numbers, N)"
    axis = _axis_of_numbers(rule, array.shape) if like is None or like.axis is None else like.axis
    if array.shape[axis] < rule.width:
        return f"{shown}: {array.shape[axis]} numbers along axis {axis}, expected {rule.width} or more"
    return _apart(rule, array if axis == _LAST else array.swapaxes(1, 2), num, axis)


def _picture_column(rule: MatchRule, array: NDArray[np.generic], rows: int) -> int | None:
    """Return the column with the place of the row: declared, or the first that fits one list for all rows.

    A wrong guess makes the matching stricter, since it splits both sides alike.
    """
    if rule.picture is not None:
        return rule.column("picture")
    if array.ndim != _BATCHED_RANK - 1 or rule.axis is not None or rule.num is not None:
        return None
    for column in range(array.shape[1]):
        if column not in rule.columns():
            values = np.asarray(array[:, column]).astype(np.float64)
            if np.isin(values, np.arange(rows)).all():
                return column
    return None


def _axis_of_numbers(rule: MatchRule, shape: tuple[int, ...]) -> int:
    """Return the axis of a detection's numbers: declared, or 1 of `(rows, 6, 300)` and 2 of `(rows, 300, 6)`."""
    if rule.axis is not None:
        return rule.axis % _BATCHED_RANK
    if shape[2] < rule.width:
        # An empty list has no numbers to take for anything.
        return 1 if shape[1] >= rule.width else _LAST
    is_first = shape[1] >= rule.width and shape[2] >= _CLEARLY_LONGER * shape[1]
    return 1 if is_first else _LAST


def _apart(
    rule: MatchRule, array: NDArray[np.generic], num: NDArray[np.generic] | None, axis: int, picture: int | None = None
) -> DetectionLists:
    """Return lists from an array with the numbers of a detection on its last axis."""
    named = {*rule.columns(), picture}
    rest = [column for column in range(array.shape[-1]) if column not in named]
    first = rule.column("boxes")
    return DetectionLists(
        boxes=array[..., first : first + 4],
        scores=array[..., rule.column("scores")],
        classes=None if rule.classes is None else array[..., rule.column("classes")],
        num=num,
        others=array[..., rest] if rest else None,
        axis=axis,
        picture=picture,
        numbers=int(array.shape[-1]),
    )


def _by_picture(
    rule: MatchRule, array: NDArray[np.generic], rows: int, picture: int, shown: str
) -> DetectionLists | str:
    """Return lists from one list for the whole batch whose detections hold the place of their row."""
    if array.ndim == _BATCHED_RANK and array.shape[0] == 1:
        array = array[0]
    if array.ndim != _BATCHED_RANK - 1 or array.shape[1] < max(rule.width, picture + 1):
        return f"{shown}, expected (N, {rule.width} or more)"
    pictures = np.asarray(array[:, picture]).astype(np.float64)
    # NaN is not within anything.
    is_row = (np.rint(pictures) >= 0) & (np.rint(pictures) < rows)
    if not is_row.all():
        return f"{rule.output!r} holds a detection of picture {pictures[~is_row][0]:g} (expected 0 to {rows - 1})"
    places = np.rint(pictures).astype(np.int64)
    counts = np.bincount(places, minlength=rows)
    padded = np.zeros((rows, int(counts.max(initial=0)), array.shape[1]), dtype=array.dtype)
    for row in range(rows):
        padded[row, : counts[row]] = array[places == row]
    return _apart(rule, padded, counts, _LAST, picture)
