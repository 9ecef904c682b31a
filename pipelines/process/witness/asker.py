"""Find out who asks: code of the user, or an installed package."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType

from paritygate.pipelines.process.installed import INSTALLED, PYTHONS_OWN

_WITNESS = f"{Path(__file__).parent}/"
# Whoever calls these learns whether something is there and what it is, and not when it was written.
_OF_BEING = frozenset({
    "exists", "glob", "iglob", "is_dir", "is_file", "is_mount", "is_symlink", "isdir", "isfile", "islink", "ismount",
    "lexists", "makedirs", "mkdir", "realpath", "resolve", "rglob", "samefile", "walk",
})  # fmt: skip
# Whoever calls these asks for times, of folders too.
_OF_TIMES = frozenset({"getctime", "getmtime", "lstat", "stat"})


# What the code of a file is: ours, which watches, Python's own, of an installed package, or of the user.
_OURS, _PYTHONS, _INSTALLED, _USERS = range(4)
_OWNERS: dict[str, int] = {}


def asks_for_user() -> bool:
    """Return whether code of the user asks, by itself or through Python's own library; no installed package does."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - there is no other way to see who asks
    while frame is not None:
        owner = _owner(frame.f_code.co_filename)
        if owner in {_INSTALLED, _USERS}:
            return owner == _USERS
        frame = frame.f_back
    return True


def asks_for_time(*, is_folder: bool) -> bool:
    """Return whether code of the user asks when something was written, and not only whether it is there.

    Args:
        is_folder: Whether it is a folder: its time changes with each file that is made there, so that it counts only
            where it is asked for by name.
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
        if file.startswith(_WITNESS):
            owner = _OURS
        elif any(part in file for part in INSTALLED):
            # Without a virtual environment, they lie below Python's own.
            owner = _INSTALLED
        else:
            owner = _PYTHONS if file.startswith(PYTHONS_OWN) else _USERS
        _OWNERS[file] = owner
    return owner
