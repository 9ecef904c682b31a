"""Which outputs hold detections, and what counts as the same detection."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from paritygate.errors import UsageError

__all__ = ["BOX_FORMATS", "MATCH_GRAMMAR", "MatchRule", "make_match_rule", "parse_match_rule"]

# Corners in either order of x and y; a corner with width and height; the centre with width and height.
BOX_FORMATS = ("xyxy", "xywh", "cxcywh")
DEFAULT_IOU = 0.9
DEFAULT_SCORE_TOLERANCE = 0.01
MATCH_GRAMMAR = (
    "NAME:boxes=OUTPUT,scores=OUTPUT[,classes=OUTPUT][,num=OUTPUT][,iou=T][,score_tolerance=D][,score_floor=S]"
    "[,max_box_diff=D][,format=xyxy|xywh|cxcywh]"
)
_OUTPUTS = ("boxes", "scores", "classes", "num")
_NUMBERS = ("iou", "score_tolerance", "score_floor", "max_box_diff")


@dataclass(frozen=True, kw_only=True, slots=True)
class MatchRule:
    """Detections, and what counts as the same one.

    Attributes:
        name: What to call them in checks and reports.
        boxes: The output of boxes, shape `(rows, N, 4)`; N may differ from batch to batch and from side to side.
        scores: The output of scores, shape `(rows, N)`.
        classes: The output of classes, shape `(rows, N)`; None where there is one class. They are compared exactly.
        num: The output of how many of the N are meant, shape `(rows,)` or `(rows, 1)`; None where all are.
        iou: Boxes of one class are the same detection from this intersection over union on.
        score_tolerance: What the scores of matched detections may differ by.
        score_floor: The score from which on the model reports detections. One that is at most the tolerance above
            may be there or not.
        max_box_diff: What a coordinate of matched detections may differ by; None for no limit but the IoU.
        format: What the four numbers of a box are.
    """

    name: str
    boxes: str
    scores: str
    classes: str | None = None
    num: str | None = None
    iou: float = DEFAULT_IOU
    score_tolerance: float = DEFAULT_SCORE_TOLERANCE
    score_floor: float = 0.0
    max_box_diff: float | None = None
    format: str = "xyxy"

    def __str__(self) -> str:
        plain = MatchRule(name=self.name, boxes=self.boxes, scores=self.scores)
        keys = ("boxes", "scores", "classes", "num", "iou", "score_tolerance", "score_floor", "max_box_diff", "format")
        written = [
            f"{key}={getattr(self, key)}"
            for key in keys
            if key in {"boxes", "scores"} or getattr(self, key) != getattr(plain, key)
        ]
        return f"{self.name}:{','.join(written)}"

    @property
    def outputs(self) -> tuple[str, ...]:
        """Every output that it reads."""
        return tuple(name for name in (self.boxes, self.scores, self.classes, self.num) if name is not None)


def parse_match_rule(text: str) -> MatchRule:
    """Return the rule written as `NAME:boxes=OUTPUT,scores=OUTPUT[,...]`; see `MATCH_GRAMMAR`.

    Raises:
        UsageError: The text is not of that form.
    """
    name, colon, rest = text.partition(":")
    keys = (*_OUTPUTS, *_NUMBERS, "format")
    # An output's own name may hold commas: a part begins where a known key does.
    parts = re.split(rf",(?=(?:{'|'.join(keys)})=)", rest)
    found: dict[str, str] = {}
    for part in parts:
        key, sign, value = part.partition("=")
        if not (name and colon and sign and value) or key not in keys:
            msg = f"match {text!r} is not of the form {MATCH_GRAMMAR}"
            raise UsageError(msg, hint="for example --match detections:boxes=boxes,scores=scores,classes=labels")
        if key in found:
            msg = f"match {text!r} says {key} twice"
            raise UsageError(msg, hint=f"write {MATCH_GRAMMAR}")
        found[key] = value
    for key in ("boxes", "scores"):
        if key not in found:
            msg = f"match {text!r} does not say which output holds the {key}"
            raise UsageError(msg, hint=f"write {MATCH_GRAMMAR}")
    numbers = {key: _number(text, key, found.pop(key)) for key in _NUMBERS if key in found}
    return make_match_rule(name, **found, **numbers)  # type: ignore[arg-type]  # the keys are sorted by kind above


def _number(text: str, key: str, value: str) -> float:
    try:
        return float(value)
    except ValueError:
        msg = f"match {text!r}: {key}={value} is no number"
        raise UsageError(msg, hint=f"write {MATCH_GRAMMAR}") from None


def make_match_rule(  # noqa: PLR0913 - one argument a key of the spec
    name: str,
    *,
    boxes: str,
    scores: str,
    classes: str | None = None,
    num: str | None = None,
    iou: float = DEFAULT_IOU,
    score_tolerance: float = DEFAULT_SCORE_TOLERANCE,
    score_floor: float = 0.0,
    max_box_diff: float | None = None,
    format: str = "xyxy",  # noqa: A002 - the name that users write
) -> MatchRule:
    """Return the rule with these values, as the command line and the spec give them.

    Raises:
        UsageError: The values do not fit.
    """
    rule = MatchRule(
        name=name,
        boxes=boxes,
        scores=scores,
        classes=classes,
        num=num,
        iou=iou,
        score_tolerance=score_tolerance,
        score_floor=score_floor,
        max_box_diff=max_box_diff,
        format=format,
    )
    if not name or ":" in name:
        msg = f"match {name!r} has no name that can be written before a colon"
        raise UsageError(
            msg, hint=f"write matches: {{NAME: {{boxes: OUTPUT, scores: OUTPUT}}}}, or --match {MATCH_GRAMMAR}"
        )
    if len(set(rule.outputs)) < len(rule.outputs):
        msg = f"match {name!r} names one output for two things ({', '.join(rule.outputs)})"
        raise UsageError(msg, hint="boxes, scores, classes and num are outputs of their own")
    if not 0 < iou <= 1:
        msg = f"match {name!r}: iou={iou:g} is no intersection over union (allowed: above 0, at most 1)"
        raise UsageError(msg, hint="0.9 is the default; detectors are scored by 0.5 and more")
    for key, value in (("score_tolerance", score_tolerance), ("max_box_diff", max_box_diff)):
        if value is not None and not 0 <= value < math.inf:
            msg = f"match {name!r}: {key}={value:g} is not allowed (allowed: 0 and more)"
            raise UsageError(msg, hint="it is the largest difference that passes")
    if not math.isfinite(score_floor):
        msg = f"match {name!r}: score_floor={score_floor:g} is not finite"
        raise UsageError(msg, hint="write the threshold by which the model leaves detections out")
    if format not in BOX_FORMATS:
        msg = f"match {name!r}: format {format!r} is not known (allowed: {', '.join(BOX_FORMATS)})"
        raise UsageError(msg, hint="xyxy also stands for yxyx: corners in either order")
    return rule
