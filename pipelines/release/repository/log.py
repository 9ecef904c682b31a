"""Read and append the records of a model's log: releases, and moves of aliases.

The log is append-only and decides: a release exists once its record does, and an alias points to what the records add
up to. A record is written in full under another name, and then gets its number by a hard link. The link fails if the
number is taken, so there are no locks, no lost update and no half record. Every reader checks the digest of each
record, and that it follows the one that it was written after.
"""

from __future__ import annotations

import errno
import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from paritygate.codec import to_data
from paritygate.errors import RepositoryError, StorageError
from paritygate.files import storage_errors, sync_folder, write_json_atomically
from paritygate.pipelines.release.repository.commands import command_on
from paritygate.pipelines.release.repository.commit import Commit
from paritygate.pipelines.release.repository.disk import make_folders, reading_errors
from paritygate.pipelines.release.repository.record import CHAINED_SCHEMA, Record, digest_of_record
from paritygate.pipelines.release.repository.state import ModelState, contradiction, state_of

_LOG = "log"
_NUMBERED = re.compile(r"(\d{6,})\.json")
_NO_LINKS = frozenset({errno.ENOTSUP, errno.EOPNOTSUPP, errno.EXDEV, errno.EMLINK, errno.ENOSYS})


def log_folder(repository: Path, model: str) -> Path:
    """Return the folder of a model's records; it is there once the model has one."""
    return repository / _LOG / model


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

    Safe while others append: a listed number implies all lower ones, so the folder is listed first. The records are
    then read one by one until there is none.

    Raises:
        RepositoryError: A record is missing, is no record, was edited, does not follow the one before it, or was
            written by a later paritygate.
    """
    folder = log_folder(repository, model)
    if not folder.is_dir():
        return ()
    with reading_errors(folder):
        listed = [int(found[1]) for path in folder.iterdir() if (found := _NUMBERED.fullmatch(path.name))]
        records: list[Record] = []
        while True:
            path = _record_file(folder, len(records) + 1)
            if path.exists() and not path.is_file():
                msg = f"{path} is not a file (expected a record of a release)"
                raise RepositoryError(msg, hint="remove it, or restore the record from a backup")
            try:
                content = path.read_bytes()
            except FileNotFoundError:
                break
            record = _parse_record(path, content)
            _check_follows(path, record, records[-1] if records else None)
            records.append(record)
    if len(records) < max(listed, default=0):
        msg = f"record {path} is missing, though later ones are there"
        raise RepositoryError(msg, hint="restore it from a backup: records are never removed")
    return tuple(records)


def _parse_record(path: Path, content: bytes) -> Record:
    try:
        data = json.loads(content)
        record = Record.from_json(data)
        if record.schema < CHAINED_SCHEMA:
            return replace(record, digest=f"sha256:{hashlib.sha256(content).hexdigest()}")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as err:
        msg = f"{path} is not a record that this version of paritygate can read: {err}"
        raise RepositoryError(msg, hint="upgrade paritygate, or restore the file from a backup") from err
    digest = digest_of_record(data)
    if record.digest != digest:
        msg = f"record {path} was edited: its digest is {record.digest}, but its content has {digest}"
        raise RepositoryError(msg, hint="restore it from a backup: records are never edited")
    return record


def _check_follows(path: Path, record: Record, before: Record | None) -> None:
    """Check that a record was written after the one that stands before it now."""
    if record.schema < CHAINED_SCHEMA:
        if before is None or before.schema < CHAINED_SCHEMA:
            return
        msg = f"record {path} is of schema {record.schema}, which is not written after one of schema {before.schema}"
    else:
        expected = None if before is None else before.digest
        if record.predecessor == expected:
            return
        msg = (
            f"record {path} does not follow the record before it, which was edited, removed or moved: digest "
            f"{expected or 'none'}, expected {record.predecessor or 'none'}"
        )
    raise RepositoryError(msg, hint="restore the log from a backup: records are never edited, removed or reordered")


def append_record(
    repository: Path,
    model: str,
    record_of: Callable[[ModelState], Record | None],
    staging: Path,
    commit: Commit[Any] | None = None,
) -> int | None:
    """Append a record to the model's log and return its number, once it is lasting; None if there is none to append.

    When other processes append at the same time, each record gets a number of its own, and names the digest of the one
    before it.

    Args:
        repository: The root of the repository.
        model: The model's name.
        record_of: Returns the record, given the state before it, or None for no record. Called again if another
            process took the number.
        staging: A staging folder of this repository's store.
        commit: Is told when the record is there.

    Raises:
        RepositoryError: The record contradicts the log, or the log cannot be read.
        StorageError: The log cannot be written.
    """
    folder = make_folders(repository, _LOG, model)
    written = staging / "record.json"
    while True:
        state = state_of(read_records(repository, model))
        record = record_of(state)
        if record is None:
            return None
        # Checked before it is linked: what contradicts the log would make it unreadable for good.
        problem = contradiction(record, state)
        if problem:
            msg = f"the new record of {model} ({record.kind}) contradicts its log: {problem}"
            raise RepositoryError(msg, hint="list its content with", command=command_on(repository, "show", model))
        number = len(state.history) + 1
        # A new file for each try: one that was linked after all is never written to again.
        write_json_atomically(written, to_data(record.after(state.history[-1] if state.history else None)))
        with (commit or Commit[Any]()).recording() as finish:
            is_linked = False
            try:
                is_linked = _link(written, _record_file(folder, number))
            finally:
                # A network filesystem may link a file and say that it failed.
                if is_linked or _is_linked(written, _record_file(folder, number)):
                    finish()
        if is_linked:
            break
    with storage_errors(folder):
        sync_folder(folder)
    return number


def _is_linked(written: Path, numbered: Path) -> bool:
    try:
        return written.samefile(numbered)
    except OSError:
        return False


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
