"""Limit the memory of a child process and all that it started.

Resident memory is read from outside, in /proc: a limit on addresses would stop CUDA and TensorFlow, which reserve many
times what they use.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from pathlib import Path

from msgspec import Struct

# The rest is for the parent, and for growth between two looks.
MEMORY_SHARE = 0.8

_PROC = Path("/proc")
_CGROUPS = Path("/sys/fs/cgroup")
# The limit files of control groups, version 1 and version 2, below the folder of them all.
_CGROUP_LIMITS = {"memory": ("memory", "memory.limit_in_bytes"), "": ("", "memory.max")}
_KIB = 1024
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
# A look reads the state of every process of the machine. It must cost little, also next to a benchmark.
_LOOK_EVERY_S = 0.25
_RAREST_LOOK_S = 1.0
_SHARE_OF_LOOKS = 0.02

# The limit is for the machine, not for a job, so it applies to every child of this process.
_LIMIT: ContextVar[int | None] = ContextVar("memory_limit", default=None)


class Member(Struct, frozen=True, kw_only=True):
    """A process that a child started, or the child."""

    session: int  # the process id of its leader
    resident: int  # bytes, with shared ones
    cpu_s: float = 0.0  # of all processors since its start


@contextlib.contextmanager
def memory_limit(limit: int | None) -> Iterator[None]:
    """Limit every child that is started inside, and all that it starts, to so many bytes; None for the default."""
    token = _LIMIT.set(limit)
    try:
        yield
    finally:
        _LIMIT.reset(token)


def given_memory_limit() -> int | None:
    """Return the limit that `memory_limit` set; None for the default."""
    return _LIMIT.get()


def unlimited_memory() -> contextlib.AbstractContextManager[None]:
    """Lift the limit of children where their parent is watched itself, and they with it."""
    return memory_limit(sys.maxsize)


class MemoryWatch:
    """Looks from time to time at the memory of a child and all that it started."""

    def __init__(self, leader: int) -> None:
        """Begin; the child's process leads its own session."""
        limit = _LIMIT.get()
        self.limit = int(usable_memory() * MEMORY_SHARE) if limit is None else limit
        self._leader = leader
        self._next_look = 0.0

    def excess(self) -> int | None:
        """Return the bytes in use if they exceed the limit; None if not, or between two looks."""
        start = time.monotonic()
        if start < self._next_look:
            return None
        now = self.excess_now()
        end = time.monotonic()
        self._next_look = end + min(_RAREST_LOOK_S, max(_LOOK_EVERY_S, (end - start) / _SHARE_OF_LOOKS))
        return now

    def excess_now(self) -> int | None:
        """Return the bytes in use at this moment if they exceed the limit."""
        if self.limit == sys.maxsize:
            return None
        used = self._held()
        return used if used > self.limit else None

    def _held(self) -> int:
        family = family_of(self._leader)
        resident = sum(member.resident for member in family.values())
        if resident <= self.limit:
            return resident
        # Shared memory was counted for each process. Reading each one's part takes longer.
        return sum(_proportional(pid, member) for pid, member in family.items())


def family_of(leader: int) -> Mapping[int, Member]:
    """Return a process, its descendants and its session's processes, by id; empty without /proc."""
    members: dict[int, Member] = {}
    children: dict[int, list[int]] = {}
    try:
        names = os.listdir(_PROC)  # noqa: PTH208 - several times as fast as a Path
    except FileNotFoundError:
        names = []
    for name in filter(str.isdecimal, names):
        try:
            with open(f"{_PROC}/{name}/stat", "rb", buffering=0) as stream:  # noqa: PTH123 - as above
                text = stream.read()
        except OSError:
            # It has ended since.
            continue
        pid = int(name)
        # Before the last bracket is the program's name, which may have any characters: see proc_pid_stat(5).
        fields = text.rpartition(b")")[2].split()
        members[pid] = Member(
            session=int(fields[3]),
            resident=int(fields[21]) * _PAGE_BYTES,
            cpu_s=(int(fields[11]) + int(fields[12])) / _TICKS_A_SECOND,
        )
        children.setdefault(int(fields[1]), []).append(pid)
    family: dict[int, Member] = {}
    # Children of a process that has ended stay in its session.
    left = [pid for pid, member in members.items() if leader in {pid, member.session}]
    while left:
        pid = left.pop()
        if pid not in family:
            family[pid] = members[pid]
            left += children.get(pid, ())
    return family


def _proportional(pid: int, member: Member) -> int:
    """Return the bytes of a process alone, and its part of shared ones."""
    folder = _PROC / str(pid)
    try:
        for line in (folder / "smaps_rollup").read_text(encoding="ascii").splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * _KIB
    except ProcessLookupError:
        return 0
    except OSError:
        pass
    # It may have ended since. Otherwise its part cannot be read here, and all of it counts.
    return member.resident if folder.exists() else 0


def usable_memory() -> int:
    """Return the bytes of memory of this machine, or of its container where that may use less."""
    whole = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min([whole, *_cgroup_limits()])


def _cgroup_limits() -> Iterator[int]:
    try:
        lines = (_PROC / "self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, group = line.split(":", 2)
        for controller in set(controllers.split(",")) & set(_CGROUP_LIMITS):
            folder, file = _CGROUP_LIMITS[controller]
            # The limits of outer groups apply too. In a container, its own group may be the outermost one in sight,
            # although it has its outside name.
            inner = Path(group.lstrip("/"))
            for part in (inner, *inner.parents):
                with contextlib.suppress(OSError, ValueError):
                    yield int((_CGROUPS / folder / part / file).read_text(encoding="ascii"))
