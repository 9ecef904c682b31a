"""Write views to a folder that a server may read at any time."""

from __future__ import annotations

import errno
import hashlib
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

from paritygate.errors import ArtifactIntegrityError, StorageError, UsageError
from paritygate.file_names import checked_name
from paritygate.files import digest_of_file, fsync_tree, storage_errors, sync_folder
from paritygate.text import from_here

# The content of a file: a path to copy, or bytes.
Content = Path | bytes


def digest_of(content: Content) -> str:
    """Return `sha256:` and the hex digest of a file's content."""
    return digest_of_file(content) if isinstance(content, Path) else f"sha256:{hashlib.sha256(content).hexdigest()}"


class Place:
    """A folder on a local disk that a server reads its models from; names are relative to it, with `/` between parts.

    Files are prepared beside it, because a server treats every folder in it as a model. One rename moves them in, so
    both are on one filesystem.
    """

    # Otherwise an interrupted write leaves a part of a folder, which the next one completes.
    adds_at_once = True

    def __init__(self, root: Path, *, staged_beside: Path | None = None) -> None:
        """Use a folder, which need not exist, as the root; files are prepared beside it or another folder."""
        self._root = root.absolute()
        self._staged_beside = self._root if staged_beside is None else staged_beside

    def within(self, folder: str) -> Place:
        """Return a folder of this place as a place, with the same folder for preparation."""
        return Place(self._path(folder), staged_beside=self._staged_beside)

    def path_of(self, name: str) -> str:
        """Return the path of a file for messages, relative to the current directory if it is below that."""
        return from_here(self._path(name))

    def is_there(self, folder: str) -> bool:
        """Return whether a folder exists."""
        return self._path(folder).is_dir()

    def read(self, name: str) -> bytes | None:
        """Return a small file; None where there is none."""
        path = self._path(name)
        return path.read_bytes() if path.is_file() else None

    def folders(self, folder: str) -> Sequence[str]:
        """Return the sorted names of the folders in a folder, or in the root for an empty name."""
        top = self._path(folder) if folder else self._root
        return sorted(path.name for path in top.iterdir() if path.is_dir()) if top.is_dir() else ()

    def digests(self, folder: str) -> Mapping[str, str]:
        """Return the digest of every file below a folder, if it exists, by its name within it."""
        top = self._path(folder)
        return {
            path.relative_to(top).as_posix(): digest_of_file(path)
            for path in sorted(top.rglob("*"))
            if path.is_symlink() or not path.is_dir()
        }

    def add_folder(self, folder: str, files: Mapping[str, Content]) -> None:
        """Add a folder with these files by their names within it, whole or not at all.

        Raises:
            StorageError: It exists and is not empty, the disk is full, or the root cannot be written.
        """
        target = self._path(folder)
        with storage_errors(target), self._staging() as place:
            staged = Path(place) / PurePosixPath(folder).name
            for name, content in files.items():
                path = staged / checked_name(name)
                path.parent.mkdir(parents=True, exist_ok=True)
                if isinstance(content, Path):
                    shutil.copyfile(content, path)
                else:
                    path.write_bytes(content)
            fsync_tree(staged)
            target.parent.mkdir(parents=True, exist_ok=True)
            self._move(staged, target)

    def replace(self, name: str, content: bytes) -> None:
        """Write a small file atomically, or raise StorageError."""
        target = self._path(name)
        with storage_errors(target), self._staging() as place:
            staged = Path(place) / target.name
            staged.write_bytes(content)
            fsync_tree(Path(place))
            self._move(staged, target)

    def remove_folder(self, folder: str) -> None:
        """Remove a folder and its content at once, if it exists, or raise StorageError."""
        target = self._path(folder)
        if target.is_dir():
            with storage_errors(target), self._staging() as place:
                self._move(target, Path(place) / target.name)

    def _path(self, name: str) -> Path:
        """Return the path of a name; raise UsageError if it leads out of the root."""
        return self._root / checked_name(name)

    def _staging(self) -> tempfile.TemporaryDirectory[str]:
        beside = self._staged_beside
        beside.mkdir(parents=True, exist_ok=True)
        return tempfile.TemporaryDirectory(dir=beside.parent, prefix=f".{beside.name}-")

    def _move(self, staged: Path, target: Path) -> None:
        try:
            staged.replace(target)
        except OSError as err:
            if err.errno == errno.EXDEV:
                root = self._staged_beside
                msg = f"{root} is on another filesystem than {root.parent}: so files cannot be moved in at once"
                raise StorageError(msg, hint="name a folder below it with --out") from err
            if err.errno in {errno.ENOTEMPTY, errno.EEXIST}:
                msg = f"{target} was written by another process meanwhile"
                raise StorageError(msg, hint="write a view from one process at a time") from err
            raise
        # The folder's entry is synced too, but not its foreign neighbours, for which we need not wait.
        sync_folder(target.parent)


def check_released(files: Mapping[str, Content], digests: Mapping[str, str], what: str) -> None:
    """Raise ArtifactIntegrityError if a file differs from the release, which `what` names."""
    for name, content in files.items():
        if digest_of(content) != digests[name]:
            msg = f"{name} of {what} is corrupt: digest mismatch"
            raise ArtifactIntegrityError(msg, hint="verify the release, and write the view again")


def add_version(place: Place, folder: str, files: Mapping[str, Content], digests: Mapping[str, str]) -> bool:
    """Add the folder of a version with its released files, and return whether it was new.

    Raises:
        UsageError: It exists and holds something else.
        ArtifactIntegrityError: A file differs from the release.
        StorageError: The place cannot be written.
    """
    version = folder.rpartition("/")[2]
    check_released(files, digests, f"version {version}")
    there = place.digests(folder)
    if there and there != dict(digests):
        msg = f"{folder} exists and differs from the released version {version}"
        raise UsageError(msg, hint="serve it under another --name, or remove the folder")
    if not there:
        place.add_folder(folder, files)
    return not there
