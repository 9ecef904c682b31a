"""Some whole batches of a recording, in step with the same batches of the samples."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING

from paritygate.errors import ArtifactIntegrityError, UsageError
from paritygate.files import parse_json
from paritygate.validate.reference.recorded import ExpectedOutputs
from paritygate.validate.reference.recording import Recording, StoredBatch, corrupt_recording, read_chunks
from paritygate.validate.samples.samples import digest_of_batch, open_samples_at
from paritygate.validate.samples.source import SampleSource

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from paritygate.batch import Batch

_SAME = "use the samples and the batch size that the reference was recorded with"


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchRange:
    """The batches from `first` up to `last`, which is not among them, of so many in all."""

    first: int
    last: int
    batches: int
    rows_before: int
    rows: int

    def read(self, source: SampleSource) -> Iterator[Batch]:
        """Yield these batches of the samples; after the last one of all, also one that the reference lacks.

        Raises:
            UsageError: The samples end before the first of them.
        """
        last = None if self.last == self.batches else self.last - self.first
        is_empty = True
        batches = (batch for batch in open_samples_at(source, self.first)() if batch.rows)
        for batch in islice(batches, last):
            is_empty = False
            yield batch
        if is_empty:
            msg = f"the samples end before batch {self.first + 1}, but the reference has {self.batches}"
            raise UsageError(msg, hint=_SAME)


def nth_range(recording: Recording, number: int, of: int) -> BatchRange:
    """Return the range of a shard, from 1: all ranges together hold each batch once, and the first is not empty.

    Raises:
        ArtifactIntegrityError: A chunk is corrupt.
    """
    rows = [rows for sizes in _sizes(recording) for rows in sizes]
    if sum(rows) != recording.rows:
        msg = f"recorded outputs in {recording.folder} are corrupt: they hold {sum(rows)} of {recording.rows} rows"
        raise corrupt_recording(msg)
    first, last = (-(-at * len(rows) // of) for at in (number - 1, number))
    return BatchRange(
        first=first, last=last, batches=len(rows), rows_before=sum(rows[:first]), rows=sum(rows[first:last])
    )


def _sizes(recording: Recording) -> Iterator[list[int]]:
    """Yield the rows of each batch, chunk by chunk; only the chunks' headers are read."""
    from safetensors import SafetensorError, safe_open

    for name in recording.chunks:
        try:
            with safe_open(str(recording.folder / name), framework="np") as file:
                batches = parse_json(file.metadata()["batches"])
                rows = [int(batch["rows"]) for batch in batches]
        except (SafetensorError, AttributeError, KeyError, OSError, TypeError, ValueError) as err:
            msg = f"recorded outputs in {recording.folder} are corrupt: {name} is not a chunk ({err})"
            raise corrupt_recording(msg) from err
        yield rows


def only_range(expected: ExpectedOutputs, recording: Recording, batches: BatchRange) -> ExpectedOutputs:
    """Return the expected outputs of some batches alone, each checked against the samples it was recorded on."""
    return replace(expected, open_reader=lambda: _RangeReader(recording, batches))


class _RangeReader:
    def __init__(self, recording: Recording, batches: BatchRange) -> None:
        self._recording = recording
        self._range = batches
        self._next = batches.first
        self._stored = self._batches()

    def _batches(self) -> Iterator[StoredBatch]:
        """Yield the stored batches; chunks without one of them are not read."""
        seen = 0
        for (name, digest), sizes in zip(self._recording.chunks.items(), _sizes(self._recording), strict=True):
            first, last = self._range.first - seen, self._range.last - seen
            seen += len(sizes)
            if first < len(sizes) and last > 0:
                yield from islice(read_chunks(self._recording.folder, {name: digest}), max(first, 0), last)

    def take(self, batch: Batch) -> dict[str, NDArray[np.generic]]:
        """Return the outputs of this batch; raise UsageError if it has other rows, as with another batch size."""
        stored = next(self._stored, None)
        if stored is None or stored.rows != batch.rows or stored.case != batch.case:
            seen = "no more batches" if stored is None else f"{stored.rows} rows"
            msg = f"batch {self._next + 1} of the samples has {batch.rows} rows, but that of the reference has {seen}"
            raise UsageError(msg, hint=_SAME)
        if stored.samples_digest != digest_of_batch(batch):
            msg = f"batch {self._next + 1} of the samples differs from that of {self._recording.folder}"
            raise ArtifactIntegrityError(msg, hint="use the same samples, or record the reference again")
        self._next += 1
        return dict(stored.outputs)

    def end(self, samples_digest: str) -> None:
        """Check that all batches of the range were read; raise UsageError if not."""
        del samples_digest  # Each batch was checked.
        if self._next != self._range.last:
            msg = f"the samples end after batch {self._next}, but the reference has {self._range.batches}"
            raise UsageError(msg, hint=_SAME)
