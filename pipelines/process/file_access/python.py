"""Record in the child what the kernel does not report: environment variables, times and modules."""

from __future__ import annotations

import collections
import functools
import importlib.machinery
import importlib.metadata
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from paritygate.pipelines.process.file_access.asker import asks_for_user
from paritygate.pipelines.process.file_access.notes import NotesWriter
from paritygate.pipelines.process.file_access.python_looks import FOLDERS_IN_LIST, LOOKED_AT, note_times, watch_looks
from paritygate.pipelines.process.file_access.seccomp_filter import NOTES_ITSELF
from paritygate.pipelines.process.installed import PYTHONS_OWN, is_installed

_READ: set[str] = set()
_READ_BY_USER: set[str] = set()
_DRAWN_NAMES: set[str] = set()
_OPENED_BY_USER: set[str] = set()
_LISTED_FOR_MODULES: collections.Counter[str] = collections.Counter()
_LISTED_FOR_PACKAGES: set[str] = set()
# The last parts of the names of modules that were searched for, by the folder.
_SEARCHED_FOR: collections.defaultdict[str, set[str]] = collections.defaultdict(set)
_ALL = "*"
# Variables and unopened files that another process uses are not recorded.
_PROCESS = "another process"
_NAME_OF_HOST = "the name of the machine"
_STARTING = frozenset({"subprocess.Popen", "os.exec", "os.posix_spawn", "os.system"})
# A forked copy uses the folder lists of this process, and its searches are not recorded here.
_COPYING = frozenset({"os.fork", "os.forkpty"})
_COPIED = "a copy of this process"
# They create a file or folder under a random name.
_DRAWING = frozenset({"tempfile.mkdtemp", "tempfile.mkstemp"})
_VIEWS = "_collections_abc"
_MADE_UP = ("/proc", "/sys", "/dev")
# The code that lists folders to find modules and installed packages.
_OF_PACKAGES = importlib.metadata.__file__
_IMPORTING = ("<frozen importlib._bootstrap_external>", _OF_PACKAGES)


class _Watched(type(os.environ)):  # type: ignore[misc]  # its class has no public name
    """An environment that records which variables are read."""

    def __getitem__(self, key: Any) -> Any:  # noqa: ANN401 - text or bytes
        code = sys._getframe(1).f_code  # noqa: SLF001 - there is no other way to see who asks
        # Iteration over all variables is already recorded.
        if not (code.co_name == "__iter__" and _VIEWS in code.co_filename):
            name = os.fsdecode(key)
            _READ.add(name)
            if name not in _READ_BY_USER and asks_for_user():
                _READ_BY_USER.add(name)
        return super().__getitem__(key)

    def __iter__(self) -> Iterator[Any]:
        _note_all()
        return iter(super().__iter__())


def watch_python(notes: int | None) -> None:
    """Record from now on which variables and paths Python code reads, and which times the user's code reads.

    Args:
        notes: The descriptor of the shared memory; None if the kernel is to report each path.
    """
    os.environ.__class__ = _Watched
    os.environb.__class__ = _Watched
    sys.addaudithook(_note_event)
    access, uname = os.access, os.uname
    watch_looks(None if notes is None else NotesWriter(notes))
    _watch_searches()

    @functools.wraps(uname)
    def note_uname() -> os.uname_result:
        if asks_for_user():
            _READ.add(_NAME_OF_HOST)
        return uname()

    os.uname = note_uname
    access(NOTES_ITSELF, os.F_OK)


def _watch_searches() -> None:
    """Record from now on which modules are searched for in each folder."""
    finder: Any = importlib.machinery.FileFinder
    find_spec = finder.find_spec

    @functools.wraps(find_spec)
    def note_search(self: Any, fullname: str, *args: Any, **options: Any) -> Any:  # noqa: ANN401 - as FileFinder.find_spec
        _SEARCHED_FOR[self.path].add(fullname.rpartition(".")[2])
        return find_spec(self, fullname, *args, **options)

    finder.find_spec = note_search


def _note_event(event: str, arguments: tuple[Any, ...]) -> None:
    note = _EVENTS.get(event)
    if note is not None:
        note(arguments)


def _note_open(arguments: tuple[Any, ...]) -> None:
    path = arguments[0]
    is_of_machine = isinstance(path, str) and any(part in path for part in _MADE_UP)
    if is_of_machine and asks_for_user():
        _OPENED_BY_USER.add(os.path.realpath(path))


def _note_copy(arguments: tuple[Any, ...]) -> None:
    _READ.add(_COPIED)
    _note_process(arguments)


def _note_process(_: tuple[Any, ...]) -> None:
    if asks_for_user():
        _READ.add(_PROCESS)


def _note_name(_: tuple[Any, ...]) -> None:
    if asks_for_user():
        _READ.add(_NAME_OF_HOST)


def _note_drawn(arguments: tuple[Any, ...]) -> None:
    _DRAWN_NAMES.add(os.fsdecode(arguments[0]))


def _note_entries(arguments: tuple[Any, ...]) -> None:
    # Its entries hold the times of files.
    _note_open(arguments)
    is_of_library = sys._getframe(2).f_code.co_filename.startswith(PYTHONS_OWN)  # noqa: SLF001 - as above
    if not is_of_library and asks_for_user() and isinstance(arguments[0], str | bytes | os.PathLike | None):
        note_times(arguments[0] or ".")


def _note_list(arguments: tuple[Any, ...]) -> None:
    _note_open(arguments)
    lister = sys._getframe(2).f_code.co_filename  # noqa: SLF001 - as above
    if lister in _IMPORTING:
        folder = os.path.abspath(os.fsdecode(arguments[0] or "."))  # noqa: PTH100 - a link stays one
        _LISTED_FOR_MODULES[folder] += 1
        if lister == _OF_PACKAGES:
            _LISTED_FOR_PACKAGES.add(folder)


_EVENTS: Mapping[str, Callable[[tuple[Any, ...]], None]] = {
    **dict.fromkeys(_STARTING, _note_process),
    **dict.fromkeys(_COPYING, _note_copy),
    **dict.fromkeys(_DRAWING, _note_drawn),
    "open": _note_open,
    "os.listdir": _note_list,
    "os.scandir": _note_entries,
    "socket.gethostname": _note_name,
}


def _note_all() -> None:
    """Record that all variables are read, unless a library does: it looks for names of its own."""
    if asks_for_user():
        _READ.add(_ALL)


def read_in_python() -> dict[str, Any]:
    """Return as JSON data what was recorded."""
    files = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    return {
        "variables": sorted(_READ - {_ALL, _PROCESS, _NAME_OF_HOST, _COPIED}),
        "variables_of_user": sorted(_READ_BY_USER),
        "all_variables": _ALL in _READ,
        "host_name": _NAME_OF_HOST in _READ,
        "starts_processes": _PROCESS in _READ,
        "drawn_names": sorted(_DRAWN_NAMES),
        "opened_by_user": sorted(_OPENED_BY_USER),
        "listed_for_modules": dict(_LISTED_FOR_MODULES),
        "listed_for_packages": sorted(_LISTED_FOR_PACKAGES),
        "searched_for": {} if _COPIED in _READ else _own_searches(),
        "looked_at": LOOKED_AT,
        "folders_in_list": FOLDERS_IN_LIST,
        "modules": sorted(os.path.abspath(path) for path in files if isinstance(path, str)),  # noqa: PTH100 - a link stays
    }


def _own_searches() -> dict[str, list[str]]:
    """Return the searches in folders of the user; in folders of packages, which change rarely, all names count."""
    return {folder: sorted(names) for folder, names in list(_SEARCHED_FOR.items()) if not is_installed(f"{folder}/")}
