"""Single rows of the samples with both sides' answers, and the largest difference in them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from paritygate.batch import Arrays, Batch
from paritygate.validate.causes.cause import Case, Row
from paritygate.validate.gate.candidate import Candidate, ModelCandidate, RecordedCandidate, RefusedInputsError
from paritygate.validate.gate.gate import run_gate
from paritygate.validate.gate.measures import GateResult
from paritygate.validate.samples.row_digest import has_rows


def rows_taken(case: Case, ids: set[str], numbers: frozenset[int]) -> Iterator[Row]:
    """Yield rows of the samples by id or number while time is left; none of batches without rows."""
    case.candidate.start_pass()
    reader = case.expected.open_reader()
    number, left = 0, {*ids}
    for batch in case.read():
        if not batch.rows:
            continue
        wanted = reader.take(batch)
        # Recorded outputs come in the order of the samples.
        whole = None if isinstance(case.candidate, ModelCandidate) else case.candidate.answer(batch)
        are_left_out = case.left_out.are_left_out(batch) if case.left_out.are_left_out else [False] * batch.rows
        for row, row_id in enumerate(batch.ids if has_rows(batch) else ()):
            if are_left_out[row] or not (row_id in ids or number + row in numbers):
                continue
            left.discard(row_id)
            at = np.resize([row], _rows_of_a_call(case, batch))
            alone = Batch(inputs=_at(batch.inputs, at, batch.rows), ids=[row_id] * len(at))
            answer = _answer(case, alone) if whole is None else _at(whole, at, batch.rows)
            yield Row(row_id=row_id, batch=alone, expected=_at(wanted, at, batch.rows), actual=answer)
        number += batch.rows
        if (not left and number > max(numbers, default=0)) or not case.clock.has(0):
            return


def _at(arrays: Arrays, at: NDArray[np.intp], rows: int) -> dict[str, NDArray[np.generic]]:
    return {name: array[at] if array.ndim and len(array) == rows else array for name, array in arrays.items()}


def _rows_of_a_call(case: Case, batch: Batch) -> int:
    """Return how many rows a call has: 1, or the file's fixed batch, which repeats the row."""
    if not isinstance(case.candidate, ModelCandidate):
        return 1
    sizes = {spec.shape[0] for spec in case.candidate.signature.inputs if spec.shape}
    return batch.rows if batch.rows in sizes else 1


def _answer(case: Case, batch: Batch) -> Arrays | None:
    if not case.is_asked:
        return None
    try:
        return case.candidate.answer(batch)
    except RefusedInputsError:
        return None


class _Reader:
    def __init__(self, answers: Sequence[Arrays]) -> None:
        self._answers = iter(answers)

    def take(self, batch: Batch) -> dict[str, NDArray[np.generic]]:
        del batch
        return dict(next(self._answers))

    def end(self, samples_digest: str) -> None:
        """Do nothing: the rows are a part of those that were recorded."""


@dataclass(frozen=True, slots=True)
class Measure:
    """Measures the largest difference in some rows, by the rules of the comparison."""

    case: Case

    def __call__(self, rows: Sequence[Row], candidate: Candidate | None = None) -> dict[str, float]:
        """Return for each output the largest difference as a multiple of its limit, or how many values differ.

        It is infinite where there is no output. Without a candidate, the outputs that the rows hold count.
        """
        if candidate is None:
            answers = [row.actual for row in rows if row.actual is not None]
            if len(answers) < len(rows):
                return dict.fromkeys(self.case.outputs, math.inf)
            names = frozenset.intersection(*(frozenset(answer) for answer in answers))
            candidate = RecordedCandidate(output_names=names, open_reader=lambda: _Reader(answers))
        result = run_gate(
            candidate,
            replace(self.case.expected, open_reader=lambda: _Reader([row.expected for row in rows])),
            lambda: iter([row.batch for row in rows]),
            replace(self.case.rules, passes=1, strata=(), gold=()),
            workspace=self.case.workspace,
        )
        count = sum(row.batch.rows for row in rows)
        return {name: _largest(name, result, count) for name in self.case.outputs}


def _largest(name: str, found: GateResult, rows: int) -> float:
    if name in found.matches:
        return float(found.matches[name].missing + found.matches[name].extra)
    statistics = found.measurement.statistics[name]
    if statistics.rows < rows:
        return math.inf
    # Of values that are compared exactly, a difference has no size; one of them is beyond the limit.
    if statistics.mismatches and found.limits[name].is_exact:
        return 1.0 + statistics.mismatches
    return max((row.in_limits for row in statistics.worst_rows), default=0.0)
