"""Receive in the parent each call of a child that may bring something in, record it, and let the child continue."""

from __future__ import annotations

import collections
import contextlib
import fcntl
import functools
import os
import select
import socket
import struct
import sys
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from paritygate.pipelines.process.file_access.accesses import FileAccesses
from paritygate.pipelines.process.file_access.notes import NotesReader
from paritygate.pipelines.process.file_access.seccomp_filter import NAMESPACES, NOTES_ITSELF
from paritygate.pipelines.process.file_access.sightings import Sightings, is_of_many
from paritygate.pipelines.process.file_access.system_calls import (
    ALWAYS_ANEW,
    ATTRIBUTES,
    CHANGES,
    LINKS,
    LOOKS,
    MAKES,
    OPENS,
    PAIRS,
    PROGRAMS,
    REMOVES,
    SystemCalls,
    system_calls,
)

# linux/seccomp.h: struct seccomp_notif {id, pid, flags, {nr, arch, instruction_pointer, args[6]}} and its answer
# {id, val, error, flags}; the requests of ioctl are made of their sizes.
_NOTICE = struct.Struct("=QIIiIQ6Q")
_ANSWER = struct.Struct("=QqiI")
_RECEIVE = 0xC0002100 | _NOTICE.size << 16
_SEND = 0xC0002101 | _ANSWER.size << 16
_GO_ON = 1
# SECCOMP_IOCTL_NOTIF_SET_FLAGS, SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP
_SET_FLAGS = 0x40082104
_WAKE_AT_ONCE = 1
_CURRENT_FOLDER = -100
_MADE_ANEW = os.O_CREAT | os.O_WRONLY | os.O_TRUNC
_WRITING = os.O_CREAT | os.O_WRONLY | os.O_RDWR | os.O_TRUNC
_LISTS = frozenset({"getdents", "getdents64"})
_PART_BYTES = 256
_PATH_BYTES = 4096
_REASON_BYTES = 400
_FAMILY_BYTES = 2
_ADDRESS_BYTES = 128
_POINTER_BYTES = 8
# linux/openat2.h: struct open_how {flags, mode, resolve}. Of the rules, RESOLVE_NO_MAGICLINKS, RESOLVE_NO_SYMLINKS and
# RESOLVE_BENEATH make a path with a link on it, or one that leads upwards, an error, and change no other one.
_OPEN_HOW = struct.Struct("=3Q")
_REFUSE_LINKS = 0x02 | 0x04 | 0x08
# struct mmsghdr
_MESSAGE_BYTES = 64
_MOST_MESSAGES = 1024
# fcntl.h
_AT_SYMLINK_NOFOLLOW = 0x100
_AT_EMPTY_PATH = 0x1000
_AT_SYMLINK_FOLLOW = 0x400
# linux/fs.h
_RENAME_NOREPLACE = 1
_RENAME_EXCHANGE = 2
# linux/sockios.h, SIOCGIFCONF and SIOCGIFHWADDR: unique numbers are made of their answers and the clock.
_OF_UNIQUE_NUMBERS = frozenset({0x8912, 0x8927})
# bits/socket_type.h
_KIND_OF_SOCKET = 0xF
# These services return the name of a user, which is otherwise read from files, or a unique number.
_ASKS_NOTHING = (b"/var/run/nscd/", b"/run/uuidd/", b"/var/run/uuidd/")
# Each takes a descriptor.
_MOST_MEMORIES = 64
# How long to wait for processes that still run when the child and all its processes should have ended.
_GRACE_S = 5.0


class Listener:
    """Listens in its own thread from before a child begins until all its processes have ended."""

    def __init__(self, own: Sequence[Path]) -> None:
        """Prepare to listen.

        Args:
            own: Folders and files that the child writes for this process, which are not its inputs.
        """
        # The child inherits the other end.
        self._here, self.childs_end = socket.socketpair()
        self.notes = NotesReader()
        self._calls = system_calls()
        self._seen = Sightings(own, 0 if self._calls is None else self._calls.machine)
        # How often Python listed each folder of modules before it could note why.
        self._listed_at_first: dict[str, int] | None = None
        self._memories: dict[int, int] = {}
        self._child = self._moves = 0
        self._pythons: set[int] = set()
        self._has_programs = self._has_datagrams = False
        self._thread = threading.Thread(target=self._listen, name="paritygate-file-access", daemon=True)
        self._others: Mapping[str, Callable[[int, Sequence[int]], None]] = {
            "accept": self._listens,
            "accept4": self._listens,
            "bind": self._bind,
            "clone": lambda *_: self._seen.unknown("it made a view of the machine of its own"),
            "clone3": self._clone,
            "connect": self._connect,
            "fgetxattr": self._attributes_of_open,
            "flistxattr": self._attributes_of_open,
            "ioctl": self._interface,
            "kill": self._signal,
            "listen": self._listens,
            "openat2": self._open_by_rules,
            "pidfd_open": self._signal,
            "sendmmsg": self._send_messages,
            "sendmsg": lambda pid, arguments: self._send(pid, arguments[1]),
            "sendto": lambda *_: self._seen.unknown("it sent something to another address"),
            "socket": self._socket,
        }

    @property
    def inherited(self) -> tuple[int, int]:
        """The descriptors that the child inherits."""
        return self.childs_end.fileno(), self.notes.childs_end

    @property
    def accesses(self) -> FileAccesses:
        """What was read so far."""
        return self._seen.accesses

    def start(self, child: int) -> None:
        """Begin to listen to a started child, given by its process id."""
        self._child = child
        self._seen.begin(child)
        self._close_childs_ends()
        self._thread.start()

    def add_of_python(self, read: Any) -> None:  # noqa: ANN401 - what `read_in_python` of the child returned
        """Add what `read_in_python` returned in the child, which has ended."""
        self._end()
        if not isinstance(read, dict):
            self._seen.unknown("it does not say which environment variables it read")
            return
        self.accesses.variables.update(read["variables"])
        self.accesses.variables_of_user.update(read["variables_of_user"])
        self.accesses.reads_all_variables |= bool(read["all_variables"])
        self.accesses.reads_host_name |= bool(read["host_name"])
        if read["starts_processes"]:
            self._seen.unknown("its code starts another process, and what that looks at without opening it is not seen")
        # Memory allocators read it as well, for their own settings.
        self.accesses.reads_all_variables |= any(path.endswith("/environ") for path in read["opened_by_user"])
        for path in read["opened_by_user"]:
            if not is_of_many(path, self._child):
                continue
            self._seen.unknown(f"its code reads {path}, which changes with all that the machine does")
        self._add_listed_for_modules(
            read["listed_for_modules"], frozenset(read["listed_for_packages"]), read["searched_for"]
        )
        self._seen.never_again(read["drawn_names"])
        self._seen.of_python(read["looked_at"] | self._asked_for(read["folders_in_list"]), read["modules"])

    def _asked_for(self, folders: Mapping[str, Any]) -> dict[str, Any]:
        """Return the listed folders that were examined as well."""
        looked_at = {os.path.normpath(path) for path in self.accesses.sizes}
        return {path: state for path, state in folders.items() if path in looked_at}

    def _add_listed_for_modules(
        self, noted: Mapping[str, int], for_packages: Collection[str], searched_for: Mapping[str, Sequence[str]]
    ) -> None:
        """Add the folders that only imports listed, from how often they did.

        `for_packages` holds folders that were listed to find installed packages. `searched_for` holds the modules that
        were searched for in each folder where all searches are known.
        """
        at_first = self._listed_at_first or {}
        realpath = functools.cache(os.path.realpath)
        counts = collections.Counter(at_first)
        for path, count in noted.items():
            counts[realpath(path)] += count
        packages = set(map(realpath, for_packages))
        searched: dict[str, list[str]] = {}
        for path, names in searched_for.items():
            searched.setdefault(realpath(path), []).extend(names)
        for path in self._seen.modules_in:
            real = realpath(path)
            if real in counts and self._seen.listed[real] == counts[real]:
                self.accesses.folders.pop(path, None)
                self.accesses.modules_in[path] = self._seen.modules_in[path]
                # Searches before Python began to note are unknown.
                if real in searched and real not in at_first:
                    self.accesses.searched[path] = real in packages
                    self._seen.searches(f"{path}/{name}" for name in searched[real])

    def close(self) -> FileAccesses:
        """Return what was read, after the child and all its processes have ended."""
        if self._thread.ident is None:
            self._close_childs_ends()
        else:
            self._end()
        self._here.close()
        return self.accesses

    def _close_childs_ends(self) -> None:
        self.childs_end.close()
        self.notes.close_childs_end()

    def _end(self) -> None:
        self._thread.join(_GRACE_S)
        if self._thread.is_alive():
            self._seen.unknown("it left a process behind")

    def _listen(self) -> None:
        try:
            message, descriptors, _, _ = socket.recv_fds(self._here, _REASON_BYTES, 1)
        except OSError:
            message, descriptors = b"", []
        if not descriptors or self._calls is None:
            self._seen.unknown(message.decode(errors="replace") or "the process ended before it could be watched")
            return
        descriptor = descriptors[0]
        try:
            self._serve(descriptor, self._calls)
        finally:
            self._take_notes()
            os.close(descriptor)
            self._forget_memories()

    def _take_notes(self) -> None:
        """Record the notes of the child's Python, which precede the next call."""
        try:
            for kind, state, path in self.notes.new():
                self._seen.is_told(kind, state, path)
        except Exception as err:  # noqa: BLE001 - as for a call
            self._seen.unknown(f"what its Python noted could not be read: {type(err).__name__}: {err}")

    def _serve(self, descriptor: int, calls: SystemCalls) -> None:
        waiting = select.poll()
        waiting.register(descriptor, select.POLLIN)
        with contextlib.suppress(OSError):
            # Older kernels have no such flag, which only makes the switch between processes faster.
            fcntl.ioctl(descriptor, _SET_FLAGS, _WAKE_AT_ONCE)
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
                # A signal interrupted the call, which is made again, or its process has ended.
                continue
            number, pid, _, call, processor, _, *arguments = _NOTICE.unpack(notice)
            self._seen.hears(pid)
            try:
                if processor == calls.audit:
                    self._see(calls.names.get(call, f"number {call}"), pid, arguments)
                else:
                    self._seen.unknown("it ran a program of another processor")
            except Exception as err:  # noqa: BLE001 - whatever it is, the child is waiting and has to go on
                # A process that has ended meanwhile has read nothing.
                if Path(f"/proc/{pid}").exists():
                    self._seen.unknown(f"what it read could not be seen: {type(err).__name__}: {err}")
            with contextlib.suppress(OSError):
                fcntl.ioctl(descriptor, _SEND, _ANSWER.pack(number, 0, 0, _GO_ON))

    def _see(self, call: str, pid: int, arguments: Sequence[int]) -> None:
        if call in LOOKS:
            self._look(call, pid, arguments)
        elif call in OPENS:
            self._open(call, pid, arguments)
        elif call in _LISTS:
            self._list(pid, arguments)
        else:
            # The call may change files that were examined before.
            self._take_notes()
            if call in PAIRS:
                self._pair(call, pid, arguments)
            elif call in self._others:
                self._others[call](pid, arguments)
            else:
                self._see_path_of(call, pid, arguments)
            self._check_moves()

    def _check_moves(self) -> None:
        if self._moves != self._seen.moves:
            self._moves = self._seen.moves
            self.notes.forget()

    def _open(self, call: str, pid: int, arguments: Sequence[int]) -> None:
        folder, at, flags_at = OPENS[call]
        path = self._path(pid, arguments, folder, at)
        if path is not None:
            flags = _MADE_ANEW if flags_at == ALWAYS_ANEW else arguments[flags_at]
            if flags & _WRITING:
                self._take_notes()
            self._seen.opens(path, pid, flags)

    def _see_path_of(self, call: str, pid: int, arguments: Sequence[int]) -> None:
        """Record a call in which only one path counts."""
        for table in (LINKS, MAKES, REMOVES, CHANGES, PROGRAMS, ATTRIBUTES):
            if call in table:
                path = self._path(pid, arguments, *table[call])
                break
        else:
            self._seen.unknown(f"it made a system call of which nothing is known, {call}")
            return
        if call in PROGRAMS:
            self._run(path, pid, arguments)
        elif path is None:
            return
        elif call in LINKS:
            self._seen.links(path, pid)
        elif call in MAKES:
            self._seen.makes(path, pid, is_link=call.startswith("symlink"))
        elif call in REMOVES:
            self._seen.looks(path, pid, is_followed=False)
        elif call in CHANGES:
            self._seen.changes(path, pid)
        else:
            self._seen.attributes(path, pid)

    def _look(self, call: str, pid: int, arguments: Sequence[int]) -> None:
        folder, at, flags_at = LOOKS[call]
        if call == "newfstatat" and arguments[3] == _AT_EMPTY_PATH and self._bytes(pid, arguments[1], 1) == b"\0":
            # This is fstat of an open file, the most frequent call.
            return
        path = self._path(pid, arguments, folder, at)
        if path is None:
            return
        if path == NOTES_ITSELF and self._listed_at_first is None:
            self._listed_at_first = dict(self._seen.listed)
            return
        if call == "chdir":
            self._seen.enters(path, pid)
            return
        flags = 0 if flags_at is None else arguments[flags_at]
        is_of_link = call == "lstat" or bool(flags & _AT_SYMLINK_NOFOLLOW)
        self._seen.looks(path, pid, is_followed=not is_of_link, is_of_program=self._is_of_program(pid))

    def _is_of_program(self, pid: int) -> bool:
        """Return whether the caller is another program than our Python, which may depend on times, as `make` does."""
        if not self._has_programs:
            return False
        return not any(Path(f"/proc/{python}/task/{pid}").exists() for python in self._pythons)

    def _pair(self, call: str, pid: int, arguments: Sequence[int]) -> None:
        old, new, flags_at = PAIRS[call]
        flags = 0 if flags_at is None else arguments[flags_at]
        is_link = call.startswith("link")
        source, target = self._path(pid, arguments, *old), self._path(pid, arguments, *new)
        if source is None or target is None or (not is_link and flags & _RENAME_EXCHANGE):
            self._seen.unknown("it gave a file another name in a way that is not known")
            return
        self._seen.takes(source, pid, is_followed=is_link and bool(flags & _AT_SYMLINK_FOLLOW))
        self._seen.gets(target, pid, is_new=is_link or bool(flags & _RENAME_NOREPLACE))

    def _run(self, path: str | None, pid: int, arguments: Sequence[int]) -> None:
        if path is None:
            # execveat of an open file
            path = f"/proc/{pid}/fd/{_signed(arguments[0])}"
        # The first one is the child's own Python.
        if os.path.realpath(self._seen.places.place(path, pid).real) == os.path.realpath(sys.executable):
            self._pythons.add(pid)
        else:
            self._has_programs = True
        self._seen.runs(path, pid)
        # Its memory is that of another program from now on.
        self._forget_memories()

    def _attributes_of_open(self, pid: int, arguments: Sequence[int]) -> None:
        self._seen.attributes(f"/proc/{pid}/fd/{_signed(arguments[0])}", pid)

    def _open_by_rules(self, pid: int, arguments: Sequence[int]) -> None:
        """Record openat2, which may refuse a path because of its links."""
        path = self._path(pid, arguments, 0, 1)
        flags, _, rules = _OPEN_HOW.unpack(self._bytes(pid, arguments[2], _OPEN_HOW.size))
        if path is None:
            return
        text = os.fsdecode(self._text(pid, arguments[1]))
        # A later kernel may have a larger structure.
        is_known = arguments[3] == _OPEN_HOW.size and not rules & ~_REFUSE_LINKS
        if rules and (not is_known or ".." in text.split("/") or not self._seen.steps(path, text, pid)):
            self._seen.unknown("it opened a file by rules of its own on what a path leads to")
        elif not is_known:
            self._seen.unknown("it opened a file in a way of a later kernel")
        self._seen.opens(path, pid, flags)

    def _list(self, pid: int, arguments: Sequence[int]) -> None:
        place = f"/proc/{pid}/fd/{_signed(arguments[0])}"
        number = os.open(f"/proc/{pid}/fdinfo/{_signed(arguments[0])}", os.O_RDONLY)
        try:
            # pos:	0, and so on
            position = os.read(number, _PART_BYTES).split(maxsplit=2)[1]
        finally:
            os.close(number)
        self._seen.lists(os.readlink(place), pid, is_begun=position == b"0")  # noqa: PTH115 - as the kernel has it

    def _clone(self, pid: int, arguments: Sequence[int]) -> None:
        # struct clone_args: the flags come first.
        if int.from_bytes(self._bytes(pid, arguments[0], _POINTER_BYTES), sys.byteorder) & NAMESPACES:
            self._seen.unknown("it made a view of the machine of its own")

    def _interface(self, _: int, arguments: Sequence[int]) -> None:
        if arguments[1] not in _OF_UNIQUE_NUMBERS:
            self._seen.unknown("it asked for the network interfaces of this machine")

    def _signal(self, pid: int, arguments: Sequence[int]) -> None:
        """Record a signal: its success shows whether the other process runs."""
        other = _signed(arguments[0])
        if other > 0 and other != pid and not self._seen.is_family(other):
            self._seen.unknown("it asked whether another process of this machine runs")

    def _socket(self, _: int, arguments: Sequence[int]) -> None:
        kind = arguments[1] & _KIND_OF_SOCKET
        if arguments[0] not in {socket.AF_UNIX, socket.AF_INET, socket.AF_INET6} or kind not in {
            socket.SOCK_STREAM,
            socket.SOCK_DGRAM,
            socket.SOCK_SEQPACKET,
        }:
            self._seen.unknown("it made a socket by which more than connections may come")
        self._has_datagrams |= kind == socket.SOCK_DGRAM

    def _bind(self, pid: int, arguments: Sequence[int]) -> None:
        """Record that a socket gets an address, where datagrams from outside may arrive."""
        if self._has_datagrams:
            self._seen.unknown("it can be sent something from outside")
        address = self._bytes(pid, arguments[1], min(arguments[2], _ADDRESS_BYTES))
        name = address[_FAMILY_BYTES:].split(b"\0")[0]
        if _family(address) == socket.AF_UNIX and name:
            self._seen.makes(self._joined(pid, os.fsdecode(name), _CURRENT_FOLDER), pid)

    def _listens(self, *_: object) -> None:
        self._seen.unknown("it lets other processes connect to it")

    def _send(self, pid: int, message: int) -> None:
        # struct msghdr: the address comes first.
        if any(self._bytes(pid, message, _POINTER_BYTES)):
            self._seen.unknown("it sent something to another address")

    def _send_messages(self, pid: int, arguments: Sequence[int]) -> None:
        for at in range(min(arguments[2], _MOST_MESSAGES)):
            self._send(pid, arguments[1] + at * _MESSAGE_BYTES)

    def _connect(self, pid: int, arguments: Sequence[int]) -> None:
        address = self._bytes(pid, arguments[1], min(arguments[2], _ADDRESS_BYTES))
        family, rest = _family(address), address[_FAMILY_BYTES:]
        if family == socket.AF_UNIX:
            if not rest.startswith(_ASKS_NOTHING):
                self._ask(pid, rest)
        elif family != socket.AF_UNSPEC:
            self._seen.unknown("it opened a network connection")

    def _ask(self, pid: int, name: bytes) -> None:
        """Record a connection to a Unix socket.

        If the socket does not exist, nobody can answer: the CUDA driver looks for NVIDIA's daemon of shared GPUs.
        """
        path = os.fsdecode(name.split(b"\0")[0])
        if path.startswith("/"):
            place = self._seen.places.place(path, pid)
            if place.real.startswith("/") and not _is_there(place.real):
                self._seen.looks(path, pid)
                return
        self._seen.unknown(f"it asked another process of this machine, at {_shown(name)}")

    def _bytes(self, pid: int, address: int, count: int) -> bytes:
        memory = self._memories.get(pid)
        # Nothing can be read here after the process ended or ran another program.
        data = b"" if memory is None else os.pread(memory, count, address)
        if data:
            return data
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
        """Return the absolute path that a call names; None if it names an open file instead."""
        text = self._text(pid, arguments[at]) if arguments[at] else b""
        if not text:
            return None
        return self._joined(pid, os.fsdecode(text), _CURRENT_FOLDER if folder is None else _signed(arguments[folder]))

    def _joined(self, pid: int, path: str, folder: int) -> str:
        if path.startswith("/"):
            return path
        below = f"/proc/{pid}/cwd" if folder == _CURRENT_FOLDER else f"/proc/{pid}/fd/{folder}"
        return os.path.join(os.readlink(below), path)  # noqa: PTH118, PTH115 - nothing is to be resolved


def _signed(argument: int) -> int:
    number = argument & 0xFFFFFFFF
    return number - (1 << 32) if number >> 31 else number


def _family(address: bytes) -> int:
    return int.from_bytes(address[:_FAMILY_BYTES], sys.byteorder)


def _is_there(path: str) -> bool:
    """Return whether a path exists; also True if that cannot be found out."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except (OSError, ValueError):
        return True
    return True


def _shown(address: bytes) -> str:
    """Return the name of a Unix socket: a path, or an abstract name after @."""
    name = address[:1].replace(b"\0", b"@") + address[1:].split(b"\0")[0]
    return name.decode(errors="replace") or "a name that it made up"
