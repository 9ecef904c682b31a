"""Make folders that last, and turn errors of reading into clear ones."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from paritygate.errors import InputFileError, StorageError
from paritygate.files import storage_errors, sync_folder
from paritygate.roots import Root

_OTHER = "choose another repository (--repository, or --root of run)"


def make_folders(repository: Path, *parts: str) -> Path:
    """Create `repository` and the folders `parts` one below the other, where missing, so that they last.

    Raises:
        StorageError: The disk is full, or a folder cannot be created.
    """
    folder = repository
    with storage_errors(repository.joinpath(*parts), elsewhere=_OTHER):
        repository.mkdir(parents=True, exist_ok=True)
        sync_folder(repository.parent)
        for part in parts:
            # An existing folder's parent is synced too: whoever created it may not have come so far yet.
            (folder / part).mkdir(exist_ok=True)
            sync_folder(folder)
            folder = folder / part
    return folder


@contextlib.contextmanager
def reading_errors(path: Root) -> Iterator[None]:
    """Turn an operating-system error on reading something at or below `path` into one clear `InputFileError`."""
    try:
        yield
    except (InputFileError, StorageError):
        raise
    except OSError as err:
        msg = f"{err.filename or path} could not be read: {err.strerror}"
        raise InputFileError(msg, hint="check the path and its permissions") from err
