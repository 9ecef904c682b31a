"""How matched detections compare, as results hold it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from paritygate.codec import unwritten
from paritygate.validate.words.sentence import Words


@dataclass(frozen=True, kw_only=True, slots=True)
class MatchFigures:
    """How detections compare, over all pictures or those of one stratum; counts are those of one pass, the worst.

    Attributes:
        rows: Pictures looked at.
        expected: Detections of the reference, at or above the floor less the tolerance.
        actual: Those of the candidate.
        matched: Pairs that are the same detection.
        missing: Detections of the reference that the candidate lacks.
        extra: Detections of the candidate that the reference lacks.
        near_floor: Left over on either side so near the floor, or so near the end of a full list, that they may be: not
            counted above.
        non_finite: Detections of the candidate with a box or score that is NaN or infinite.
        min_iou: The smallest IoU of a pair; None without pairs, as are the differences.
        max_box_diff: The largest difference of a coordinate of a pair, in the unit of the boxes.
        max_score_diff: The largest difference of the scores of a pair.
        below_floor: Of the reference, below the floor: not looked at.
        at_end: Those of `near_floor` that only the end of a full list excuses.
        end_rows: Pictures in which there are any of those.
        max_other_diff: The largest difference of the numbers of a pair that the rule does not name.
    """

    rows: int
    expected: int
    actual: int
    matched: int
    missing: int
    extra: int
    near_floor: int
    non_finite: int
    min_iou: float | None
    max_box_diff: float | None
    max_score_diff: float | None
    below_floor: int = 0
    at_end: int = 0
    end_rows: int = unwritten(default=0)
    max_other_diff: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class MatchStatistics(MatchFigures):
    """The same of all pictures, with what was matched by which rule.

    Attributes:
        outputs: The outputs that hold the detections.
        iou: Boxes of one class are the same detection from this intersection over union on.
        score_tolerance: What the scores of a pair may differ by.
        score_floor: The score from which on the model reports detections.
        examples: The first pictures with a detection left over, in words.
        strata: The figures again, by stratum and value.
        name: What the detections are called in checks.
        most_box_diff: What a coordinate of a pair may differ by; None for no limit but the IoU.
        most_other_diff: What numbers that the rule does not name may differ by; None where there are none.
        violations: Breaches of contract: a dtype or shape that holds no detections; what is said of each.
    """

    outputs: tuple[str, ...]
    iou: float
    score_tolerance: float
    score_floor: float
    examples: tuple[str, ...]
    strata: Mapping[str, Mapping[str, MatchFigures]] = field(default_factory=dict)
    name: str = unwritten(default="")
    most_box_diff: float | None = unwritten(default=None)
    most_other_diff: float | None = unwritten(default=None)
    violations: tuple[Words, ...] = unwritten(default=())
