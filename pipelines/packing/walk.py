"""The files below a folder, as a pack takes them: plain files only."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

from paritygate.errors import StorageError

__all__ = ["files_in"]


def files_in(folder: Path, *, without: Collection[str] = ()) -> dict[str, Path]:
    """Return every file below `folder` by relative path, in a fixed order.

    Args:
        folder: The folder.
        without: Names of its own subfolders that are left out.

    Raises:
        StorageError: Something is a link out of the folder or to a folder, or no plain file.
    """
    root = folder.resolve()
    found: dict[str, Path] = {}
    for parent, folders, names in os.walk(folder):
        for name in folders:
            if (Path(parent) / name).is_symlink():
                msg = f"{Path(parent) / name} is a link to a folder: what is behind it would be left out"
                raise StorageError(msg, hint="replace the link by the folder it points to")
        is_top = Path(parent) == folder
        folders[:] = sorted(name for name in folders if not (is_top and name in without))
        for name in names:
            path = Path(parent) / name
            if not path.is_file() or not path.resolve().is_relative_to(root):
                what = "a link that leaves its folder" if path.is_symlink() else "no plain file"
                msg = f"{path} is {what}: it is not packed"
                raise StorageError(msg, hint="replace it by the file itself, or remove it")
            found[path.relative_to(folder).as_posix()] = path
    return dict(sorted(found.items()))
