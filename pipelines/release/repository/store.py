"""Where the releases of a repository are: `store/<model>/<version>/`.

The store alone does not show what is released: a folder without its record in the log is invisible.
"""

from __future__ import annotations

import re
from pathlib import Path

from paritygate.pipelines.release.stores.opening import store_of
from paritygate.roots import Address, Root

_STORE = "store"
_VERSION = re.compile(r"[1-9][0-9]*")


def release_name(model: str, version: int) -> str:
    """Return the name of a release's folder in the repository."""
    return f"{_STORE}/{model}/{version}"


def release_folder(repository: Root, model: str, version: int) -> Root:
    """Return the folder of a release, whether it exists or not."""
    return repository / release_name(model, version)


def repository_of_release(folder: Root) -> Root:
    """Return the root of the repository with a release's folder."""
    return folder.parents[2] if isinstance(folder, Path) else Address(folder.rsplit("/", 3)[0])


def stored_versions(repository: Root, model: str) -> list[int]:
    """Return the numbers of the folders in the store, with or without a record, ascending."""
    names = store_of(repository).names(f"{_STORE}/{model}")
    return sorted(int(name) for name in names if _VERSION.fullmatch(name))
