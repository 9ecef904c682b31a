"""Turn the calls of a process into its inputs, without the files that it made itself.

A path counts as the process wrote it, so that a changed link counts by its new target. A path through files that the
process made, which the next run does not have, counts by its target and by the links on the way.
"""

from __future__ import annotations

import collections
import importlib.util
import itertools
import os
import re
import stat
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from paritygate.pipelines.process.file_access.accesses import FileAccesses
from paritygate.pipelines.process.file_access.notes import ABSENT, BYTECODE, LINK, LOOK, NO_FILE
from paritygate.pipelines.process.file_access.places import Places, WatchedPlace
from paritygate.pipelines.process.file_access.states import (
    ALL_NAMES,
    CLOCK_STEP_NS,
    NAMES_BUT_REPORTS,
    NAMES_OF_MODULES,
    attributes_of,
    content_of,
    endings_of_module,
    identity_of,
    names_of_kinds,
    target_of,
)

# Files that the kernel makes up.
_MADE_UP = ("/proc/", "/sys/", "/dev/")
_IN_MEMORY = "/dev/shm/"  # noqa: S108 - files like any others
# These return only zeros or random bytes. The facts on processors are in the request of the cache.
_OF_NO_ONE = frozenset({"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/proc/cpuinfo"})
_OF_PROCESSORS = "/sys/devices/system/cpu/"
# Libraries read these to divide their work and to find a GPU. If the user's code reads one, the inputs are unknown.
_OF_MACHINE = (
    "/proc/devices", "/proc/driver/nvidia/", "/proc/meminfo", "/proc/modules", "/proc/stat",
    "/proc/sys/kernel/random/boot_id", "/proc/sys/vm/", "/proc/version", "/sys/bus/", "/sys/class/", "/sys/dev/",
    "/sys/devices/", "/sys/fs/cgroup/", "/sys/kernel/mm/", "/sys/module/nvidia", "/dev/nvidia",
)  # fmt: skip
# Of a file, that is: device, inode, size and two times.
_IDENTITY_PARTS = 5
_BYTECODE_FOLDER = "/__pycache__"
_BYTECODE = ".pyc"
_ELF = b"\x7fELF"
_SCRIPT = b"#!"
# The kernel's limit on scripts that name scripts.
_MOST_SCRIPTS = 5
_FIRST_BYTES = 4096
_DELETED = " (deleted)"
_PROCESS = re.compile(r"/proc(?:/(\d+)(/.*)?)?", re.DOTALL)
# These links lead each reader to itself.
_WHO_READS = ("/proc/self", "/proc/thread-self")


def is_of_many(path: str, child: int) -> bool:
    """Return whether a path holds facts on the machine or on other processes than `child`."""
    process = _PROCESS.fullmatch(path)
    if process is not None:
        return process[1] != str(child)
    return f"{path}/".startswith(_OF_MACHINE) and not f"{path}/".startswith(_OF_PROCESSORS)


class Sightings:
    """The inputs that were recorded so far."""

    def __init__(self, own: Sequence[Path], machine: int) -> None:
        """Begin without inputs.

        Args:
            own: Folders and files that the process writes for its parent, which are not its inputs.
            machine: `SystemCalls.machine` of this processor.
        """
        self.accesses = FileAccesses()
        self.places = Places()
        # How often each folder was listed, by its real path, and the first digest of its possible module names.
        self.listed: collections.Counter[str] = collections.Counter()
        self.modules_in: dict[str, str] = {}
        # Folders that were opened and not yet listed, by their real paths.
        self._opened_folders: dict[str, list[tuple[str, WatchedPlace]]] = {}
        self._machine = machine
        # The CUDA driver caches compiled code there; the same code runs without it.
        self._of_cuda = os.path.realpath(os.path.expanduser("~/.nv"))  # noqa: PTH111 - as the driver does
        paths = {text for path in own for text in (str(path), os.path.realpath(path))}
        self._own = (*(f"{path}/" for path in paths), f"{self._of_cuda}/ComputeCache/")
        # Paths that the process made, which are not its inputs, and whether folders are or lie in such.
        self._made: set[str] = set()
        self._own_folders: dict[str, bool] = {}
        self._made_before = 0
        self._seen: set[tuple[str, bool]] = set()
        self._listed: set[str] = set()
        self._callers: set[int] = set()
        self._leader = 0
        # How often a path may have begun to lead elsewhere.
        self.moves = 0

    def begin(self, leader: int) -> None:
        """Begin with the first process."""
        self._leader = leader

    def unknown(self, why: str) -> None:
        """Record why the inputs are not all known; only the first reason is kept."""
        self.accesses.why_unknown = self.accesses.why_unknown or why

    def is_family(self, pid: int) -> bool:
        """Return whether a process or thread belongs to the watched process."""
        try:
            if pid == self._leader or pid in self._callers or os.getsid(pid) == os.getsid(self._leader):
                return True
        except OSError:
            pass
        return Path(f"/proc/{self._leader}/task/{pid}").exists()

    def hears(self, pid: int) -> None:
        """Record that a caller belongs to the watched process."""
        self._callers.add(pid)

    def opens(self, path: str, pid: int, flags: int) -> None:
        """Record that a path is opened."""
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            flags = os.O_PATH | os.O_DIRECTORY
        # O_PATH only examines the path; it may be opened for reading later.
        is_looking = bool(flags & os.O_PATH)
        is_writing = flags & os.O_ACCMODE != os.O_RDONLY
        if (path, is_looking) in self._seen and not is_writing and not path.startswith(_MADE_UP):
            return
        self._seen.add((path, is_looking))
        is_followed = not (flags & os.O_NOFOLLOW or (flags & os.O_EXCL and flags & os.O_CREAT))
        place = self.places.place(path, pid, is_followed=is_followed)
        if _BYTECODE_FOLDER in place.real and self._of_bytecode(place, flags):
            return
        counted = self._counted(place, pid)
        if counted is None:
            return
        if is_looking:
            self._look(counted)
            if os.path.isdir(counted):  # noqa: PTH112 - as it was written
                # Paths of later calls begin below the links.
                self._cross(place)
        else:
            self._open(counted, place, pid, flags)

    def lists(self, real: str, pid: int, *, is_begun: bool) -> None:
        """Record that an open folder, given by its real path, is listed; `is_begun` if from the first name on."""
        self.listed[real] += is_begun
        for path, place in self._opened_folders.pop(real, ()):
            self._list(path, place)
        if real not in self._listed:
            # It was opened elsewhere before a move, or by another process.
            place = self.places.place(real, pid)
            counted = self._counted(place, pid)
            if counted is not None:
                self._list(counted, place)
        self._listed.add(real)

    def steps(self, path: str, text: str, pid: int) -> bool:
        """Record that each step of a path is examined as a link, and return whether none is a link.

        Args:
            path: The absolute path.
            text: Its end, as the process wrote it below an open folder.
            pid: The process.
        """
        start = len(path) - len(text)
        ends = [at for at, letter in enumerate(path) if letter == "/" and at > start]
        steps = [path[:at] for at in (*ends, len(path))]
        for step in steps:
            self.links(step, pid)
        return all(target_of(step) is None for step in steps)

    def looks(self, path: str, pid: int, *, is_followed: bool = True, is_of_program: bool = False) -> None:
        """Record that a path is examined and not opened; `is_followed` if a link at its end is resolved.

        If `is_of_program`, the caller is another program than our Python, which may depend on times.
        """
        is_known = (path, True) in self._seen and not path.startswith(_MADE_UP)
        if is_known and is_followed and not is_of_program:
            return
        if is_followed:
            self._seen.add((path, True))
        place = self.places.place(path, pid, is_followed=is_followed)
        if _BYTECODE_FOLDER in place.real and self._of_bytecode(place, 0):
            return
        counted = self._counted(place, pid)
        if counted is None:
            return
        self._look(counted)
        if not is_followed:
            self.accesses.links.setdefault(counted, target_of(counted))
        if is_of_program:
            self.times(counted)

    def enters(self, path: str, pid: int) -> None:
        """Record that a folder becomes the current one, so that paths of later calls begin below the links."""
        self.looks(path, pid)
        self._cross(self.places.place(path, pid))

    def times(self, path: str) -> None:
        """Record the times and mode of a file, because its reader may depend on them."""
        try:
            state = os.stat(path)  # noqa: PTH116 - as it was written
        except OSError:
            return
        self.accesses.looked_at.setdefault(path, (state.st_mtime_ns, state.st_mode))

    def links(self, path: str, pid: int) -> None:
        """Record that the target of a link is read."""
        counted = self._counted(self.places.place(path, pid, is_followed=False), pid)
        if counted is not None and counted not in self.accesses.links:
            self.accesses.links[counted] = target_of(counted)
            self._look(counted)

    def attributes(self, path: str, pid: int) -> None:
        """Record that extended attributes are read."""
        counted = self._counted(self.places.place(path, pid), pid)
        if counted is None:
            return
        try:
            self.accesses.attributes.setdefault(counted, attributes_of(counted))
        except FileNotFoundError:
            self.accesses.absent.add(counted)
        except OSError:
            self.unknown(f"it asked for extended attributes of {counted}, which cannot be read")

    def makes(self, path: str, pid: int, *, is_link: bool = False) -> None:
        """Record that a folder, a link or a special file is made."""
        if is_link:
            self._moved()
        place = self.places.place(path, pid, is_followed=False)
        if any(own.startswith(f"{place.real}/") for own in self._own):
            # Its own files lie below. The parent may have made this folder or not.
            return
        if place.real.endswith(_BYTECODE_FOLDER) or self._counted(place, pid) is None:
            return
        if os.path.lexists(place.real):
            self._look(place.real)
        else:
            self._appears(place.real, pid)

    def takes(self, path: str, pid: int, *, is_followed: bool) -> None:
        """Record that a file is renamed or linked, after which it may be read by the new name."""
        place = self.places.place(path, pid, is_followed=is_followed)
        if _is_bytecode_to_be(place.real):
            return
        self._moved()
        counted = self._counted(place, pid)
        if counted is None:
            return
        self._look(counted)
        try:
            state = os.lstat(place.real)
        except OSError:
            return
        if stat.S_ISREG(state.st_mode) and not place.real.startswith(_IN_MEMORY):
            # A new name changes the ctime of the file.
            self.accesses.contents.setdefault(counted, content_of(counted))
        elif stat.S_ISLNK(state.st_mode):
            self.accesses.links.setdefault(counted, target_of(counted))
        else:
            self.unknown(f"it moved {counted}, which is not a file of its own")

    def gets(self, path: str, pid: int, *, is_new: bool) -> None:
        """Record that a file is renamed or linked to a path; `is_new` if the call fails on an existing path."""
        place = self.places.place(path, pid, is_followed=False)
        if _is_bytecode(place.real):
            self.accesses.bytecode.add(place.real)
        elif self._counted(place, pid) is not None:
            if is_new and not os.path.lexists(place.real):
                self._appears(place.real, pid)
            elif is_new:
                self._look(place.real)
            else:
                self._made.add(place.real)

    def changes(self, path: str, pid: int) -> None:
        """Record that a file is changed in place, so that it differs from what was read before."""
        counted = self._counted(self.places.place(path, pid), pid)
        if counted is not None:
            self._look(counted)

    def runs(self, path: str, pid: int) -> None:
        """Record that a program runs: the kernel opens it and its interpreter or loader."""
        for _ in range(_MOST_SCRIPTS):
            self.opens(path, pid, os.O_RDONLY)
            try:
                with open(self.places.place(path, pid).real, "rb") as stream:  # noqa: PTH123 - as it was written
                    begin = stream.read(_FIRST_BYTES)
            except OSError:
                # It cannot run.
                return
            if begin.startswith(_ELF):
                self._check_program(begin, path, pid)
                return
            if not begin.startswith(_SCRIPT):
                self.unknown(f"it ran {path}, which is not a program of this machine")
                return
            words = os.fsdecode(begin[len(_SCRIPT) :].partition(b"\n")[0]).split(maxsplit=1)
            if not words:
                return
            path = words[0] if words[0].startswith("/") else f"{target_of(f'/proc/{pid}/cwd')}/{words[0]}"

    def _check_program(self, begin: bytes, path: str, pid: int) -> None:
        """Record the loader of a program, which the kernel opens too."""
        is_ours = begin[4:6] == b"\x02\x01" and int.from_bytes(begin[18:20], "little") == self._machine
        if not is_ours:
            self.unknown("it ran a program of another processor")
            return
        # elf.h: offset, size and number of the headers; kind, offset and size of each.
        at, size, number = (
            int.from_bytes(begin[32:40], "little"),
            int.from_bytes(begin[54:56], "little"),
            int.from_bytes(begin[56:58], "little"),
        )
        interpreter_kind = 3
        for start in range(at, at + size * number, size):
            header = begin[start : start + size]
            if len(header) < size:
                self.unknown(f"it ran {path}, which is a program of a kind that is not known")
                return
            if int.from_bytes(header[:4], "little") == interpreter_kind:
                offset, length = int.from_bytes(header[8:16], "little"), int.from_bytes(header[32:40], "little")
                loader = begin[offset : offset + length].rstrip(b"\0")
                if not loader:
                    self.unknown(f"it ran {path}, which is a program of a kind that is not known")
                else:
                    self.opens(os.fsdecode(loader), pid, os.O_RDONLY)
                return

    def is_told(self, kind: str, state: str, path: str) -> None:
        """Record a note of the child's Python, with the kind and state that `notes` describes.

        Raises:
            ValueError: It is no note.
        """
        if kind in {LOOK, LINK}:
            self._is_told_of_look(state, path, is_followed=kind == LOOK)
        elif kind == BYTECODE:
            *identity, source = state.split(":", _IDENTITY_PARTS)
            self._is_told_of_import(path, source, tuple(map(int, identity)))
        else:
            raise ValueError(f"a note is of no known kind, {kind!r}")

    def _is_told_of_look(self, state: str, path: str, *, is_followed: bool) -> None:
        if is_followed and (path, True) in self._seen:
            return
        if is_followed:
            self._seen.add((path, True))
        place = self.places.place(path, self._leader, is_followed=is_followed)
        if _BYTECODE_FOLDER in place.real and self._of_bytecode(place, 0):
            return
        counted = self._counted(place, self._leader)
        if counted is None:
            return
        if not is_followed:
            self.accesses.links.setdefault(counted, target_of(counted))
        if state == ABSENT:
            self._misses(counted)
        elif is_followed:
            self.accesses.sizes.setdefault(counted, None if state == NO_FILE else int(state))
        else:
            self._look(counted)

    def _is_told_of_import(self, bytecode: str, source: str, identity: tuple[int, ...]) -> None:
        """Record that a module is imported from bytecode, whose source had this identity before."""
        bytecode_place, place = self.places.place(bytecode, self._leader), self.places.place(source, self._leader)
        if bytecode_place.crossed != place.crossed or not _is_bytecode(bytecode_place.real):
            # The source of this bytecode may lie elsewhere.
            self.opens(bytecode, self._leader, os.O_RDONLY)
        elif not self._is_own(place.real):
            self.accesses.bytecode.add(bytecode_place.real)
            self.accesses.files.setdefault(place.real, identity)
        counted = self._counted(place, self._leader)
        if counted is not None:
            self.accesses.files.setdefault(counted, identity)

    def of_python(self, looked_at: Mapping[str, Sequence[int]], modules: Sequence[str]) -> None:
        """Add the times and modules that the child's Python recorded."""
        for path, (written, mode) in looked_at.items():
            counted = self._counted(self.places.place(path, self._leader), self._leader)
            if counted is not None:
                self.accesses.looked_at.setdefault(counted, (written, mode))
        for path in modules:
            if path not in self.accesses.files:
                self.opens(path, self._leader, os.O_RDONLY)

    def searches(self, paths: Iterable[str]) -> None:
        """Add the modules that were searched for, by their paths without an ending."""
        for path in paths:
            counted = self._counted(self.places.place(path, self._leader, is_followed=False), self._leader)
            if counted is not None:
                self.accesses.imports[counted] = endings_of_module(counted)

    def never_again(self, paths: Sequence[str]) -> None:
        """Drop random names from the absent paths: no later run looks for the same name."""
        self.accesses.absent.difference_update(path for path in paths if path in self._made)

    def _counted(self, place: WatchedPlace, pid: int) -> str | None:
        """Return the path by which a place counts; None if it is not an input."""
        real = place.real
        if not real.startswith("/") or real.endswith(_DELETED):
            # A pipe or socket of the process, or a removed file that it still holds open.
            return None
        is_made_up = f"{real}/".startswith(_MADE_UP) and not real.startswith(_IN_MEMORY)
        if self._is_own(real) or (is_made_up and self._is_passed_over(real, pid)):
            self._cross(place)
            return None
        if self._is_own(place.written) or place.written.startswith(_MADE_UP):
            self._cross(place)
            return real
        return place.written

    def _is_passed_over(self, real: str, pid: int) -> bool:
        if real in _OF_NO_ONE or real in _WHO_READS or f"{real}/".startswith((_OF_PROCESSORS, *_OF_MACHINE)):
            return True
        process = _PROCESS.fullmatch(real)
        if process is None:
            return False
        whose, what = process.groups()
        # A process that supervises its own children, as ours does, reads the stat file of every process.
        if whose is not None and what != "/stat" and int(whose) != pid and not self.is_family(int(whose)):
            self.unknown("it looked at another process of this machine")
        return True

    def _cross(self, place: WatchedPlace) -> None:
        """Record the links on the way to a place, which the counted path does not hold."""
        for link in place.crossed:
            if not self._is_own(link) and not link.startswith(_MADE_UP):
                self.accesses.links.setdefault(link, target_of(link))

    def _of_bytecode(self, place: WatchedPlace, flags: int) -> bool:
        """Record the bytecode of a module with its source, and return whether the path is that.

        Another process may write it at any moment, so its state at the end counts.
        """
        if place.real.endswith(_BYTECODE_FOLDER):
            return True
        if not _is_bytecode(place.real):
            # Python writes it under a temporary name first.
            return bool(flags & os.O_CREAT) and _is_bytecode_to_be(place.real)
        if self._is_own(place.real.partition(_BYTECODE_FOLDER)[0]):
            return True
        self.accesses.bytecode.add(place.real)
        source = source_of_bytecode(place.real)
        if source is not None and os.path.exists(source):  # noqa: PTH110 - as it is written
            self.opens(source, self._leader, os.O_RDONLY)
        return True

    def _look(self, path: str) -> None:
        try:
            state = os.stat(path)  # noqa: PTH116 - a path may hold what no Path keeps, such as a double slash
        except OSError:
            self._misses(path)
            return
        self.accesses.sizes.setdefault(path, state.st_size if stat.S_ISREG(state.st_mode) else None)

    def _misses(self, path: str) -> None:
        if target_of(path) is None:
            self.accesses.absent.add(path)
        else:
            # A link without a target exists.
            self.accesses.links.setdefault(path, target_of(path))

    def _open(self, path: str, place: WatchedPlace, pid: int, flags: int) -> None:
        try:
            state = os.stat(path)  # noqa: PTH116 - as above
        except OSError:
            if not flags & os.O_CREAT:
                self._look(path)
            elif flags & os.O_TRUNC and not flags & os.O_EXCL:
                # An existing file would have been emptied first.
                self._made.add(place.real)
            else:
                self._appears(place.real, pid)
            return
        if stat.S_ISDIR(state.st_mode):
            self._look(path)
            self._cross(place)
            self._opened_folders.setdefault(place.real, []).append((path, place))
        elif not stat.S_ISREG(state.st_mode):
            self.unknown(f"it opened {path}, which is not a plain file")
        elif place.real.startswith(_IN_MEMORY):
            self.unknown(f"it opened {path}, which another process may write to at any time")
        elif place.real.startswith(_MADE_UP):
            # Such a file has no meaningful times.
            self.accesses.contents.setdefault(path, content_of(path))
        elif flags & os.O_TRUNC and path not in self.accesses.files:
            # An emptied file is not read.
            self._made.add(place.real)
        else:
            if time.time_ns() - state.st_ctime_ns < CLOCK_STEP_NS:
                self.unknown(f"{path} was written while it was read")
            self.accesses.files.setdefault(path, identity_of(state))

    def _list(self, path: str, place: WatchedPlace) -> None:
        if path not in self.accesses.folders or path not in self.modules_in:
            names, but_reports, of_modules = names_of_kinds(path, ALL_NAMES, NAMES_BUT_REPORTS, NAMES_OF_MODULES)
            self.accesses.folders.setdefault(path, names)
            self.accesses.without_reports.setdefault(path, but_reports)
            self.modules_in.setdefault(path, of_modules)
        self._cross(place)

    def _appears(self, path: str, pid: int) -> None:
        """Record that a missing path is made: if it is left behind, the next run begins otherwise."""
        self._made.add(path)
        if str(pid) not in path.rpartition("/")[2] and str(self._leader) not in path.rpartition("/")[2]:
            self.accesses.absent.add(path)

    def _moved(self) -> None:
        """Forget where paths lead to."""
        self.moves += 1
        self.places.forget()
        self._seen.clear()

    def _is_own(self, path: str) -> bool:
        if path in self._made or f"{path}/".startswith(self._own) or path == self._of_cuda:
            return True
        # A folder that it made holds only its own files, except those that it links or moves there.
        return self._is_own_folder(path.rpartition("/")[0])

    def _is_own_folder(self, path: str) -> bool:
        if len(self._made) != self._made_before:
            self._made_before = len(self._made)
            self._own_folders.clear()
        is_own = self._own_folders.get(path)
        if is_own is None:
            steps = itertools.accumulate(path.split("/"), "{}/{}".format)
            is_own = self._own_folders[path] = not self._made.isdisjoint(steps)
        return is_own


def _is_bytecode(path: str) -> bool:
    return path.endswith(_BYTECODE) and f"{_BYTECODE_FOLDER}/" in path


def _is_bytecode_to_be(path: str) -> bool:
    return _is_bytecode(path.rpartition(".")[0])


def source_of_bytecode(path: str) -> str | None:
    """Return the source of a bytecode file; None if its name is not that of one."""
    try:
        return importlib.util.source_from_cache(path)
    except ValueError:
        return None
