"""Read a pack that anybody may have written; nothing is kept unless every byte matches its manifest."""

from __future__ import annotations

import hashlib
import os
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from paritygate.errors import ArtifactIntegrityError, InputFileError
from paritygate.pipelines.packing.manifest import (
    BLOCK_BYTES,
    END,
    MANIFEST_NAME,
    MOST_MANIFEST_BYTES,
    PackedFile,
    PackManifest,
    damaged,
    header_of,
    padding_of,
    what_header_says,
)
from paritygate.pipelines.process.child import Progress

_CHUNK_BYTES = 1 << 20
FILE_MODE = 0o644
# Smaller packs finish before anybody has read a line.
_LEAST_BYTES = 64 << 20


def read_manifest(pack: Path) -> PackManifest:
    """Return the manifest of a pack, without reading its files.

    Raises:
        InputFileError: It is not a pack, or one of a later version.
        ArtifactIntegrityError: The manifest was changed or is cut off.
    """
    with _open(pack) as stream:
        return _manifest(stream, pack)


def extract(pack: Path, folder: Path, progress: Progress) -> PackManifest:
    """Write the files of a pack below an empty `folder`, each checked as it is written, and return the manifest.

    Never writes more than the pack's size. After an error the folder has to be removed.

    Raises:
        InputFileError: It is not a pack, or one of a later version.
        ArtifactIntegrityError: It is not what was packed; the message names the file.
    """
    with _open(pack) as stream:
        manifest = _manifest(stream, pack)
        _check_size(stream, manifest, pack)
        add = amount_done("unpacking", manifest.content_bytes, progress)
        for file in manifest.files:
            _check_header(stream, file, pack)
            _write_file(stream, file, folder / file.name, pack, add)
        if stream.read(len(END) + 1) != END:
            raise damaged(str(pack), "something else stands where it should end")
    return manifest


def _open(pack: Path) -> BinaryIO:
    if not pack.is_file():
        msg = f"pack {pack} is not a file" if pack.exists() else f"pack {pack} does not exist"
        raise InputFileError(msg, hint="give the file made with", command="convert-and-validate pack --run DIR")
    try:
        return pack.open("rb")
    except OSError as err:
        msg = f"pack {pack} cannot be read: {err.strerror}"
        raise InputFileError(msg, hint="check the path and its permissions") from err


def _manifest(stream: BinaryIO, pack: Path) -> PackManifest:
    header = stream.read(BLOCK_BYTES)
    try:
        info = tarfile.TarInfo.frombuf(header, "utf-8", "strict")
    except (tarfile.HeaderError, UnicodeDecodeError) as err:
        raise _no_pack(pack) from err
    if info.name != MANIFEST_NAME:
        raise _no_pack(pack)
    if info.size < 0 or info.size > MOST_MANIFEST_BYTES or header != header_of(MANIFEST_NAME, info.size):
        raise damaged(str(pack), f"it begins with {what_header_says(header)}")
    text = stream.read(info.size)
    padding = padding_of(info.size)
    if len(text) != info.size or stream.read(len(padding)) != padding:
        raise damaged(str(pack), f"{MANIFEST_NAME} is cut off or followed by something else")
    return PackManifest.from_bytes(text, str(pack))


def _no_pack(pack: Path) -> InputFileError:
    return InputFileError(
        f"{pack} is not a pack: {MANIFEST_NAME} is not at its start",
        hint="give the file made with",
        command="convert-and-validate pack --run DIR",
    )


def _check_size(stream: BinaryIO, manifest: PackManifest, pack: Path) -> None:
    size, expected = os.fstat(stream.fileno()).st_size, manifest.pack_bytes
    if size < expected:
        raise damaged(str(pack), f"it is cut off: {size:,} of {expected:,} bytes are there")
    if size > expected:
        raise damaged(str(pack), f"{size - expected:,} bytes follow after its end")


def _check_header(stream: BinaryIO, file: PackedFile, pack: Path) -> None:
    wanted = header_of(file.name, file.size)
    header = stream.read(len(wanted))
    if header != wanted:
        raise damaged(str(pack), f"{what_header_says(header)} stands where {file.name} should")


def _write_file(stream: BinaryIO, file: PackedFile, target: Path, pack: Path, add: Callable[[int], None]) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    state, left = hashlib.sha256(), file.size
    # Exclusively, so that nothing is written through a link in its place.
    with target.open("xb") as content:
        while left and (chunk := stream.read(min(left, _CHUNK_BYTES))):
            state.update(chunk)
            content.write(chunk)
            left -= len(chunk)
            add(len(chunk))
    target.chmod(FILE_MODE)
    padding = padding_of(file.size)
    if left or f"sha256:{state.hexdigest()}" != file.digest:
        raise _changed(pack, file)
    if stream.read(len(padding)) != padding:
        raise damaged(str(pack), f"something stands behind {file.name}")


def _changed(pack: Path, file: PackedFile) -> ArtifactIntegrityError:
    return damaged(str(pack), f"{file.name} was changed")


def amount_done(what: str, total: int, progress: Progress) -> Callable[[int], None]:
    """Return a function that takes the bytes done since its last call, and reports progress."""
    progress(what, 0, 0)
    done, reported = 0, 0

    def add(size: int) -> None:
        nonlocal done, reported
        done += size
        tenths = 10 * done // max(1, total)
        if total >= _LEAST_BYTES and tenths > reported:
            reported = tenths
            progress(f"{what}: {10 * tenths} % of {total / 1e6:,.0f} MB", 0, 0)

    return add
