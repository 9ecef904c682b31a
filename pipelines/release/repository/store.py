"""The immutable releases on disk: `store/<model>/<version>/`, published by one rename.

The store alone says nothing about what is released: a folder without its record in the log is invisible.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterable
from pathlib import Path

from paritygate.errors import StorageError
from paritygate.files import storage_errors
from paritygate.pipelines.release.repository.disk import make_folders

_STORE = "store"
_VERSION = re.compile(r"[1-9][0-9]*")
_TAKEN = frozenset({errno.ENOTEMPTY, errno.EEXIST})


def release_folder(repository: Path, model: str, version: int) -> Path:
    """Return the folder of a release, whether it exists or not."""
    return repository / _STORE / model / str(version)


def repository_of_release(folder: Path) -> Path:
    """Return the root of the repository that a release's folder lies in."""
    return folder.parents[2]


def next_version(repository: Path, model: str, released: Iterable[int]) -> int:
    """Return the number after all that the store or the log (`released`) knows, 1 for a new model.

    The number of a folder without record counts: what a crash left behind is never taken for a release.
    """
    folder = make_folders(repository, _STORE, model)
    stored = [int(path.name) for path in folder.iterdir() if _VERSION.fullmatch(path.name)]
    return max([*stored, *released], default=0) + 1


def publish(staged: Path, repository: Path, model: str, version: int) -> bool:
    """Move a complete, fsynced folder to its place in the store; return False if the number is taken.

    A rename onto a folder that holds something fails, so of several processes exactly one gets a number.

    Raises:
        StorageError: The store cannot be written or is on another filesystem than the staging folder, or
            the staging folder is gone.
    """
    target = release_folder(repository, model, version)
    with storage_errors(target):
        try:
            staged.rename(target)
        except OSError as err:
            if err.errno in _TAKEN:
                return False
            if err.errno == errno.EXDEV:
                msg = f"{target} is on another filesystem than {staged}, so publishing cannot be atomic"
                raise StorageError(msg, hint="keep the whole repository on one filesystem, without links") from err
            if err.errno == errno.ENOENT:
                msg = f"{staged} was deleted before it could be published as {target}"
                raise StorageError(
                    msg, hint="let nothing else delete files of the repository, and promote again"
                ) from err
            raise
    return True


def withdraw(staged: Path, repository: Path, model: str, version: int) -> None:
    """Take a folder that was published and did not get its record back into staging, where it is deleted."""
    release_folder(repository, model, version).rename(staged)
