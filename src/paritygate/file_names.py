"""Check every name from a model, a pack, a server or a record before it becomes part of a path.

These names may come from anywhere. An unchecked name could read or write outside the folder that it is relative to.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from pathlib import Path

from paritygate.errors import ArtifactIntegrityError, UsageError

_MOST_BYTES = 255
_MOST_PATH_BYTES = 1024
_HINT = "take the files from where they were made once more, or make them again: convert-and-validate run SPEC"


def check_names(names: Iterable[object]) -> None:
    """Check that each name is the relative path of a file below its folder, with slashes.

    Raises:
        ValueError: One is not; the message names it with the reason.
    """
    for name in names:
        reason = _why_not_name(name) if isinstance(name, str) else "is not text"
        if reason is not None:
            raise ValueError(f"the name {name!r} {reason}")


def checked_name(name: str) -> str:
    """Return a name for a path; raise UsageError if it leaves its folder."""
    try:
        check_names([name])
    except ValueError as err:
        raise UsageError(f"no file is read or written under this name: {err}", hint="give it another name") from err
    return name


def path_below(folder: Path, name: str) -> Path:
    """Return the path of a name from a file; raise ArtifactIntegrityError if links lead out of `folder`."""
    try:
        check_names([name])
    except ValueError as err:
        raise ArtifactIntegrityError(f"a file below {folder} is wanted, and {err}", hint=_HINT) from err
    path = folder / name
    if not path.resolve().is_relative_to(folder.resolve()):
        msg = f"{name!r} is a link to a place outside {folder} (expected a file below it)"
        raise ArtifactIntegrityError(msg, hint=_HINT)
    return path


def why_not_names(names: Iterable[str]) -> tuple[str, str] | None:
    """Return the first name that a pack may not have, and why; None if all may be restored.

    `names` are the relative paths, with slashes, of one pack's files.
    """
    files: set[str] = set()
    spellings: dict[str, str] = {}
    for name in names:
        reason = _why_not_name(name) or _why_not_beside(name, files, spellings)
        if reason is not None:
            return name, reason
        files.add(name)
    # Files that are also folders are only known once all names are, in any order.
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
        return "is not a plain path"
    if any(unicodedata.category(letter) in {"Cc", "Cs"} or letter == "\\" for letter in name):
        return "holds a character that not every machine allows in a name"
    if len(name.encode()) > _MOST_PATH_BYTES or any(len(part.encode()) > _MOST_BYTES for part in parts):
        return "is too long"
    return None


def _why_not_beside(name: str, files: set[str], spellings: dict[str, str]) -> str | None:
    if name in files:
        return "occurs twice"
    for prefix in _prefixes(name):
        spelling = spellings.setdefault(unicodedata.normalize("NFC", prefix).casefold(), prefix)
        if spelling != prefix:
            return f"differs from {spelling!r} only in case or in how its letters are written"
    return None


def _prefixes(name: str) -> list[str]:
    parts = name.split("/")
    return ["/".join(parts[: count + 1]) for count in range(len(parts))]
