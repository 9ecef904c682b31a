"""Read and append the records of a model's log: releases, and moves of aliases.

The log is append-only and decides: a release exists once its record does, and an alias points to what the records add
up to. The store creates a record whole under its number, and fails if the number is taken. So there are no locks, no
lost update and no half record. Every reader checks the digest of each record, and that it follows the one that it was
written after.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

from paritygate.codec import to_data
from paritygate.errors import RepositoryError
from paritygate.files import json_bytes
from paritygate.pipelines.release.repository.commands import command_on
from paritygate.pipelines.release.repository.commit import Commit
from paritygate.pipelines.release.repository.record import Record, digest_of_record
from paritygate.pipelines.release.repository.state import ModelState, contradiction, state_of
from paritygate.pipelines.release.stores.folders import reading_errors
from paritygate.pipelines.release.stores.opening import store_of
from paritygate.pipelines.release.stores.store import NotAFileError, Store
from paritygate.roots import Root

_LOG = "log"
_NUMBERED = re.compile(r"(\d{6,})\.json")
# Records that this process has read, by place, name and what changes with the content: a log only grows.
_RECORDS: dict[tuple[str, str, Hashable], Record] = {}
_Contents = dict[str, tuple[bytes, Hashable]]  # by name, with the tags


def log_folder(repository: Root, model: str) -> Root:
    """Return the folder of a model's records; it exists once the model has one."""
    return repository / _LOG / model


def logged_models(repository: Root) -> tuple[str, ...]:
    """Return the names of the models that have a log, which may be empty, sorted."""
    return store_of(repository).names(_LOG)


def _record_name(model: str, number: int) -> str:
    return f"{_LOG}/{model}/{number:06d}.json"


def read_records(repository: Root, model: str, known: Sequence[Record] = ()) -> tuple[Record, ...]:
    """Return the model's records in the order of their numbers; none for an unknown model.

    Of `known`, the records that this operation has read before, only the last is read again: if it is still there, so
    are those before it.

    Safe while others append: a listed number implies all lower ones, so the folder is listed first. The records are
    then read one by one until there is none.

    Raises:
        RepositoryError: A record is missing, is not a record, was edited, does not follow the one before it, or was
            written by a later paritygate.
    """
    store = store_of(repository)
    if known and _read(store, _record_name(model, len(known)), {}, {}) == known[-1]:
        return _with_later(repository, model, known, {}, {})
    listed = store.tags(f"{_LOG}/{model}")
    tags = {name: tag for name, tag in listed.items() if _NUMBERED.fullmatch(name)}
    if not tags:
        return ()
    last = max(int(name.partition(".")[0]) for name in tags)
    # Several at once, which takes a store far away as long as one.
    unread = [name for number in range(1, last + 1) if not _is_read(store, name := _record_name(model, number), tags)]
    contents: _Contents = {}
    with reading_errors(log_folder(repository, model)):
        _read_listed(store, unread, contents)
    records = _with_later(repository, model, (), tags, contents)
    if len(records) < last:
        name = _record_name(model, len(records) + 1)
        msg = f"record {repository / name} is missing, although later ones exist"
        raise RepositoryError(msg, hint="restore it from a backup: records are never removed")
    return records


def _with_later(
    repository: Root, model: str, known: Sequence[Record], tags: Mapping[str, Hashable], contents: _Contents
) -> tuple[Record, ...]:
    """Return `known` and the records after them, read one by one until there is none."""
    store, records = store_of(repository), list(known)
    with reading_errors(log_folder(repository, model)):
        while True:
            name = _record_name(model, len(records) + 1)
            record = _read(store, name, tags, contents)
            if record is None:
                return tuple(records)
            _check_follows(str(repository / name), record, records[-1] if records else None)
            records.append(record)


def _tag(name: str, tags: Mapping[str, Hashable]) -> Hashable:
    return tags.get(name.rpartition("/")[2])


def _is_read(store: Store, name: str, tags: Mapping[str, Hashable]) -> bool:
    tag = _tag(name, tags)
    return tag is not None and (str(store.place), name, tag) in _RECORDS


def _read_listed(store: Store, names: list[str], contents: _Contents) -> None:
    """Read records into `contents`, up to the first that is missing."""
    try:
        contents.update(zip(names, store.read_tagged(names), strict=False))
    except FileNotFoundError:
        # The caller finds out which one.
        return
    except NotAFileError as err:
        msg = f"{err.filename} is not a file (expected a record of a release)"
        raise RepositoryError(msg, hint="remove it, or restore the record from a backup") from err


def _read(store: Store, name: str, tags: Mapping[str, Hashable], contents: _Contents) -> Record | None:
    """Return a record, from what was read before if its file is the same; None if there is no such file."""
    listed = _tag(name, tags)
    key = (str(store.place), name, listed)
    if listed is not None and key in _RECORDS:
        return _RECORDS[key]
    if name not in contents:
        _read_listed(store, [name], contents)
    if name not in contents:
        return None
    content, tag = contents[name]
    # Of a content that came with its own tag, which may be a later one than the listed.
    key = (*key[:2], listed if tag is None else tag)
    if key not in _RECORDS:
        record = _parse_record(str(store.place / name), content)
        if key[2] is None:
            return record
        _RECORDS[key] = record
    return _RECORDS[key]


def _parse_record(path: str, content: bytes) -> Record:
    try:
        data = json.loads(content)
        record = Record.from_json(data)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as err:
        msg = f"{path} is not a record that this version of paritygate can read: {err}"
        raise RepositoryError(msg, hint="upgrade paritygate, or restore the file from a backup") from err
    digest = digest_of_record(data)
    if record.digest != digest:
        msg = f"record {path} was edited: its digest is {record.digest}, but its content has {digest}"
        raise RepositoryError(msg, hint="restore it from a backup: records are never edited")
    return record


def _check_follows(path: str, record: Record, before: Record | None) -> None:
    """Check that a record was written after the one that stands before it now."""
    expected = None if before is None else before.digest
    if record.predecessor != expected:
        msg = (
            f"record {path} does not follow the record before it, which was edited, removed or moved: digest "
            f"{expected or 'none'}, expected {record.predecessor or 'none'}"
        )
        raise RepositoryError(msg, hint="restore the log from a backup: records are never edited, removed or reordered")


def read_state_of(repository: Root, model: str, known: ModelState | None = None) -> ModelState:
    """Return the state of a model's log, empty for an unknown model; `known` is one that was read before.

    Raises:
        RepositoryError: The log is corrupt, as in `read_records`, or its records contradict each other.
    """
    return state_of(read_records(repository, model, () if known is None else known.history), known)


def append_record(  # noqa: PLR0913, PLR0917 - the two last have defaults
    repository: Root,
    model: str,
    record_of: Callable[[ModelState], Record | None],
    staging: Path,
    commit: Commit[Any] | None = None,
    known: ModelState | None = None,
) -> int | None:
    """Append a record to the model's log and return its number, once it is lasting; None if there is none to append.

    When other processes append at the same time, each record gets its own number and names the digest of the one before
    it. `record_of` returns the record, given the state before it, or None; it runs again if another process took the
    number. `staging` is a staging folder of this store. `commit` is told when the record is there. `known` is the
    state that was read before.

    Raises:
        RepositoryError: The record contradicts the log, or the log cannot be read.
        StorageError: The log cannot be written.
    """
    store = store_of(repository)
    state = read_state_of(repository, model, known)
    while True:
        record = record_of(state)
        if record is None:
            return None
        # A record that contradicts the log would make it unreadable for good.
        problem = contradiction(record, state)
        if problem:
            msg = f"the new record of {model} ({record.kind}) contradicts its log: {problem}"
            raise RepositoryError(msg, hint="list its content with", command=command_on(repository, "show", model))
        number = len(state.history) + 1
        name = _record_name(model, number)
        content = json_bytes(to_data(record.after(state.history[-1] if state.history else None)))
        with (commit or Commit[Any]()).recording() as finish:
            is_created = False
            try:
                is_created = store.create(name, content, staging)
            finally:
                # A network may lose the answer to what was done.
                if is_created or store.is_created(name, content, staging):
                    finish()
        if is_created:
            return number
        # Not listed again: while many append, most of them find their number taken many times.
        state = state_of(_with_later(repository, model, state.history, {}, {}), state)
