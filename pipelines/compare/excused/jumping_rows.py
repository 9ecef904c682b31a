"""Excuse rows at which both models jump: moving the inputs by a rounding changes the outputs as much as they differ.

A tree behind a scaler decides a row at a split by the last digit of the scaled input. Each such row is excused alone,
counted, and capped like decisions near their boundary.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from paritygate.batch import Batch
from paritygate.errors import ArtifactIntegrityError, BackendError, UsageError
from paritygate.pipelines.compare.excused.reference_noise import RerunContext
from paritygate.pipelines.compare.excused.replaced_answers import ReplacedAnswers, with_excused
from paritygate.validate.gate.candidate import RefusedInputsError
from paritygate.validate.gate.measures import GateResult
from paritygate.validate.gate.verdict import flips_allowed
from paritygate.validate.measure.check import Check, Status
from paritygate.validate.measure.valid_positions import only_valid
from paritygate.validate.reference.reference_noise import rows_within
from paritygate.validate.samples.feeding import fit_inputs
from paritygate.validate.samples.row_digest import has_rows
from paritygate.validate.words.sentence import say

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from paritygate.validate.runners.runner import Runner

    Arrays = Mapping[str, NDArray[np.generic]]

_NAME = "reference_jumps"
# Checks that a few rows can fail, alone or by their part of a mean.
_OF_ROWS = frozenset(
    {"decision_mismatches", "exact", "max_abs_diff", "max_row_rel_diff", "mean_abs_diff", "p9999_abs_diff", "rms_diff"}
)
# The inputs move by so many roundings.
_STEPS = (1, -1, 2, -2)
_NAMED = 3


def without_jumps(result: GateResult, again: RerunContext) -> GateResult:
    """Return the result without the rows at which the reference jumps, if such rows cause all failures.

    The figures stay. Only checks that fail by these rows alone pass.
    """
    failed = {check.output or "" for check in result.checks if check.status is Status.FAIL and check.name in _OF_ROWS}
    rows = result.measurement.rows
    least, share = flips_allowed(again.rules.precision)
    cap = max(least, math.floor(share * rows))
    patterns = result.measurement.patterns
    beyond = [sum(patterns[name].beyond_in.values()) for name in failed if name in patterns]
    if not beyond or max(beyond) > cap:
        return result
    try:
        runner = again.open_reference()
    except ArtifactIntegrityError:
        # It is another model than the recorded one.
        return result
    if runner is None or not any(spec.dtype.startswith("float") for spec in runner.signature.inputs):
        return result
    candidate = _WithoutJumps(result, again, runner, cap)
    without = again.run(candidate)
    if not candidate.excused:
        return result
    return with_excused(result, without, _OF_ROWS, "jumps.excused", candidate.check())


class _WithoutJumps(ReplacedAnswers):
    """The candidate, with the reference's outputs in rows where both models jump."""

    def __init__(self, result: GateResult, again: RerunContext, runner: Runner, cap: int) -> None:
        super().__init__(again.candidate)
        self._limits = result.limits
        self._expected = again.expected
        self._runner = runner
        self._cap = cap
        self._reader = again.expected.open_reader()
        self.excused: dict[str, None] = {}

    def start_pass(self) -> None:
        """Begin the sequence of batches."""
        self._reader = self._expected.open_reader()
        super().start_pass()

    def replaced(
        self, number: int, batch: Batch, answers: dict[str, NDArray[np.generic]]
    ) -> dict[str, NDArray[np.generic]]:
        """Return the outputs, with the reference's in rows that jump."""
        del number
        wanted = self._reader.take(batch)
        counting = only_valid(wanted, batch.inputs, self._expected.positions)
        compared = {name: array for name, array in counting.items() if self._is_compared(name, array, answers, batch)}
        beyond = np.zeros(batch.rows, dtype=bool)
        for name, array in compared.items():
            beyond = np.logical_or(beyond, ~self._is_within(name, answers[name], array))
        places = np.flatnonzero(beyond)
        if not places.size or len(self.excused) + places.size > self._cap or not has_rows(batch):
            return answers
        excused = self._excused(places, batch, answers, compared)
        if excused.size:
            self.excused.update(dict.fromkeys(batch.ids[place] for place in excused))
            for name in compared:
                answers[name] = answers[name].copy()
                answers[name][excused] = wanted[name][excused]
        return answers

    def _is_compared(self, name: str, array: NDArray[np.generic], answers: Arrays, batch: Batch) -> bool:
        if name not in self._limits or name not in answers or answers[name].shape != array.shape:
            return False
        return array.ndim > 0 and len(array) == batch.rows and array.dtype.kind in "fVibu"

    def _is_within(self, name: str, actual: NDArray[np.generic], expected: NDArray[np.generic]) -> NDArray[np.bool_]:
        profile = self._expected.profiles[name]
        if profile.is_float:
            return rows_within(actual, expected, None, limits=self._limits[name], profile=profile)
        return _all_of_rows(np.asarray(actual == expected))

    def _excused(self, places: NDArray[np.intp], batch: Batch, answers: Arrays, compared: Arrays) -> NDArray[np.intp]:
        """Return the positions of rows where each model reaches the other's outputs when the inputs move by a rounding.

        Where only the candidate keeps its outputs, its boundary differs. Outputs in between count too, because rounding
        moves only some of several trees that split there.
        """
        rows = [_rows_moved(batch, places, steps) for steps in _STEPS]
        try:
            of_reference = [self._runner.run(fit_inputs(each, self._runner.signature)) for each in rows]
            of_candidate = [self._candidate.answer(each) for each in rows]
        except (BackendError, RefusedInputsError, UsageError):
            return places[:0]
        is_excused = np.ones(places.size, dtype=bool)
        for name, array in compared.items():
            actual, expected = answers[name][places], array[places]
            for own, moved, other in ((expected, of_reference, actual), (actual, of_candidate, expected)):
                arrays = [np.asarray(answer[name]) for answer in moved]
                if any(each.shape != own.shape for each in arrays):
                    return places[:0]
                is_excused &= self._is_reached(name, other, [own, *arrays], expected)
        return places[is_excused]

    def _is_reached(
        self, name: str, answer: NDArray[np.generic], others: list[NDArray[np.generic]], expected: NDArray[np.generic]
    ) -> NDArray[np.bool_]:
        """Return the rows where an output is between the others, within the limits of the reference's."""
        if not self._expected.profiles[name].is_float:
            return _all_of_rows(np.logical_or.reduce([np.asarray(answer == other) for other in others]))
        low, high = (functools.reduce(pick, others) for pick in (np.minimum, np.maximum))
        outside = np.subtract(answer, np.clip(answer, low, high))
        return self._is_within(name, np.add(expected, outside), expected)

    def check(self) -> Check:
        """Return a warning on the excused rows."""
        ids, count = list(self.excused)[:_NAMED], len(self.excused)
        more = say("jumps.more" if count > _NAMED else "nothing")
        words = say("jumps", count=count, ids=ids, more=more, cap=self._cap)
        return Check(name=_NAME, status=Status.WARNING, words=words, rows=count, measured=count, limit=self._cap)


def _all_of_rows(flags: NDArray[np.bool_]) -> NDArray[np.bool_]:
    of_rows: NDArray[np.bool_] = np.logical_and.reduce(flags.reshape(len(flags), -1), axis=1)
    return of_rows


def _rows_moved(batch: Batch, places: NDArray[np.intp], steps: int) -> Batch:
    """Return some rows of a batch with every float input moved by so many roundings."""
    inputs = {
        name: _moved(array, steps)[places] if array.ndim and len(array) == batch.rows else array
        for name, array in batch.inputs.items()
    }
    return Batch(inputs=inputs, ids=[batch.ids[place] for place in places])


def _moved(array: NDArray[np.generic], steps: int) -> NDArray[np.generic]:
    """Return the values moved by roundings of float32, or of their own dtype where that is coarser.

    A rounding is at least that of the column's median, because a scaler subtracts the mean of the column.
    """
    if array.dtype.kind != "f":
        return array
    values = array.astype(np.float64)
    sizes = np.where(np.isfinite(values), np.abs(values), 0.0)
    sizes = np.maximum(sizes, np.median(sizes, axis=0))
    coarse = np.float16 if array.dtype.itemsize < np.dtype(np.float32).itemsize else np.float32
    step = np.spacing(sizes.astype(coarse)).astype(np.float64)
    moved: NDArray[np.generic] = np.where(np.isfinite(values), values + steps * step, values).astype(array.dtype)
    return moved
