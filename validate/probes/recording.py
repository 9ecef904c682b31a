"""The probes of a model, recorded: the batches derived, and what the reference answered to each.

A folder beside the recorded reference holds one folder a probe, with inputs and outputs in chunks as those of the
reference, and `probes.json`, which names every batch, what was left out and why, and the digest of each chunk. Every
candidate is asked the same, on whatever machine, and a batch that it fails can be looked up and run again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paritygate.errors import ArtifactIntegrityError, InputFileError
from paritygate.file_names import check_names
from paritygate.files import digest_of_json, read_json, write_json_atomically
from paritygate.validate.probes.drops import DropKind, Dropped
from paritygate.validate.probes.edges import Edge
from paritygate.validate.probes.probe import ProbeBatch
from paritygate.validate.probes.roles import InputRole
from paritygate.validate.reference.profile import OutputProfile
from paritygate.validate.reference.recording import read_chunks

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["PROBES_FILE", "BatchRecord", "ProbeRecord", "ProbesRecording", "StoredProbeBatch"]

PROBES_FILE = "probes.json"
_FORMAT_VERSION = 3
_AGAIN = "record the reference again: convert-and-validate record"
INPUT, OUTPUT = "input/", "output/"


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchRecord:
    """One batch that the reference answered; see `ProbeBatch`.

    `edges` says which of its rows are unlike every sample: a difference there is a finding and no failure.
    """

    rows: int
    about: str
    is_beyond_seen: bool
    is_unlike_seen: bool
    is_far_from_seen: bool = False
    hangs_on_runtime: bool = False
    edges: tuple[Edge, ...] = ()

    @classmethod
    def of(cls, batch: ProbeBatch, edges: tuple[Edge, ...]) -> BatchRecord:
        """Return what is kept of a batch beside its arrays."""
        return cls(
            rows=batch.rows,
            about=batch.about,
            is_beyond_seen=batch.is_beyond_seen,
            is_unlike_seen=batch.is_unlike_seen,
            is_far_from_seen=batch.is_far_from_seen,
            hangs_on_runtime=batch.hangs_on_runtime,
            edges=edges,
        )

    def to_json(self) -> dict[str, Any]:
        """Return the batch as JSON data."""
        return {**asdict(self), "edges": [edge.to_json() for edge in self.edges]}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> BatchRecord:
        """Return the batch that `to_json` wrote."""
        return cls(**{**data, "edges": tuple(Edge.from_json(edge) for edge in data["edges"])})


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
        profiles: Profile of each output on the samples: limits are scaled by it, and by each batch's own answer.
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
    profiles: Mapping[str, OutputProfile]
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

    def to_json(self) -> dict[str, Any]:
        """Return the probe as JSON data."""
        return {
            "name": self.name,
            "batches": [item.to_json() for item in self.batches],
            "dropped": [{"about": item.about, "kind": str(item.kind), "reason": item.reason} for item in self.dropped],
            "dropped_counts": {str(kind): count for kind, count in self.dropped_counts.items()},
            "profiles": {name: profile.to_json() for name, profile in self.profiles.items()},
            "chunks": dict(self.chunks),
            "seconds": self.seconds,
            "asked_rows": self.asked_rows,
            "allowed_rows": self.allowed_rows,
            "notes": list(self.notes),
            "error": self.error,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ProbeRecord:
        """Return the probe that `to_json` wrote."""
        return cls(
            name=data["name"],
            batches=tuple(BatchRecord.from_json(item) for item in data["batches"]),
            dropped=tuple(
                Dropped(about=item["about"], kind=DropKind(item["kind"]), reason=item["reason"])
                for item in data["dropped"]
            ),
            dropped_counts={DropKind(kind): count for kind, count in data["dropped_counts"].items()},
            profiles={name: OutputProfile.from_json(item) for name, item in data["profiles"].items()},
            chunks=dict(data["chunks"]),
            seconds=data["seconds"],
            asked_rows=data["asked_rows"],
            allowed_rows=data["allowed_rows"],
            notes=tuple(data["notes"]),
            error=data["error"],
        )


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
    """

    folder: Path
    probes: tuple[ProbeRecord, ...]
    roles: Mapping[str, InputRole]
    skipped: str = ""
    seed: int = 0
    runtime: str = ""

    @property
    def rows(self) -> int:
        """Rows of all probes that the reference answered: what every candidate is asked."""
        return sum(probe.rows for probe in self.probes)

    def batches(self, probe: ProbeRecord) -> Iterator[StoredProbeBatch]:
        """Yield every batch of a probe, checking digests on the way.

        Raises:
            ArtifactIntegrityError: A chunk is missing or was changed.
        """
        stored = read_chunks(self.folder / probe.name, probe.chunks)
        for record, batch in zip(probe.batches, stored, strict=True):
            yield StoredProbeBatch(
                record=record,
                inputs={key[len(INPUT) :]: array for key, array in batch.outputs.items() if key.startswith(INPUT)},
                outputs={key[len(OUTPUT) :]: array for key, array in batch.outputs.items() if key.startswith(OUTPUT)},
            )

    def save(self) -> None:
        """Write `probes.json`."""
        data = {
            "format": _FORMAT_VERSION,
            "probes": [probe.to_json() for probe in self.probes],
            "roles": {name: role.to_json() for name, role in self.roles.items()},
            "skipped": self.skipped,
            "seed": self.seed,
            "runtime": self.runtime,
        }
        write_json_atomically(self.folder / PROBES_FILE, {**data, "digest": digest_of_json(data)})

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
        try:
            data = read_json(path)
            if data["format"] != _FORMAT_VERSION:
                msg = f"{path} has format {data['format']} (allowed: {_FORMAT_VERSION})"
                raise InputFileError(msg, hint=_AGAIN)
            digest = data.pop("digest")
            if digest != digest_of_json(data):
                msg = f"{path} is not what was recorded: it was changed"
                raise ArtifactIntegrityError(msg, hint=_AGAIN)
            check_names(name for probe in data["probes"] for name in (probe["name"], *probe["chunks"]))
            return cls(
                folder=folder,
                probes=tuple(ProbeRecord.from_json(item) for item in data["probes"]),
                roles={name: InputRole.from_json(item) for name, item in data["roles"].items()},
                skipped=data["skipped"],
                seed=data["seed"],
                runtime=data["runtime"],
            )
        except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as err:
            msg = f"{path} is damaged: {err}"
            raise InputFileError(msg, hint=_AGAIN) from err
