"""The probes of a model, recorded: the batches derived, and what the reference answered to each.

A folder beside the recorded reference holds one folder a probe, with inputs and outputs in chunks as those of the
reference, and `probes.json`, which names every batch, what was left out and why, and the digest of each chunk. Every
candidate is asked the same, on whatever machine, and a batch that it fails can be looked up and run again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from paritygate.codec import from_data, read_sealed, sealed, to_data
from paritygate.errors import InputFileError
from paritygate.file_names import check_names
from paritygate.files import write_json_atomically
from paritygate.validate.measure.profile import OutputProfile
from paritygate.validate.measure.valid_positions import ValidWhere, only_valid
from paritygate.validate.probes.drops import DropKind, Dropped
from paritygate.validate.probes.inputs.edge import Edge
from paritygate.validate.probes.inputs.roles import InputRole
from paritygate.validate.reference.own_noise import RowNoise
from paritygate.validate.reference.padded_outputs import UndeclaredPadding
from paritygate.validate.reference.recording import read_chunks

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from paritygate.validate.probes.inputs.probe import ProbeBatch

PROBES_FILE = "probes.json"
_FORMAT_VERSION = 5
_AGAIN = "record the reference again: convert-and-validate record"
INPUT, OUTPUT = "input/", "output/"


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchRecord:
    """One batch that the reference answered; see `ProbeBatch`.

    `edges` says which of its rows are unlike every sample: a difference there is a finding and no failure. `noise` is,
    by float output, how far the reference differs from itself in each row, alone and in a batch; only where it is more
    than the limits of FP32.
    """

    rows: int
    about: str
    is_beyond_seen: bool
    is_unlike_seen: bool
    is_far_from_seen: bool = False
    hangs_on_runtime: bool = False
    edges: tuple[Edge, ...] = ()
    noise: Mapping[str, tuple[RowNoise, ...]] = field(default_factory=dict)

    @property
    def is_at_edge(self) -> bool:
        """Whether every row is unlike every sample."""
        return {row for edge in self.edges for row in edge.rows} == set(range(self.rows))

    @classmethod
    def of(cls, batch: ProbeBatch, edges: tuple[Edge, ...], noise: Mapping[str, tuple[RowNoise, ...]]) -> BatchRecord:
        """Return what is kept of a batch beside its arrays."""
        return cls(
            rows=batch.rows,
            about=batch.about,
            is_beyond_seen=batch.is_beyond_seen,
            is_unlike_seen=batch.is_unlike_seen,
            is_far_from_seen=batch.is_far_from_seen,
            hangs_on_runtime=batch.hangs_on_runtime,
            edges=edges,
            noise=noise,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredProbeBatch:
    """One batch with its answers, as read back."""

    record: BatchRecord
    inputs: Mapping[str, NDArray[np.generic]]
    outputs: Mapping[str, NDArray[np.generic]]


@dataclass(frozen=True, kw_only=True, slots=True)
class ProbeRecord:
    """One probe as recorded.

    Attributes:
        name: Its name.
        batches: What the reference answered, in order.
        dropped: What was left out, the first ones of each kind.
        dropped_counts: How many were left out, by kind.
        chunks: Digest of each chunk file, relative to the probe's folder.
        seconds: How long deriving and answering took.
        asked_rows: Rows that the reference was asked, the dropped ones too; it is asked more than once.
        allowed_rows: Rows that the probe may use.
        notes: What was left out of all that there is to ask, one sentence each.
        error: What of ours failed while it was made, and where; empty where nothing did.
    """

    name: str
    batches: tuple[BatchRecord, ...]
    dropped: tuple[Dropped, ...]
    chunks: Mapping[str, str]
    seconds: float
    dropped_counts: Mapping[DropKind, int]
    asked_rows: int = 0
    allowed_rows: int = 0
    notes: tuple[str, ...] = ()
    error: str = ""

    @property
    def rows(self) -> int:
        """Rows of all batches."""
        return sum(batch.rows for batch in self.batches)


@dataclass(frozen=True, kw_only=True, slots=True)
class ProbesRecording:
    """All probes of a model.

    Attributes:
        folder: Where they are.
        probes: Each probe that was asked for, in the order of the table.
        roles: What each input was taken for.
        skipped: Why no probe was made at all; empty where some were.
        seed: Seed of all choices.
        runtime: What ran the reference.
        positions: Which positions count, of outputs of which not all do.
        profiles: Profile of each output on the samples: limits are scaled by it, and by each batch's own answer.
        padding: What masks leave out that nobody declared, by output.
        batch_axes: The axes of an output that count the rows of a call, where that is not the first one alone: the
            answer to each pair of rows, such as of every picture with every text.
    """

    folder: Path
    probes: tuple[ProbeRecord, ...]
    roles: Mapping[str, InputRole]
    profiles: Mapping[str, OutputProfile]
    skipped: str = ""
    seed: int = 0
    runtime: str = ""
    positions: Mapping[str, ValidWhere] = field(default_factory=dict)
    padding: Mapping[str, UndeclaredPadding] = field(default_factory=dict)
    batch_axes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """Rows of all probes that the reference answered: what every candidate is asked."""
        return sum(probe.rows for probe in self.probes)

    def batches(self, probe: ProbeRecord) -> Iterator[StoredProbeBatch]:
        """Yield every batch of a probe, checking digests on the way; what does not count of its outputs is masked.

        Raises:
            ArtifactIntegrityError: A chunk is missing or was changed.
        """
        stored = read_chunks(self.folder / probe.name, probe.chunks)
        positions = {**{name: item.mask for name, item in self.padding.items()}, **self.positions}
        for record, batch in zip(probe.batches, stored, strict=True):
            inputs = {key[len(INPUT) :]: array for key, array in batch.outputs.items() if key.startswith(INPUT)}
            outputs = {key[len(OUTPUT) :]: array for key, array in batch.outputs.items() if key.startswith(OUTPUT)}
            yield StoredProbeBatch(record=record, inputs=inputs, outputs=only_valid(outputs, inputs, positions))

    def save(self) -> None:
        """Write `probes.json`."""
        data = to_data(self)
        del data["folder"]
        write_json_atomically(self.folder / PROBES_FILE, sealed(data, version=_FORMAT_VERSION))

    @classmethod
    def load(cls, folder: Path) -> ProbesRecording:
        """Return the probes in `folder`; chunks are checked when they are read.

        Raises:
            InputFileError: There are none, or they are of another format.
            ArtifactIntegrityError: They were changed after they were written.
        """
        path = folder / PROBES_FILE
        if not path.is_file():
            msg = f"{folder} holds no recorded probes: {PROBES_FILE} is missing"
            raise InputFileError(msg, hint=_AGAIN)
        data = read_sealed(path, version=_FORMAT_VERSION, again=_AGAIN)
        try:
            found = from_data(cls, {**data, "folder": str(folder)})
            check_names(name for probe in found.probes for name in (probe.name, *probe.chunks))
        except ValueError as err:
            msg = f"{path} is corrupt: {err}"
            raise InputFileError(msg, hint=_AGAIN) from err
        return found
