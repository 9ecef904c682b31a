"""What the things that a job read are like now: contents by digest, folders by the names in them, variables."""

from __future__ import annotations

import contextlib
import json
import os
import stat
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from paritygate.files import digest_of_file, digest_of_json, read_json, write_bytes_atomically
from paritygate.pipelines.process.child import environment_of_child
from paritygate.pipelines.process.witness.listener import identity_of, name_added, names_in, target_of
from paritygate.pipelines.process.witness.readings import Readings
from paritygate.text import from_here

__all__ = [
    "RUN",
    "Memory",
    "NotKept",
    "Read",
    "first_difference",
    "is_of_shell",
    "read_now",
    "union",
    "union_outside_run",
]

_T = TypeVar("_T")

# What stands for the run folder in all that is kept.
RUN = "@run@"
# Longer than any step of the clocks that file systems take their times from, two seconds on FAT among them.
_TIME_STEP_NS = 2_100_000_000
_MOST_DIGESTS = 200_000
_IN_MEMORY = "/dev/shm/"  # noqa: S108 - files like any others
# These change from one shell to the next, and nothing that is computed follows from them.
_OF_THE_SHELL = frozenset({
    "COLORTERM", "COLUMNS", "HISTFILE", "INVOCATION_ID", "LINES", "OLDPWD", "PWD", "SHLVL", "TERM", "TERM_PROGRAM",
    "WINDOWID", "XDG_SESSION_ID", "_",
})  # fmt: skip


class NotKept(Exception):  # noqa: N818 - it is no error of the job
    """Why the result of a job cannot be taken over by another run, in words."""


class Memory:
    """Digests of files by what stays the same as long as they are not written, over many runs."""

    def __init__(self, path: Path) -> None:
        """Read what is known; a damaged file is nothing known."""
        self._path = path
        self._known: dict[str, str] = {}
        self._is_new = False
        # Known of this process alone: what it wrote itself, however short ago.
        self._own: dict[str, str] = {}
        with contextlib.suppress(OSError, ValueError):
            found = read_json(path)
            if isinstance(found, dict):
                self._known = found

    def digest(self, path: str, found: os.stat_result) -> str:
        """Return the digest of a file's content.

        Args:
            path: The file.
            found: What the file system says of it.

        Raises:
            OSError: It cannot be read.
        """
        if path.startswith(_IN_MEMORY):
            # What another process writes to by a mapping has the time of the first time.
            return digest_of_file(Path(path))
        key = ":".join(map(str, identity_of(found)))
        digest = self._known.get(key) or self._own.get(key)
        if digest is None:
            begin = time.time_ns()
            digest = digest_of_file(Path(path))
            # Of a file that was changed just now, a further change may leave the same time.
            if begin - found.st_ctime_ns > _TIME_STEP_NS:
                self._known[key] = digest
                self._is_new = True
        return digest

    def add_own(self, path: Path, digest: str) -> None:
        """Take the digest of a file that this process wrote itself, and nobody else writes."""
        self._own[":".join(map(str, identity_of(path.stat())))] = digest

    def save(self) -> None:
        """Keep what is known for later runs.

        Raises:
            StorageError: It cannot be written.
        """
        if not self._is_new:
            return
        if len(self._known) > _MOST_DIGESTS:
            self._known = {}
        write_bytes_atomically(self._path, json.dumps(self._known).encode())
        self._is_new = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Read:
    """What a job read, by content. Paths below the run folder begin with `@run@`, wherever that was.

    Attributes:
        files: Digest of each file.
        folders: Digest of the names in each folder that was listed.
        modules_in: Digest of the names that can be modules, of each folder that only Python listed, to find some.
        sizes: Size in bytes of what was looked at and not opened; None for what is no file.
        links: Where each link that was itself asked about leads to; None for what is no link.
        looked_at: When what code of the user looked at was written last, in nanoseconds since 1970, and its mode.
        absent: What was looked for, and was not there.
        variables: Digest of the value of each environment variable; None where it was not set.
        all_variables: Digest of all variables; None where they were not read all.
    """

    files: dict[str, str] = field(default_factory=dict)
    folders: dict[str, str] = field(default_factory=dict)
    modules_in: dict[str, str] = field(default_factory=dict)
    sizes: dict[str, int | None] = field(default_factory=dict)
    links: dict[str, str | None] = field(default_factory=dict)
    looked_at: dict[str, tuple[int, int]] = field(default_factory=dict)
    absent: tuple[str, ...] = ()
    variables: dict[str, str | None] = field(default_factory=dict)
    all_variables: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON data."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    @classmethod
    def of_json(cls, data: Mapping[str, Any]) -> Read:
        """Return it from JSON data that this module wrote."""
        looked_at = {path: tuple(state) for path, state in data["looked_at"].items()}
        return cls(**{**data, "absent": tuple(data["absent"]), "looked_at": looked_at})


def read_now(readings: Readings, run: Path, memory: Memory) -> Read:
    """Return what a job read, which has just ended.

    Args:
        readings: What was seen of it.
        run: The run folder.
        memory: Digests that are known.

    Raises:
        NotKept: It is not known for certain what was read, or it was changed meanwhile.
    """
    if readings.why_unknown:
        raise NotKept(readings.why_unknown)
    files = dict(_digested(readings, memory))
    changed = (
        *(path for path, names in readings.folders.items() if not _is_so(path, ("names", names), memory)),
        *(path for path, names in readings.modules_in.items() if not _is_so(path, ("modules", names), memory)),
        *(path for path, target in readings.links.items() if target_of(path) != target),
        *(path for path, state in readings.looked_at.items() if not _is_so(path, ("look", state), memory)),
        *(path for path in readings.absent if not _is_so(path, None, memory)),
    )
    if changed:
        msg = f"{changed[0]} was changed while the job ran"
        raise NotKept(msg)
    given = environment_of_child()
    return Read(
        files={_named(path, run): digest for path, digest in files.items()},
        folders={_named(path, run): names for path, names in readings.folders.items()},
        modules_in={_named(path, run): names for path, names in readings.modules_in.items()},
        sizes={_named(path, run): size for path, size in readings.sizes.items() if path not in readings.files},
        links={path: target for path, target in readings.links.items() if not _named(path, run).startswith(RUN)},
        looked_at={path: state for path, state in readings.looked_at.items() if not _named(path, run).startswith(RUN)},
        absent=tuple(sorted(_named(path, run) for path in readings.absent)),
        variables={
            name: _digest_of_variable(given, name)
            for name in sorted(readings.variables)
            if name in readings.variables_of_user or not is_of_shell(name)
        },
        all_variables=_digest_of_all(given) if readings.reads_all_variables else None,
    )


def _digested(readings: Readings, memory: Memory) -> Iterator[tuple[str, str]]:
    """Yield each file that was opened, and its digest."""
    for path, identity in readings.files.items():
        try:
            found = os.stat(path)  # noqa: PTH116 - as it was written
            digest = memory.digest(path, found) if identity_of(found) == identity else ""
        except OSError:
            digest = ""
        if not digest:
            msg = f"{path} was changed while the job ran"
            raise NotKept(msg)
        yield path, digest


def union(reads: Iterable[Read]) -> Read:
    """Return all that several jobs of one run read."""
    files, folders, modules_in, sizes, variables, links, looked_at = {}, {}, {}, {}, {}, {}, {}
    absent: set[str] = set()
    all_variables = None
    for read in reads:
        files.update(read.files)
        folders.update(read.folders)
        modules_in.update(read.modules_in)
        sizes.update(read.sizes)
        links.update(read.links)
        looked_at.update(read.looked_at)
        variables.update(read.variables)
        absent.update(read.absent)
        all_variables = all_variables or read.all_variables
    return Read(
        files=files,
        folders=folders,
        modules_in=modules_in,
        sizes=sizes,
        links=links,
        looked_at=looked_at,
        absent=tuple(sorted(absent)),
        variables=variables,
        all_variables=all_variables,
    )


def union_outside_run(reads: Iterable[Read]) -> Read:
    """Return all that several jobs of one run read outside of its folder."""
    found = union(reads)
    return replace(
        found,
        files=_outside_run(found.files),
        folders=_outside_run(found.folders),
        modules_in=_outside_run(found.modules_in),
        sizes=_outside_run(found.sizes),
        links=_outside_run(found.links),
        looked_at=_outside_run(found.looked_at),
        absent=tuple(path for path in found.absent if not path.startswith(RUN)),
    )


def _outside_run(found: Mapping[str, _T]) -> dict[str, _T]:
    return {path: value for path, value in found.items() if not path.startswith(RUN)}


def first_difference(read: Read, run: Path, memory: Memory, checked: dict[tuple[str, object], bool]) -> str:
    """Return what is not as it was, in words; empty where nothing differs.

    Args:
        read: What was read then.
        run: The run folder now.
        memory: Digests that are known.
        checked: What is known of this moment already; it is added to.
    """
    given = environment_of_child()
    for name, value in read.variables.items():
        if _digest_of_variable(given, name) != value:
            return f"the environment variable {name} changed"
    if read.all_variables is not None and read.all_variables != _digest_of_all(given):
        return "an environment variable changed, and code of yours read all of them"
    wanted: Iterable[tuple[str, object]] = (
        *read.files.items(),
        *(((path, ("names", names))) for path, names in read.folders.items()),
        *(((path, ("modules", names))) for path, names in read.modules_in.items()),
        *(((path, ("link", target))) for path, target in read.links.items()),
        *(((path, ("look", state))) for path, state in read.looked_at.items()),
        *(((path, ("size", size))) for path, size in read.sizes.items()),
        *(((path, None)) for path in read.absent),
    )
    for named, state in wanted:
        path = _place(named, run)
        key = (path, state)
        is_so = checked.get(key)
        if is_so is None:
            is_so = _is_so(path, state, memory)
            if not named.startswith(RUN):
                # What lies in the run is made while it is looked at.
                checked[key] = is_so
        if not is_so:
            return _difference(path, state, run)
    return ""


def _difference(path: str, state: object, run: Path) -> str:
    """Return what is not as it was of a path, in words."""
    kind, before = state if isinstance(state, tuple) else ("", None)
    if state is None:
        return f"{_shown(path, run)} is there now"
    if kind not in {"names", "modules"}:
        return f"{_shown(path, run)} changed"
    new = name_added(path, str(before), is_of_modules=kind == "modules")
    if new is not None:
        return f"{_shown(os.path.join(path, new), run)} is there now"  # noqa: PTH118 - as it was written
    return f"another name was added to {_shown(path, run)}, or one removed"


def _shown(path: str, run: Path) -> str:
    """Return what a user calls a path: what a plan restores lies in a folder that is gone when it is read of."""
    if path == str(run):
        return "the run folder"
    named = _named(path, run)
    return f"{named[len(RUN) + 1 :]} in the run folder" if named.startswith(RUN) else from_here(path)


def _is_so(path: str, state: object, memory: Memory) -> bool:
    if state is None:
        return not os.path.exists(path)  # noqa: PTH110 - as it was written
    kind, value = state if isinstance(state, tuple) else ("content", state)
    try:
        return bool(_state_now(path, kind, memory) == value)
    except OSError:
        return False


def _state_now(path: str, kind: str, memory: Memory) -> object:
    """Return the state of a path, of the kind that is asked for.

    Raises:
        OSError: It is not there, or cannot be read.
    """
    if kind in {"names", "modules"}:
        return names_in(path, is_of_modules=kind == "modules")
    if kind == "link":
        return target_of(path)
    found = os.stat(path)  # noqa: PTH116 - as it was written
    if kind == "content":
        return memory.digest(path, found)
    if kind == "look":
        return found.st_mtime_ns, found.st_mode
    return found.st_size if stat.S_ISREG(found.st_mode) else None


def _named(path: str, run: Path) -> str:
    return RUN + path[len(str(run)) :] if f"{path}/".startswith(f"{run}/") else path


def _place(named: str, run: Path) -> str:
    return f"{run}{named[len(RUN) :]}" if named.startswith(RUN) else named


def _digest_of_variable(given: Mapping[str, str], name: str) -> str | None:
    value = given.get(name)
    return None if value is None else digest_of_json(value)


def _digest_of_all(given: Mapping[str, str]) -> str:
    return digest_of_json({name: value for name, value in given.items() if not is_of_shell(name)})


def is_of_shell(name: str) -> bool:
    """Return whether an environment variable is the shell's own, so that nothing that is computed follows from it."""
    return name in _OF_THE_SHELL or name.startswith("SSH_")
