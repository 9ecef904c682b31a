"""The child's side: what its Python asks of links, and when what the user's code looks at was written."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from stat import S_ISDIR, S_ISREG
from typing import Any

from paritygate.pipelines.process.installed import is_installed
from paritygate.pipelines.process.witness.asker import asks_for_time
from paritygate.pipelines.process.witness.asking import NOWHERE

LINKS: set[str] = set()
# When each file was written last, and what is permitted of it.
LOOKED_AT: dict[str, tuple[int, int]] = {}
# The same of folders that were listed among others: it counts where somebody asked for it, which the kernel tells.
FOLDERS_IN_LIST: dict[str, tuple[int, int]] = {}
_STAT = os.stat


def watch_looks() -> None:
    """Note from now on what is asked of links, and what code of the user looks at."""
    lstat, stat, access, fstat = os.lstat, os.stat, os.access, os.fstat

    @functools.wraps(lstat)
    def note_link(path: Any, *, dir_fd: int | None = None) -> os.stat_result:  # noqa: ANN401 - as os.lstat
        if dir_fd is not None:
            return lstat(path, dir_fd=dir_fd)
        path = os.fspath(path)
        absolute = _absolute(path)
        LINKS.add(absolute)
        # The kernel tells of links one by one, unless it is asked like this: Python asks for thousands of them.
        is_absolute = os.fsdecode(path).startswith("/")
        found = stat(path, dir_fd=NOWHERE, follow_symlinks=False) if is_absolute else lstat(path)
        _note_look(absolute, found)
        return found

    @functools.wraps(stat)
    def note_look(path: Any, *, dir_fd: int | None = None, follow_symlinks: bool = True) -> os.stat_result:  # noqa: ANN401 - as os.stat
        found = stat(path, dir_fd=dir_fd, follow_symlinks=follow_symlinks)
        if isinstance(path, int):
            _note_open(path, found)
        else:
            if not follow_symlinks and dir_fd is None:
                LINKS.add(_absolute(path))
            _note_look(path, found, dir_fd)
        return found

    @functools.wraps(access)
    def note_access(path: Any, mode: int, *, dir_fd: int | None = None, **options: Any) -> bool:  # noqa: ANN401 - as os.access
        with contextlib.suppress(OSError):
            # As code of the user that asks for all of it.
            note_look(path, dir_fd=dir_fd)
        return access(path, mode, dir_fd=dir_fd, **options)

    @functools.wraps(fstat)
    def note_fstat(fd: int) -> os.stat_result:
        found = fstat(fd)
        _note_open(fd, found)
        return found

    for ours, theirs in ((note_link, lstat), (note_look, stat), (note_access, access)):
        _be_able_to(ours, theirs)
    os.lstat, os.stat, os.access, os.fstat = note_link, note_look, note_access, note_fstat


def _be_able_to(ours: Any, theirs: Any) -> None:  # noqa: ANN401 - functions of os
    for able in (os.supports_dir_fd, os.supports_fd, os.supports_follow_symlinks, os.supports_effective_ids):
        if theirs in able:
            able.add(ours)


def _note_look(path: Any, found: os.stat_result, folder: int | None = None) -> None:  # noqa: ANN401 - what os.stat takes
    # When a file was written last, and who may run it, says nothing of it to a library; code of the user may go by
    # that.
    is_folder = S_ISDIR(found.st_mode)
    if (is_folder or S_ISREG(found.st_mode)) and asks_for_time(is_folder=is_folder):
        below = "" if folder is None else os.readlink(f"/proc/self/fd/{folder}")  # noqa: PTH115 - as it is
        LOOKED_AT.setdefault(_absolute(os.path.join(below, os.fsdecode(path))), (found.st_mtime_ns, found.st_mode))  # noqa: PTH118 - as above


def _note_open(number: int, found: os.stat_result) -> None:
    """Note what code of the user asks of a file that is open; what Python's own library asks, it does not pass on."""
    asker = sys._getframe(2).f_code.co_filename  # noqa: SLF001 - as above
    if S_ISREG(found.st_mode) and not is_installed(asker):
        with contextlib.suppress(OSError):
            LOOKED_AT.setdefault(os.readlink(f"/proc/self/fd/{number}"), (found.st_mtime_ns, found.st_mode))  # noqa: PTH115 - as above


def _absolute(path: Any) -> str:  # noqa: ANN401 - what os.stat takes
    return os.path.abspath(os.fsdecode(path))  # noqa: PTH100 - a link stays one


def note_times(folder: Any) -> None:  # noqa: ANN401 - what os.scandir takes
    """Note when each file in a folder was written: whoever lists it so is told."""
    for name in os.listdir(folder):  # noqa: PTH208 - names alone
        with contextlib.suppress(OSError):
            path = os.path.join(_absolute(folder), os.fsdecode(name))  # noqa: PTH118 - as the user's code has it
            found = _STAT(path)
            if S_ISREG(found.st_mode):
                LOOKED_AT.setdefault(path, (found.st_mtime_ns, found.st_mode))
            elif S_ISDIR(found.st_mode):
                FOLDERS_IN_LIST.setdefault(path, (found.st_mtime_ns, found.st_mode))
