"""What a child process and all that it started hold of the machine's memory, and how much of it they may hold.

Resident memory is looked at from outside, in /proc: a limit on addresses would stop CUDA and TensorFlow, which reserve
many times what they use.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path

# The rest is for the parent, and for what a child takes between two looks.
MEMORY_SHARE = 0.8

_PROC = Path("/proc")
_CGROUPS = Path("/sys/fs/cgroup")
# Where version 1 and version 2 of control groups keep the limit of one, below the folder of them all.
_CGROUP_LIMITS = {"memory": ("memory", "memory.limit_in_bytes"), "": ("", "memory.max")}
_KIB = 1024
# A look reads the state of every process of the machine: it is to cost next to nothing, and a benchmark runs beside it.
_LOOK_EVERY_S = 0.25
_RAREST_LOOK_S = 1.0
_SHARE_OF_LOOKS = 0.02

# It is about the machine and not about a job, so it holds for every child that this process starts.
_LIMIT: ContextVar[int | None] = ContextVar("memory_limit", default=None)


@dataclass(frozen=True, kw_only=True, slots=True)
class Member:
    """A process that a child started, or the child.

    Attributes:
        session: The id of its session, which is that of the process that leads it.
        resident: Bytes of memory that it holds, with what it shares.
    """

    session: int
    resident: int


@contextlib.contextmanager
def memory_limit(limit: int) -> Iterator[None]:
    """Let every child that is started inside hold at most so many bytes, with all that it starts."""
    token = _LIMIT.set(limit)
    try:
        yield
    finally:
        _LIMIT.reset(token)


def unlimited_memory() -> contextlib.AbstractContextManager[None]:
    """Let children hold what they want: where the process that starts them is watched itself, and they with it."""
    return memory_limit(sys.maxsize)


class MemoryWatch:
    """Looks from time to time at how much a child and all that it started hold."""

    def __init__(self, leader: int) -> None:
        """Begin.

        Args:
            leader: The id of the child's process, which leads a session of its own.
        """
        limit = _LIMIT.get()
        self.limit = int(usable_memory() * MEMORY_SHARE) if limit is None else limit
        self._leader = leader
        self._next_look = 0.0

    def excess(self) -> int | None:
        """Return how many bytes are held, where that is more than the limit; None where not, or between two looks."""
        start = time.monotonic()
        if start < self._next_look:
            return None
        found = self.excess_now()
        end = time.monotonic()
        self._next_look = end + min(_RAREST_LOOK_S, max(_LOOK_EVERY_S, (end - start) / _SHARE_OF_LOOKS))
        return found

    def excess_now(self) -> int | None:
        """Return how many bytes are held at this moment, where that is more than the limit."""
        if self.limit == sys.maxsize:
            return None
        held = self._held()
        return held if held > self.limit else None

    def _held(self) -> int:
        family = family_of(self._leader)
        held = sum(member.resident for member in family.values())
        if held <= self.limit:
            return held
        # What several processes share was counted for each of them: reading what each one's part of it is takes longer.
        return sum(_proportional(pid, member) for pid, member in family.items())


def family_of(leader: int) -> Mapping[int, Member]:
    """Return a process, what it started and what is in its session, by id; empty where there is no /proc."""
    members: dict[int, Member] = {}
    children: dict[int, list[int]] = {}
    for folder in _PROC.glob("[0-9]*"):
        try:
            text = (folder / "stat").read_bytes()
        except OSError:
            # It has ended since.
            continue
        pid = int(folder.name)
        # Before the last bracket stands the name of the program, which may hold anything: see proc_pid_stat(5).
        fields = text.rpartition(b")")[2].split()
        members[pid] = Member(session=int(fields[3]), resident=int(fields[21]) * os.sysconf("SC_PAGE_SIZE"))
        children.setdefault(int(fields[1]), []).append(pid)
    found: dict[int, Member] = {}
    # What was started by a process that has ended is nobody's child any more, but still in its session.
    left = [pid for pid, member in members.items() if leader in {pid, member.session}]
    while left:
        pid = left.pop()
        if pid not in found:
            found[pid] = members[pid]
            left += children.get(pid, ())
    return found


def _proportional(pid: int, member: Member) -> int:
    """Return the bytes that a process holds alone and its part of those that it shares."""
    folder = _PROC / str(pid)
    try:
        for line in (folder / "smaps_rollup").read_text(encoding="ascii").splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * _KIB
    except ProcessLookupError:
        return 0
    except OSError:
        pass
    # It may have ended since it was found. Otherwise, its part cannot be read here, and all of it counts.
    return member.resident if folder.exists() else 0


def usable_memory() -> int:
    """Return the bytes of memory that this machine has, or its container where that may use less."""
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
            # Each group is held to the limits of those around it too. In a container its own may be the outermost that
            # is seen, while its name is that outside.
            inner = Path(group.lstrip("/"))
            for part in (inner, *inner.parents):
                with contextlib.suppress(OSError, ValueError):
                    yield int((_CGROUPS / folder / part / file).read_text(encoding="ascii"))
