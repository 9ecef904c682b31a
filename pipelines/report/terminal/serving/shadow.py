"""The results of `shadow` and `capture` in the terminal."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from paritygate.pipelines.release.repository.commands import command_on
from paritygate.pipelines.report.figures import number
from paritygate.pipelines.report.terminal.printing import Shown, print_lines, print_outcome
from paritygate.pipelines.report.terminal.screen import command_lines
from paritygate.pipelines.shadow.result import ShadowResult
from paritygate.pipelines.shadow.sending import CaptureResult
from paritygate.pipelines.shadow.sequential import PROMOTED_BELOW, Verdict
from paritygate.pipelines.shadow.shadow import ShadowRequest
from paritygate.text import counted, one_or_many

# By the kind of an `InputDrift`: what no sample has.
_UNLIKE = {
    "below": "smaller values than in all samples",
    "above": "larger values than in all samples",
    "missing": "NaN more often than in the samples",
    "new ids": "ids that no sample has",
    "shorter": "shorter than all samples",
    "longer": "longer than all samples",
    "fewer valid positions": "fewer valid positions than in all samples",
    "more valid positions": "more valid positions than in all samples",
}


def print_shadow(result: ShadowResult, request: ShadowRequest, shown: Shown) -> None:
    """Print the verdict and why."""
    of = f"{result.model} version {result.version}, {result.variant}"
    facts = [
        f"{of}: {counted(result.requests, 'request')} judged, {counted(result.rows, 'row')}",
        f"changed: {counted(result.changed, 'row')}, and {number(result.changed_near_the_boundary)} near the boundary",
        f"allowed: {_percent(result.max_flip_rate)} of the answers",
    ]
    print_outcome(_verdict(result), [*facts, *_counted_apart(result), *_of_inputs(result)], shown)
    # Of a version, nobody knows that an alias points to it.
    if result.verdict == Verdict.ROLLBACK and not shown.is_quiet and not str(request.which).isdecimal():
        back = command_on(request.repository, "rollback", result.model, "--alias", str(request.which))
        _print_next(back, shown)


def _print_next(command: str, shown: Shown) -> None:
    print_lines(["next:", *command_lines(command, indent="  ")], err=shown.to_stderr)


def print_capture(result: CaptureResult, shown: Shown) -> None:
    """Print what was captured, and what was not."""
    facts = []
    if result.unanswered:
        facts.append(f"{counted(result.unanswered, 'captured request')} got no readable answer, or an error")
    if result.lost:
        facts.append(f"lost: {counted(result.lost, 'request')} that could not wait, or were not answered by the end")
    if result.unreadable:
        facts.append(f"left out: {counted(result.unreadable, 'request')} that are no inference requests in JSON")
    if result.unpaired:
        facts.append(f"left out: {counted(result.unpaired, 'event')} without a request or an answer")
    print_outcome(f"captured {counted(result.captured, 'request')} in {result.out}", facts, shown)
    if result.is_answered and not shown.is_quiet:
        _print_next(f"convert-and-validate shadow MODEL --captured {shlex.quote(result.out)}", shown)


def _counted_apart(result: ShadowResult) -> Iterator[str]:
    """Yield what is there only in some files."""
    yield from _not_changed(result)
    if result.first_changed is not None:
        why = f": {result.first_why}" if result.first_why else ""
        yield f"first change: line {result.first_changed} of {result.captured}{why}"
    if result.is_last_line_cut_off:
        yield f"note: the last line of {result.captured} is cut off, and was left out"
    if result.verdict == Verdict.HOLD and result.until_promoted is None:
        yield "PROMOTE is not possible, because too many requests are refused or do not fit"
    if result.until_promoted is not None:
        yield f"PROMOTE needs {counted(result.until_promoted, 'more request')} without a changed answer"


def _not_changed(result: ShadowResult) -> Iterator[str]:
    """Yield requests and rows that are not compared, or not only by their values."""
    if result.beyond_limits:
        rows = counted(result.beyond_limits, "row")
        yield f"{rows} with values beyond their limits, and no changed decision beyond them"
    if result.unanswered:
        unreadable = f" ({result.unreadable} with an answer that cannot be read)" if result.unreadable else ""
        yield f"unanswered: {counted(result.unanswered, 'request')}{unreadable}, each counted as changed"
    if result.refused:
        yield f"refused: {counted(result.refused, 'request')} with a status from 400 to 499"
    if result.unfit:
        first = f"the first is line {result.first_unfit}"
        yield f"not judged: {counted(result.unfit, 'request')} that the release does not accept; {first}"
    if result.of_other_versions:
        versions = " and ".join(result.other_versions)
        yield f"not judged: {counted(result.of_other_versions, 'request')} that version {versions} answered"
        yield f"restart each server that does not serve version {result.version}"
    if result.reported_versions:
        versions = " and ".join(result.reported_versions)
        yield f"note: the server reports version {versions}, and the release is version {result.version}"
    if result.noise:
        yield f"not judged: {counted(result.noise, 'row')} that the released file answers in two ways"


def _of_inputs(result: ShadowResult) -> Iterator[str]:
    if result.inputs is None:
        why = "the release holds no survey of its inputs" if result.rows else "no request was judged"
        yield f"inputs: not measured, because {why}"
        return
    findings = [item for item in result.inputs if item.is_finding]
    if not findings:
        seen = "values" if result.inputs else "no value"
        yield f"inputs: {seen} outside of the samples' ranges{', no more than by chance' if result.inputs else ''}"
    for item in findings:
        seen = f" ({item.seen})" if item.seen else ""
        yield f"finding: input {item.input}: {_UNLIKE[item.kind]} in {item.requests:,} of {item.of:,} requests{seen}"


def _verdict(result: ShadowResult) -> str:
    rate = "" if result.flip_rate is None else f" (seen in all: {_percent(result.flip_rate)})"
    after = result.decided_after or 0
    return {
        Verdict.ROLLBACK: f"verdict: ROLLBACK: more than {_percent(result.max_flip_rate)} of the answers change, "
        f"as the first {counted(after, 'request')} {one_or_many(after, 'shows', 'show')}{rate}",
        Verdict.PROMOTE: f"verdict: PROMOTE: fewer than {_percent(PROMOTED_BELOW * result.max_flip_rate)} of the "
        f"answers change{rate}",
        Verdict.HOLD: f"verdict: HOLD: {counted(result.requests, 'request')} are too few to decide{rate}",
    }[Verdict(result.verdict)]


def _percent(rate: float) -> str:
    return f"{number(100 * rate)} %"
