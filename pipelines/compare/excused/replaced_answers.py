"""A candidate with the reference's outputs in excused rows."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from paritygate.validate.gate.candidate import Candidate
from paritygate.validate.gate.measures import GateResult
from paritygate.validate.measure.check import Check, Status
from paritygate.validate.measure.limits import Limits
from paritygate.validate.measure.valid_positions import only_valid
from paritygate.validate.reference.recorded import ExpectedOutputs
from paritygate.validate.reference.reference_noise import RowNoise, rows_within
from paritygate.validate.samples.row_digest import has_rows
from paritygate.validate.words.sentence import say

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from paritygate.batch import Batch
    from paritygate.validate.runners.runner import Runner

    Arrays = Mapping[str, NDArray[np.generic]]


def with_excused(result: GateResult, excused: GateResult, names: Collection[str], key: str, *more: Check) -> GateResult:
    """Return the result, passing the failed checks of these names that pass in `excused`, with replaced outputs.

    The sentence `key` explains such a check. `more` are warnings on the excused rows.
    """
    passed = {(check.name, check.output): check for check in excused.checks if check.status is Status.PASS}

    def judged(check: Check) -> Check:
        after = passed.get((check.name, check.output))
        if after is None or check.status is not Status.FAIL or check.name not in names:
            return check
        return replace(after, words=after.words + say(key, difference=check.words))

    checks = tuple(map(judged, result.checks))
    failed = {check.output for check in checks if check.status is Status.FAIL}
    looks_like = {name: words for name, words in result.looks_like.items() if name in failed}
    return replace(result, checks=(*checks, *more), looks_like=looks_like)


def may_be_excused(result: GateResult, names: Collection[str], cap: int) -> bool:
    """Return whether checks of these names fail, with no more rows beyond the limits than may be excused."""
    failed = {check.output for check in result.checks if check.status is Status.FAIL and check.name in names}
    beyond = [pattern.beyond for name, pattern in result.measurement.patterns.items() if name in failed]
    return 0 < max(beyond, default=0) <= cap


class RowsExcused:
    """The candidate, with the reference's outputs in rows beyond limits that `accepted` excuses.

    If more than `cap` rows are `beyond`, none may be excused. `excused` are ids in the order of the rows, and `checks`
    are warnings about rows.
    """

    def __init__(
        self, candidate: Candidate, expected: ExpectedOutputs, limits: Mapping[str, Limits], runner: Runner, cap: int
    ) -> None:
        self.candidate = candidate
        self.output_names, self.input_names = candidate.output_names, candidate.input_names
        self._number = -1
        self.expected = expected
        self.limits = limits
        self.runner = runner
        self._cap = cap
        self._reader = expected.open_reader()
        # The number of the batch in a pass, and of the row in it.
        self.beyond: set[tuple[int, int]] = set()
        self.excused: dict[str, None] = {}
        self.checks: list[Check] = []

    @property
    def classes(self) -> Mapping[str, Sequence[int | str]]:
        """By output, the classes of its columns, where it names them."""
        return self.candidate.classes

    @property
    def warnings(self) -> tuple[str, ...]:
        """Notes on what was not tested."""
        return self.candidate.warnings

    def start_pass(self) -> None:
        """Begin the sequence of batches."""
        self._number = -1
        self._reader = self.expected.open_reader()
        self.candidate.start_pass()

    def end_pass(self, samples_digest: str) -> None:
        """End the sequence of batches."""
        self.candidate.end_pass(samples_digest)

    def answer(self, batch: Batch) -> dict[str, NDArray[np.generic]]:
        """Return all outputs for one batch, with the reference's in excused rows.

        Raises:
            RefusedInputsError: The candidate refused it.
        """
        self._number += 1
        wanted = self._reader.take(batch)
        answers = dict(self.candidate.answer(batch))
        counting = only_valid(wanted, batch.inputs, self.expected.positions)
        compared = {name: array for name, array in counting.items() if self._is_compared(name, array, answers, batch)}
        beyond = np.zeros(batch.rows, dtype=bool)
        for name, array in compared.items():
            beyond = np.logical_or(beyond, ~self.is_within(name, answers[name], array))
        places = np.flatnonzero(beyond)
        self.beyond.update((self._number, place) for place in places.tolist())
        if not places.size or len(self.beyond) > self._cap or not has_rows(batch):
            return answers
        excused = self.accepted(places, batch, answers, compared)
        if excused.size:
            self.excused.update(dict.fromkeys(batch.ids[place] for place in excused))
            for name in compared:
                answers[name] = answers[name].copy()
                answers[name][excused] = wanted[name][excused]
        return answers

    def accepted(self, places: NDArray[np.intp], batch: Batch, answers: Arrays, compared: Arrays) -> NDArray[np.intp]:
        """Return which of the rows at these places of a batch are excused."""
        raise NotImplementedError

    def _is_compared(self, name: str, array: NDArray[np.generic], answers: Arrays, batch: Batch) -> bool:
        if name not in self.limits or name not in answers or answers[name].shape != array.shape:
            return False
        return array.ndim > 0 and len(array) == batch.rows and array.dtype.kind in "fVibu"

    def is_within(
        self, name: str, actual: NDArray[np.generic], expected: NDArray[np.generic], *noise: RowNoise
    ) -> NDArray[np.bool_]:
        """Return which rows of an output are within the limits, or within the noise of each where it is given."""
        limits, profile = self.limits[name], self.expected.profiles[name]
        if not limits.is_exact:
            return rows_within(actual, expected, noise or None, limits=limits, profile=profile)
        return all_of_rows(np.asarray(actual == expected))


def all_of_rows(flags: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return for each row whether all flags are set."""
    of_rows: NDArray[np.bool_] = np.logical_and.reduce(flags.reshape(len(flags), -1), axis=1)
    return of_rows
