"""Excuse rows whose difference is within the reference's own noise, measured by running its worst rows again.

Each row runs alone and in its batch. If the outputs differ by more than the limit, that difference is the limit of the
row. If they differ by far more, the reference is unsound: a warning reports it, and no row is excused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from paritygate.errors import ArtifactIntegrityError, BackendError, UsageError
from paritygate.pipelines.compare.excused.replaced_answers import ReplacedAnswers, with_excused
from paritygate.validate.gate.candidate import Candidate
from paritygate.validate.gate.gate import run_gate
from paritygate.validate.gate.measures import GateResult
from paritygate.validate.gate.rules import GateRules
from paritygate.validate.measure.check import Check, Kind, Status
from paritygate.validate.measure.tolerance import Limits
from paritygate.validate.reference.recorded import ExpectedOutputs
from paritygate.validate.reference.reference_noise import (
    NOISE_FACTOR,
    RowNoise,
    largest_in_limits,
    noise_by_row,
    rows_within,
)
from paritygate.validate.samples.feeding import fit_inputs
from paritygate.validate.samples.row_digest import has_rows
from paritygate.validate.samples.split import RowsLeftOut
from paritygate.validate.words.sentence import say

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from paritygate.batch import Batch
    from paritygate.validate.runners.runner import Runner

    Arrays = Mapping[str, NDArray[np.generic]]

_NAME = "noise_floor"
# Checks that single rows can fail. The noise of a few rows does not make a mean.
NOISE_CHECKS = frozenset({"max_abs_diff", "p9999_abs_diff", "max_row_rel_diff", "decision_mismatches"})


@dataclass(frozen=True, kw_only=True, slots=True)
class RerunContext:
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
    rows = rows_to_rerun(result)
    try:
        runner = again.open_reference() if rows else None
    except ArtifactIntegrityError as err:
        # The noise of another model says nothing of the recorded one.
        words = say("noise.not_asked", reason=str(err))
        unasked = Check(name=_NAME, status=Status.WARNING, kind=Kind.NOT_ASKED, words=words)
        return replace(result, checks=(*result.checks, unasked))
    if runner is None:
        return result
    noise = _noise_of(rows, result, again, runner)
    unsound = tuple(item.warning for item in noise.values() if item.warning is not None)
    excusing = {place: item for place, item in noise.items() if item.warning is None and item.noise}
    if not excusing:
        return replace(result, checks=(*result.checks, *unsound))
    within_noise = _NoiseAdjusted(again.candidate, excusing, result, again)
    excused = again.run(within_noise)
    return with_excused(result, excused, NOISE_CHECKS, "noise.excused_rows", *within_noise.checks(), *unsound)


def rows_to_rerun(result: GateResult) -> frozenset[str]:
    """Return the ids of the worst rows of outputs that fail by single rows; none if noise cannot excuse one of them."""
    failed = {check.output for check in result.checks if check.status is Status.FAIL and check.name in NOISE_CHECKS}
    ids: set[str] = set()
    for name in failed:
        statistics = result.measurement.statistics.get(name or "")
        if statistics is not None:
            if any(row.in_limits > NOISE_FACTOR for row in statistics.worst_rows):
                return frozenset()
            ids.update(row.row_id for row in statistics.worst_rows if row.in_limits > 1)
            ids.update({statistics.max_row_rel_id} - {""})
        decision = result.measurement.decisions.get(name or "")
        if decision is not None:
            ids.update(decision.examples)
    return frozenset(ids)


# The number of a batch in a pass, and of a row in it.
_Place = tuple[int, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class NoisyRow:
    """One row: by output the reference's values and noise, and a warning where that is far beyond a limit."""

    row_id: str
    expected: Arrays
    noise: Mapping[str, RowNoise]
    warning: Check | None = None

    def excused(self, name: str, actual: NDArray[np.generic]) -> Check:
        """Return the warning that the candidate's difference in an output is excused."""
        difference = float(np.abs(actual.astype(np.float64) - self.expected[name].astype(np.float64)).max())
        words = say("noise.excused", row=self.row_id, difference=difference, noise=self.noise[name].max_abs_diff)
        return Check(name=_NAME, status=Status.WARNING, words=words, output=name, rows=1)


def _noise_of(rows: frozenset[str], result: GateResult, again: RerunContext, runner: Runner) -> dict[_Place, NoisyRow]:
    """Run the reference on these rows, each alone and in its batch."""
    reader = again.expected.open_reader()
    noisy_rows: dict[_Place, NoisyRow] = {}
    for number, batch in enumerate(batch for batch in again.read() if batch.rows):
        wanted = reader.take(batch)
        at = [row for row, row_id in enumerate(batch.ids) if row_id in rows]
        if not at or not has_rows(batch):
            continue
        inputs = fit_inputs(batch, runner.signature)
        try:
            whole = runner.run(inputs)
            for row in at:
                noisy_rows[number, row] = noisy_row(
                    row, batch, wanted, (whole, runner.run(row_alone(inputs, row, batch))), result.limits
                )
        except (BackendError, UsageError):
            # A reference that fails on the row alone shows no noise.
            continue
    return noisy_rows


def row_alone(inputs: Arrays, row: int, batch: Batch) -> dict[str, NDArray[np.generic]]:
    """Return the inputs of one row of a batch."""
    return {
        name: array[row : row + 1] if array.ndim and len(array) == batch.rows else array
        for name, array in inputs.items()
    }


def noisy_row(
    row: int, batch: Batch, wanted: Arrays, answers: tuple[Arrays, Arrays], limits_of: Mapping[str, Limits]
) -> NoisyRow:
    """Return the noise of one row, of the reference's recorded outputs, and of those in its batch and alone."""
    noise: dict[str, RowNoise] = {}
    warning: Check | None = None
    own = slice(row, row + 1)
    for name, limits in limits_of.items():
        array, (whole, alone) = wanted[name], answers
        if array.dtype.kind not in "fV" or not array.ndim or len(array) != batch.rows or not limits.fits(array.shape):
            continue
        (row_noise,) = noise_by_row([array[own], whole[name][own], alone[name]])
        _, ratio = largest_in_limits([row_noise], array[own], limits)
        # Noise below the limits changes nothing.
        wide = array[own].astype(np.float64)
        if ratio > 1 or row_noise.norm > limits.of_rows(wide, np.array([np.linalg.norm(wide)]))[0]:
            noise[name] = row_noise
        if ratio > NOISE_FACTOR:
            words = say("noise.excuses_nothing", row=batch.ids[row], difference=row_noise.max_abs_diff, ratio=ratio)
            warning = Check(name="reference_batch", status=Status.WARNING, words=words, output=name)
    return NoisyRow(
        row_id=batch.ids[row], expected={name: wanted[name][own] for name in noise}, noise=noise, warning=warning
    )


class _NoiseAdjusted(ReplacedAnswers):
    """The candidate, with the reference's outputs where it is within the reference's own noise."""

    def __init__(
        self, candidate: Candidate, rows: Mapping[_Place, NoisyRow], result: GateResult, again: RerunContext
    ) -> None:
        super().__init__(candidate)
        self._rows = rows
        self._limits = result.limits
        self._profiles = again.expected.profiles
        self._excused: dict[tuple[str, str], Check] = {}

    def replaced(
        self, number: int, batch: Batch, answers: dict[str, NDArray[np.generic]]
    ) -> dict[str, NDArray[np.generic]]:
        """Return the outputs, with the reference's where they are within its own noise."""
        for row in range(batch.rows):
            noisy = self._rows.get((number, row))
            for name in () if noisy is None else noisy.noise:
                assert noisy is not None  # noqa: S101 - it has noise
                answers[name] = self._held(name, answers[name], row, noisy)
        return answers

    def _held(self, name: str, actual: NDArray[np.generic], row: int, noisy: NoisyRow) -> NDArray[np.generic]:
        own, expected, noise = actual[row : row + 1], noisy.expected[name], noisy.noise[name]
        limits, profile = self._limits[name], self._profiles[name]
        if own.shape != expected.shape or rows_within(own, expected, None, limits=limits, profile=profile).all():
            return actual
        if not rows_within(own, expected, [noise], limits=limits, profile=profile).all():
            return actual
        self._excused[name, noisy.row_id] = noisy.excused(name, own)
        replaced: NDArray[np.generic] = actual.copy()
        replaced[row : row + 1] = expected
        return replaced

    def checks(self) -> list[Check]:
        """Return a warning for each excused row."""
        return list(self._excused.values())
