"""Find out whether the user's code or an installed package makes a call."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType

from paritygate.pipelines.process.installed import INSTALLED, PYTHONS_OWN

_THIS_FOLDER = f"{Path(__file__).parent}/"
# These return whether a path exists and what it is, but no times.
_OF_BEING = frozenset({
    "exists", "glob", "iglob", "is_dir", "is_file", "is_mount", "is_symlink", "isdir", "isfile", "islink", "ismount",
    "lexists", "makedirs", "mkdir", "realpath", "resolve", "rglob", "samefile", "walk",
})  # fmt: skip
# These return times, also those of folders.
_OF_TIMES = frozenset({"getctime", "getmtime", "lstat", "stat"})


# Whose code a file holds.
_OURS, _PYTHONS, _INSTALLED, _USERS = range(4)
_OWNERS: dict[str, int] = {}


def asks_for_user() -> bool:
    """Return whether the user's code makes the call, directly or through Python's own library."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - there is no other way to see who asks
    while frame is not None:
        owner = _owner(frame.f_code.co_filename)
        if owner in {_INSTALLED, _USERS}:
            return owner == _USERS
        frame = frame.f_back
    return True


def asks_for_time(*, is_folder: bool) -> bool:
    """Return whether the user's code may use the times of a path, not only whether it exists.

    The time of a folder changes with each file made there, so it counts only if the code reads times by name.
    """
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - as above
    while frame is not None:
        code = frame.f_code
        owner = _owner(code.co_filename)
        if owner in {_INSTALLED, _USERS}:
            return owner == _USERS
        if owner == _PYTHONS and (code.co_name in _OF_BEING or (is_folder and code.co_name not in _OF_TIMES)):
            return False
        frame = frame.f_back
    return not is_folder


def _owner(file: str) -> int:
    owner = _OWNERS.get(file)
    if owner is None:
        if file.startswith(_THIS_FOLDER):
            owner = _OURS
        elif any(part in file for part in INSTALLED):
            # Without a virtual environment, they lie below Python's own.
            owner = _INSTALLED
        else:
            owner = _PYTHONS if file.startswith(PYTHONS_OWN) else _USERS
        _OWNERS[file] = owner
    return owner
