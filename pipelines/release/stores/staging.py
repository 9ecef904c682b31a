"""Provide staging folders, in which releases are put together on the repository's filesystem.

A staging folder has the marker file, and its maker holds a lock on that file as long as it lives. The kernel drops the
lock whenever the process ends, which tells leftovers from work in progress. Process ids would not do: they are reused,
and mean nothing in another container.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import platform
import secrets
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from paritygate.files import MARKER, parse_json, remove_marked_folder, storage_errors
from paritygate.pipelines.release.stores.folders import make_folders

CONTENT = "release"
_STAGING = "staging"
_REMOVING = ".removing"
# A lock says nothing about a process on another host. Copying a release takes minutes, not a day.
_FOREIGN_AGE_S = 24 * 3600.0


def _make_marker(folder: Path) -> int:
    """Write the marker file, locked before it bears its name, and return the descriptor that holds the lock."""
    unmarked = folder / "owner"
    descriptor = os.open(unmarked, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o644)
    try:
        # A filesystem without locks raises: then leftovers are told by their age alone.
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.write(descriptor, json.dumps({"pid": os.getpid(), "host": platform.node()}).encode())
        unmarked.rename(folder / MARKER)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _discard(folder: Path) -> None:
    """Delete a staging folder, its marker last, so that a crash halfway leaves it recognisable as ours."""
    shutil.rmtree(folder / CONTENT, ignore_errors=True)
    remove_marked_folder(folder)


@contextlib.contextmanager
def staging_folder(repository: Path) -> Iterator[Path]:
    """Yield a new staging folder and delete it at the end, after deleting those that dead processes left.

    What is to be released goes into its subfolder `CONTENT`, which exists and is empty.

    Raises:
        StorageError: The disk is full, or the repository cannot be written.
    """
    clean_staging(repository)
    folder = make_folders(repository, _STAGING) / secrets.token_hex(8)
    with storage_errors(folder):
        folder.mkdir()
        try:
            descriptor = _make_marker(folder)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
    try:
        with storage_errors(folder):
            (folder / CONTENT).mkdir()
        yield folder
    finally:
        # What cannot be deleted now is ignored by every reader and deleted before the next release; an
        # error here would hide the one that led here.
        try:
            with contextlib.suppress(OSError):
                _discard(folder)
        finally:
            os.close(descriptor)


def clean_staging(repository: Path) -> None:
    """Delete the staging folders whose makers are gone; never one that is in use, nor one without marker.

    What cannot be deleted, such as another user's, is left: it never keeps a release from being made.
    """
    for marker in sorted((repository / _STAGING).glob(f"*/{MARKER}")):
        with contextlib.suppress(OSError), marker.open("r+b") as owner:
            if _is_abandoned(owner.fileno()):
                _remove_abandoned(marker.parent)


def _is_abandoned(descriptor: int) -> bool:
    """Return whether the maker of the staging folder with this marker file has ended.

    On this host a free lock shows it. A maker on another host, and one on a filesystem without locks, is taken to have
    ended after a day.
    """
    is_lock_known = True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        is_lock_known = False
    try:
        host = parse_json(os.pread(descriptor, 4096, 0))["host"]
    except (ValueError, KeyError, TypeError):
        host = None
    if is_lock_known and host == platform.node():
        return True
    return time.time() - os.fstat(descriptor).st_mtime > _FOREIGN_AGE_S


def _remove_abandoned(folder: Path) -> None:
    # Renamed first: should its maker live after all, its own rename into the store fails as a whole, and
    # no release is published of which files are being deleted.
    if not folder.name.endswith(_REMOVING):
        folder = folder.rename(folder.with_name(folder.name + _REMOVING))
    _discard(folder)
