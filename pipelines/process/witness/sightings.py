"""What is made of the calls of a process: what it read, and what of that it had made itself.

A path counts as it was written, so that a link that is led elsewhere counts by what it leads to then. Where it leads
through what the process made, which is not there the next time, it counts by where it led, with the links on the way.
"""

from __future__ import annotations

import collections
import importlib.util
import os
import re
import stat
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from paritygate.pipelines.process.witness.notes import ABSENT, BYTECODE, LINK, LOOK, NO_FILE
from paritygate.pipelines.process.witness.places import Places, WatchedPlace
from paritygate.pipelines.process.witness.readings import Readings
from paritygate.pipelines.process.witness.states import (
    CLOCK_STEP_NS,
    NAMES_BUT_REPORTS,
    NAMES_OF_MODULES,
    attributes_of,
    content_of,
    endings_of_module,
    identity_of,
    names_in,
    target_of,
)

# What the kernel makes up as it is read.
_MADE_UP = ("/proc/", "/sys/", "/dev/")
_IN_MEMORY = "/dev/shm/"  # noqa: S108 - files like any others
# Nothing comes from there but zeros and chance. What is told of processors is in the request itself.
_OF_NO_ONE = frozenset({"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/proc/cpuinfo"})
_OF_PROCESSORS = "/sys/devices/system/cpu/"
# Libraries look there for how to divide their work, and where a GPU is. Code of the user that does makes it unknown.
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
# As the kernel: a script may name a script.
_MOST_SCRIPTS = 5
_FIRST_BYTES = 4096
_DELETED = " (deleted)"
_PROCESS = re.compile(r"/proc(?:/(\d+)(/.*)?)?", re.DOTALL)
# For whoever reads these links, they lead to whoever reads them.
_WHO_READS = ("/proc/self", "/proc/thread-self")


def is_of_many(path: str, child: int) -> bool:
    """Return whether what is told there changes with all that the machine does.

    Args:
        path: The path.
        child: The process whose own affairs do not count.
    """
    process = _PROCESS.fullmatch(path)
    if process is not None:
        return process[1] != str(child)
    return f"{path}/".startswith(_OF_MACHINE) and not f"{path}/".startswith(_OF_PROCESSORS)


class Sightings:
    """What was seen so far."""

    def __init__(self, own: Sequence[Path], machine: int) -> None:
        """Have seen nothing.

        Args:
            own: Folders and files that the process writes for its parent: what it reads there is its own.
            machine: The number by which programs for this processor are marked.
        """
        self.readings = Readings()
        self.places = Places()
        # How often each folder was listed, by where it is, and the names there at the first time that can be modules.
        self.listed: collections.Counter[str] = collections.Counter()
        self.modules_in: dict[str, str] = {}
        # Folders that were opened and not listed so far, by where each is.
        self._opened_folders: dict[str, list[tuple[str, WatchedPlace]]] = {}
        self._machine = machine
        self._own = tuple({f"{text}/" for path in own for text in (str(path), os.path.realpath(path))})
        # What the CUDA driver compiled for this GPU, and keeps: there or not, the same code runs.
        self._of_cuda = os.path.realpath(os.path.expanduser("~/.nv"))  # noqa: PTH111 - as the driver does
        # What the process itself made, which is not an input of it.
        self._made: set[str] = set()
        self._seen: set[tuple[str, bool]] = set()
        self._listed: set[str] = set()
        self._callers: set[int] = set()
        self._leader = 0
        # How often a path may have begun to lead elsewhere.
        self.moves = 0

    def begin(self, leader: int) -> None:
        """Begin, the process being the leader of its session, or not."""
        self._leader = leader

    def unknown(self, why: str) -> None:
        """Note why not all is known; the first reason is said."""
        self.readings.why_unknown = self.readings.why_unknown or why

    def is_family(self, pid: int) -> bool:
        """Return whether another process belongs to the one that is watched, or is that, or a thread of it."""
        try:
            if pid == self._leader or pid in self._callers or os.getsid(pid) == os.getsid(self._leader):
                return True
        except OSError:
            pass
        return Path(f"/proc/{self._leader}/task/{pid}").exists()

    def hears(self, pid: int) -> None:
        """Note who calls: it belongs to the process that is watched."""
        self._callers.add(pid)

    def opens(self, path: str, pid: int, flags: int) -> None:
        """See that a path is opened."""
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            flags = os.O_PATH | os.O_DIRECTORY
        # What is opened as a place alone is looked at, and may be read later.
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
                # What is opened below it has no link on its path any more.
                self._cross(place)
        else:
            self._open(counted, place, pid, flags)

    def lists(self, real: str, pid: int, *, is_begun: bool) -> None:
        """See that the names in a folder are read, which was opened before.

        Args:
            real: Where it is.
            pid: The process.
            is_begun: Whether they are read from the first one on.
        """
        self.listed[real] += is_begun
        for path, place in self._opened_folders.pop(real, ()):
            self._list(path, place)
        if real not in self._listed:
            # Before it was moved here, or by a process that handed it over.
            place = self.places.place(real, pid)
            counted = self._counted(place, pid)
            if counted is not None:
                self._list(counted, place)
        self._listed.add(real)

    def steps(self, path: str, text: str, pid: int) -> bool:
        """See that it matters whether something on a path is a link, and return whether nothing is.

        Args:
            path: The path, absolute.
            text: Its end, as the process wrote it below a folder that is open.
            pid: The process.
        """
        start = len(path) - len(text)
        ends = [at for at, letter in enumerate(path) if letter == "/" and at > start]
        steps = [path[:at] for at in (*ends, len(path))]
        for step in steps:
            self.links(step, pid)
        return all(target_of(step) is None for step in steps)

    def looks(self, path: str, pid: int, *, is_followed: bool = True, is_of_program: bool = False) -> None:
        """See that a path is looked at, and not opened.

        Args:
            path: The path.
            pid: The process.
            is_followed: Whether a link is what it leads to.
            is_of_program: Whether another program than our Python looks, which may go by times, as `make` does.
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
            self.readings.links.setdefault(counted, target_of(counted))
        if is_of_program:
            self.times(counted)

    def enters(self, path: str, pid: int) -> None:
        """See that a folder becomes the current one: what is opened from there has no link on its path any more."""
        self.looks(path, pid)
        self._cross(self.places.place(path, pid))

    def times(self, path: str) -> None:
        """Note when a file was written, and its mode: somebody may go by that."""
        try:
            found = os.stat(path)  # noqa: PTH116 - as it was written
        except OSError:
            return
        self.readings.looked_at.setdefault(path, (found.st_mtime_ns, found.st_mode))

    def links(self, path: str, pid: int) -> None:
        """See that it is asked where a link leads to."""
        counted = self._counted(self.places.place(path, pid, is_followed=False), pid)
        if counted is not None and counted not in self.readings.links:
            self.readings.links[counted] = target_of(counted)
            self._look(counted)

    def attributes(self, path: str, pid: int) -> None:
        """See that extended attributes are asked for."""
        counted = self._counted(self.places.place(path, pid), pid)
        if counted is None:
            return
        try:
            self.readings.attributes.setdefault(counted, attributes_of(counted))
        except FileNotFoundError:
            self.readings.absent.add(counted)
        except OSError:
            self.unknown(f"it asked for extended attributes of {counted}, which cannot be read")

    def makes(self, path: str, pid: int, *, is_link: bool = False) -> None:
        """See that a folder, a link or something of the kind is made."""
        if is_link:
            self._moved()
        place = self.places.place(path, pid, is_followed=False)
        if any(own.startswith(f"{place.real}/") for own in self._own):
            # Its own files lie below, wherever whoever waits for them made folders so far.
            return
        if place.real.endswith(_BYTECODE_FOLDER) or self._counted(place, pid) is None:
            return
        if os.path.lexists(place.real):
            self._look(place.real)
        else:
            self._appears(place.real, pid)

    def takes(self, path: str, pid: int, *, is_followed: bool) -> None:
        """See that a file gets another name, or a name more, where it may be read."""
        place = self.places.place(path, pid, is_followed=is_followed)
        if _is_bytecode_to_be(place.real):
            return
        self._moved()
        counted = self._counted(place, pid)
        if counted is None:
            return
        self._look(counted)
        try:
            found = os.lstat(place.real)
        except OSError:
            return
        if stat.S_ISREG(found.st_mode) and not place.real.startswith(_IN_MEMORY):
            # A name more changes one of its times.
            self.readings.contents.setdefault(counted, content_of(counted))
        elif stat.S_ISLNK(found.st_mode):
            self.readings.links.setdefault(counted, target_of(counted))
        else:
            self.unknown(f"it moved {counted}, which is not a file of its own")

    def gets(self, path: str, pid: int, *, is_new: bool) -> None:
        """See that something gets this path, which is its own or was seen before.

        Args:
            path: The path.
            pid: The process.
            is_new: Whether it fails where something is there.
        """
        place = self.places.place(path, pid, is_followed=False)
        if _is_bytecode(place.real):
            self.readings.bytecode.add(place.real)
        elif self._counted(place, pid) is not None:
            if is_new and not os.path.lexists(place.real):
                self._appears(place.real, pid)
            elif is_new:
                self._look(place.real)
            else:
                self._made.add(place.real)

    def changes(self, path: str, pid: int) -> None:
        """See that a file is changed in its place: it is not what it was when it was read, if it was."""
        counted = self._counted(self.places.place(path, pid), pid)
        if counted is not None:
            self._look(counted)

    def runs(self, path: str, pid: int) -> None:
        """See that a program is run: the kernel itself opens it, and what it is read by."""
        for _ in range(_MOST_SCRIPTS):
            self.opens(path, pid, os.O_RDONLY)
            try:
                with open(self.places.place(path, pid).real, "rb") as stream:  # noqa: PTH123 - as it was written
                    begin = stream.read(_FIRST_BYTES)
            except OSError:
                # It cannot be run, or not by whoever tried.
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
        """See what loads a program: the kernel opens it too."""
        is_ours = begin[4:6] == b"\x02\x01" and int.from_bytes(begin[18:20], "little") == self._machine
        if not is_ours:
            self.unknown("it ran a program of another processor")
            return
        # elf.h: where the headers begin, their size and number; of each, its kind, where it lies, and its size.
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
        """See a look that the child's Python noted.

        Args:
            kind: Which kind of note, of `notes`.
            state: What it saw there.
            path: The path, absolute.

        Raises:
            ValueError: It is no note.
        """
        if kind in {LOOK, LINK}:
            self._is_told_of_look(state, path, is_followed=kind == LOOK)
        elif kind == BYTECODE:
            *identity, source = state.split(":", _IDENTITY_PARTS)
            self._is_told_of_import(path, source, tuple(map(int, identity)))
        else:
            msg = f"a note is of no known kind, {kind!r}"
            raise ValueError(msg)

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
            self.readings.links.setdefault(counted, target_of(counted))
        if state == ABSENT:
            self._misses(counted)
        elif is_followed:
            self.readings.sizes.setdefault(counted, None if state == NO_FILE else int(state))
        else:
            self._look(counted)

    def _is_told_of_import(self, bytecode: str, source: str, identity: tuple[int, ...]) -> None:
        """See that a module is imported from bytecode that Python keeps, whose source had this identity before."""
        kept, place = self.places.place(bytecode, self._leader), self.places.place(source, self._leader)
        if kept.crossed != place.crossed or not _is_bytecode(kept.real):
            # The source that belongs to it may lie elsewhere.
            self.opens(bytecode, self._leader, os.O_RDONLY)
        elif not self._is_own(place.real):
            self.readings.bytecode.add(kept.real)
            self.readings.files.setdefault(place.real, identity)
        counted = self._counted(place, self._leader)
        if counted is not None:
            self.readings.files.setdefault(counted, identity)

    def of_python(self, looked_at: Mapping[str, Sequence[int]], modules: Sequence[str]) -> None:
        """Add what the child's Python notes itself besides: times and modules."""
        for path, (written, mode) in looked_at.items():
            counted = self._counted(self.places.place(path, self._leader), self._leader)
            if counted is not None:
                self.readings.looked_at.setdefault(counted, (written, mode))
        for path in modules:
            if path not in self.readings.files:
                self.opens(path, self._leader, os.O_RDONLY)

    def searches(self, paths: Iterable[str]) -> None:
        """Add what is there of modules that were searched for, by their paths without an ending."""
        for path in paths:
            counted = self._counted(self.places.place(path, self._leader, is_followed=False), self._leader)
            if counted is not None:
                self.readings.imports[counted] = endings_of_module(counted)

    def never_again(self, paths: Sequence[str]) -> None:
        """Note names that were drawn: whatever is left there, nobody asks for it by that name."""
        self.readings.absent.difference_update(path for path in paths if path in self._made)

    def _counted(self, place: WatchedPlace, pid: int) -> str | None:
        """Return the path that a place counts by; None where what is there is no input."""
        real = place.real
        if not real.startswith("/") or real.endswith(_DELETED):
            # It was made by the process, or opened before it was removed.
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
        # Whoever looks after processes of its own, as we do, reads of which process each one is.
        if whose is not None and what != "/stat" and int(whose) != pid and not self.is_family(int(whose)):
            self.unknown("it looked at another process of this machine")
        return True

    def _cross(self, place: WatchedPlace) -> None:
        """Note the links on the way to a place, which nothing else tells of."""
        for link in place.crossed:
            if not self._is_own(link) and not link.startswith(_MADE_UP):
                self.readings.links.setdefault(link, target_of(link))

    def _of_bytecode(self, place: WatchedPlace, flags: int) -> bool:
        """See what Python keeps of a module, and return whether it was that: the source belongs to it.

        Whoever makes it, and when, is chance: another process may at the same moment. So it counts as it is in the end.
        """
        if place.real.endswith(_BYTECODE_FOLDER):
            return True
        if not _is_bytecode(place.real):
            # It is written under another name first.
            return bool(flags & os.O_CREAT) and _is_bytecode_to_be(place.real)
        if self._is_own(place.real.partition(_BYTECODE_FOLDER)[0]):
            return True
        self.readings.bytecode.add(place.real)
        source = source_of_bytecode(place.real)
        if source is not None and os.path.exists(source):  # noqa: PTH110 - as it is written
            self.opens(source, self._leader, os.O_RDONLY)
        return True

    def _look(self, path: str) -> None:
        try:
            found = os.stat(path)  # noqa: PTH116 - a path may hold what no Path keeps, such as a double slash
        except OSError:
            self._misses(path)
            return
        self.readings.sizes.setdefault(path, found.st_size if stat.S_ISREG(found.st_mode) else None)

    def _misses(self, path: str) -> None:
        """See that nothing is where a path leads to."""
        if target_of(path) is None:
            self.readings.absent.add(path)
        else:
            # A link that leads nowhere is there.
            self.readings.links.setdefault(path, target_of(path))

    def _open(self, path: str, place: WatchedPlace, pid: int, flags: int) -> None:
        try:
            found = os.stat(path)  # noqa: PTH116 - as above
        except OSError:
            if not flags & os.O_CREAT:
                self._look(path)
            elif flags & os.O_TRUNC and not flags & os.O_EXCL:
                # Whatever was there, it would have been written from its beginning.
                self._made.add(place.real)
            else:
                self._appears(place.real, pid)
            return
        if stat.S_ISDIR(found.st_mode):
            self._look(path)
            self._cross(place)
            self._opened_folders.setdefault(place.real, []).append((path, place))
        elif not stat.S_ISREG(found.st_mode):
            self.unknown(f"it opened {path}, which is not a plain file")
        elif place.real.startswith(_IN_MEMORY):
            self.unknown(f"it opened {path}, which another process may write to at any time")
        elif place.real.startswith(_MADE_UP):
            # Such a file has no times.
            self.readings.contents.setdefault(path, content_of(path))
        elif flags & os.O_TRUNC and path not in self.readings.files:
            # What is written from its beginning is not read.
            self._made.add(place.real)
        else:
            if time.time_ns() - found.st_ctime_ns < CLOCK_STEP_NS:
                self.unknown(f"{path} was written while it was read")
            self.readings.files.setdefault(path, identity_of(found))

    def _list(self, path: str, place: WatchedPlace) -> None:
        if path not in self.readings.folders:
            self.readings.folders[path] = names_in(path)
            self.readings.without_reports[path] = names_in(path, NAMES_BUT_REPORTS)
        self.modules_in.setdefault(path, names_in(path, NAMES_OF_MODULES))
        self._cross(place)

    def _appears(self, path: str, pid: int) -> None:
        """See that something is made where nothing is: where it is left behind, the next time is another one."""
        self._made.add(path)
        if str(pid) not in path.rpartition("/")[2] and str(self._leader) not in path.rpartition("/")[2]:
            self.readings.absent.add(path)

    def _moved(self) -> None:
        """Forget where paths lead to."""
        self.moves += 1
        self.places.forget()
        self._seen.clear()

    def _is_own(self, path: str) -> bool:
        if path in self._made or f"{path}/".startswith(self._own):
            return True
        if path == self._of_cuda or f"{path}/".startswith(f"{self._of_cuda}/ComputeCache/"):
            return True
        # A folder that it made holds nothing else, but for what is linked or moved there.
        at = path.rfind("/")
        while at > 0:
            path = path[:at]
            if path in self._made:
                return True
            at = path.rfind("/")
        return False


def _is_bytecode(path: str) -> bool:
    return path.endswith(_BYTECODE) and f"{_BYTECODE_FOLDER}/" in path


def _is_bytecode_to_be(path: str) -> bool:
    return _is_bytecode(path.rpartition(".")[0])


def source_of_bytecode(path: str) -> str | None:
    """Return the module that Python keeps this of; None where it is not called like that."""
    try:
        return importlib.util.source_from_cache(path)
    except ValueError:
        return None
