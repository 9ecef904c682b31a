"""The numbered records of a model: what was released, and where each alias was moved.

The log is append-only and is the truth: a release exists once its record does, and what an alias points
to is what the records add up to. A record is written in full under another name and then given its
number by a hard link, which fails if the number is taken: no locks, no lost update, no half record.
"""

from __future__ import annotations

import errno
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from enum import Enum
from pathlib import Path
from typing import Any

from paritygate.errors import RepositoryError, StorageError
from paritygate.files import storage_errors, write_json_atomically
from paritygate.pipelines.repository.disk import make_folders, reading_errors, sync_folder

__all__ = [
    "ModelState",
    "Record",
    "RecordKind",
    "append_record",
    "logged_models",
    "read_records",
    "state_of",
    "utc_now",
]

_SCHEMA = 1
_LOG = "log"
_NUMBERED = re.compile(r"(\d{6,})\.json")
_NO_LINKS = frozenset({errno.ENOTSUP, errno.EOPNOTSUPP, errno.EXDEV, errno.EMLINK, errno.ENOSYS})


class RecordKind(str, Enum):
    """What happened."""

    RELEASED = "released"
    ALIAS_MOVED = "alias_moved"
    ROLLED_BACK = "rolled_back"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """One thing that happened to a model of the repository.

    Attributes:
        kind: What happened.
        time: When, UTC, ISO 8601. The order of records is that of their numbers, never that of times.
        version: The version released, or the one that the alias points to from now on.
        alias: The alias that was moved; None for a release that moved none.
        manifest: Digest of the release's manifest.json; None unless something was released.
        reason: Why, in words.
        who: Who did it, as far as they said so.
        host: Where it was done, as far as they said so.
    """

    kind: RecordKind
    time: str
    version: int
    alias: str | None = None
    manifest: str | None = None
    reason: str = ""
    who: str = ""
    host: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the record as JSON data."""
        return {
            "schema": _SCHEMA,
            "kind": str(self.kind),
            "time": self.time,
            "version": self.version,
            "alias": self.alias,
            "manifest": self.manifest,
            "reason": self.reason,
            "who": self.who,
            "host": self.host,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Record:
        """Return the record that `to_json` wrote.

        Raises:
            ValueError: The kind or the schema is not known to this version of paritygate.
            KeyError: A field is missing.
            TypeError: A text is none.
        """
        if data["schema"] != _SCHEMA:
            msg = f"its schema is {data['schema']!r}, not {_SCHEMA}"
            raise ValueError(msg)
        for name in ("alias", "manifest", "reason", "who", "host"):
            is_none = data[name] is None and name in {"alias", "manifest"}
            if not is_none and not isinstance(data[name], str):
                msg = f"its {name} is {data[name]!r}, and no text"
                raise TypeError(msg)
        return cls(
            kind=RecordKind(data["kind"]),
            time=str(data["time"]),
            version=int(data["version"]),
            alias=data["alias"],
            manifest=data["manifest"],
            reason=data["reason"],
            who=data["who"],
            host=data["host"],
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelState:
    """What the records of a model add up to.

    Attributes:
        releases: The record of each release by its version, in the order of release.
        aliases: The version that each alias points to.
        history: All records; the first has number 1.
    """

    releases: Mapping[int, Record]
    aliases: Mapping[str, int]
    history: tuple[Record, ...]


def utc_now() -> str:
    """Return the time as records hold it."""
    return datetime.now(timezone.utc).isoformat(timespec="microseconds")


def state_of(records: Sequence[Record]) -> ModelState:
    """Return what `records`, in the order of their numbers, add up to.

    Raises:
        RepositoryError: They contradict each other: a version is released twice, an alias is moved to a
            version that was not released by then, or one that does not exist is rolled back.
    """
    releases: dict[int, Record] = {}
    aliases: dict[str, int] = {}
    for number, record in enumerate(records, start=1):
        problem = _contradiction(record, releases, aliases)
        if problem:
            msg = f"record {number} of the log ({record.kind}) contradicts those before it: {problem}"
            raise RepositoryError(msg, hint="restore the log from a backup: records are never edited")
        if record.kind is RecordKind.RELEASED:
            releases[record.version] = record
        if record.alias is not None:
            aliases[record.alias] = record.version
    return ModelState(releases=releases, aliases=aliases, history=tuple(records))


def _contradiction(record: Record, releases: Mapping[int, Record], aliases: Mapping[str, int]) -> str:
    """Return what makes `record` impossible after those that led here, or an empty text."""
    if record.kind is RecordKind.RELEASED:
        problems = {
            f"version {record.version} was released before": record.version in releases,
            f"version {record.version} is no version": record.version < 1,
            "it names no manifest": record.manifest is None,
        }
    else:
        is_rollback = record.kind is RecordKind.ROLLED_BACK
        problems = {
            "it names no alias": record.alias is None,
            f"version {record.version} was not released by then": record.version not in releases,
            f"alias {record.alias!r} did not exist by then": is_rollback and record.alias not in aliases,
        }
    return next((problem for problem, is_so in problems.items() if is_so), "")


def logged_models(repository: Path) -> tuple[str, ...]:
    """Return the names of the models that have a log, which may be empty, sorted."""
    folder = repository / _LOG
    if not folder.is_dir():
        return ()
    with reading_errors(folder):
        return tuple(sorted(path.name for path in folder.iterdir() if path.is_dir()))


def _record_file(folder: Path, number: int) -> Path:
    return folder / f"{number:06d}.json"


def read_records(repository: Path, model: str) -> tuple[Record, ...]:
    """Return the model's records in the order of their numbers; none for a model that is not known.

    Safe while others append: a number that is listed implies all lower ones, so the folder is listed
    first and the records are then read one by one until there is none.

    Raises:
        RepositoryError: A record is missing, is no record, or was written by a later paritygate.
    """
    folder = repository / _LOG / model
    if not folder.is_dir():
        return ()
    with reading_errors(folder):
        listed = [int(found[1]) for path in folder.iterdir() if (found := _NUMBERED.fullmatch(path.name))]
        records: list[Record] = []
        while True:
            path = _record_file(folder, len(records) + 1)
            if path.exists() and not path.is_file():
                msg = f"{path} is no file, where a record of what was released should be"
                raise RepositoryError(msg, hint="remove it, or restore the record from a backup")
            try:
                text = path.read_text(encoding="utf-8")
            except FileNotFoundError:
                break
            records.append(_parse_record(path, text))
    if len(records) < max(listed, default=0):
        msg = f"record {path} is missing, though later ones are there"
        raise RepositoryError(msg, hint="restore it from a backup: records are never removed")
    return tuple(records)


def _parse_record(path: Path, text: str) -> Record:
    try:
        return Record.from_json(json.loads(text))
    except (ValueError, KeyError, TypeError) as err:
        msg = f"{path} is not a record that this version of paritygate can read: {err}"
        raise RepositoryError(msg, hint="upgrade paritygate, or restore the file from a backup") from err


def append_record(repository: Path, model: str, record: Record, staging: Path) -> int:
    """Append `record` to the model's log and return its number, once it is on the disk.

    When other processes append at the same time, each record gets a number of its own.

    Args:
        repository: The root of the repository.
        model: The model's name.
        record: What happened.
        staging: A staging folder of this repository, where the record is written before it is linked.

    Raises:
        RepositoryError: The record contradicts the log, or the log cannot be read.
        StorageError: The disk is full, the log cannot be written, or the filesystem has no hard links.
    """
    folder = make_folders(repository, _LOG, model)
    written = staging / "record.json"
    write_json_atomically(written, record.to_json())
    while True:
        records = read_records(repository, model)
        # Checked before it is linked: what contradicts the log would make it unreadable for good.
        state_of([*records, record])
        number = len(records) + 1
        if _link(written, _record_file(folder, number)):
            break
    with storage_errors(folder):
        sync_folder(folder)
    return number


def _link(written: Path, numbered: Path) -> bool:
    """Give the written record its number; return False if another record has it."""
    with storage_errors(numbered):
        try:
            numbered.hardlink_to(written)
        except FileExistsError:
            # A network filesystem may repeat a link that had succeeded: then the name is ours all the same.
            return written.samefile(numbered)
        except OSError as err:
            if isinstance(err, PermissionError) or err.errno in _NO_LINKS:
                msg = f"{numbered} could not be created as a hard link: {err.strerror}"
                hint = "check the permissions; the repository needs a filesystem with hard links"
                raise StorageError(msg, hint=hint) from err
            raise
    return True
