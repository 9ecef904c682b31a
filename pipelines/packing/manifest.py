"""The form of a pack: a plain tar archive whose first file lists the others with size and digest.

Nothing in an archive is trusted: a reader computes the expected bytes from the manifest and compares. So links,
devices, owners, sparse files and extended headers are never parsed; they just differ from the expected bytes.
"""

from __future__ import annotations

import json
import re
import tarfile
from typing import Any

from msgspec import Struct

from paritygate.codec import from_data, to_data
from paritygate.errors import ArtifactIntegrityError, InputFileError
from paritygate.file_names import why_not_names
from paritygate.files import digest_of_json

MANIFEST_NAME = "paritygate-pack.json"
# Enough for half a million files.
MOST_MANIFEST_BYTES = 64 << 20
RUN = "run"
INPUTS = "inputs"
SPEC_MEMBER = f"{RUN}/spec.json"
_SCHEMA_VERSION = 1
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_AGAIN = "copy it again, or make it again with: convert-and-validate pack --run DIR"
BLOCK_BYTES = 512
# A tar archive ends with two empty blocks.
END = bytes(2 * BLOCK_BYTES)
_MODE = 0o644
_KINDS = {
    tarfile.LNKTYPE: "a link",
    tarfile.SYMTYPE: "a link",
    tarfile.CHRTYPE: "a device",
    tarfile.BLKTYPE: "a device",
    tarfile.FIFOTYPE: "a pipe",
    tarfile.DIRTYPE: "a folder",
}


class PackedFile(Struct, frozen=True, kw_only=True):
    """A file in a pack, or left out of it: a relative path with slashes, and `sha256:` with a hex digest."""

    name: str
    size: int
    digest: str

    def __post_init__(self) -> None:
        if self.size < 0 or not _DIGEST.fullmatch(self.digest):
            raise ValueError(f"{self.name!r} of {self.size} bytes with digest {self.digest!r} is not a file of a pack")


class PackManifest(Struct, frozen=True, kw_only=True):
    """The manifest of a pack.

    `paritygate` is the version that packed. `files` are in the order of the archive. `missing` files are left out;
    their names are relative to the spec's folder. `needs_samples` names left-out samples of the command line. `modules`
    outside the spec's folder have to be installed.
    """

    paritygate: str
    model: str
    run_id: str
    files: tuple[PackedFile, ...]
    missing: tuple[PackedFile, ...] = ()
    needs_samples: str | None = None
    modules: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in (self.model, self.run_id):
            if not _NAME.fullmatch(name):
                raise ValueError(f"{name!r} is not the name of a model or run")

    @property
    def digest(self) -> str:
        """The digest of the manifest, and so of every file."""
        return digest_of_json(self._content())

    @property
    def content_bytes(self) -> int:
        """The size of all files together."""
        return sum(file.size for file in self.files)

    @property
    def pack_bytes(self) -> int:
        """The size of the pack, computed from its contents."""
        members = sum(_size_of_member(file.name, file.size) for file in self.files)
        return _size_of_member(MANIFEST_NAME, len(self.to_bytes())) + members + len(END)

    def to_bytes(self) -> bytes:
        """Return the manifest as written into the pack."""
        return (json.dumps({**self._content(), "digest": self.digest}, indent=1) + "\n").encode()

    def _content(self) -> dict[str, Any]:
        return {"schema_version": _SCHEMA_VERSION, **to_data(self)}

    @classmethod
    def from_bytes(cls, text: bytes, where: str) -> PackManifest:
        """Return the manifest that `to_bytes` wrote; `where` is the pack, for messages.

        Raises:
            ArtifactIntegrityError: It was changed, or names files that may not be restored.
            InputFileError: A later version of paritygate made it.
        """
        try:
            data = json.loads(text)
            version = data["schema_version"]
        except (ValueError, KeyError, TypeError, RecursionError) as err:
            raise damaged(where, f"its {MANIFEST_NAME} is not a manifest: {type(err).__name__}") from err
        if type(version) is int and version > _SCHEMA_VERSION:
            msg = f"{where} is a pack of version {version} (supported: {_SCHEMA_VERSION})"
            raise InputFileError(msg, hint="install the version of paritygate that made it, or a later one")
        try:
            manifest = from_data(cls, data)
        except ValueError as err:
            raise damaged(where, f"its {MANIFEST_NAME} is not a manifest: {type(err).__name__}: {err}") from err
        # The text must be equal too: anything we did not write, such as a key twice, is refused.
        if text != manifest.to_bytes():
            raise damaged(where, f"{MANIFEST_NAME} was changed: it does not have the digest that it names")
        _check_names(manifest, where)
        return manifest


def damaged(where: str, what: str) -> ArtifactIntegrityError:
    """Return the error for a corrupt pack."""
    return ArtifactIntegrityError(f"{where} is corrupt: {what}", hint=_AGAIN)


def _check_names(manifest: PackManifest, where: str) -> None:
    names = [file.name for file in manifest.files]
    bad = why_not_names(names)
    if bad is not None:
        raise damaged(where, f"the name {bad[0]!r} {bad[1]}")
    for name in names:
        if name.partition("/")[0] not in {RUN, INPUTS} or "/" not in name:
            raise damaged(where, f"{name!r} is neither of the run nor one of its inputs")
    if SPEC_MEMBER not in names:
        raise damaged(where, f"{SPEC_MEMBER} is missing")


def header_of(name: str, size: int) -> bytes:
    """Return the header of a file: no owner, no time, one mode, so that equal files make equal archives."""
    info = tarfile.TarInfo(name)
    info.size = size
    info.mode = _MODE
    # The format that holds any size and name without records of its own.
    return info.tobuf(tarfile.GNU_FORMAT, "utf-8", "strict")


def padding_of(size: int) -> bytes:
    """Return the zeros that fill the last block of a file of `size` bytes."""
    return bytes(-size % BLOCK_BYTES)


def _size_of_member(name: str, size: int) -> int:
    """Return the bytes of a file in the archive, with header and padding."""
    return len(header_of(name, size)) + size + len(padding_of(size))


def what_header_says(header: bytes) -> str:
    """Return the meaning of a header as text, for messages; it is as long as the expected one."""
    try:
        info = tarfile.TarInfo.frombuf(header[:BLOCK_BYTES], "utf-8", "replace")
    except tarfile.HeaderError:
        return "something that is not a file"
    kind = _KINDS.get(info.type, "a file")
    return f"{kind} called {info.name!r} of {info.size} bytes"
