"""Runs the reference on some rows again, in other batches, sessions and roundings, to measure its own noise."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from msgspec.structs import replace

from paritygate.batch import Arrays, Batch
from paritygate.errors import BackendError, ParitygateError, UsageError
from paritygate.text import counted
from paritygate.validate.measure.check import Kind
from paritygate.validate.reference.health import Health
from paritygate.validate.reference.noise_floor import NoiseFloor, largest_difference, typical_difference
from paritygate.validate.samples.row_digest import has_rows
from paritygate.validate.words.sentence import say

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from paritygate.validate.measure.profile import OutputProfile
    from paritygate.validate.reference.recording import StoredBatch
    from paritygate.validate.runners.runner import Runner


# Rows that run one by one, or as few at a time as the model accepts, in all and of one batch.
_ROWS_ALONE = 16
_ROWS_ALONE_OF_BATCH = 4
# Rows that are run in other sessions; a first batch of fixed size may have more.
_ROWS = 32


class _Asked(Protocol):
    def run(self, inputs: Arrays) -> Arrays: ...


class OtherBatches:
    """Run the reference on some rows again, in batches of other sizes."""

    def __init__(self, runner: _Asked, outputs: tuple[str, ...], *, is_batch_fixed: bool) -> None:
        self._runner = runner
        self._outputs = outputs
        self._rows_left = 0 if is_batch_fixed else _ROWS_ALONE
        # The number of rows that it refused, and the reason.
        self._refused: dict[int, str] = {}
        self.why_not = "its batch size is fixed" if is_batch_fixed else "no batch held several rows"

    def answers(self, batch: Batch, inputs: Arrays, outputs: Arrays, head: Arrays | None) -> dict[str, Any]:
        """Return outputs of some rows in their batch and in others, by the keys of `measure_noise`.

        `inputs` and `outputs` are those of the batch; `head` are outputs of its first rows alone, if they ran.
        """
        rows = min(self._rows_left, _ROWS_ALONE_OF_BATCH, batch.rows)
        if batch.rows == 1 or not rows or not has_rows(batch):
            return {}
        self._rows_left -= rows
        size, parts = self._in_parts(inputs, batch.rows, rows)
        if not parts:
            return {}
        self.why_not = ""
        tested = size * len(parts)
        arrays: dict[str, Any] = {}
        for name in self._outputs:
            whole = outputs[name]
            if not whole.ndim or len(whole) != batch.rows:
                continue
            if head is not None:
                arrays[f"head-whole/{name}"], arrays[f"head/{name}"] = whole[: len(head[name])], head[name]
            arrays[f"alone-whole/{name}"] = whole[:tested]
            arrays[f"alone/{name}"] = _stacked([answer[name] for answer in parts])
        return arrays

    def _in_parts(self, inputs: Arrays, of: int, rows: int) -> tuple[int, list[Arrays]]:
        """Return the outputs of the first rows, and how many ran at once: as few as the model accepts.

        A statistic over the batch often refuses a single row. No outputs are returned where every size is refused.
        """
        sizes = [size for size in sorted({1, 2, of // 2}) if size < of and size not in self._refused]
        for size in sizes:
            starts = range(0, max(rows // size, 1) * size, size)
            try:
                return size, [self._runner.run(_part(inputs, start, size, of)) for start in starts]
            except (BackendError, UsageError) as err:
                self._refused[size] = str(err)
        if self.why_not and self._refused:
            least, why = min(self._refused.items())
            self.why_not = f"it does not answer fewer rows than a batch holds ({counted(least, 'row')}: {why})"
        return 0, []

    @property
    def health(self) -> tuple[Health, ...]:
        """Return the finding about a reference that runs in no other batch; empty for others."""
        if not self._refused or not self.why_not:
            return ()
        words = say("reference_batch.not_measured", reason=self.why_not)
        return (Health(name="reference_batch", kind=Kind.NOT_MEASURED, words=words),)


def _part(inputs: Arrays, start: int, size: int, of: int) -> dict[str, NDArray[np.generic]]:
    return {
        name: array[start : start + size] if array.ndim and len(array) == of else array
        for name, array in inputs.items()
    }


def _stacked(rows: list[NDArray[np.generic]]) -> NDArray[np.generic]:
    # Rows of several shapes are not those of one batch: the first alone shows the other shape.
    if len({row.shape for row in rows}) > 1 or not rows[0].ndim:
        return rows[0]
    return np.concatenate(rows)


class OtherSessions:
    """Run the first rows that ran twice once more: on one thread, without optimisations, and with moved inputs.

    Each float input moves by one rounding. `blank` puts zeros where outputs do not count, as in those compared with.
    """

    def __init__(self, runner: Runner, blank: Callable[[Arrays, Arrays], Arrays] = lambda outputs, _: outputs) -> None:
        self._runner = runner
        self._blank = blank
        self._kept: list[dict[str, NDArray[np.generic]]] = []
        self._rows_left = _ROWS
        self.why_no_threads = ""

    def keep(self, inputs: Arrays, rows: int) -> None:
        """Keep a copy of inputs that ran twice, while there are rows left."""
        if self._kept and rows > self._rows_left:
            # Later inputs are not kept either, because those kept must be the first that ran twice.
            self._rows_left = 0
            return
        self._rows_left -= rows
        self._kept.append({name: np.array(array, order="C") for name, array in inputs.items()})

    def measure(
        self, noise: NoiseFloor, batches: Callable[[], Iterable[StoredBatch]], profiles: Mapping[str, OutputProfile]
    ) -> NoiseFloor:
        """Return the noise floor with the differences of other sessions, and drop the inputs.

        `batches` starts reading the outputs `first/NAME` of the inputs, in the order in which they were kept.
        """
        floats = [profile for profile in profiles.values() if profile.is_float]
        opened = self._runner.on_one_thread() if floats else ""
        threads: dict[str, NDArray[np.float64]] = {}
        if isinstance(opened, str):
            self.why_no_threads = opened
        else:
            try:
                threads = self._largest(opened, batches(), floats)
            except ParitygateError as err:
                self.why_no_threads = f"it does not answer on one thread ({err})"
        plain = self._runner.unoptimised() if floats else None
        optimisations: dict[str, NDArray[np.float64]] = {}
        roundings: dict[str, NDArray[np.float64]] = {}
        # A run that fails shows no noise.
        with contextlib.suppress(ParitygateError):
            optimisations = {} if plain is None else self._largest(plain, batches(), floats)
        with contextlib.suppress(ParitygateError):
            roundings = self._of_roundings(batches(), floats)
        self._kept = []
        return replace(
            noise, threads=threads, why_no_threads=self.why_no_threads, optimisations=optimisations, roundings=roundings
        )

    def _largest(
        self, opened: AbstractContextManager[Runner], batches: Iterable[StoredBatch], floats: Sequence[OutputProfile]
    ) -> dict[str, NDArray[np.float64]]:
        """Return the largest difference of another session's output, by output, one a channel."""
        largest = {profile.name: np.zeros(profile.channels) for profile in floats}
        with opened as other:
            for inputs, batch in zip(self._kept, batches, strict=False):
                answer = self._blank(other.run(inputs), inputs)
                for profile in floats:
                    pair = answer[profile.name], batch.outputs[f"first/{profile.name}"]
                    largest[profile.name] = np.maximum(largest[profile.name], largest_difference(*pair, profile))
        return largest

    def _of_roundings(
        self, batches: Iterable[StoredBatch], floats: Sequence[OutputProfile]
    ) -> dict[str, NDArray[np.float64]]:
        """Return the typical difference of a row whose inputs move, by output, one a channel; empty if none can."""
        differences: dict[str, list[NDArray[np.float64]]] = {profile.name: [] for profile in floats}
        for inputs, batch in zip(self._kept, batches, strict=False):
            moved = moved_by_rounding(inputs)
            if moved is None:
                return {}
            # The inputs as they are decide which positions count.
            answer = self._blank(self._runner.run(moved), inputs)
            for profile in floats:
                pair = answer[profile.name], batch.outputs[f"first/{profile.name}"]
                differences[profile.name].append(typical_difference(*pair, profile))
        return {name: np.median(np.stack(parts), axis=0) for name, parts in differences.items() if parts}


def moved_by_rounding(inputs: Arrays) -> dict[str, NDArray[np.generic]] | None:
    """Return the inputs with each finite float moved to a neighbour, up and down alternately; None without any."""
    moved = {name: _moved(array) for name, array in inputs.items() if array.dtype.kind == "f"}
    return {**inputs, **moved} if moved else None


def _moved(array: NDArray[np.generic]) -> NDArray[np.generic]:
    values = array.astype(array.dtype)
    is_up = np.arange(values.size).reshape(values.shape) % 2 == 1
    towards = np.where(is_up, np.inf, -np.inf).astype(values.dtype)
    moved: NDArray[np.generic] = np.where(np.isfinite(values), np.nextafter(values, towards), values)
    return moved
