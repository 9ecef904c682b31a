"""Judges matched detections."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from paritygate.batch import Arrays, Batch
from paritygate.validate.detections.figures import MatchStatistics
from paritygate.validate.detections.measurement import MatchComparison
from paritygate.validate.detections.rule import MatchRule
from paritygate.validate.measure.check import Check, Kind, Status
from paritygate.validate.measure.strata import NAMED_VALUES, values_named
from paritygate.validate.words.sentence import Words, joined, say

# Equal scores at the end of a full list are rare except in blank pictures, so they excuse no larger share of pictures.
_MOST_ENDS = 0.1


def judge_matches(measured: MatchStatistics) -> tuple[Check, ...]:
    """Return every check of one list of detections."""
    name, rows = measured.name, measured.rows
    if measured.violations:
        words = joined(measured.violations, "; ")
        return (Check(name="contract.match", status=Status.FAIL, words=words, output=name, rows=rows),)
    if not measured.expected and not measured.actual and not measured.non_finite:
        words = say("match.nothing", rows=rows)
        return (
            Check(
                name="detections_matched",
                status=Status.INCONCLUSIVE,
                kind=Kind.NOT_MEASURED,
                words=words,
                output=name,
                rows=rows,
            ),
        )
    checks = [_check_matched(measured), _check_finite(measured)]
    for what, value, limit in (
        ("score", measured.max_score_diff, measured.score_tolerance),
        ("box", measured.max_box_diff, measured.most_box_diff),
        ("other", measured.max_other_diff, measured.most_other_diff),
    ):
        if value is not None and limit is not None:
            checks.append(_within(measured, f"match_{what}_diff", value, limit))
    return tuple(checks)


def _check_matched(measured: MatchStatistics) -> Check:
    left = measured.missing + measured.extra
    at_floor = measured.near_floor - measured.at_end
    counts = {"missing": measured.missing, "extra": measured.extra}
    words = say("match", matched=measured.matched, total=measured.expected, iou=measured.iou, **counts)
    if at_floor:
        words += say("match.near_floor", at_floor=at_floor, score_floor=measured.score_floor)
    if measured.at_end:
        words += say("match.at_end", at_end=measured.at_end, end_rows=measured.end_rows, rows=measured.rows)
    if measured.matched:
        words += say("match.smallest", min_iou=measured.min_iou, difference=measured.max_box_diff)
    if measured.examples:
        words += say("match.example", example=measured.examples[0]) + _by_stratum(measured)
    status = Status.FAIL if left else Status.PASS
    if measured.below_floor:
        words += say("match.below_floor", count=measured.below_floor, score_floor=measured.score_floor)
        if not left and not measured.score_floor:
            # Without a floor, such scores may mean something: they may be logits.
            status = Status.INCONCLUSIVE
            words += say("match.no_floor")
    if status is not Status.FAIL and _is_mostly_end(measured):
        status = Status.INCONCLUSIVE
        words += say("match.mostly_end", share=_MOST_ENDS)
    return Check(
        name="detections_matched",
        status=status,
        words=words,
        output=measured.name,
        rows=measured.rows,
        measured=left,
        limit=0,
    )


def _is_mostly_end(measured: MatchStatistics) -> bool:
    """Return whether list ends leave over more than equal scores explain, or nothing else is there."""
    return measured.at_end > 0 and (not measured.matched or measured.end_rows > _MOST_ENDS * measured.rows)


def _by_stratum(measured: MatchStatistics) -> Words:
    """Return where detections are left over; empty without strata."""
    words: Words = ()
    for name, values in measured.strata.items():
        left = {
            value: figures.missing + figures.extra
            for value, figures in values.items()
            if figures.missing + figures.extra
        }
        most = sorted(left.items(), key=lambda item: -item[1])[:NAMED_VALUES]
        listed = joined(
            say("left_of_value", count=count, value=value, rows=values[value].rows) for value, count in most
        )
        listed += say("other_values", count=len(left) - len(most)) if len(left) > len(most) else ()
        words += say("match.left_by", stratum=name, values=listed)
    return words


def detections_coverage(measured: MatchStatistics) -> tuple[Check, ...]:
    """Warn of strata values without detections of the reference: a detector that is blind there alone is not found."""
    if not measured.expected:
        return ()
    checks = []
    for name, values in measured.strata.items():
        empty = {value: figures.rows for value, figures in values.items() if not figures.expected}
        if empty:
            words = say("match.not_covered", stratum=name, values=values_named(empty))
            checks.append(Check(name="strata_coverage", status=Status.WARNING, words=words, output=measured.name))
    return tuple(checks)


def _check_finite(measured: MatchStatistics) -> Check:
    bad = measured.non_finite
    return Check(
        name="finite",
        status=Status.FAIL if bad else Status.PASS,
        words=say("match.not_finite", count=bad) if bad else say("match.finite"),
        output=measured.name,
        rows=measured.rows,
        measured=bad,
        limit=0,
    )


def _within(measured: MatchStatistics, name: str, value: float, limit: float) -> Check:
    is_within = value <= limit
    return Check(
        name=name,
        status=Status.PASS if is_within else Status.FAIL,
        words=say("at_most" if is_within else "above", measured=value, limit=limit),
        output=measured.name,
        rows=measured.rows,
        measured=value,
        limit=limit,
    )


def failed_match(rules: Iterable[MatchRule], batch: Batch, actual: Arrays, expected: Arrays) -> Check | None:
    """Return the first check that one batch alone fails, or None; its output is None, since a match has several."""
    for rule in rules:
        comparison = MatchComparison(rule)
        comparison.add(batch, actual, expected)
        comparison.end_pass()
        for check in judge_matches(comparison.finish()):
            if check.status is Status.FAIL:
                return replace(check, output=None, words=say("match.of_rule", match=rule.name, difference=check.words))
    return None
