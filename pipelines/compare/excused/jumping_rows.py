"""Excuse rows at which both models jump: moving the inputs by a rounding changes the outputs as much as they differ.

A tree behind a scaler decides a row at a split by the last digit of the scaled input. Each such row is excused alone,
counted, and capped like decisions near their boundary.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from paritygate.batch import Batch
from paritygate.errors import BackendError, CacheMissError, ParitygateError, UsageError
from paritygate.pipelines.compare.excused.reference_noise import RerunContext, not_run_again
from paritygate.pipelines.compare.excused.replaced_answers import RowsExcused, all_of_rows, may_be_excused, with_excused
from paritygate.validate.gate.candidate import RefusedInputsError
from paritygate.validate.gate.measures import GateResult
from paritygate.validate.gate.rules import GateRules
from paritygate.validate.gate.verdict import flips_allowed
from paritygate.validate.measure.check import Check, Status
from paritygate.validate.samples.feeding import fit_inputs
from paritygate.validate.words.sentence import say

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Arrays = Mapping[str, NDArray[np.generic]]

_NAME = "reference_jumps"
# Checks that a few rows can fail, alone or by their part of a mean.
JUMP_CHECKS = frozenset(
    {"decision_mismatches", "exact", "max_abs_diff", "max_row_rel_diff", "mean_abs_diff", "p9999_abs_diff", "rms_diff"}
)
# The inputs move by so many roundings.
_STEPS = (1, -1, 2, -2)
JUMPS_NAMED = 3


def without_jumps(result: GateResult, again: RerunContext) -> GateResult:
    """Return the result without the rows at which the reference jumps, if such rows cause all failures.

    The figures stay. Only checks that fail by these rows alone pass.
    """
    cap = most_jumps(again.rules, result.measurement.rows)
    if not may_be_excused(result, JUMP_CHECKS, cap):
        return result
    try:
        runner = again.open_reference()
    except CacheMissError:
        raise
    except ParitygateError as err:
        return not_run_again(result, err)
    if runner is None or not any(spec.dtype.startswith("float") for spec in runner.signature.inputs):
        return result
    candidate = WithoutJumps(again.candidate, again.expected, result.limits, runner, cap)
    without = again.run(candidate)
    if not candidate.excused or len(candidate.beyond) > cap:
        return result
    check = jumps_check(list(candidate.excused), len(candidate.excused), cap)
    return with_excused(result, without, JUMP_CHECKS, "jumps.excused", check)


class WithoutJumps(RowsExcused):
    """The candidate, with the reference's outputs in rows where both models jump."""

    def accepted(self, places: NDArray[np.intp], batch: Batch, answers: Arrays, compared: Arrays) -> NDArray[np.intp]:
        """Return the positions of rows where each model reaches the other's outputs when the inputs move by a rounding.

        Where only the candidate keeps its outputs, its boundary differs. Outputs in between count too, because rounding
        moves only some of several trees that split there.
        """
        rows = [_rows_moved(batch, places, steps) for steps in _STEPS]
        try:
            of_reference = [self.runner.run(fit_inputs(each, self.runner.signature)) for each in rows]
            of_candidate = [self.candidate.answer(each) for each in rows]
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
        if not self.expected.profiles[name].is_float:
            return all_of_rows(np.logical_or.reduce([np.asarray(answer == other) for other in others]))
        low, high = (functools.reduce(pick, others) for pick in (np.minimum, np.maximum))
        outside = np.subtract(answer, np.clip(answer, low, high))
        return self.is_within(name, np.add(expected, outside), expected)


def jumps_check(ids: Sequence[str], count: int, cap: int) -> Check:
    """Return a warning on so many excused rows; it names the first of `ids`."""
    more = say("jumps.more" if count > JUMPS_NAMED else "nothing")
    words = say("jumps", count=count, ids=ids[:JUMPS_NAMED], more=more, cap=cap)
    return Check(name=_NAME, status=Status.WARNING, words=words, rows=count, measured=count, limit=cap)


def most_jumps(rules: GateRules, rows: int) -> int:
    """Return how many of so many rows may be excused."""
    least, share = flips_allowed(rules.precision)
    return max(least, math.floor(share * rows))


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
