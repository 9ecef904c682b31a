"""Figures of matched detections, as results hold them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from msgspec import Struct, field

from paritygate.validate.words.sentence import Words


class MatchFigures(Struct, frozen=True, kw_only=True):
    """Figures of detections over all pictures or those of one stratum; counts are those of the worst pass.

    Detections count from the score floor less the tolerance. The candidate lacks those `missing`, the reference those
    `extra`. `near_floor` counts those without a pair near the floor or near the end of a full list, which are in
    neither. Of these, only the end of a full list excuses those `at_end`, in `end_rows` pictures. `non_finite` counts
    the candidate's detections with a NaN or infinite box or score, `below_floor` the reference's below the floor.
    Differences are of pairs, and None without pairs. `max_box_diff` is in the unit of the boxes; `max_other_diff` is of
    numbers that the rule does not name.
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
    end_rows: int = 0
    max_other_diff: float | None = None

    unwritten: ClassVar[tuple[str, ...]] = ("end_rows",)  # left out of JSON data


class MatchStatistics(MatchFigures, frozen=True, kw_only=True):
    """The figures of all pictures, with the rule that matched them.

    `examples` are messages about the first pictures with a detection left over. `strata` holds the figures by stratum
    and value. `most_box_diff` is None for no limit but the IoU, `most_other_diff` where there are no other numbers.
    `violations` describe dtypes and shapes that hold no detections.
    """

    outputs: tuple[str, ...]
    iou: float
    score_tolerance: float
    score_floor: float
    examples: tuple[str, ...]
    strata: Mapping[str, Mapping[str, MatchFigures]] = field(default_factory=dict)
    name: str = ""
    most_box_diff: float | None = None
    most_other_diff: float | None = None
    violations: tuple[Words, ...] = ()

    unwritten: ClassVar[tuple[str, ...]] = (
        *MatchFigures.unwritten,
        "name",
        "most_box_diff",
        "most_other_diff",
        "violations",
    )
