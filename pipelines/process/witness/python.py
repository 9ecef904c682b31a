"""The child's side: what the kernel does not tell of its Python code: environment variables, links, modules."""

from __future__ import annotations

import collections
import contextlib
import functools
import importlib.metadata
import os
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from stat import S_ISREG
from types import FrameType
from typing import Any

import paritygate

__all__ = ["read_in_python", "watch_python"]

_READ: set[str] = set()
_READ_BY_USER: set[str] = set()
_LINKS: set[str] = set()
# When each file was written last, and what is permitted of it.
_LOOKED_AT: dict[str, tuple[int, int]] = {}
_LISTED_FOR_MODULES: collections.Counter[str] = collections.Counter()
_ALL = "*"
# What another process is told by the variables, and of files that it does not open, is not seen.
_PROCESS = "another process"
_STARTING = frozenset({"subprocess.Popen", "os.exec", "os.posix_spawn", "os.system", "os.fork", "os.forkpty"})
# What these ask of all variables is looking for names of their own.
_INSTALLED = ("/site-packages/", "/dist-packages/", f"{Path(paritygate.__file__).parent}/")
_PYTHONS_OWN = ("<", f"{sysconfig.get_paths()['stdlib']}/")
_VIEWS = "_collections_abc"
_STAT = os.stat
# What lists folders to find modules, and what is said of installed packages.
_IMPORTING = ("<frozen importlib._bootstrap_external>", importlib.metadata.__file__)


class _Watched(type(os.environ)):  # type: ignore[misc]  # its class has no public name
    """The environment, which notes what is asked of it."""

    def __getitem__(self, key: Any) -> Any:  # noqa: ANN401 - text or bytes
        code = sys._getframe(1).f_code  # noqa: SLF001 - there is no other way to see who asks
        # Who goes through all of them has been noted already.
        if not (code.co_name == "__iter__" and _VIEWS in code.co_filename):
            name = os.fsdecode(key)
            _READ.add(name)
            if name not in _READ_BY_USER and _asks_for_user():
                _READ_BY_USER.add(name)
        return super().__getitem__(key)

    def __iter__(self) -> Iterator[Any]:
        _note_all()
        return iter(super().__iter__())


def watch_python() -> None:
    """Note from now on which variables Python code reads, what it asks of links, and what code of the user looks at."""
    os.environ.__class__ = _Watched
    os.environb.__class__ = _Watched
    sys.addaudithook(_note_event)
    lstat, stat, access = os.lstat, os.stat, os.access

    @functools.wraps(lstat)
    def note_link(path: Any, *, dir_fd: int | None = None) -> os.stat_result:  # noqa: ANN401 - as os.lstat
        if dir_fd is None:
            _LINKS.add(_absolute(path))
        return lstat(path, dir_fd=dir_fd)

    @functools.wraps(stat)
    def note_look(path: Any, *, dir_fd: int | None = None, follow_symlinks: bool = True) -> os.stat_result:  # noqa: ANN401 - as os.stat
        found = stat(path, dir_fd=dir_fd, follow_symlinks=follow_symlinks)
        if dir_fd is None and not isinstance(path, int):
            if not follow_symlinks:
                _LINKS.add(_absolute(path))
            _note_look(path, found)
        return found

    @functools.wraps(access)
    def note_access(path: Any, mode: int, *, dir_fd: int | None = None, **options: Any) -> bool:  # noqa: ANN401 - as os.access
        with contextlib.suppress(OSError):
            # As code of the user that asks for all of it.
            note_look(path, dir_fd=dir_fd)
        return access(path, mode, dir_fd=dir_fd, **options)

    for ours, theirs in ((note_link, lstat), (note_look, stat), (note_access, access)):
        for able in (os.supports_dir_fd, os.supports_fd, os.supports_follow_symlinks, os.supports_effective_ids):
            if theirs in able:
                able.add(ours)
    os.lstat, os.stat, os.access = note_link, note_look, note_access


def _note_look(path: Any, found: os.stat_result) -> None:  # noqa: ANN401 - what os.stat takes
    # When a file was written last, and who may run it, says nothing of it to a library; code of the user may go by
    # that. Of a folder, the names in it count.
    if S_ISREG(found.st_mode) and _asks_for_user():
        _LOOKED_AT.setdefault(_absolute(path), (found.st_mtime_ns, found.st_mode))


def _absolute(path: Any) -> str:  # noqa: ANN401 - what os.stat takes
    return os.path.abspath(os.fsdecode(path))  # noqa: PTH100 - a link stays one


def _note_event(event: str, arguments: tuple[Any, ...]) -> None:
    if event in _STARTING:
        if _asks_for_user():
            _READ.add(_PROCESS)
    elif event == "os.scandir" and not sys._getframe(1).f_code.co_filename.startswith(_PYTHONS_OWN):  # noqa: SLF001 - as above
        # What it yields says when each file was written, without asking again.
        if _asks_for_user() and isinstance(arguments[0], str | bytes | os.PathLike | None):
            _note_times(arguments[0] or ".")
    elif event == "os.listdir" and sys._getframe(1).f_code.co_filename in _IMPORTING:  # noqa: SLF001 - as above
        _LISTED_FOR_MODULES[os.path.abspath(os.fsdecode(arguments[0] or "."))] += 1  # noqa: PTH100 - a link stays one


def _note_times(folder: Any) -> None:  # noqa: ANN401 - what os.scandir takes
    for name in os.listdir(folder):  # noqa: PTH208 - names alone
        with contextlib.suppress(OSError):
            path = os.path.join(_absolute(folder), os.fsdecode(name))  # noqa: PTH118 - as the user's code has it
            found = _STAT(path)
            if S_ISREG(found.st_mode):
                _LOOKED_AT.setdefault(path, (found.st_mtime_ns, found.st_mode))


def _note_all() -> None:
    """Note that all variables are read, unless it is a library that asks: it looks for names of its own."""
    if _asks_for_user():
        _READ.add(_ALL)


def _asks_for_user() -> bool:
    """Return whether code of the user asks, by itself or through Python's own library; no installed package does."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - there is no other way to see who asks
    while frame is not None:
        name = frame.f_code.co_filename
        is_own = name == __file__ or name.startswith(_PYTHONS_OWN)
        if not is_own:
            return not any(part in name for part in _INSTALLED)
        frame = frame.f_back
    return True


def read_in_python() -> dict[str, Any]:
    """Return what was read since, as JSON data: names of variables, whether all were, paths of links and modules."""
    files = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    return {
        "variables": sorted(_READ - {_ALL, _PROCESS}),
        "variables_of_user": sorted(_READ_BY_USER),
        "all_variables": _ALL in _READ,
        "starts_processes": _PROCESS in _READ,
        "listed_for_modules": dict(_LISTED_FOR_MODULES),
        "links": sorted(_LINKS),
        "looked_at": _LOOKED_AT,
        "modules": sorted(os.path.abspath(path) for path in files if isinstance(path, str)),  # noqa: PTH100 - a link stays
    }
