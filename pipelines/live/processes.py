"""Find the processes of a server on this machine, and watch their processors and memory."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from msgspec import Struct, field

from paritygate.errors import UsageError
from paritygate.models.endpoint import Endpoint
from paritygate.pipelines.process.child_memory import family_of

_PROC = Path("/proc")
_TABLES = ("tcp", "tcp6")
# The state of a socket that listens: see proc_net_tcp(5).
_LISTENS = "0A"
_PORTS = {"https": 443}
_OTHER_PORT = 80
_LOOK_EVERY_S = 0.5
# It forwards a port to a container, and is not a part of the server.
_FORWARDS = frozenset({"docker-proxy", "rootlessport", "ssh", "kubectl"})
MEBIBYTE = 1 << 20


class Look(Struct, frozen=True, kw_only=True):
    """The processes of a server at one moment."""

    at: float  # seconds, of the clock `time.perf_counter`
    memory: int  # bytes that are resident, in all processes together
    cpu_s: float  # of all processors since the start of each process


class Use(Struct, frozen=True, kw_only=True):
    """The use of the machine by a server during a measurement; memory is in MiB."""

    cpu: float  # processors, such as 1.5
    memory: float  # the most


class ProcessWatch(Struct, kw_only=True):
    """Looks at a server's processes twice a second; without a process it sees nothing, and `why` says the reason."""

    pid: int | None
    why: str = ""  # it is not watched
    looks: list[Look] = field(default_factory=list)

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Look from now on until the end of the block."""
        if self.pid is None:
            yield
            return
        over = threading.Event()
        thread = threading.Thread(target=self._watch, args=(over,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _watch(self, over: threading.Event) -> None:
        self.look()
        while not over.wait(_LOOK_EVERY_S):
            self.look()
        self.look()

    def look(self) -> None:
        """Look once; a server that has ended is not looked at."""
        assert self.pid is not None  # noqa: S101 - nobody looks without one
        family = family_of(self.pid)
        # A test may start a server in the session of this process.
        others = [member for pid, member in family.items() if pid != os.getpid()]
        if others:
            memory = sum(member.resident for member in others)
            cpu_s = sum(member.cpu_s for member in others)
            self.looks.append(Look(at=time.perf_counter(), memory=memory, cpu_s=cpu_s))

    def use_since(self, begin: float) -> Use | None:
        """Return the use since a time of the clock; None without two looks."""
        looks = [look for look in self.looks if look.at >= begin]
        if len(looks) <= 1:
            return None
        first, last = looks[0], looks[-1]
        return Use(
            cpu=max(0.0, last.cpu_s - first.cpu_s) / max(last.at - first.at, 1e-9),
            memory=max(look.memory for look in looks) / MEBIBYTE,
        )


def watch_of(endpoint: Endpoint, pid: int | None) -> ProcessWatch:
    """Return the watch of the process that listens at an address on this machine, or of a named one.

    Raises:
        UsageError: There is no such process.
    """
    if pid is not None:
        if not (_PROC / str(pid)).is_dir():
            msg = f"--pid names no process on this machine (got {pid})"
            raise UsageError(msg, hint="leave --pid out to find the process by its port")
        return ProcessWatch(pid=pid)
    parts = urlsplit(endpoint.host if "://" in endpoint.host else f"//{endpoint.host}")
    listening = _listening(parts.port or _PORTS.get(parts.scheme, _OTHER_PORT))
    if not listening:
        return ProcessWatch(pid=None, why="no process of this user listens there; name it with --pid")
    if os.getpid() in listening:
        return ProcessWatch(pid=None, why="the server runs in this process")
    # The first of several is the one that started the others.
    first = min(listening, key=lambda each: (len(_ancestors(each)), each))
    name = _name_of(first)
    if name in _FORWARDS:
        return ProcessWatch(pid=None, why=f"{name} forwards the port; name the process with --pid")
    return ProcessWatch(pid=first)


def _listening(port: int) -> set[int]:
    """Return the processes that hold a socket which listens at a port; those of other users are not seen."""
    sockets = {f"socket:[{inode}]" for inode in _inodes(port)}
    found = set()
    for folder in _PROC.iterdir() if sockets else ():
        if folder.name.isdecimal() and sockets & set(_open_files(folder)):
            found.add(int(folder.name))
    return found


def _inodes(port: int) -> Iterator[str]:
    for table in _TABLES:
        with contextlib.suppress(OSError):
            for line in (_PROC / "net" / table).read_text(encoding="ascii").splitlines()[1:]:
                fields = line.split()
                if fields[3] == _LISTENS and int(fields[1].rpartition(":")[2], 16) == port:
                    yield fields[9]


def _open_files(folder: Path) -> Sequence[str]:
    found = []
    with contextlib.suppress(OSError):
        for link in (folder / "fd").iterdir():
            with contextlib.suppress(OSError):
                found.append(os.readlink(link))  # noqa: PTH115 - a Path of `socket:[1]` is none
    return found


def _ancestors(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):
        while pid > 1:
            text = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
            pid = int(text.rpartition(")")[2].split()[1])
            found.append(pid)
    return found


def _name_of(pid: int) -> str:
    try:
        return (_PROC / str(pid) / "comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
