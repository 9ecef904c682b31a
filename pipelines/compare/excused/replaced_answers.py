"""A candidate with the reference's outputs in excused rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from paritygate.validate.gate.candidate import Candidate

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from paritygate.batch import Batch


class ReplacedAnswers:
    """The candidate, with outputs that `replaced` changes."""

    def __init__(self, candidate: Candidate) -> None:
        self._candidate = candidate
        self._number = -1

    @property
    def output_names(self) -> frozenset[str]:
        """The names of all its outputs."""
        return self._candidate.output_names

    @property
    def input_names(self) -> frozenset[str] | None:
        """The names of all its inputs."""
        return self._candidate.input_names

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
        """Return all outputs for one batch.

        Raises:
            RefusedInputsError: The candidate refused the batch.
        """
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
