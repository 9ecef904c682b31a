"""Who asks: code of the user, or an installed package."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType

from paritygate.pipelines.process.installed import INSTALLED, PYTHONS_OWN

__all__ = ["asks_for_user"]

_WITNESS = f"{Path(__file__).parent}/"
# Whoever calls these learns whether something is there and what it is, and not when it was written.
_OF_BEING = frozenset({
    "exists", "glob", "iglob", "is_dir", "is_file", "is_mount", "is_symlink", "isdir", "isfile", "islink", "ismount",
    "lexists", "makedirs", "mkdir", "realpath", "resolve", "rglob", "samefile", "walk",
})  # fmt: skip


def asks_for_user(*, for_being: bool = False) -> bool:
    """Return whether code of the user asks, by itself or through Python's own library; no installed package does.

    Args:
        for_being: Whether it does not count where Python's library tells it no more than whether something is there.
    """
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - there is no other way to see who asks
    called = ""
    while frame is not None:
        name = frame.f_code.co_filename
        if name.startswith(_WITNESS):
            pass
        elif name.startswith(PYTHONS_OWN):
            called = frame.f_code.co_name
        else:
            is_installed = any(part in name for part in INSTALLED)
            return not is_installed and not (for_being and called in _OF_BEING)
        frame = frame.f_back
    return True
