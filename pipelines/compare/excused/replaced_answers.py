"""A candidate some of whose answers are taken for the reference's, where those rows are excused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from paritygate.validate.gate.candidate import Candidate

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from paritygate.batch import Batch


class ReplacedAnswers:
    """Answers as the candidate does, but for what `replaced` makes of a batch."""

    def __init__(self, candidate: Candidate) -> None:
        self._candidate = candidate
        self._number = -1

    @property
    def output_names(self) -> frozenset[str]:
        """All outputs that it has."""
        return self._candidate.output_names

    @property
    def input_names(self) -> frozenset[str] | None:
        """All inputs that it takes."""
        return self._candidate.input_names

    @property
    def classes(self) -> Mapping[str, Sequence[int | str]]:
        """By output, the classes that its columns stand for, where it names them."""
        return self._candidate.classes

    @property
    def warnings(self) -> tuple[str, ...]:
        """What of it was not seen by now."""
        return self._candidate.warnings

    def start_pass(self) -> None:
        """Begin the sequence of batches."""
        self._number = -1
        self._candidate.start_pass()

    def answer(self, batch: Batch) -> dict[str, NDArray[np.generic]]:
        """Return all outputs for one batch.

        Raises:
            RefusedInputsError: It did not answer.
        """
        self._number += 1
        return self.replaced(self._number, batch, dict(self._candidate.answer(batch)))

    def end_pass(self, samples_digest: str) -> None:
        """End the sequence of batches."""
        self._candidate.end_pass(samples_digest)

    def replaced(
        self, number: int, batch: Batch, answers: dict[str, NDArray[np.generic]]
    ) -> dict[str, NDArray[np.generic]]:
        """Return the answers to the batch of this number in the pass, which belong to the caller."""
        raise NotImplementedError
