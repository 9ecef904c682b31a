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


def asks_for_user() -> bool:
    """Return whether code of the user asks, by itself or through Python's own library; no installed package does."""
    asker, _ = _asker()
    return asker is None or not any(part in asker for part in INSTALLED)


def asks_for_time(*, is_folder: bool) -> bool:
    """Return whether code of the user asks when something was written, and not only whether it is there.

    Args:
        is_folder: Whether it is a folder: its time changes with each file that is made there, so that it counts only
            where it is asked for by name.
    """
    asker, called = _asker()
    if asker is not None and any(part in asker for part in INSTALLED):
        return False
    if is_folder:
        return asker is not None and called <= _OF_TIMES
    return not called & _OF_BEING


def _asker() -> tuple[str | None, set[str]]:
    """Return the file of the code that asks, None where all is Python's own, and what of Python's library it calls."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - there is no other way to see who asks
    called: set[str] = set()
    while frame is not None:
        name = frame.f_code.co_filename
        if name.startswith(PYTHONS_OWN):
            called.add(frame.f_code.co_name)
        elif not name.startswith(_WITNESS):
            return name, called
        frame = frame.f_back
    return None, called
