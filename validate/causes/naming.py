"""Looks for the cause where samples fail: first in files and outputs at hand, then by two trials at most.

A trial first runs on the row that differs most. If the difference falls below a tenth there, it runs on the eight worst
rows, and on rows that did not choose it.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from paritygate.errors import CacheMissError, ParitygateError
from paritygate.validate.causes.cause import FACTS, LAST, TRIALS, Case, Trial
from paritygate.validate.causes.rows import Measure, rows_taken
from paritygate.validate.gate.candidate import Candidate, ModelCandidate
from paritygate.validate.measure.check import FAULT, NAMED, NO_TIME, NOT_ASKED, NOT_CONFIRMED, Cause, Status
from paritygate.validate.probes.own_faults import internal_error_message
from paritygate.validate.words.sentence import say

_MOST_ROWS, _LEAST_ROWS = 8, 2
_MOST_TRIALS = 2
# A trial is named if the largest difference falls below this part.
_LEFT = 0.1
# Looking for the cause takes this share of the comparison's processor time, or so many seconds where that is more.
_SHARE, _LEAST_SECONDS = 0.05, 0.5
# Runs for each row: the worst and the others, as they are and in a trial.
_RUNS = 4
# The candidate's outputs are as large as the reference's, within this factor: then values are in another order.
_ALIKE = 1.5


def seconds_for_causes(elapsed_s: float) -> float:
    """Return how many seconds looking for the cause may take, after a comparison of so many."""
    return max(_SHARE * elapsed_s, _LEAST_SECONDS)


def causes_of(case: Case) -> tuple[Cause, ...]:
    """Return the causes found and the trials skipped; none where no sample fails.

    A fault of this tool is a cause of its own. CacheMissError passes: outputs are cached, and the candidate may
    not run.
    """
    case = replace(case, outputs=_failed_outputs(case))
    if not case.outputs:
        return ()
    try:
        return tuple(_causes_of(case))
    except CacheMissError:
        raise
    except Exception as err:  # noqa: BLE001 - whatever it is, the comparison stands without it
        return (Cause(kind="unknown", outcome=FAULT, words=say("cause.fault", reason=internal_error_message(err))),)


def _failed_outputs(case: Case) -> frozenset[str]:
    """Return the outputs and lists of detections whose rows fail; all of them where inputs are refused."""
    failed = [check for check in case.result.checks if check.status is Status.FAIL]
    names = {*case.result.measurement.statistics, *case.result.matches}
    if any(check.name == "accepts_inputs" for check in failed):
        return frozenset(names)
    return frozenset(check.output for check in failed if check.output in names)


def _causes_of(case: Case) -> Iterator[Cause]:
    case.workspace.mkdir(exist_ok=True)
    case = _with_rows(case)
    causes = [cause for name in FACTS.values() for cause in importlib.import_module(name).find(case)]
    if not causes:
        causes = list(_by_trials(case, Measure(case)))
    for name in LAST.values():
        if any(cause.outcome == NAMED for cause in causes):
            break
        causes += importlib.import_module(name).find(case)
    yield from causes


def _with_rows(case: Case) -> Case:
    """Return the case with the worst rows to choose a trial by, and other rows to confirm it."""
    statistics = case.result.measurement.statistics
    worst = sorted(
        (row for name in case.outputs if name in statistics for row in statistics[name].worst_rows),
        key=lambda row: -row.in_limits,
    )
    ids = list(dict.fromkeys(row.row_id for row in worst))
    most = next(
        (rows for rows in range(_MOST_ROWS, _LEAST_ROWS, -1) if case.clock.has(_RUNS * (rows + 1))), _LEAST_ROWS
    )
    # Where there are few, every other one is kept back.
    chosen = ids[:most] if len(ids) > most else ids[::2]
    kept_back = [row_id for row_id in ids if row_id not in chosen][:most]
    # Where nothing was answered, all rows are equally bad.
    count = most if ids else 2 * most
    spread = range(0, case.result.measurement.rows or count, max(1, case.result.measurement.rows // count))
    items = {item.row_id: item for item in rows_taken(case, {*chosen, *kept_back}, frozenset(spread))}
    if not ids:
        chosen, kept_back = list(items)[::2], list(items)[1::2]
    others = (*kept_back, *(row_id for row_id in items if row_id not in ids))
    return replace(
        case,
        chosen=tuple(items[row_id] for row_id in chosen if row_id in items),
        others=tuple(items[row_id] for row_id in dict.fromkeys(others) if row_id in items)[:most],
    )


def _by_trials(case: Case, measure: Measure) -> Iterator[Cause]:
    if not isinstance(case.candidate, ModelCandidate):
        return
    if not case.is_asked:
        yield Cause(kind="trials", outcome=NOT_ASKED, words=say("cause.not_asked"))
        return
    if not case.clock.has(1):
        yield _no_time("trials")
        return
    results = list(_tried(case, measure)) if case.chosen and case.others else []
    yield from (item for item in results if isinstance(item, Cause))
    helpful = sorted((item for item in results if not isinstance(item, Cause)), key=lambda item: item[0])
    for _, trial, candidate in helpful[:_MOST_TRIALS]:
        cause = _confirmed(case, measure, trial, candidate)
        yield cause
        if cause.outcome != NOT_CONFIRMED:
            return


def _tried(case: Case, measure: Measure) -> Iterator[tuple[float, Trial, Candidate] | Cause]:
    """Yield trials that help the row that differs most, with the difference left; a cause for each without time."""
    first = case.chosen[:1]
    before = measure(first)
    for trial in _trials_of(case) if any(value > 1 for value in before.values()) else ():
        if not case.clock.has(1, is_opened=trial.is_opened):
            yield _no_time(trial.kind)
            if trial.is_opened:
                continue
            return
        candidate = _opened(trial)
        after = before if candidate is None else measure(first, candidate)
        if candidate is not None and _is_better(after, before):
            left = max(after.values())
            yield left, trial, candidate
            if left <= 1:
                # Nothing is left to explain.
                return


def _trials_of(case: Case) -> Iterator[Trial]:
    """Yield trials, the likely ones first: another order keeps the sizes of outputs, another scale does not."""
    sizes = [
        abs(statistics.slope / statistics.cosine_similarity)
        for statistics in case.result.measurement.statistics.values()
        if statistics.cosine_similarity
    ]
    is_scaled = any(not 1 / _ALIKE <= size <= _ALIKE for size in sizes if math.isfinite(size))
    names = sorted(TRIALS, key=lambda name: name != "input_scale") if is_scaled else list(TRIALS)
    for name in names:
        yield from importlib.import_module(TRIALS[name]).trials(case)


def _opened(trial: Trial) -> Candidate | None:
    try:
        return trial.open()
    except CacheMissError:
        raise
    except ParitygateError:
        # A model that cannot be opened so shows nothing.
        return None


def _is_better(after: Mapping[str, float], before: Mapping[str, float]) -> bool:
    """Return whether each difference beyond its limit falls below a tenth, and no other output fails."""
    is_beyond = {name: value > 1 for name, value in before.items()}
    # Of a difference without a size, a tenth is none either.
    has_tenth = {name: is_beyond[name] and math.isfinite(value) for name, value in before.items()}
    allowed = {name: _LEFT * value if has_tenth[name] else 1.0 for name, value in before.items()}
    return any(is_beyond.values()) and all(after[name] <= allowed[name] for name in before)


def _confirmed(case: Case, measure: Measure, trial: Trial, candidate: Candidate) -> Cause:
    """Return the outcome of a trial on the worst rows, and on others."""
    for rows in (case.chosen, case.others):
        if not case.clock.has(len(rows)):
            return _no_time(trial.kind)
        before, after = measure(rows), measure(rows, candidate)
        is_named = _is_better(after, before)
        if not is_named:
            break
    figures = [max(side.values()) for side in (before, after)]
    differences = [value if math.isfinite(value) else None for value in figures]
    words = say(f"cause.{trial.kind}", **trial.values)
    if not is_named:
        words += say("cause.not_confirmed", rows=len(rows))
    elif differences[0] is None:
        words += say("cause.answered", rows=len(rows), after=differences[1])
    else:
        words += say("cause.confirmed", rows=len(rows), before=differences[0], after=differences[1])
    return Cause(
        kind=trial.kind,
        outcome=NAMED if is_named else NOT_CONFIRMED,
        words=words,
        rows=len(rows),
        before=differences[0],
        after=differences[1],
    )


def _no_time(kind: str) -> Cause:
    return Cause(kind=kind, outcome=NO_TIME, words=say("cause.no_time"))
