"""The store on a local disk: a folder is published by one rename, and a file by one hard link."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path

from paritygate.errors import StorageError
from paritygate.files import digest_of_file, fsync_tree, storage_errors, sync_folder, write_bytes_atomically
from paritygate.pipelines.release.stores.folders import make_folders, reading_errors
from paritygate.pipelines.release.stores.staging import CONTENT, staging_folder
from paritygate.pipelines.release.stores.store import NotAFileError

# In place of the digest of a file: a release holds no links, whatever they point to.
SYMBOLIC_LINK = "a symbolic link"
_NO_FILE = "no plain file"
_TAKEN = frozenset({errno.ENOTEMPTY, errno.EEXIST})
_NO_LINKS = frozenset({errno.ENOTSUP, errno.EOPNOTSUPP, errno.EXDEV, errno.EMLINK, errno.ENOSYS})
# Longer than any step of the clocks from which file systems take their times.
_TIME_STEP_S = 2.1
# SHA-256 releases the interpreter, and disks answer several readers at once.
_READERS = 4


class DiskStore:
    """Keep files below a folder."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def is_there(self) -> bool:
        """Return whether the folder exists."""
        return self.place.is_dir()

    def names(self, folder: str) -> tuple[str, ...]:
        """Return the names directly below a folder."""
        path = self.place / folder
        if not path.is_dir():
            return ()
        with reading_errors(path):
            return tuple(sorted(os.listdir(path)))  # noqa: PTH208 - names, not paths

    def tags(self, folder: str) -> Mapping[str, Hashable]:
        """Return device, inode, size and times of each plain file, or None for one that changed just now."""
        path = self.place / folder
        if not path.is_dir():
            return {}
        with reading_errors(path), os.scandir(path) as entries:
            return {entry.name: _tag(entry) for entry in entries}

    def read(self, names: Sequence[str]) -> Iterator[bytes]:
        """Yield the contents of plain files."""
        for name in names:
            path = self.place / name
            # A pipe would block, and a device may have no end.
            if path.is_symlink() or (path.exists() and not path.is_file()):
                raise NotAFileError(errno.EINVAL, "not a file", str(path))
            yield path.read_bytes()

    def read_tagged(self, names: Sequence[str]) -> Iterator[tuple[bytes, Hashable]]:
        """Yield the contents of plain files, without tags: `tags` is as quick."""
        return ((content, None) for content in self.read(names))

    def digests(self, note: Callable[[int], None] | None = None) -> dict[str, str]:
        """Return the digest of every file, or the words for a link, a pipe or a device."""
        return digests_below(self.place, note)

    def size_bytes(self, folder: str) -> int:
        """Return the size of all files below a folder."""
        return sum(path.lstat().st_size for path in (self.place / folder).rglob("*") if not path.is_dir())

    def age_s(self, folder: str) -> float:
        """Return the seconds since a file changed or the folder was moved here."""
        path = self.place / folder
        if not path.is_dir():
            return 0.0
        with reading_errors(path):
            return time.time() - max(item.lstat().st_ctime for item in (path, *path.rglob("*")))

    def staging(self) -> AbstractContextManager[Path]:
        """Make a folder on the same filesystem, after deleting those of dead processes."""
        return staging_folder(self.place)

    def create(self, name: str, content: bytes, staging: Path) -> bool:
        """Write the file in the staging folder, and give it its name by a hard link."""
        path, written = self.place / name, _written(staging)
        *folders, _ = name.split("/")
        make_folders(self.place, *folders)
        # A new file for each try: one that was linked after all is never written to again.
        write_bytes_atomically(written, content)
        with storage_errors(path):
            if not _link(written, path):
                return False
            sync_folder(path.parent)
        return True

    def replace(self, name: str, content: bytes) -> None:
        """Write a file under another name, and rename it."""
        make_folders(self.place, *name.split("/")[:-1])
        write_bytes_atomically(self.place / name, content)

    def remove(self, name: str) -> None:
        """Delete a file, if it is there."""
        path = self.place / name
        with storage_errors(path):
            path.unlink(missing_ok=True)

    def is_created(self, name: str, content: bytes, staging: Path) -> bool:
        """Return whether the name is a link to the written file."""
        del content
        return _is_linked(_written(staging), self.place / name)

    def publish(self, staging: Path, name: str) -> bool:
        """Move a folder to its place, on the disk: onto a folder that holds something, a rename fails."""
        staged, target = staging / CONTENT, self.place / name
        *folders, _ = name.split("/")
        make_folders(self.place, *folders)
        with storage_errors(target):
            try:
                fsync_tree(staged)
                staged.rename(target)
            except OSError as err:
                if err.errno in _TAKEN:
                    return False
                raise _not_published(err, staged, target) from err
            try:
                sync_folder(target.parent)
            except BaseException:
                with contextlib.suppress(OSError):
                    target.rename(staged)
                raise
        return True

    def withdraw(self, name: str, staging: Path) -> None:
        """Move a folder back into the staging folder, which is deleted."""
        path = self.place / name
        with storage_errors(path):
            path.rename(staging / CONTENT)


def _not_published(err: OSError, staged: Path, target: Path) -> OSError:
    if err.errno == errno.EXDEV:
        msg = f"{target} is on another filesystem than {staged}, so publishing cannot be atomic"
        return StorageError(msg, hint="keep the whole repository on one filesystem, without links")
    if err.errno == errno.ENOENT:
        msg = f"{staged} was deleted before it could be published as {target}"
        return StorageError(msg, hint="let nothing else delete files of the repository, and promote again")
    return err


def digests_below(folder: Path, note: Callable[[int], None] | None = None) -> dict[str, str]:
    """Return the digest of every file below a folder by its relative path, read by several threads.

    Nothing is skipped and no link is followed: a link counts as a file with the content `SYMBOLIC_LINK`, and a pipe or
    device has a content of its own.

    Raises:
        InputFileError: A file cannot be read.
    """
    paths: list[Path] = []
    with reading_errors(folder):
        for parent, folders, names in os.walk(folder, onerror=_raise):
            below = [Path(parent) / name for name in (*folders, *names)]
            paths += sorted(path for path in below if path.is_symlink() or not path.is_dir())
        with ThreadPoolExecutor(_READERS) as readers:
            digests = list(readers.map(lambda path: _digest(path, note), paths))
    return {path.relative_to(folder).as_posix(): digest for path, digest in zip(paths, digests, strict=True)}


def _digest(path: Path, note: Callable[[int], None] | None) -> str:
    if path.is_symlink():
        return SYMBOLIC_LINK
    return digest_of_file(path, note) if path.is_file() else _NO_FILE


def _raise(error: OSError) -> None:
    # os.walk passes over folders that it cannot list, unless this raises.
    raise error


def _tag(entry: os.DirEntry[str]) -> Hashable:
    status = entry.stat(follow_symlinks=False)
    is_settled = stat.S_ISREG(status.st_mode) and time.time() - status.st_ctime > _TIME_STEP_S
    return (
        (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns) if is_settled else None
    )


def _written(staging: Path) -> Path:
    return staging / "record.json"


def _is_linked(written: Path, numbered: Path) -> bool:
    try:
        return written.samefile(numbered)
    except OSError:
        return False


def _link(written: Path, numbered: Path) -> bool:
    """Give the written file its name; return False if another file has it."""
    try:
        numbered.hardlink_to(written)
    except FileExistsError:
        # A network filesystem may repeat a link that had succeeded: then the name is ours.
        return written.samefile(numbered)
    except OSError as err:
        if isinstance(err, PermissionError) or err.errno in _NO_LINKS:
            msg = f"{numbered} could not be created as a hard link: {err.strerror}"
            hint = "check the permissions; the repository needs a filesystem with hard links"
            raise StorageError(msg, hint=hint) from err
        raise
    return True
