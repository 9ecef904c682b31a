"""The candidate: something that answers batches, a loaded model or outputs recorded elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from paritygate.errors import BackendError, UsageError
from paritygate.validate.runners.endpoint.answer_size import reference_answered
from paritygate.validate.samples.feeding import fit_inputs

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from paritygate.batch import Batch
    from paritygate.signature import Signature
    from paritygate.validate.reference.recorded import OutputReader
    from paritygate.validate.runners.runner import Runner

    Arrays = Mapping[str, NDArray[np.generic]]


class RefusedInputsError(BackendError):
    """The candidate did not answer a batch: it cannot take the inputs, or raised on them."""


class Candidate(Protocol):
    """What is compared with the reference."""

    @property
    def output_names(self) -> frozenset[str]:
        """All outputs that it has."""
        ...

    @property
    def input_names(self) -> frozenset[str] | None:
        """All inputs that it takes; None where nothing is run."""
        ...

    @property
    def classes(self) -> Mapping[str, Sequence[int | str]]:
        """By output, the classes that its columns stand for, where it names them."""
        ...

    @property
    def warnings(self) -> tuple[str, ...]:
        """What of it was not seen by now, one sentence each."""
        ...

    def start_pass(self) -> None:
        """Begin the sequence of batches, again or for the first time."""
        ...

    def answer(self, batch: Batch) -> dict[str, NDArray[np.generic]]:
        """Return all outputs for one batch.

        Raises:
            RefusedInputsError: It did not answer.
        """
        ...

    def end_pass(self, samples_digest: str) -> None:
        """End the sequence of batches.

        Raises:
            MeasurementError: Recorded outputs hold more rows than the samples.
        """
        ...


class ModelCandidate:
    """A loaded model."""

    def __init__(self, runner: Runner, change: Callable[[Arrays], Arrays] | None = None) -> None:
        """Take the runner, and what is done to the inputs before it gets them."""
        self._runner = runner
        self._change = change

    def fed(self, change: Callable[[Arrays], Arrays]) -> ModelCandidate:
        """Return the same model, which gets changed inputs."""
        return ModelCandidate(self._runner, change)

    @property
    def output_names(self) -> frozenset[str]:
        """All outputs of the model."""
        return frozenset(spec.name for spec in self._runner.signature.outputs)

    @property
    def input_names(self) -> frozenset[str] | None:
        """All inputs of the model."""
        return frozenset(spec.name for spec in self._runner.signature.inputs)

    @property
    def signature(self) -> Signature:
        """Inputs and outputs of the model."""
        return self._runner.signature

    @property
    def may_be_called_at_once(self) -> bool:
        """Whether its runner may be called from several threads at once."""
        return self._runner.facts.may_be_called_at_once

    @property
    def runtime(self) -> str:
        """What runs it."""
        return self._runner.facts.runtime

    @property
    def notes(self) -> tuple[str, ...]:
        """What its runner has to say by now."""
        return self._runner.facts.notes

    @property
    def classes(self) -> Mapping[str, Sequence[int | str]]:
        """By output, the classes that its columns stand for, where the model names them."""
        return self._runner.facts.classes

    @property
    def warnings(self) -> tuple[str, ...]:
        """What of the model was not seen by now."""
        return self._runner.facts.warnings

    @property
    def largest_batch(self) -> int | None:
        """How many rows a server takes at once; None where it does not say."""
        return self._runner.facts.largest_batch

    @property
    def answered_as(self) -> tuple[str, ...]:
        """The versions that a server answered as by now."""
        return self._runner.facts.answered_as

    def start_pass(self) -> None:
        """Do nothing: every pass runs in the session that is open."""

    def answer(self, batch: Batch) -> dict[str, NDArray[np.generic]]:
        """Return all outputs for one batch.

        Raises:
            RefusedInputsError: The inputs do not fit the model, or the runtime failed on them.
        """
        batch = batch if self._change is None else replace(batch, inputs=self._change(batch.inputs))
        try:
            with reference_answered(batch.answer_bytes, self.output_names):
                return self._runner.run(fit_inputs(batch, self._runner.signature))
        except (UsageError, BackendError) as err:
            raise RefusedInputsError(str(err), **err.next_step) from err

    def end_pass(self, samples_digest: str) -> None:
        """Do nothing: a model has no rows of its own."""


class RecordedCandidate:
    """Outputs recorded elsewhere; nothing is run."""

    def __init__(self, *, output_names: Iterable[str], open_reader: Callable[[], OutputReader]) -> None:
        self._names = frozenset(output_names)
        self._open_reader = open_reader
        self._reader = open_reader()

    @property
    def output_names(self) -> frozenset[str]:
        """All outputs recorded."""
        return self._names

    @property
    def input_names(self) -> frozenset[str] | None:
        """None: what the outputs were recorded on is not known here."""
        return None

    @property
    def classes(self) -> Mapping[str, Sequence[int | str]]:
        """Nothing: a file of outputs names no classes."""
        return {}

    @property
    def warnings(self) -> tuple[str, ...]:
        """Nothing: nothing is run."""
        return ()

    def start_pass(self) -> None:
        """Begin reading from the first row."""
        self._reader = self._open_reader()

    def answer(self, batch: Batch) -> dict[str, NDArray[np.generic]]:
        """Return the outputs recorded for one batch.

        Raises:
            MeasurementError: None were recorded.
        """
        return self._reader.take(batch)

    def end_pass(self, samples_digest: str) -> None:
        """Check that nothing recorded is left over.

        Raises:
            MeasurementError: Rows are left over.
        """
        self._reader.end(samples_digest)
