"""The candidate gives the same batch different answers, as where requests share memory."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from paritygate.validate.causes.cause import Case, Row
from paritygate.validate.causes.rows import Measure
from paritygate.validate.gate.candidate import ModelCandidate, RefusedInputsError
from paritygate.validate.measure.check import NAMED, Cause, Status
from paritygate.validate.words.sentence import say

_KIND, _REPEATS = "intermittent", "repeat_max_abs_diff"
# How often the batch runs again: a fault may come back.
_TIMES = 4


def find(case: Case) -> Iterator[Cause]:
    """Yield the cause if passes differ, or if a batch with a failing row agrees with the reference when it runs again.

    The batch runs again only if one of its failing rows agrees alone, as a row in a batch may depend on the others.
    """
    if any(check.name == _REPEATS and check.status is Status.FAIL for check in case.result.checks):
        yield Cause(kind=_KIND, outcome=NAMED, words=say("cause.intermittent.passes", passes=case.rules.passes))
        return
    if not (case.is_asked and isinstance(case.candidate, ModelCandidate)):
        return
    measure, statistics = Measure(case), case.result.measurement.statistics
    worst = [row for name in case.outputs & statistics.keys() for row in statistics[name].worst_rows]
    failing = {row.row_id for row in worst if row.in_limits > 1}
    row = next((row for row in case.chosen if row.row_id in failing and _agrees(measure, row)), None)
    if row is not None and any(_agrees(measure, again) for again in _batch_of(case, row.row_id)):
        yield Cause(kind=_KIND, outcome=NAMED, words=say("cause.intermittent", row=row.row_id))


def _agrees(measure: Measure, row: Row) -> bool:
    return max(measure([row]).values()) <= 1


def _batch_of(case: Case, row_id: str) -> Iterator[Row]:
    """Yield the batch with a row, run again each time; nothing where other batches have its id, or time is over."""
    case.candidate.start_pass()
    reader = case.expected.open_reader()
    taken = ((batch, reader.take(batch)) for batch in case.read() if batch.rows)
    found = [(batch, wanted) for batch, wanted in taken if row_id in batch.ids]
    if len(found) != 1:
        return
    batch, wanted = found[0]
    with contextlib.suppress(RefusedInputsError):
        for _ in range(_TIMES):
            if case.clock.has(batch.rows):
                yield Row(row_id=row_id, batch=batch, expected=wanted, actual=case.candidate.answer(batch))
