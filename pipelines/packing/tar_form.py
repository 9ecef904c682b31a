"""The bytes around the files in a pack: a plain tar archive that follows from names and sizes alone.

Nothing in an archive is believed: whoever reads one knows from its manifest which bytes have to come, and compares.
So links, devices, owners, sparse files and extended headers are not parsed, they are just not what has to come.
"""

from __future__ import annotations

import tarfile

__all__ = ["BLOCK_BYTES", "END", "header_of", "padding_of", "size_of_member", "what_header_says"]

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


def header_of(name: str, size: int) -> bytes:
    """Return the header of a file: no owner, no time, one mode, so that equal files make equal archives."""
    info = tarfile.TarInfo(name)
    info.size = size
    info.mode = _MODE
    # Of the formats that hold any size and any name, the one without records of its own.
    return info.tobuf(tarfile.GNU_FORMAT, "utf-8", "strict")


def padding_of(size: int) -> bytes:
    """Return the zeros that fill the last block of a file of `size` bytes."""
    return bytes(-size % BLOCK_BYTES)


def size_of_member(name: str, size: int) -> int:
    """Return the bytes that a file takes in the archive, header and padding included."""
    return len(header_of(name, size)) + size + len(padding_of(size))


def what_header_says(header: bytes) -> str:
    """Return in words what a header, as long as that which had to come, begins; for messages only."""
    try:
        info = tarfile.TarInfo.frombuf(header[:BLOCK_BYTES], "utf-8", "replace")
    except tarfile.HeaderError:
        return "something that is no file"
    kind = _KINDS.get(info.type, "a file")
    return f"{kind} called {info.name!r} of {info.size} bytes"
