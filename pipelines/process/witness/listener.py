"""The parent's side: the kernel tells of each file that a child opens or looks for, and the child goes on."""

from __future__ import annotations

import collections
import contextlib
import fcntl
import hashlib
import importlib.machinery
import importlib.util
import os
import re
import select
import socket
import stat
import struct
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from paritygate.pipelines.process.witness.readings import Readings
from paritygate.pipelines.process.witness.system_calls import ALWAYS_ANEW, BEHIND_POINTER, SystemCalls, system_calls

__all__ = ["Listener", "identity_of", "name_added", "names_in", "target_of"]

# linux/seccomp.h: struct seccomp_notif {id, pid, flags, {nr, arch, instruction_pointer, args[6]}} and its answer
# {id, val, error, flags}; the requests of ioctl are made of their sizes.
_NOTICE = struct.Struct("=QIIiIQ6Q")
_ANSWER = struct.Struct("=QqiI")
_RECEIVE = 0xC0002100 | _NOTICE.size << 16
_SEND = 0xC0002101 | _ANSWER.size << 16
_GO_ON = 1
_CURRENT_FOLDER = -100
_PART_BYTES = 256
_PATH_BYTES = 4096
_REASON_BYTES = 400
_FAMILY_BYTES = 2
_ADDRESS_BYTES = 128
# Asked there is who a user is, which is looked for in files where nobody answers; and a number that nobody else has,
# which is made of the clock where nobody answers.
_ASKS_NOTHING = (b"/var/run/nscd/", b"/run/uuidd/", b"/var/run/uuidd/")
# Of a file that is written twice within a step of the kernel's clock (1/HZ, 10 ms at the most), the time is the same.
_CLOCK_STEP_NS = 10_000_000
# A descriptor each.
_MOST_MEMORIES = 64
# A process that is left behind, though all that the child started is ended, is not waited for.
_GRACE_S = 5.0
_OF_MODULES = (*importlib.machinery.all_suffixes(), ".dist-info", ".egg-info", ".egg")
# What the kernel makes up as it is read: what is told of the machine there is in the request itself.
_MADE_UP = ("/proc/", "/sys/", "/dev/")
_CACHED_BYTECODE = "/__pycache__/"
# What stands in for a path there: of which process, what of it, and the rest.
_OF_PROCESS = re.compile(
    r"/(?:proc/(self|thread-self|\d+)(?:/task/\d+)?|dev(?=/fd))/(cwd|root|fd/\d+)(?=/|$)(.*)", re.DOTALL
)
_IN_MEMORY = "/dev/shm/"  # noqa: S108 - files like any others
# How many new names in a folder are told from those that were there.
_MOST_ADDED = 20


def names_in(folder: str, *, is_of_modules: bool = False) -> str:
    """Return the digest of the names in a folder, but for what Python keeps of the modules there.

    Args:
        folder: The folder.
        is_of_modules: Whether only names count that can be those of modules and installed packages.

    Raises:
        OSError: It cannot be listed.
    """
    return _digest_of_names(_counting(folder, is_of_modules=is_of_modules))


def name_added(folder: str, before: str, *, is_of_modules: bool = False) -> str | None:
    """Return the name that was added to a folder since its names had a digest, one of them where several were.

    Args:
        folder: The folder.
        before: What `names_in` returned.
        is_of_modules: As of `names_in`.

    Returns:
        The name; None where it cannot be told, such as where one was removed.
    """
    try:
        names = _counting(folder, is_of_modules=is_of_modules)
        newest = sorted(names, key=lambda name: os.lstat(os.path.join(folder, name)).st_ctime_ns, reverse=True)  # noqa: PTH118 - of many
    except OSError:
        return None
    for count, name in enumerate(newest[:_MOST_ADDED], start=1):
        for added in ({name}, set(newest[:count])):
            if _digest_of_names([each for each in names if each not in added]) == before:
                return name
    return None


def _counting(folder: str, *, is_of_modules: bool) -> list[str]:
    return [
        name
        for name in os.listdir(folder)  # noqa: PTH208 - as given
        if name != "__pycache__" and (not is_of_modules or name.endswith(_OF_MODULES) or "." not in name)
    ]


def _digest_of_names(names: Iterable[str]) -> str:
    found = b"/".join(sorted(os.fsencode(name) for name in names))
    return f"sha256:{hashlib.sha256(found).hexdigest()}"


def target_of(path: str) -> str | None:
    """Return where a link leads to, as it is written in it; None for what is no link, or not there."""
    try:
        return os.readlink(path)  # noqa: PTH115 - as it was written
    except OSError:
        return None


def identity_of(found: os.stat_result) -> tuple[int, ...]:
    """Return what stays the same as long as a file is not written: device, inode, size and its times."""
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _is_made_up(path: str) -> bool:
    place = f"{path}/"
    return place.startswith(_MADE_UP) and not place.startswith(_IN_MEMORY)


class Listener:
    """Listens, in a thread of its own, from the moment that a child asks for it until all of its processes ended."""

    def __init__(self, own: Sequence[Path]) -> None:
        """Wait for nothing yet.

        Args:
            own: Folders and files that the child writes for this process: what it reads there is its own.
        """
        self.readings = Readings()
        # This end is told the child's number, which inherits it.
        self._here, self.childs_end = socket.socketpair()
        self._own = tuple(f"{path}/" for path in own)
        # What the CUDA driver compiled for this GPU, and keeps: there or not, the same code runs.
        self._of_cuda = os.path.expanduser("~/.nv")  # noqa: PTH111 - as the driver does
        self._seen: set[tuple[str | None, bool]] = set()
        # What the child itself made, which is no input of it.
        self._made: set[str] = set()
        # How often each folder was opened to be listed, and the names there at the first time that can be modules.
        self._listed: collections.Counter[str] = collections.Counter()
        self._modules_in: dict[str, str] = {}
        self._memories: dict[int, int] = {}
        self._thread = threading.Thread(target=self._listen, name="paritygate-witness", daemon=True)

    def start(self) -> None:
        """Begin, once the child is started."""
        self.childs_end.close()
        self._thread.start()

    def add_of_python(self, read: Any) -> None:  # noqa: ANN401 - what `read_in_python` of the child returned
        """Add what the child says itself: the kernel knows nothing of variables, and what was imported was imported."""
        if not isinstance(read, dict):
            self._unknown("it does not say which environment variables it read")
            return
        self.readings.variables.update(read["variables"])
        self.readings.variables_of_user.update(read["variables_of_user"])
        self.readings.reads_all_variables = bool(read["all_variables"])
        if read["starts_processes"]:
            self._unknown("its code starts another process, and what that looks at without opening it is not seen")
        self._add_listed_for_modules(read["listed_for_modules"])
        for path in read["links"]:
            if path not in self.readings.files:
                self._see_link(path)
        for path, (written, mode) in read["looked_at"].items():
            if not self._is_own(path) and not _is_made_up(path):
                self.readings.looked_at.setdefault(path, (written, mode))
        for path in read["modules"]:
            if path not in self.readings.files:
                with contextlib.suppress(OSError):
                    self.readings.files[path] = identity_of(os.stat(path))  # noqa: PTH116 - as it is written

    def _add_listed_for_modules(self, listed: Mapping[str, int]) -> None:
        """Add which folders Python listed to find modules, each with how often; nobody else did if that is all."""
        for path, count in listed.items():
            if self._listed[path] == count and path in self._modules_in:
                del self.readings.folders[path]
                self.readings.modules_in[path] = self._modules_in[path]

    def close(self) -> Readings:
        """Return what was read, once the child and all that it started have ended."""
        if self._thread.ident is None:
            self.childs_end.close()
        else:
            self._thread.join(_GRACE_S)
            if self._thread.is_alive():
                self._unknown("it left a process behind")
        self._here.close()
        return self.readings

    def _unknown(self, why: str) -> None:
        self.readings.why_unknown = self.readings.why_unknown or why

    def _listen(self) -> None:
        calls = system_calls()
        try:
            said, descriptors, _, _ = socket.recv_fds(self._here, _REASON_BYTES, 1)
        except OSError:
            said, descriptors = b"", []
        if not descriptors or calls is None:
            self._unknown(said.decode(errors="replace") or "the process ended before it could be watched")
            return
        descriptor = descriptors[0]
        try:
            self._serve(descriptor, calls)
        finally:
            os.close(descriptor)
            self._forget_memories()

    def _serve(self, descriptor: int, calls: SystemCalls) -> None:
        waiting = select.poll()
        waiting.register(descriptor, select.POLLIN)
        notice = bytearray(_NOTICE.size)
        empty = bytes(_NOTICE.size)
        while True:
            ((_, happened),) = waiting.poll()
            if not happened & select.POLLIN:
                # All processes that have the filter have ended.
                return
            notice[:] = empty
            try:
                fcntl.ioctl(descriptor, _RECEIVE, notice)
            except OSError:
                # The call was broken off by a signal, and comes again; or its process has ended.
                continue
            number, pid, _, call, processor, _, *arguments = _NOTICE.unpack(notice)
            try:
                if processor == calls.audit:
                    self._see(calls, pid, call, arguments)
                else:
                    self._unknown("it ran a program of another processor")
            except Exception as err:  # noqa: BLE001 - whatever it is, the child is waiting and has to go on
                # A process that has ended meanwhile has read nothing.
                if Path(f"/proc/{pid}").exists():
                    self._unknown(f"what it read could not be seen: {type(err).__name__}: {err}")
            with contextlib.suppress(OSError):
                fcntl.ioctl(descriptor, _SEND, _ANSWER.pack(number, 0, 0, _GO_ON))

    def _see(self, calls: SystemCalls, pid: int, call: int, arguments: Sequence[int]) -> None:
        if call in calls.opens:
            folder, at, flags_at = calls.opens[call]
            flags = self._flags(pid, arguments, flags_at)
            self._see_path(pid, arguments, folder, at, flags)
        elif call in calls.looks:
            self._see_path(pid, arguments, *calls.looks[call][:2], None)
        elif call in calls.links:
            path = self._path(pid, arguments, *calls.links[call])
            if path is not None:
                self._see_link(path)
        elif call in calls.makes:
            path = self._path(pid, arguments, *calls.makes[call])
            if path is not None and not os.path.lexists(path):
                self._made.add(path)
        elif call in calls.connects:
            self._connect(pid, self._bytes(pid, arguments[1], min(arguments[2], _ADDRESS_BYTES)))
        else:
            self._unknown("it read files in a way that the kernel does not tell of")

    def _connect(self, pid: int, address: bytes) -> None:
        family, rest = int.from_bytes(address[:_FAMILY_BYTES], sys.byteorder), address[_FAMILY_BYTES:]
        if family in {socket.AF_INET, socket.AF_INET6}:
            self._unknown("it opened a network connection")
        elif family == socket.AF_UNIX and not rest.startswith(_ASKS_NOTHING):
            self._ask(pid, rest)

    def _ask(self, pid: int, name: bytes) -> None:
        """See that the process asks whoever listens at a Unix socket.

        Where there is none, nobody can answer: the CUDA driver looks for NVIDIA's daemon of shared GPUs, for one.
        """
        path = os.fsdecode(name.split(b"\0")[0])
        if path.startswith("/"):
            path = _through_proc(path, pid)
            if not _is_made_up(path) and not _is_there(path):
                self.readings.absent.add(path)
                return
        self._unknown(f"it asked another process of this machine, at {_shown(name)}")

    def _flags(self, pid: int, arguments: Sequence[int], flags_at: int) -> int:
        if flags_at == ALWAYS_ANEW:
            return os.O_CREAT | os.O_WRONLY | os.O_TRUNC
        if flags_at == BEHIND_POINTER:
            # openat2: they come first there.
            return int.from_bytes(self._bytes(pid, arguments[2], 8), sys.byteorder)
        return arguments[flags_at]

    def _bytes(self, pid: int, address: int, count: int) -> bytes:
        memory = self._memories.get(pid)
        # Of a process that runs another program by now, or has ended, nothing is left.
        found = b"" if memory is None else os.pread(memory, count, address)
        if found:
            return found
        if len(self._memories) >= _MOST_MEMORIES or memory is not None:
            self._forget_memories()
        memory = self._memories[pid] = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
        return os.pread(memory, count, address)

    def _forget_memories(self) -> None:
        while self._memories:
            os.close(self._memories.popitem()[1])

    def _text(self, pid: int, address: int) -> bytes:
        for count in (_PART_BYTES, _PATH_BYTES):
            text, end, _ = self._bytes(pid, address, count).partition(b"\0")
            if end:
                return text
        return text

    def _path(self, pid: int, arguments: Sequence[int], folder: int | None, at: int) -> str | None:
        text = self._text(pid, arguments[at])
        if not text:
            # It is about the folder itself, which was opened before.
            return None
        if text[:1] == b"/":
            return _through_proc(os.fsdecode(text), pid)
        number = (
            _CURRENT_FOLDER
            if folder is None
            else struct.unpack("=i", struct.pack("=I", arguments[folder] & 0xFFFFFFFF))[0]
        )
        below = f"/proc/{pid}/cwd" if number == _CURRENT_FOLDER else f"/proc/{pid}/fd/{number}"
        path = os.path.join(os.readlink(below), os.fsdecode(text))  # noqa: PTH118, PTH115 - nothing is to be resolved
        return _through_proc(path, pid)

    def _see_path(self, pid: int, arguments: Sequence[int], folder: int | None, at: int, flags: int | None) -> None:
        path = self._path(pid, arguments, folder, at)
        if path is not None and _CACHED_BYTECODE in f"{path}/":
            path = _source_of_bytecode(path)
        # What is opened as a place alone is looked at, and may be read later.
        is_looking = flags is None or bool(flags & os.O_PATH)
        key = (path, is_looking)
        if flags is not None and flags & os.O_DIRECTORY and path is not None:
            self._listed[path] += 1
        is_writing = bool((flags or 0) & (os.O_WRONLY | os.O_RDWR))
        if path is None or (key in self._seen and not is_writing):
            return
        self._seen.add(key)
        if _is_made_up(path) or self._is_own(path):
            return
        if is_looking:
            self._look(path)
        else:
            self._open(path, flags or 0)

    def _see_link(self, path: str) -> None:
        if path in self.readings.links or _is_made_up(path) or self._is_own(path):
            return
        self.readings.links[path] = target_of(path)
        self._look(path)

    def _look(self, path: str) -> None:
        try:
            found = os.stat(path)  # noqa: PTH116 - a path may hold what no Path keeps, such as a double slash
        except OSError:
            self.readings.absent.add(path)
            return
        self.readings.sizes.setdefault(path, found.st_size if stat.S_ISREG(found.st_mode) else None)

    def _open(self, path: str, flags: int) -> None:
        try:
            found = os.stat(path)  # noqa: PTH116 - as above
        except OSError:
            (self._made if flags & os.O_CREAT else self.readings.absent).add(path)
            return
        if stat.S_ISDIR(found.st_mode):
            self.readings.folders.setdefault(path, names_in(path))
            self._modules_in.setdefault(path, names_in(path, is_of_modules=True))
        elif not stat.S_ISREG(found.st_mode):
            self._unknown(f"it opened {path}, which is no plain file")
        elif not (flags & os.O_TRUNC or flags & os.O_ACCMODE == os.O_WRONLY):
            if time.time_ns() - found.st_ctime_ns < _CLOCK_STEP_NS:
                self._unknown(f"{path} was written while it was read")
            self.readings.files.setdefault(path, identity_of(found))
        elif path not in self.readings.files:
            # What is written from its beginning, or at its end, is not read.
            self._made.add(path)

    def _is_own(self, path: str) -> bool:
        if path in self._made or f"{path}/".startswith(self._own):
            return True
        if path == self._of_cuda or f"{path}/".startswith(f"{self._of_cuda}/ComputeCache/"):
            return True
        # A folder that it made holds nothing else.
        at = path.rfind("/")
        while at > 0:
            path = path[:at]
            if path in self._made:
                return True
            at = path.rfind("/")
        return False


def _is_there(path: str) -> bool:
    """Return whether something is at a path; True as well where that cannot be told."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except (OSError, ValueError):
        return True
    return True


def _through_proc(path: str, pid: int) -> str:
    """Return where a path leads to that begins at what a process has open, or where it is: `/proc/self/cwd/a`."""
    found = _OF_PROCESS.match(os.path.normpath(path)) if "/proc/" in path or "/fd" in path else None
    if found is None:
        return path
    whose, what, rest = found.groups()
    whose = str(pid) if whose in {None, "self", "thread-self"} else whose
    try:
        place = os.readlink(f"/proc/{whose}/{what}")  # noqa: PTH115 - as it is written
    except OSError:
        # It is closed, or nobody's business: then it is so for whoever asks.
        return path
    # A pipe or a socket has no path.
    return f"{place}{rest}".replace("//", "/", 1) if place.startswith("/") else path


def _source_of_bytecode(path: str) -> str | None:
    """Return the module that Python made a file of bytecode of; None for the folder of such files.

    Whoever makes them, and when, is chance: another process may at the same moment. What they say, the module says.
    """
    if path.endswith(_CACHED_BYTECODE.rstrip("/")):
        return None
    if not path.endswith(".pyc"):
        return path
    try:
        source = importlib.util.source_from_cache(path)
    except ValueError:
        return path
    return source if os.path.exists(source) else path  # noqa: PTH110 - as above


def _shown(address: bytes) -> str:
    """Return the name of a Unix socket: a path, or what begins with @ and is none."""
    name = address[:1].replace(b"\0", b"@") + address[1:].split(b"\0")[0]
    return name.decode(errors="replace") or "a name that it made up"
