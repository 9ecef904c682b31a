"""Check whether a source is the one that the reference was recorded from, and measure its size on disk."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from paritygate.errors import ArtifactIntegrityError
from paritygate.files import digest_of_file, digest_of_json
from paritygate.models.digest import files_of_model
from paritygate.models.source import ModelRef, SourceKind

if TYPE_CHECKING:
    from paritygate.models.loading import LoadedModel


def digest_of_recorded(model: Mapping[str, Any]) -> str | None:
    """Return one digest of the files, parameters and code in `Recording.model`; raise KeyError if they are missing."""
    digest: str | None = model["digest"]
    files: Mapping[str, str] = model["files"]
    return digest_of_json({"digest": digest, "files": dict(files)}) if files else digest


def check_is_recorded(loaded: LoadedModel, recorded: Mapping[str, Any]) -> None:
    """Raise ArtifactIntegrityError if the source differs from `Recording.model`; read all of its files.

    Speed and outputs of another source are no evidence on the recorded one.
    """
    source = loaded.ref
    if loaded.digest != recorded.get("digest"):
        raise source_changed(source.text, "was changed" if loaded.model is None else "makes other parameters")
    for name, digest in recorded.get("files", {}).items():
        path = source.folder / name
        if not path.is_file() or digest_of_file(path) != digest:
            raise source_changed(name, "was changed" if path.is_file() else "is missing")


def source_changed(name: object, change: str) -> ArtifactIntegrityError:
    """Return the error of a file, or another part of a source, that changed since the reference was recorded."""
    return ArtifactIntegrityError(
        f"the source differs from that of the recorded reference: {name} {change}",
        hint="start a new run",
        command="convert-and-validate run SPEC",
    )


def size_of_source(source: ModelRef) -> int | None:
    """Return the bytes of all files of a source; None for a `module:callable`, which is code."""
    if source.kind is SourceKind.CALLABLE:
        return None
    return sum(path.stat().st_size for path in files_of_model(source).values())
