"""Which names a file in a pack may have: such that it lands where it says, on any machine, and only there."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

__all__ = ["why_not_names"]

_MOST_BYTES = 255
_MOST_PATH_BYTES = 1024


def why_not_names(names: Iterable[str]) -> tuple[str, str] | None:
    """Return the first name that may not be restored, and why; None if all may.

    Args:
        names: Relative paths with slashes, the files of one pack.
    """
    files: set[str] = set()
    spellings: dict[str, str] = {}
    for name in names:
        reason = _why_not_name(name) or _why_not_beside(name, files, spellings)
        if reason is not None:
            return name, reason
        files.add(name)
    # A file that is also a folder of another file: told once all are known, whichever came first.
    folders = {folder for name in files for folder in _prefixes(name)[:-1]}
    both = sorted(files & folders)
    return (both[0], "is a file and a folder at once") if both else None


def _why_not_name(name: str) -> str | None:
    if name.startswith("/"):
        return "is an absolute path"
    parts = name.split("/")
    if ".." in parts:
        return "leaves its folder"
    if any(part in {"", "."} for part in parts):
        return "is no plain path"
    if any(unicodedata.category(letter) in {"Cc", "Cs"} or letter == "\\" for letter in name):
        return "holds a character that not every machine allows in a name"
    if len(name.encode()) > _MOST_PATH_BYTES or any(len(part.encode()) > _MOST_BYTES for part in parts):
        return "is too long"
    return None


def _why_not_beside(name: str, files: set[str], spellings: dict[str, str]) -> str | None:
    if name in files:
        return "stands twice"
    for prefix in _prefixes(name):
        known = spellings.setdefault(unicodedata.normalize("NFC", prefix).casefold(), prefix)
        if known != prefix:
            return f"differs from {known!r} only in case or in how its letters are written"
    return None


def _prefixes(name: str) -> list[str]:
    parts = name.split("/")
    return ["/".join(parts[: count + 1]) for count in range(len(parts))]
