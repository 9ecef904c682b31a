"""Keep local copies of releases in object stores: runtimes and model servers open files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from paritygate.errors import ArtifactIntegrityError
from paritygate.file_names import check_names
from paritygate.files import make_marked_folder, remove_marked_folder, storage_errors
from paritygate.pipelines.release.repository.candidate import MANIFEST_FILE
from paritygate.pipelines.release.repository.difference import compare_files
from paritygate.pipelines.release.repository.store import repository_of_release
from paritygate.pipelines.release.stores.disk import digests_below
from paritygate.roots import Root

# Names a folder for the copies, in place of the user's cache.
_VARIABLE = "PARITYGATE_RELEASES"
_CONTENT = "release"
# Beside the files, the address of their repository.
ORIGIN = "repository"


def local_folder(folder: Root, recorded: Mapping[str, str]) -> Path:
    """Return a release's folder on this machine: the one in the repository as it is, or a verified copy.

    `recorded` has the digests of its files. That of the manifest names the copy of a release in an object store.

    Raises:
        ArtifactIntegrityError: A file in the object store is missing or corrupt.
        StorageError: The store cannot be read, or the copy cannot be written.
    """
    if isinstance(folder, Path):
        return folder
    from paritygate.pipelines.release.stores.objects import object_store

    digest = recorded[MANIFEST_FILE]
    copy = _cache() / digest.removeprefix("sha256:")
    try:
        # They become files of this machine.
        check_names(recorded)
    except ValueError as err:
        msg = f"{folder / MANIFEST_FILE} is not a manifest: {err}"
        raise ArtifactIntegrityError(msg, hint="promote the model again: its log was forged as well") from err
    content = copy / _CONTENT
    if content.is_dir() and digests_below(content) == recorded:
        return content
    remove_marked_folder(copy)
    make_marked_folder(copy)
    partial = copy / f"{os.getpid()}.partial"
    difference = compare_files(object_store(folder).download(recorded, partial), recorded)
    if not difference.is_empty:
        msg = f"{folder} is corrupt: {difference}"
        raise ArtifactIntegrityError(msg, hint="restore it from a backup, or promote the model again")
    with storage_errors(copy):
        (copy / ORIGIN).write_text(str(repository_of_release(folder)), encoding="utf-8")
        partial.rename(content)
    return content


def _cache() -> Path:
    named = os.environ.get(_VARIABLE)
    if named:
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "paritygate" / "releases"
