"""Store one variant on disk: its files, its signature, the digest over all its files, and its origin."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paritygate.codec import from_data, to_data
from paritygate.errors import ArtifactIntegrityError, InputFileError
from paritygate.file_names import check_names
from paritygate.files import (
    corrupt_errors,
    digest_of_file,
    digest_of_files,
    files_below,
    json_of,
    write_json_atomically,
)
from paritygate.precision import Variant
from paritygate.signature import Signature

ARTIFACT_FILE = "artifact.json"
# The runtime opens the folder; other formats have a main file.
_FOLDER_FORMATS = frozenset({"savedmodel"})


def file_digests(folder: Path) -> dict[str, str]:
    """Return the digest of every file below `folder` by relative path, except the artifact's own record."""
    return {
        path.relative_to(folder).as_posix(): digest_of_file(path)
        for path in files_below(folder)
        if path != folder / ARTIFACT_FILE
    }


def check_record(record: Mapping[str, Any]) -> None:
    """Check that a record names only files in its folder, and that the main one is among them.

    Raises:
        ValueError: A name leads elsewhere, where no digest protects what is read or written.
    """
    check_names(record["files"])
    main, form = record["main"], str(record["variant"]).rpartition("-")[0]
    allowed = [*(["."] if form in _FOLDER_FORMATS else []), *record["files"]]
    if main not in allowed:
        raise ValueError(f"main is {main!r}, which is not one of its files (allowed: {', '.join(allowed)})")


@dataclass(frozen=True, kw_only=True, slots=True)
class Artifact:
    """A converted model on disk."""

    variant: Variant
    folder: Path
    main: str  # opened by the runtime, relative to `folder`; `.` for a folder format
    signature: Signature  # read back from the files
    files: Mapping[str, str]  # digest by relative path, external data included
    made_by: Mapping[str, Any] = field(default_factory=dict)  # converter, tool versions, notes

    @property
    def digest(self) -> str:
        """Digest over all files."""
        return digest_of_files(self.files)

    @property
    def path(self) -> Path:
        """The path that the runtime opens."""
        return self.folder / self.main

    @property
    def size_bytes(self) -> int:
        """Size of all files together."""
        return sum((self.folder / name).stat().st_size for name in self.files)

    def save(self) -> None:
        """Write the artifact's record beside its files."""
        data = {
            "variant": str(self.variant),
            "main": self.main,
            "digest": self.digest,
            "files": dict(self.files),
            "signature": to_data(self.signature),
            "made_by": dict(self.made_by),
        }
        write_json_atomically(self.folder / ARTIFACT_FILE, data)

    @classmethod
    def load(cls, folder: Path) -> Artifact:
        """Return the artifact recorded in `folder`, after checking every file against its digest.

        Raises:
            InputFileError: There is no artifact in `folder`.
            ArtifactIntegrityError: A file was changed, removed or added since it was recorded.
        """
        artifact = cls.read_record(folder)
        artifact.verify()
        return artifact

    @classmethod
    def read_record(cls, folder: Path) -> Artifact:
        """Return the artifact recorded in `folder` without verifying its files.

        Raises:
            InputFileError: There is no artifact in `folder`, or its record is corrupt or names files elsewhere.
        """
        record = folder / ARTIFACT_FILE
        if not record.is_file():
            msg = f"{folder} holds no artifact: {ARTIFACT_FILE} is missing"
            raise InputFileError(msg, hint="make it with", command="convert-and-validate export")
        return _artifact_of(record, record.read_bytes())

    def verify(self) -> None:
        """Raise ArtifactIntegrityError if a file was changed, removed or added since it was recorded."""
        digests = file_digests(self.folder)
        for name in sorted({*digests, *self.files}):
            if digests.get(name) == self.files.get(name):
                continue
            change = "was changed" if name in digests and name in self.files else "is missing"
            if name not in self.files:
                change = "was added"
            msg = f"artifact {self.variant} in {self.folder} is corrupt: {name} {change}"
            raise ArtifactIntegrityError(msg, hint="make it again with", command="convert-and-validate export")


# The stages of a run read the same records: the same bytes are parsed once.
@functools.lru_cache(maxsize=64)
def _artifact_of(record: Path, content: bytes) -> Artifact:
    with corrupt_errors(record, hint="make it again with", command="convert-and-validate export"):
        data = json_of(content.decode())
        for name, kind in (("files", dict), ("made_by", dict)):
            if not isinstance(data[name], kind):
                msg = f"{name} is {data[name]!r}"
                raise TypeError(msg)
        for name, right in (("facts", {}), ("source", {}), ("notes", [])):
            if not isinstance(data["made_by"].get(name, right), type(right)):
                msg = f"made_by.{name} is {data['made_by'][name]!r}"
                raise TypeError(msg)
        check_record(data)
        return Artifact(
            variant=Variant.parse(data["variant"]),
            folder=record.parent,
            main=data["main"],
            signature=from_data(Signature, data["signature"]),
            files=data["files"],
            made_by=data["made_by"],
        )
