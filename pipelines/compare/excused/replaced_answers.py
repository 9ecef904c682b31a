"""A candidate with the reference's outputs in excused rows."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from paritygate.validate.gate.candidate import Candidate
from paritygate.validate.gate.measures import GateResult
from paritygate.validate.measure.check import Check, Status
from paritygate.validate.words.sentence import say

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from paritygate.batch import Batch


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


class ReplacedAnswers:
    """The candidate, with outputs that `replaced` changes."""

    def __init__(self, candidate: Candidate) -> None:
        self._candidate = candidate
        self.output_names, self.input_names = candidate.output_names, candidate.input_names
        self._number = -1

    @property
    def classes(self) -> Mapping[str, Sequence[int | str]]:
        """By output, the classes of its columns, where it names them."""
        return self._candidate.classes

    @property
    def warnings(self) -> tuple[str, ...]:
        """Notes on what was not tested."""
        return self._candidate.warnings

    def start_pass(self) -> None:
        """Begin the sequence of batches."""
        self._number = -1
        self._candidate.start_pass()

    def answer(self, batch: Batch) -> dict[str, NDArray[np.generic]]:
        """Return all outputs for one batch, or raise a `RefusedInputsError` if the candidate refused it."""
        self._number += 1
        return self.replaced(self._number, batch, dict(self._candidate.answer(batch)))

    def end_pass(self, samples_digest: str) -> None:
        """End the sequence of batches."""
        self._candidate.end_pass(samples_digest)

    def replaced(
        self, number: int, batch: Batch, answers: dict[str, NDArray[np.generic]]
    ) -> dict[str, NDArray[np.generic]]:
        """Return the outputs for the batch of this number in the pass; the caller owns `answers`."""
        raise NotImplementedError
