"""The candidate of a comparison: a loaded model, or recorded outputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

from msgspec.structs import replace

from paritygate.batch import Arrays, Batch
from paritygate.errors import BackendError, UsageError
from paritygate.validate.runners.endpoint.answer_size import reference_answered
from paritygate.validate.samples.feeding import fit_inputs

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from paritygate.models.loading import LoadedModel
    from paritygate.signature import Signature
    from paritygate.validate.reference.recorded import OutputReader
    from paritygate.validate.runners.runner import Runner, RuntimeFacts


class RefusedInputsError(BackendError):
    """The candidate refused a batch: the inputs do not fit, or it raised an error."""


class Facts(Protocol):
    """Names and notes of a candidate, known before it runs."""

    @property
    def output_names(self) -> frozenset[str]:
        """The names of all outputs."""

    @property
    def input_names(self) -> frozenset[str] | None:
        """The names of all inputs; None for recorded outputs."""

    @property
    def classes(self) -> Mapping[str, Sequence[int | str]]:
        """The class of each column, by output, where the candidate names them."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """One sentence for each part of it that was not seen yet."""


class Candidate(Facts, Protocol):
    """The side that is compared with the reference."""

    def start_pass(self) -> None:
        """Begin the sequence of batches."""

    def answer(self, batch: Batch) -> dict[str, NDArray[np.generic]]:
        """Return all outputs for one batch; raise RefusedInputsError if the candidate did not answer."""

    def end_pass(self, samples_digest: str) -> None:
        """End the sequence of batches; raise MeasurementError if recorded outputs hold more rows than the samples."""


class ModelCandidate:
    """A loaded model."""

    def __init__(self, runner: Runner, change: Callable[[Arrays], Arrays] | None = None) -> None:
        """Take the runner, and the function that changes the inputs before it gets them."""
        self._runner = runner
        self._change = change

    def fed(self, change: Callable[[Arrays], Arrays]) -> ModelCandidate:
        """Return the same model with changed inputs."""
        return ModelCandidate(self._runner, change)

    @property
    def output_names(self) -> frozenset[str]:
        """The names of the model's outputs."""
        return frozenset(spec.name for spec in self._runner.signature.outputs)

    @property
    def input_names(self) -> frozenset[str] | None:
        """The names of the model's inputs."""
        return frozenset(spec.name for spec in self._runner.signature.inputs)

    @property
    def signature(self) -> Signature:
        """Inputs and outputs of the model."""
        return self._runner.signature

    @property
    def loaded(self) -> LoadedModel:
        """The model that was opened."""
        return self._runner.loaded

    @property
    def facts(self) -> RuntimeFacts:
        """What runs, and the notes of its runner so far."""
        return self._runner.facts

    @property
    def classes(self) -> Mapping[str, Sequence[int | str]]:
        """The class of each column, by output, where the model names them."""
        return self._runner.facts.classes

    @property
    def warnings(self) -> tuple[str, ...]:
        """One sentence for each part of the model that was not seen yet."""
        return self._runner.facts.warnings

    def start_pass(self) -> None:
        """Do nothing: every pass uses the open session."""

    def answer(self, batch: Batch) -> dict[str, NDArray[np.generic]]:
        """Return all outputs for one batch.

        Raises:
            RefusedInputsError: The inputs do not fit, or the runtime failed on them.
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
    """Outputs that were recorded elsewhere."""

    # The inputs of a recording are unknown, its file names no classes, and nothing runs.
    input_names: frozenset[str] | None = None
    classes: Mapping[str, Sequence[int | str]] = MappingProxyType({})
    warnings: tuple[str, ...] = ()

    def __init__(self, *, output_names: Iterable[str], open_reader: Callable[[], OutputReader]) -> None:
        self.output_names = frozenset(output_names)
        self._open_reader = open_reader
        self._reader = open_reader()

    def start_pass(self) -> None:
        """Begin reading from the first row."""
        self._reader = self._open_reader()

    def answer(self, batch: Batch) -> dict[str, NDArray[np.generic]]:
        """Return the outputs recorded for one batch.

        Raises:
            MeasurementError: The recording lacks rows.
        """
        return self._reader.take(batch)

    def end_pass(self, samples_digest: str) -> None:
        """Check that no recorded row is left over.

        Raises:
            MeasurementError: Rows are left over.
        """
        self._reader.end(samples_digest)
