"""Note in a run folder to which repositories it was released, so that `clean` does not remove it.

The note is written before the release, so that no release is without one, whatever ends the process.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from paritygate.errors import InputFileError, StorageError
from paritygate.files import read_json, write_json_atomically
from paritygate.roots import Address, Root, is_address

RELEASED_TO = "released-to.json"
# Without write permission, nobody can remove the run folder either.
_READ_ONLY = {errno.EACCES, errno.EPERM, errno.EROFS}


def released_to(folder: Path) -> tuple[Root, ...]:
    """Return the repositories of a run's releases, made or begun; an `InputFileError` if the note is corrupt."""
    path = folder / RELEASED_TO
    try:
        names = read_json(path)["repositories"]
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            msg = f"repositories is wrong (got {names!r}, expected a list of texts)"
            raise ValueError(msg)  # noqa: TRY301 - as what is missing is
    except FileNotFoundError:
        return ()
    except (OSError, KeyError, TypeError, ValueError) as err:
        msg = f"{path} is corrupt: {type(err).__name__}: {err}"
        raise InputFileError(msg, hint="remove the run by hand if you do not need it") from err
    return tuple(_root_of(folder, name) for name in names)


def _root_of(folder: Path, name: str) -> Root:
    return Address(name) if is_address(name) else Path(os.path.realpath(folder / name))


def note_release_to(folder: Path, repository: Root) -> tuple[Root, ...]:
    """Note that a run is about to be released to a repository, and return the earlier ones.

    Raises:
        InputFileError: The earlier note is corrupt.
        StorageError: It cannot be written although the folder is writable.
    """
    before = released_to(folder)
    place = repository.resolve() if isinstance(repository, Path) else repository
    if place not in before:
        write_released_to(folder, (*before, place))
    return before


def write_released_to(folder: Path, repositories: tuple[Root, ...]) -> None:
    """Write the note of a run folder if it is writable; a `StorageError` if the disk is full."""
    path = folder / RELEASED_TO
    try:
        if repositories:
            names = [_name_of(repository, folder.resolve()) for repository in repositories]
            write_json_atomically(path, {"repositories": names})
        else:
            path.unlink(missing_ok=True)
    except (StorageError, OSError) as err:
        cause = err.__cause__ if isinstance(err, StorageError) else err
        if not isinstance(cause, OSError) or cause.errno not in _READ_ONLY:
            raise


def _name_of(repository: Root, folder: Path) -> str:
    """Return the name of a repository: relative to the run if both are in one project, which may be moved."""
    # `<project>/<root>/runs/<model>/<run>`
    project = folder.parents[min(3, len(folder.parents) - 1)]
    is_near = isinstance(repository, Path) and repository.is_relative_to(project)
    return os.path.relpath(repository, folder) if is_near else str(repository)
