"""Cache digests of files by an identity that changes whenever the files are written."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import marshal
import os
import re
import time
import warnings
from collections.abc import Callable
from importlib.util import MAGIC_NUMBER
from pathlib import Path

from paritygate.files import digest_of_file, note_digest, write_bytes_atomically
from paritygate.pipelines.process.file_access.sightings import source_of_bytecode
from paritygate.pipelines.process.file_access.states import content_of

# Longer than any step of file systems' clocks, two seconds on FAT among them.
_TIME_STEP_NS = 2_100_000_000
_MOST_DIGESTS = 200_000
_IN_MEMORY = "/dev/shm/"  # noqa: S108 - files like any others
_MADE_UP = ("/proc/", "/sys/")
# Here only the kernel or the server sets the time of the last change. A read-only image has the times of its maker,
# and another image in its place may have the same for another file.
_KEEPING_TIMES = frozenset({
    "bcachefs", "btrfs", "ceph", "ext2", "ext3", "ext4", "f2fs", "gpfs", "jfs", "lustre", "nfs", "nfs4", "overlay",
    "tmpfs", "virtiofs", "xfs", "zfs",
})  # fmt: skip
_OF_IMAGE = "/dev/loop"
_MOUNTS = Path("/proc/self/mountinfo")
_OCTAL = re.compile(r"\\([0-7]{3})")
# A module runs by its source, or by other bytecode.
OF_SOURCE = "source"
_OF_ITS_OWN = "bytecode"
_HEADER_BYTES = 16
_NOT_KEPT = "not kept: "


class DigestCache:
    """Digests of files by an identity that changes whenever they are written, over many runs."""

    def __init__(self, path: Path) -> None:
        """Read the file of digests; a corrupt one counts as empty."""
        self._path = path
        self._known: dict[str, str] = {}
        self._is_new = False
        self._is_keeping_times: dict[int, bool] = {}
        with contextlib.suppress(OSError, ValueError, RecursionError):
            data = json.loads(path.read_bytes())
            if isinstance(data, dict):
                self._known = {key: value for key, value in data.items() if isinstance(value, str)}

    def digest(self, path: str, found: os.stat_result) -> str:
        """Return the digest of a file's content, `found` being its state.

        Raises:
            OSError: It cannot be read.
        """
        # A file that another process has mapped keeps the time of the first write.
        if path.startswith((_IN_MEMORY, *_MADE_UP)) or not self._is_told_of_changes(path, found.st_dev):
            return content_of(path)
        key = _key(found)
        digest = self._known.get(key)
        if digest is None:
            begin = time.time_ns()
            digest = digest_of_file(path)
            self._add(key, digest, begin, found)
        return digest

    def bytecode(self, path: str) -> str:
        """Return what a module runs by: its source, or the digest of that and of the bytecode at `path`, if it exists.

        Python uses bytecode if time and size of the source, or its digest, are those in the bytecode. Later changes of
        the source's time do not matter.
        """
        return self._of_bytecode("module", path, _what_runs)

    def is_compiled_from_source(self, path: str) -> bool:
        """Return whether a module runs by its source, or by bytecode that Python makes of it."""
        return self._of_bytecode("compiled", path, _runs_source) == OF_SOURCE

    def _of_bytecode(self, what: str, path: str, find: Callable[[bytes, str, os.stat_result], str]) -> str:
        """Return the result of `find` for bytecode and its source; `OF_SOURCE` where there is no bytecode."""
        source = source_of_bytecode(path)
        try:
            cached = os.stat(path)  # noqa: PTH116 - as it was written
            of = os.stat(source or path)  # noqa: PTH116 - as above
            key = f"{what}:{_key(cached)}:{_key(of)}"
            is_told = self._is_told_of_changes(path, cached.st_dev) and self._is_told_of_changes(path, of.st_dev)
            state = self._known.get(key) if is_told else None
            if state is None:
                begin = time.time_ns()
                state = find(_content(path), source or path, of)
                if is_told:
                    self._add(key, state, begin, cached, of)
        except OSError:
            return OF_SOURCE
        return state

    def _add(self, key: str, value: str, begin: int, *found: os.stat_result) -> None:
        # After a very recent change, another one may leave the same time.
        if all(begin - item.st_ctime_ns > _TIME_STEP_NS for item in found):
            self._known[key] = value
            self._is_new = True

    def _is_told_of_changes(self, path: str, device: int) -> bool:
        """Return whether every change of a file shows in its times."""
        is_keeping = self._is_keeping_times.get(device)
        if is_keeping is None:
            is_keeping = self._is_keeping_times[device] = _is_keeping_times(path, device)
        return is_keeping

    def note_not_kept(self, key: str, why: str) -> None:
        """Note why a job was not cached the last time; empty if it was."""
        name = f"{_NOT_KEPT}{key}"
        if self._known.get(name, "") != why:
            self._known[name] = why
            self._is_new = True

    def why_not_kept(self, key: str) -> str:
        """Return the note on a job; empty where it was cached, or is unknown."""
        return self._known.get(f"{_NOT_KEPT}{key}", "")

    def add_own(self, path: Path, digest: str) -> None:
        """Take the digest of a file that only this process writes, which then nobody in this process reads for it."""
        if self._is_told_of_changes(str(path), path.stat().st_dev):
            note_digest(path, digest)

    def save(self) -> None:
        """Save the digests for later runs.

        Raises:
            StorageError: The file cannot be written.
        """
        if not self._is_new:
            return
        if len(self._known) > _MOST_DIGESTS:
            self._known = {}
        write_bytes_atomically(self._path, json.dumps(self._known).encode())
        self._is_new = False


def _key(found: os.stat_result) -> str:
    return f"{found.st_dev}:{found.st_ino}:{found.st_size}:{found.st_mtime_ns}:{found.st_ctime_ns}"


def _content(path: str) -> bytes:
    with open(path, "rb") as stream:  # noqa: PTH123 - thousands of paths, as they were written
        return stream.read()


def _what_runs(kept: bytes, source: str, of: os.stat_result) -> str:
    # importlib._bootstrap_external: magic number, flags, and time and size of the source, or its digest.
    flags, stamp = int.from_bytes(kept[4:8], "little"), kept[8:_HEADER_BYTES]
    if len(kept) < _HEADER_BYTES:
        return OF_SOURCE
    text = _content(source)
    if flags:
        # Children check the source whatever the flags are.
        is_of_source = importlib.util.source_hash(text) == stamp
    else:
        written, size = int(of.st_mtime) & 0xFFFFFFFF, of.st_size & 0xFFFFFFFF
        is_of_source = stamp == written.to_bytes(4, "little") + size.to_bytes(4, "little")
    both = hashlib.sha256(kept[:4] + kept[_HEADER_BYTES:] + hashlib.sha256(text).digest())
    return f"sha256:{both.hexdigest()}" if is_of_source else OF_SOURCE


def _runs_source(kept: bytes, source: str, of: os.stat_result) -> str:
    """Return `OF_SOURCE` for bytecode that Python makes of its source, or ignores."""
    if _what_runs(kept, source, of) == OF_SOURCE:
        return OF_SOURCE
    try:
        # It has names of files too, which are not compared.
        code = marshal.loads(kept[_HEADER_BYTES:])  # noqa: S302 - a child would run it
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made = compile(_content(source), source, "exec", dont_inherit=True, optimize=0)
    except (EOFError, RecursionError, SyntaxError, TypeError, ValueError):
        return _OF_ITS_OWN
    return OF_SOURCE if kept[: len(MAGIC_NUMBER)] == MAGIC_NUMBER and code == made else _OF_ITS_OWN


def _is_keeping_times(path: str, device: int) -> bool:
    try:
        lines = _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return False
    numbers = f"{os.major(device)}:{os.minor(device)}"
    real = f"{os.path.realpath(path)}/"
    best, mount = 0, None
    for line in lines:
        first, _, last = line.partition(" - ")
        before, after = first.split(), last.split()
        place = _OCTAL.sub(lambda octal: chr(int(octal[1], 8)), before[4]).rstrip("/")
        # Some file systems have other device numbers for their files.
        rank = len(place) + 1 + (len(real) if before[2] == numbers else 0)
        if (before[2] == numbers or real.startswith(f"{place}/")) and rank >= best:
            best, mount = rank, after
    if mount is None:
        return False
    kind, source, options = mount[0], mount[1], mount[2].split(",")
    return kind in _KEEPING_TIMES and not source.startswith(_OF_IMAGE) and "rw" in options
