"""Record in the child which paths its Python examines, and the times that the user's code reads."""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import sys
import time
from stat import S_ISDIR, S_ISREG
from typing import Any

from paritygate.pipelines.process.file_access.asker import asks_for_time
from paritygate.pipelines.process.file_access.notes import ABSENT, BYTECODE, LINK, LOOK, NO_FILE, NotesWriter
from paritygate.pipelines.process.file_access.seccomp_filter import NOWHERE, UNSEEN_FLAGS
from paritygate.pipelines.process.file_access.states import CLOCK_STEP_NS, identity_of
from paritygate.pipelines.process.installed import is_installed

# Modification time and mode of each file.
LOOKED_AT: dict[str, tuple[int, int]] = {}
# The same for folders in a listed folder. It counts only if their times were read, which the kernel reports.
FOLDERS_IN_LIST: dict[str, tuple[int, int]] = {}
_STAT = os.stat
_MADE_UP = ("/proc/", "/sys/", "/dev/")
_BYTECODE_FOLDER = "/__pycache__/"
_BYTECODE = ".pyc"
_PART_BYTES = 1 << 16


def watch_looks(notes: NotesWriter | None) -> None:
    """Record from now on which paths are examined, and which times the user's code reads.

    Args:
        notes: Where examined paths are noted, so that the kernel need not stop the call; None if it stops each.
    """
    lstat, stat, access, fstat = os.lstat, os.stat, os.access, os.fstat
    if notes is not None:
        _note_imports(notes)

    @functools.wraps(lstat)
    def note_link(path: Any, *, dir_fd: int | None = None) -> os.stat_result:  # noqa: ANN401 - as os.lstat
        if dir_fd is not None:
            return lstat(path, dir_fd=dir_fd)
        state = _look(notes, path, follows=False)
        _note_look(path, state)
        return state

    @functools.wraps(stat)
    def note_look(path: Any, *, dir_fd: int | None = None, follow_symlinks: bool = True) -> os.stat_result:  # noqa: ANN401 - as os.stat
        if isinstance(path, int):
            state = stat(path, dir_fd=dir_fd, follow_symlinks=follow_symlinks)
            _note_open(path, state)
            return state
        state = (
            stat(path, dir_fd=dir_fd, follow_symlinks=follow_symlinks)
            if dir_fd is not None
            else _look(notes, path, follows=follow_symlinks)
        )
        _note_look(path, state, dir_fd)
        return state

    @functools.wraps(access)
    def note_access(path: Any, mode: int, *, dir_fd: int | None = None, **options: Any) -> bool:  # noqa: ANN401 - as os.access
        with contextlib.suppress(OSError):
            # As if the user's code read all of it.
            note_look(path, dir_fd=dir_fd)
        return access(path, mode, dir_fd=dir_fd, **options)

    @functools.wraps(fstat)
    def note_fstat(fd: int) -> os.stat_result:
        state = fstat(fd)
        _note_open(fd, state)
        return state

    for ours, theirs in ((note_link, lstat), (note_look, stat), (note_access, access)):
        _be_able_to(ours, theirs)
    os.lstat, os.stat, os.access, os.fstat = note_link, note_look, note_access, note_fstat


def is_noted(path: str | bytes) -> bool:
    """Return whether a path is noted here: it is absolute and no file that the kernel makes up."""
    return (
        path.startswith("/") and not path.startswith(_MADE_UP) if isinstance(path, str) else is_noted(os.fsdecode(path))
    )


def _look(notes: NotesWriter | None, path: Any, *, follows: bool) -> os.stat_result:  # noqa: ANN401 - as os.stat
    text = os.fspath(path)
    if notes is None or not is_noted(text) or not notes.is_writable():
        return _STAT(path, follow_symlinks=follows)
    return noted_stat(notes, os.fsdecode(text), text, follows=follows)


def noted_stat(notes: NotesWriter, name: str, path: Any, *, follows: bool = True) -> os.stat_result:  # noqa: ANN401 - as os.stat
    """Return what `os.stat` returns for an absolute path, and note it; the kernel does not stop this call."""
    kind = LOOK if follows else LINK
    try:
        state = _STAT(path, dir_fd=NOWHERE, follow_symlinks=follows)
    except OSError:
        notes.note(kind, ABSENT, name)
        raise
    notes.note(kind, str(state.st_size) if S_ISREG(state.st_mode) else NO_FILE, name)
    return state


def _note_imports(notes: NotesWriter) -> None:
    """Let Python's import note the paths that it examines, and each bytecode file with the state of its source."""
    importing: Any = importlib.import_module("importlib._bootstrap_external")
    path_stat, loader, plain = importing._path_stat, importing.SourceFileLoader, importing.FileLoader.get_data  # noqa: SLF001 - there is no public way
    sources: dict[str, os.stat_result] = {}

    def stat(path: Any) -> os.stat_result:  # noqa: ANN401 - as os.stat
        if isinstance(path, str) and is_noted(path) and notes.is_writable():
            return noted_stat(notes, path, path)
        return path_stat(path)  # type: ignore[no-any-return]

    def path_stats(_: Any, path: str) -> dict[str, Any]:  # noqa: ANN401 - as SourceFileLoader.path_stats
        state = sources[path] = stat(path)
        return {"mtime": state.st_mtime, "size": state.st_size}

    def get_data(self: Any, path: str) -> bytes:  # noqa: ANN401 - as FileLoader.get_data
        source = sources.pop(self.path, None)
        is_bytecode = is_noted(path) and path.endswith(_BYTECODE) and _BYTECODE_FOLDER in path
        if source is None or not is_bytecode or not notes.is_writable():
            return plain(self, path)  # type: ignore[no-any-return]
        if time.time_ns() - source.st_ctime_ns < CLOCK_STEP_NS:
            return plain(self, path)  # type: ignore[no-any-return]
        notes.note(BYTECODE, ":".join(map(str, (*identity_of(source), self.path))), path)
        return _content(path)

    importing._path_stat = stat  # noqa: SLF001 - as above
    loader.path_stats, loader.get_data = path_stats, get_data


def _content(path: str) -> bytes:
    number = os.open(path, UNSEEN_FLAGS, dir_fd=NOWHERE)
    try:
        return b"".join(iter(lambda: os.read(number, _PART_BYTES), b""))
    finally:
        os.close(number)


def _be_able_to(ours: Any, theirs: Any) -> None:  # noqa: ANN401 - functions of os
    for able in (os.supports_dir_fd, os.supports_fd, os.supports_follow_symlinks, os.supports_effective_ids):
        if theirs in able:
            able.add(ours)


def _note_look(path: Any, found: os.stat_result, folder: int | None = None) -> None:  # noqa: ANN401 - what os.stat takes
    # Times and modes change nothing for a library; the user's code may depend on them.
    is_folder = S_ISDIR(found.st_mode)
    if (is_folder or S_ISREG(found.st_mode)) and asks_for_time(is_folder=is_folder):
        below = "" if folder is None else os.readlink(f"/proc/self/fd/{folder}")  # noqa: PTH115 - as it is
        LOOKED_AT.setdefault(_absolute(os.path.join(below, os.fsdecode(path))), (found.st_mtime_ns, found.st_mode))  # noqa: PTH118 - as above


def _note_open(number: int, found: os.stat_result) -> None:
    """Record the times of an open file for the user's code; Python's own library does not pass them on."""
    asker = sys._getframe(2).f_code.co_filename  # noqa: SLF001 - as above
    if S_ISREG(found.st_mode) and not is_installed(asker):
        with contextlib.suppress(OSError):
            LOOKED_AT.setdefault(os.readlink(f"/proc/self/fd/{number}"), (found.st_mtime_ns, found.st_mode))  # noqa: PTH115 - as above


def _absolute(path: Any) -> str:  # noqa: ANN401 - what os.stat takes
    return os.path.abspath(os.fsdecode(path))  # noqa: PTH100 - a link stays one


def note_times(folder: Any) -> None:  # noqa: ANN401 - what os.scandir takes
    """Record the times of each file in a folder, which the entries of `os.scandir` hold."""
    for name in os.listdir(folder):  # noqa: PTH208 - names alone
        with contextlib.suppress(OSError):
            path = os.path.join(_absolute(folder), os.fsdecode(name))  # noqa: PTH118 - as the user's code has it
            state = _STAT(path)
            if S_ISREG(state.st_mode):
                LOOKED_AT.setdefault(path, (state.st_mtime_ns, state.st_mode))
            elif S_ISDIR(state.st_mode):
                FOLDERS_IN_LIST.setdefault(path, (state.st_mtime_ns, state.st_mode))
