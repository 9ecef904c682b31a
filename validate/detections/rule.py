"""The rule of a list of detections: which outputs hold it, and when two detections are the same."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from paritygate.errors import UsageError

# Corners in either order of x and y; a corner with width and height; the centre with width and height.
BOX_FORMATS = ("xyxy", "xywh", "cxcywh")
DEFAULT_IOU = 0.9
DEFAULT_SCORE_TOLERANCE = 0.01
DEFAULT_OTHER_TOLERANCE = 0.01
MATCH_GRAMMAR = (
    "NAME:boxes=OUTPUT,scores=OUTPUT[,classes=OUTPUT][,num=OUTPUT][,iou=T][,score_tolerance=D][,score_floor=S]"
    "[,max_box_diff=D][,format=xyxy|xywh|cxcywh], or of one output "
    "NAME:output=OUTPUT,boxes=A:B,scores=I[,classes=I][,picture=I][,num=OUTPUT][,axis=1|2][,other_tolerance=D]"
)
_LISTS_EXAMPLE = "for example --match detections:boxes=boxes,scores=scores,classes=labels"
_COLUMNS_EXAMPLE = "for example --match detections:output=output0,boxes=0:4,scores=4,classes=5"
_NUMBERS = ("iou", "score_tolerance", "score_floor", "max_box_diff", "other_tolerance")
_KEYS = ("output", "boxes", "scores", "classes", "picture", "num", "axis", *_NUMBERS, "format")
# What a column of one output may stand for, and how many columns it takes.
_COLUMNS = {"boxes": 4, "scores": 1, "classes": 1, "picture": 1}
_AXES = (-2, -1, 1, 2)


class MatchRule(Struct, frozen=True, kw_only=True):
    """Outputs that hold detections, and the limits within which two are the same.

    `boxes` is an output `(rows, N, 4)`; `scores` and `classes` are `(rows, N)`. N may differ by batch and by side.
    `classes` is None for one class; they are rounded, because a float output may hold 2.0001 for class 2. `output` is
    one output with all numbers of a detection, `(rows, N, numbers)` or `(rows, numbers, N)`. Its `boxes` are columns
    `A:B`, and `scores` and `classes` a column each. The numbers lie along `axis`, 1 or 2; None to find it by the shape.
    In one list for the whole batch, `(N, numbers)`, the column `picture` holds the place of the row. `num`, `(rows,)`
    or `(rows, 1)`, is how many of the N count; None for all. `iou` is the least intersection over union of the same
    detection. The model reports detections from `score_floor` on; one at most `score_tolerance` above may be there or
    not. `max_box_diff` limits the difference of a coordinate; None for no limit but the IoU. `other_tolerance` limits
    columns that nothing here names.
    """

    name: str
    boxes: str
    scores: str
    classes: str | None = None
    output: str | None = None
    picture: str | None = None
    axis: int | None = None
    num: str | None = None
    iou: float = DEFAULT_IOU
    score_tolerance: float = DEFAULT_SCORE_TOLERANCE
    score_floor: float = 0.0
    max_box_diff: float | None = None
    other_tolerance: float = DEFAULT_OTHER_TOLERANCE
    format: str = "xyxy"

    def __str__(self) -> str:
        plain = MatchRule(name=self.name, boxes=self.boxes, scores=self.scores)
        written = [
            f"{key}={getattr(self, key)}"
            for key in _KEYS
            if key in {"boxes", "scores"} or getattr(self, key) != getattr(plain, key)
        ]
        return f"{self.name}:{','.join(written)}"

    @property
    def outputs(self) -> tuple[str, ...]:
        """Return every output that the rule reads."""
        apart = (self.boxes, self.scores, self.classes) if self.output is None else (self.output,)
        return tuple(name for name in (*apart, self.num) if name is not None)

    def column(self, key: str) -> int:
        """Return the first column of a key, of one output."""
        return int(getattr(self, key).partition(":")[0])

    def columns(self) -> set[int]:
        """Return every column that the rule names, of one output."""
        return {
            self.column(key) + more
            for key, width in _COLUMNS.items()
            if getattr(self, key) is not None
            for more in range(width)
        }

    @property
    def width(self) -> int:
        """Return the fewest numbers of a detection, of one output."""
        return max(self.columns()) + 1


def parse_match_rule(text: str) -> MatchRule:
    """Return the rule of a text of the form `MATCH_GRAMMAR`; raise UsageError for any other."""
    name, colon, rest = text.partition(":")
    # An output's own name may hold commas: a part begins where a known key does.
    parts = re.split(rf",(?=(?:{'|'.join(_KEYS)})=)", rest)
    values: dict[str, str] = {}
    for part in parts:
        key, sign, value = part.partition("=")
        if not (name and colon and sign and value) or key not in _KEYS:
            raise UsageError(f"match {text!r} is not of the form {MATCH_GRAMMAR}", hint=_LISTS_EXAMPLE)
        if key in values:
            raise UsageError(f"match {text!r} has {key} twice", hint=f"write {MATCH_GRAMMAR}")
        values[key] = value
    for key in ("boxes", "scores"):
        if key not in values:
            raise UsageError(f"match {text!r} names no output for {key}", hint=f"write {MATCH_GRAMMAR}")
    numbers = {key: _number(text, key, values.pop(key)) for key in _NUMBERS if key in values}
    if "axis" in values:
        numbers["axis"] = _number(text, "axis", values.pop("axis"))
    return make_match_rule(name, **values, **numbers)


def _number(text: str, key: str, value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise UsageError(f"match {text!r}: {key}={value} is not a number", hint=f"write {MATCH_GRAMMAR}") from None


def make_match_rule(name: str, **values: Any) -> MatchRule:  # noqa: ANN401 - one value a key of the spec
    """Return the rule with these values of the command line or spec; raise UsageError where they do not fit."""
    axis = values.get("axis")
    # Columns may be written as integers.
    columns = {key: str(values[key]) for key in _COLUMNS if values.get(key) is not None}
    rule = MatchRule(**{**values, **columns, "name": name, "axis": None if axis is None else int(axis)})
    if not name or ":" in name:
        msg = f"match {name!r} has no name that can be written before a colon"
        raise UsageError(
            msg, hint=f"write matches: {{NAME: {{boxes: OUTPUT, scores: OUTPUT}}}}, or --match {MATCH_GRAMMAR}"
        )
    if axis not in (None, *_AXES):
        msg = f"match {name!r}: axis={axis:g} is not an axis of one list a row (allowed: 1, 2)"
        raise UsageError(msg, hint="give the axis of the numbers of one detection")
    _check_columns(rule)
    if len(set(rule.outputs)) < len(rule.outputs):
        msg = f"match {name!r} names one output twice ({', '.join(rule.outputs)})"
        raise UsageError(msg, hint="boxes, scores, classes and num are outputs of their own; " + _COLUMNS_EXAMPLE)
    _check_limits(rule)
    return rule


def _check_columns(rule: MatchRule) -> None:
    """Check that the columns of one output are columns, and that none is used twice."""
    if rule.output is None:
        for key in ("picture", "axis"):
            if getattr(rule, key) is not None:
                msg = f"match {rule.name!r}: {key} is for detections in one output, but output is missing"
                raise UsageError(msg, hint=_COLUMNS_EXAMPLE)
        return
    taken: dict[int, str] = {}
    for key, width in _COLUMNS.items():
        text = getattr(rule, key)
        if text is None:
            continue
        written = re.fullmatch(r"(\d{1,6})(?::(\d{1,6}))?", text)
        first = int(written[1]) if written else 0
        end = first + 1 if written is None or written[2] is None else int(written[2])
        if written is None or end - first != width:
            msg = f"match {rule.name!r}: {key}={text} is not {'four columns, as 0:4' if width > 1 else 'one column'}"
            raise UsageError(msg, hint=f"columns of {rule.output!r} count from 0; {_COLUMNS_EXAMPLE}")
        for column in range(first, end):
            if column in taken:
                msg = f"match {rule.name!r}: column {column} is both {taken[column]} and {key}"
                raise UsageError(msg, hint=f"columns of {rule.output!r} count from 0; {_COLUMNS_EXAMPLE}")
            taken[column] = key
    if rule.picture is not None and (rule.num is not None or rule.axis is not None):
        msg = f"match {rule.name!r}: picture needs one list for the whole batch, without num and axis"
        raise UsageError(msg, hint="leave picture out if each row has its own list")


def _check_limits(rule: MatchRule) -> None:
    name = rule.name
    if not 0 < rule.iou <= 1:
        msg = f"match {name!r}: iou={rule.iou:g} is not an intersection over union (allowed: above 0, at most 1)"
        raise UsageError(msg, hint="0.9 is the default; detectors are scored from 0.5 on")
    for key in ("score_tolerance", "max_box_diff", "other_tolerance"):
        value = getattr(rule, key)
        if value is not None and not 0 <= value < math.inf:
            msg = f"match {name!r}: {key}={value:g} is not allowed (allowed: 0 and more)"
            raise UsageError(msg, hint="give the largest difference that passes")
    if not math.isfinite(rule.score_floor):
        msg = f"match {name!r}: score_floor={rule.score_floor:g} is not finite"
        raise UsageError(msg, hint="write the score below which the model drops detections")
    if rule.format not in BOX_FORMATS:
        msg = f"match {name!r}: format {rule.format!r} is not known (allowed: {', '.join(BOX_FORMATS)})"
        raise UsageError(msg, hint="use xyxy for yxyx too: corners in either order")


def check_match_rules(rules: Sequence[MatchRule], known: Sequence[str], taken: Mapping[str, str]) -> None:
    """Raise UsageError unless every matched output exists and has no other rule."""
    seen: dict[str, str] = {}
    if len({rule.name for rule in rules}) < len(rules):
        msg = f"two matches have the same name ({', '.join(rule.name for rule in rules)})"
        raise UsageError(msg, hint="give each a name of its own")
    for rule in rules:
        for output in rule.outputs:
            if output not in known:
                msg = f"match {rule.name!r} names {output!r}, which is not an output that is compared"
                raise UsageError(msg, hint=f"outputs compared are: {', '.join(known) or 'none'}")
            if output in taken:
                msg = f"match {rule.name!r} names {output!r}, which {taken[output]} uses already"
                raise UsageError(msg, hint="remove one of the two, because a matched output has no other rule")
            if seen.setdefault(output, rule.name) != rule.name:
                msg = f"matches {seen[output]!r} and {rule.name!r} both name {output!r}"
                raise UsageError(msg, hint="name each output in only one match")
