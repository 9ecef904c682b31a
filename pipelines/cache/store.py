"""The cache on disk: one folder an entry, written completely or not at all, the oldest removed to make room.

<cache>/<digest of the request>/<when>-<random>.<bytes>/entry.json and the files that the job made

The first line of an entry is the digest of the second, which is checked before that is parsed.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import stat
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from pathlib import Path, PurePosixPath
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from paritygate.files import (
    MARKER,
    digest_of_bytes,
    digest_of_file,
    parse_json,
    read_json,
    write_bytes_atomically,
    write_json_atomically,
)
from paritygate.pipelines.cache.folder import STAGED, entries_in, key_folders, make_cache_folder
from paritygate.pipelines.cache.memory import DigestCache
from paritygate.pipelines.cache.states import Dependencies
from paritygate.pipelines.process.child_result import NOT_OURS

_ENTRY = "entry.json"
# The complete request, which is read where the entry is not.
_ASKED = "asked.json"
_SCHEMA = 7
# For one request, as of a model that is changed and changed back.
_MOST_OF_ONE = 16


class Made(Struct, frozen=True, kw_only=True):
    """Files of a job in one folder."""

    place: str  # with `@run@` for the run folder
    files: Mapping[str, str]  # digest by relative path
    folders: tuple[str, ...]  # relative paths of empty ones, which a listing shows too


class Entry(Struct, frozen=True, kw_only=True):
    """A job that was done."""

    folder: Path
    job: str  # for messages
    made_at: str  # in UTC
    made_in: str  # a run
    read: Dependencies
    value: Any  # with `@run@` for the run folder
    made: tuple[Made, ...]
    not_run_here: tuple[str, str] | None = None  # why, and a hint, if that is the result


class Store:
    """Entries below one folder."""

    def __init__(self, folder: Path, *, most_bytes: int) -> None:
        """Use a folder, existing or not, up to so many bytes; entries that were used last stay."""
        self.folder = folder
        self._most_bytes = most_bytes

    def entries(self, key: str) -> Iterator[Entry]:
        """Yield the intact entries of a request, the one used last first."""
        place = self.folder / key
        with contextlib.suppress(OSError):
            for _, _, folder in sorted(_kept_in(place), reverse=True):
                with contextlib.suppress(OSError, *NOT_OURS):
                    yield _read(folder)

    def last_asked(self, job: str, *, but_in: str) -> Mapping[str, Any] | None:
        """Return the last request for a job, except that of the run `but_in`; None where it is unknown."""
        newest, request = "", None
        # Other runs add and remove folders meanwhile.
        for folder in (folder for place in key_folders(self.folder) for folder in entries_in(place)):
            if folder.name <= newest:
                continue
            with contextlib.suppress(OSError, *NOT_OURS):
                data = read_json(folder / _ASKED)
                if data["job"] == job and data["made_in"] != but_in:
                    newest, request = folder.name, data["asked"]
        return request

    def save(self, key: str, entry: Entry, outputs: Mapping[str, Path], asked: Mapping[str, Any] | None = None) -> Path:
        """Save an entry with copies of its files, and return its folder.

        `outputs` has the folders of the job by `Made.place`. `asked` is the request, to explain the next one. The
        entry's `folder` and `made` are ignored.

        Raises:
            OSError: It cannot be written.
            StorageError: It cannot be written.
        """
        make_cache_folder(self.folder)
        staged = self.folder / f"{STAGED}{os.getpid()}-{secrets.token_hex(4)}"
        staged.mkdir()
        try:
            made = [_copy(place, folder, staged / str(at)) for at, (place, folder) in enumerate(outputs.items())]
            data = {
                "schema": _SCHEMA,
                "key": key,
                "job": entry.job,
                "made_at": entry.made_at,
                "made_in": entry.made_in,
                "value": entry.value,
                "made": [asdict(item) for item in made],
                "read": entry.read.to_json(),
                "not_run_here": entry.not_run_here,
            }
            # Python writes many times faster without indentation, and the lists of files are long.
            text = json.dumps(data, ensure_ascii=False, allow_nan=False).encode()
            write_bytes_atomically(staged / _ENTRY, b"%s\n%s" % (digest_of_bytes(text).encode(), text))
            if asked is not None:
                request_data = {"job": entry.job, "made_in": entry.made_in, "asked": dict(asked)}
                write_json_atomically(staged / _ASKED, request_data)
            stamp = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%S%f")
            place = self.folder / key
            place.mkdir(exist_ok=True)
            final = place / f"{stamp}-{secrets.token_hex(2)}.{_bytes_in(staged)}"
            staged.rename(final)
        finally:
            shutil.rmtree(staged, ignore_errors=True)
        self._make_room(place)
        return final

    def restore(self, entry: Entry, folders: Mapping[str, Path], memory: DigestCache) -> None:
        """Copy the files of an entry to the current folder of each place, and note their digests in `memory`.

        Raises:
            OSError: They cannot be copied, or are corrupt.
        """
        for at, item in enumerate(entry.made):
            target = folders[item.place]
            target.mkdir(parents=True, exist_ok=True)
            for name in item.folders:
                _make_below(target, PurePosixPath(name))
            for name, digest in item.files.items():
                stored = entry.folder / str(at) / name
                if not stat.S_ISREG(stored.lstat().st_mode) or memory.digest(str(stored), stored.stat()) != digest:
                    raise OSError(f"{stored} is corrupt")
                _make_below(target, PurePosixPath(name).parent)
                # A copy: writing to a link would change the entry.
                shutil.copyfile(stored, target / name, follow_symlinks=False)
                memory.add_own(target / name, digest)
        # Marks it as used, because those that were used last stay.
        with contextlib.suppress(OSError):
            os.utime(entry.folder / _ENTRY)

    def _make_room(self, place: Path) -> None:
        """Remove the entries unused for longest: of one request with too many, and of all."""
        for _, _, folder_of_entry in sorted(_kept_in(place))[:-_MOST_OF_ONE]:
            shutil.rmtree(folder_of_entry, ignore_errors=True)
        entries = sorted(item for folder in key_folders(self.folder) for item in _kept_in(folder))
        used_bytes = sum(size for _, size, _ in entries)
        for _, size, folder_of_entry in entries:
            if used_bytes <= self._most_bytes:
                return
            shutil.rmtree(folder_of_entry, ignore_errors=True)
            with contextlib.suppress(OSError):
                folder_of_entry.parent.rmdir()
            used_bytes -= size


def _make_below(target: Path, name: PurePosixPath) -> None:
    """Make a folder below another one, without following links."""
    for part in name.parts:
        target = target / part
        if target.is_symlink():
            raise OSError(f"{target} is a link, and leads elsewhere")
        target.mkdir(exist_ok=True)


def _kept_in(place: Path) -> Iterator[tuple[float, int, Path]]:
    """Yield the time of last use, size in bytes and folder of each entry."""
    for folder in entries_in(place):
        with contextlib.suppress(OSError, ValueError):
            yield (folder / _ENTRY).stat().st_mtime, int(folder.name.rpartition(".")[2]), folder


def _read(folder: Path) -> Entry:
    digest, _, text = (folder / _ENTRY).read_bytes().partition(b"\n")
    data = parse_json(text) if digest == digest_of_bytes(text).encode() else {}
    if data["schema"] != _SCHEMA:
        raise ValueError("another version wrote the entry")
    if data["key"] != folder.parent.name:
        raise ValueError("the entry is for other inputs")
    for item in data["made"]:
        for name in (*item["files"], *item["folders"]):
            _check_name(name)
    return Entry(
        folder=folder,
        job=data["job"],
        made_at=data["made_at"],
        made_in=data["made_in"],
        read=Dependencies.of_json(data["read"]),
        value=data["value"],
        made=tuple(
            Made(place=item["place"], files=item["files"], folders=tuple(item["folders"])) for item in data["made"]
        ),
        not_run_here=None if data["not_run_here"] is None else tuple(data["not_run_here"]),
    )


def _check_name(name: str) -> None:
    """Raise a ValueError if a name leads out of its folder."""
    path = PurePosixPath(name)
    if not name or path.is_absolute() or ".." in path.parts or "\0" in name:
        raise ValueError(f"{name!r} is not the name of a file below a folder")


def _copy(place: str, folder: Path, target: Path) -> Made:
    files, empty = {}, []
    target.mkdir()
    for path in sorted(folder.rglob("*")) if folder.is_dir() else ():
        name = str(path.relative_to(folder))
        if path.is_dir() and not path.is_symlink():
            if not any(path.iterdir()):
                empty.append(name)
            continue
        if name == MARKER:
            continue
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target / name)
        (target / name).chmod(0o444)
        files[name] = digest_of_file(target / name)
    return Made(place=place, files=files, folders=tuple(empty))


def _bytes_in(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
