"""Excuse rows whose difference is within the reference's own noise, measured by running its worst rows again.

Each row runs alone and in its batch. If the outputs differ by more than the limit, that difference is the limit of the
row. If they differ by far more, the reference is unsound: a warning reports it, and no row is excused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from paritygate.errors import BackendError, CacheMissError, ParitygateError, UsageError
from paritygate.pipelines.compare.excused.replaced_answers import RowsExcused, may_be_excused, with_excused
from paritygate.validate.gate.candidate import Candidate
from paritygate.validate.gate.gate import run_gate
from paritygate.validate.gate.measures import GateResult
from paritygate.validate.gate.rules import GateRules
from paritygate.validate.measure.check import Check, Kind, Status
from paritygate.validate.measure.limits import Limits
from paritygate.validate.reference.recorded import ExpectedOutputs
from paritygate.validate.reference.reference_noise import (
    NOISE_FACTOR,
    largest_in_limits,
    noise_by_row,
)
from paritygate.validate.samples.feeding import fit_inputs
from paritygate.validate.samples.split import RowsLeftOut
from paritygate.validate.words.sentence import say

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from paritygate.batch import Batch
    from paritygate.validate.runners.runner import Runner

    Arrays = Mapping[str, NDArray[np.generic]]

_NAME = "noise_floor"
# The most rows beyond the limits, of each output, that are run again.
_MOST_ROWS = 10
# Checks that single rows can fail. The noise of a few rows does not make a mean.
NOISE_CHECKS = frozenset({"max_abs_diff", "p9999_abs_diff", "max_row_rel_diff", "decision_mismatches"})


class RerunContext(Struct, frozen=True, kw_only=True):
    """All that repeats a comparison."""

    candidate: Candidate
    expected: ExpectedOutputs
    read: Callable[[], Iterator[Batch]]
    rules: GateRules
    left_out: RowsLeftOut  # rows that do not judge the candidate
    workspace: Path  # is made where it is missing
    open_reference: Callable[[], Runner | None]

    def run(self, candidate: Candidate) -> GateResult:
        """Compare another candidate by the same rules."""
        self.workspace.mkdir(exist_ok=True)
        return run_gate(
            candidate, self.expected, self.read, self.rules, workspace=self.workspace, left_out=self.left_out
        )


def with_reference_noise(result: GateResult, again: RerunContext) -> GateResult:
    """Return the result, with the reference's own noise as the limit of rows where it is more.

    The figures stay. Only checks that fail by such rows alone pass.
    """
    if not may_be_noise(result):
        return result
    try:
        runner = again.open_reference()
    except CacheMissError:
        raise
    except ParitygateError as err:
        return not_run_again(result, err)
    if runner is None:
        return result
    cap = most_noisy(result.limits)
    candidate = WithinNoise(again.candidate, again.expected, result.limits, runner, cap)
    excused = again.run(candidate)
    if len(candidate.beyond) > cap:
        return result
    return with_excused(result, excused, NOISE_CHECKS, "noise.excused_rows", *candidate.checks)


def not_run_again(result: GateResult, err: ParitygateError) -> GateResult:
    """Return the result with a warning that the reference cannot run again: it is not there, or another model."""
    words = say("noise.not_asked", reason=str(err))
    unasked = Check(name=_NAME, status=Status.WARNING, kind=Kind.NOT_ASKED, words=words)
    return result if unasked in result.checks else replace(result, checks=(*result.checks, unasked))


def most_noisy(limits: Mapping[str, Limits]) -> int:
    """Return how many rows beyond the limits of these outputs may be excused."""
    return _MOST_ROWS * len(limits)


def may_be_noise(result: GateResult) -> bool:
    """Return whether outputs fail by a few rows, and none of the worst is beyond what noise can excuse."""
    failed = {check.output for check in result.checks if check.status is Status.FAIL and check.name in NOISE_CHECKS}
    measured = (statistics for name, statistics in result.measurement.statistics.items() if name in failed)
    return may_be_excused(result, NOISE_CHECKS, most_noisy(result.limits)) and all(
        row.in_limits <= NOISE_FACTOR for statistics in measured for row in statistics.worst_rows
    )


class WithinNoise(RowsExcused):
    """The candidate, with the reference's outputs in rows where it is within the reference's own noise."""

    def accepted(self, places: NDArray[np.intp], batch: Batch, answers: Arrays, compared: Arrays) -> NDArray[np.intp]:
        """Return which rows are within the noise of the reference, run on each alone and in its batch."""
        inputs = fit_inputs(batch, self.runner.signature)
        try:
            whole = self.runner.run(inputs)
            alone = {row: self.runner.run(_alone(inputs, row, batch)) for row in places.tolist()}
        except (BackendError, UsageError):
            # A reference that fails on the row alone shows no noise.
            return places[:0]
        is_noise = [self._is_noise(row, batch, answers, compared, (whole, answer)) for row, answer in alone.items()]
        excused: NDArray[np.intp] = places[np.array(is_noise, dtype=bool)]
        return excused

    def _is_noise(
        self, row: int, batch: Batch, answers: Arrays, compared: Arrays, again: tuple[Arrays, Arrays]
    ) -> bool:
        """Return whether a row is excused, and add warnings about it."""
        (whole, alone), own, checks, is_noise = again, slice(row, row + 1), [], True
        for name, array in compared.items():
            if not self.expected.profiles[name].is_float:
                is_noise &= bool(self.is_within(name, answers[name][own], array[own]).all())
                continue
            (noise,) = noise_by_row([array[own], whole[name][own], alone[name]])
            _, ratio = largest_in_limits([noise], array[own], self.limits[name])
            if ratio > NOISE_FACTOR:
                words = say("noise.excuses_nothing", row=batch.ids[row], difference=noise.max_abs_diff, ratio=ratio)
                self._add(Check(name="reference_batch", status=Status.WARNING, words=words, output=name))
                return False
            if self.is_within(name, answers[name][own], array[own]).all():
                continue
            is_noise &= bool(self.is_within(name, answers[name][own], array[own], noise).all())
            difference = float(np.abs(answers[name][own].astype(np.float64) - array[own].astype(np.float64)).max())
            words = say("noise.excused", row=batch.ids[row], difference=difference, noise=noise.max_abs_diff)
            checks.append(Check(name=_NAME, status=Status.WARNING, words=words, output=name, rows=1))
        for check in checks if is_noise else ():
            self._add(check)
        return is_noise

    def _add(self, check: Check) -> None:
        # Later passes repeat the same rows.
        if check not in self.checks:
            self.checks.append(check)


def _alone(inputs: Arrays, row: int, batch: Batch) -> dict[str, NDArray[np.generic]]:
    return {
        name: array[row : row + 1] if array.ndim and len(array) == batch.rows else array
        for name, array in inputs.items()
    }
