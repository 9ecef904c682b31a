"""What matched detections mean for the verdict."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from paritygate.batch import Batch
from paritygate.validate.detections.measurement import MatchComparison, MatchStatistics
from paritygate.validate.detections.rule import MatchRule
from paritygate.validate.gate.verdict import Check, Status

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Outputs = Mapping[str, NDArray[np.generic]]

__all__ = ["detections_coverage", "failed_match", "judge_matches"]

# Equal scores at the end of a full list are rare, but in blank pictures: in a larger part of the pictures they are no
# excuse.
_MOST_ENDS = 0.1
# More values of a stratum than this are not named in a sentence.
_NAMED_VALUES = 5


def judge_matches(measured: MatchStatistics) -> tuple[Check, ...]:
    """Return every check of one list of detections."""
    if measured.violations:
        detail = "; ".join(measured.violations)
        return (Check(name="contract.match", status=Status.FAIL, detail=detail, output=measured.rule.name),)
    if not measured.expected and not measured.actual and not measured.non_finite:
        words = f"neither side has a detection in {measured.rows} rows"
        return (Check(name="detections_matched", status=Status.INCONCLUSIVE, detail=words, output=measured.rule.name),)
    found = [_check_matched(measured), _check_finite(measured)]
    if measured.matched:
        rule = measured.rule
        found.append(_within(measured, "match_score_diff", measured.max_score_diff, rule.score_tolerance))
        if rule.max_box_diff is not None:
            found.append(_within(measured, "match_box_diff", measured.max_box_diff, rule.max_box_diff))
        if rule.output is not None:
            found.append(_within(measured, "match_other_diff", measured.max_other_diff, rule.other_tolerance))
    return tuple(found)


def _check_matched(measured: MatchStatistics) -> Check:
    rule, left = measured.rule, measured.missing + measured.extra
    at_floor = measured.near_floor - measured.at_end
    near = f", {at_floor} left over near the score floor {rule.score_floor:g}" if at_floor else ""
    if measured.at_end:
        near += (
            f", {measured.at_end} left over at the end of full lists in {measured.end_rows} of {measured.rows} rows, "
            "where others score alike"
        )
    words = (
        f"{measured.matched} of {measured.expected} detections matched at IoU {rule.iou:g}, "
        f"{measured.missing} missing, {measured.extra} extra{near}"
    )
    if measured.matched:
        words += f"; smallest IoU {measured.min_iou:.4g}, coordinates differ by {measured.max_box_diff:.4g} at most"
    if measured.examples:
        words += f"; {measured.examples[0]}{_by_stratum(measured)}"
    status = Status.FAIL if left else Status.PASS
    if measured.below_floor:
        words += f"; {measured.below_floor} of the reference score below {rule.score_floor:g} and were not looked at"
        if not left and not rule.score_floor:
            # Nobody said that such scores mean nothing: scores may be logits.
            status, words = Status.INCONCLUSIVE, f"{words}: say where scores begin, with score_floor"
    if status is not Status.FAIL and _is_mostly_end(measured):
        status = Status.INCONCLUSIVE
        words += (
            f"; equal scores explain that in {_MOST_ENDS:.0%} of the rows at most: say with score_floor from which "
            "score on detections matter, above the end of the lists"
        )
    return Check(name="detections_matched", status=status, detail=words, output=rule.name, measured=left, limit=0)


def _is_mostly_end(measured: MatchStatistics) -> bool:
    """Return whether more is left over at the end of full lists than equal scores explain, or nothing else is there."""
    return measured.at_end > 0 and (not measured.matched or measured.end_rows > _MOST_ENDS * measured.rows)


def _by_stratum(measured: MatchStatistics) -> str:
    """Return where detections are left over, in words; nothing where no strata are declared."""
    words = ""
    for name, values in measured.strata.items():
        left = {value: found.missing + found.extra for value, found in values.items() if found.missing + found.extra}
        most = sorted(left.items(), key=lambda item: -item[1])[:_NAMED_VALUES]
        more = f" and {len(left) - len(most)} other values" if len(left) > len(most) else ""
        listed = ", ".join(f"{count} of {value!r} (rows: {values[value].rows})" for value, count in most)
        words += f"; left over by {name!r}: {listed}{more}"
    return words


def detections_coverage(measured: MatchStatistics) -> tuple[Check, ...]:
    """Return a warning for each stratum with values in whose pictures the reference detects nothing.

    However many their rows: a detector that is blind there alone is not found by them.
    """
    if not measured.expected:
        return ()
    checks = []
    for name, values in measured.strata.items():
        empty = [f"{value!r} (rows: {found.rows})" for value, found in values.items() if not found.expected]
        if empty:
            more = f" and {len(empty) - _NAMED_VALUES} other values" if len(empty) > _NAMED_VALUES else ""
            detail = (
                f"of {name!r} are not covered, as the reference detects nothing there: "
                f"{', '.join(empty[:_NAMED_VALUES])}{more}"
            )
            checks.append(
                Check(name="strata_coverage", status=Status.WARNING, detail=detail, output=measured.rule.name)
            )
    return tuple(checks)


def _check_finite(measured: MatchStatistics) -> Check:
    bad = measured.non_finite
    return Check(
        name="finite",
        status=Status.FAIL if bad else Status.PASS,
        detail=f"{bad} detections of the candidate are NaN or infinite" if bad else "every detection is finite",
        output=measured.rule.name,
        measured=bad,
        limit=0,
    )


def _within(measured: MatchStatistics, name: str, value: float, limit: float) -> Check:
    is_within = value <= limit
    return Check(
        name=name,
        status=Status.PASS if is_within else Status.FAIL,
        detail=f"{value:.6g} {'<=' if is_within else '>'} {limit:.6g}",
        output=measured.rule.name,
        measured=value,
        limit=limit,
    )


def failed_match(rules: Iterable[MatchRule], batch: Batch, actual: Outputs, expected: Outputs) -> Check | None:
    """Return the first check that one batch alone fails; None if it fails none.

    It is about no output, since a match is about several.

    Raises:
        UsageError: The reference's outputs hold no detections, or too many to match.
    """
    for rule in rules:
        comparison = MatchComparison(rule)
        comparison.add(batch, actual, expected)
        comparison.end_pass()
        for check in judge_matches(comparison.finish()):
            if check.status is Status.FAIL:
                return Check(name=check.name, status=check.status, detail=f"{rule.name}: {check.detail}")
    return None
