"""Store the probes of a model: the derived batches and the reference's outputs on each.

A folder next to the recorded reference holds a folder per probe, with inputs and outputs in chunks. `probes.json` lists
every batch, what was left out and why, and each chunk's digest. Every candidate runs the same batches on any machine,
and a failed batch can be looked up and run again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from paritygate.batch import Arrays
from paritygate.codec import from_json, read_sealed, sealed, to_data, with_fields_of
from paritygate.errors import InputFileError
from paritygate.file_names import check_names
from paritygate.files import corrupt_errors, write_json_atomically
from paritygate.validate.measure.profile import OutputProfile
from paritygate.validate.measure.valid_positions import ValidWhere, only_valid
from paritygate.validate.probes.inputs.edge import Edge
from paritygate.validate.probes.inputs.roles import InputRole
from paritygate.validate.probes.skip_reasons import DropKind, Dropped
from paritygate.validate.reference.padded_outputs import UndeclaredPadding
from paritygate.validate.reference.recording import read_chunks
from paritygate.validate.reference.reference_noise import RowNoise

if TYPE_CHECKING:
    from paritygate.validate.probes.inputs.probe import ProbeBatch

PROBES_FOLDER, PROBES_FILE = "probes", "probes.json"
_FORMAT_VERSION = 5
_AGAIN = "record the reference again: convert-and-validate record"
INPUT, OUTPUT = "input/", "output/"


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchRecord:
    """A batch with reference outputs; see `ProbeBatch`.

    `edges` hold the rows that are unlike every sample, where a difference fails nothing. `noise`, by float output and
    row, is the reference's difference between a row alone and in a batch, where it exceeds FP32 limits.
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
        """True where every row is unlike every sample."""
        return {row for edge in self.edges for row in edge.rows} == set(range(self.rows))

    @classmethod
    def of(cls, batch: ProbeBatch, edges: tuple[Edge, ...], noise: Mapping[str, tuple[RowNoise, ...]]) -> BatchRecord:
        """Return the record of a batch, without its arrays."""
        return with_fields_of(cls, batch, edges=edges, noise=noise)


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredProbeBatch:
    """A batch with its outputs, as read back."""

    record: BatchRecord
    inputs: Arrays
    outputs: Arrays


@dataclass(frozen=True, kw_only=True, slots=True)
class ProbeRecord:
    """A probe as recorded.

    - `dropped`: the first ones of each kind; `dropped_counts` has all. `chunks`: digests by file in the probe's folder.
    - `asked_rows`: rows that the reference ran on, dropped ones too, each counted once. `allowed_rows`: the limit.
    - `notes`: one sentence for each thing not covered. `error`: a fault of this tool while recording, or empty.
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
        """The rows of all batches."""
        return sum(batch.rows for batch in self.batches)


@dataclass(frozen=True, kw_only=True, slots=True)
class ProbesRecording:
    """All probes of a model.

    - `probes`: in the order of the table. `skipped`: why no probe was recorded, or empty. `runtime`: the reference's.
    - `profiles`: by output, its values on the samples, which scale the limits together with each batch's own outputs.
    - `positions`: the positions that count. `padding`: what undeclared masks leave out, by output.
    - `batch_axes`: the axes that count rows, where the first one is not the only one, as in scores of pairs.
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
        """The rows that every candidate runs on."""
        return sum(probe.rows for probe in self.probes)

    def batches(self, probe: ProbeRecord) -> Iterator[StoredProbeBatch]:
        """Yield a probe's batches, with uncounted outputs masked; raise ArtifactIntegrityError for changed chunks."""
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
        """Return the probes in `folder`, without a check of the chunks.

        Raises:
            InputFileError: There are none, or they are of another format.
            ArtifactIntegrityError: They were changed after they were written.
        """
        path = folder / PROBES_FILE
        if not path.is_file():
            raise InputFileError(f"{folder} holds no recorded probes: {PROBES_FILE} is missing", hint=_AGAIN)
        data = read_sealed(path, path.read_bytes(), version=_FORMAT_VERSION, again=_AGAIN)
        with corrupt_errors(path, hint=_AGAIN):
            recording = from_json(cls, {**data, "folder": str(folder)})
            check_names(name for probe in recording.probes for name in (probe.name, *probe.chunks))
        return recording
