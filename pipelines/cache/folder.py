"""The folder of the cache: what in it is the cache's own, so that nothing else is ever written over or removed.

<cache>/.paritygate-cache        says that the folder is a cache
<cache>/digests.json             digests of files that were read
<cache>/.partial-*               entries that are being written
<cache>/<key>/<when>-<random>.<bytes>/   entries
"""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from paritygate.errors import StorageError
from paritygate.files import MARKER, is_plain_file, is_plain_folder, storage_errors

CACHE_MARKER = ".paritygate-cache"
DIGESTS = "digests.json"
STAGED = ".partial-"
_KEY = re.compile(r"[0-9a-f]{32,64}")
_ENTRY = re.compile(r"\d{8}T\d{12}-[0-9a-f]{4}\.\d+")
_STAGED = re.compile(re.escape(STAGED) + r"\d+-[0-9a-f]{8}")


def make_cache_folder(folder: Path) -> None:
    """Create the folder of a cache where there is none, and mark it; a cache of an earlier version is marked as well.

    Raises:
        StorageError: It cannot be written, or holds what is no cache's.
    """
    if _is_marked(folder):
        return
    with storage_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    others = others_in(folder)
    if folder.is_symlink() or others:
        why = "a link" if folder.is_symlink() else f"{others[0]} is in it"
        msg = f"{folder} is not used as a cache, because {why}"
        raise StorageError(msg, hint="name a folder of its own with PARITYGATE_CACHE")
    with storage_errors(folder):
        (folder / MARKER).touch()
        (folder / CACHE_MARKER).touch()


def check_is_cache(folder: Path) -> None:
    """Check that a folder is a cache, so that what is the cache's own may be removed.

    Raises:
        StorageError: It is none.
    """
    if not _is_marked(folder):
        msg = f"{folder} has no {CACHE_MARKER} file, so it is not the stage cache and is not changed"
        raise StorageError(msg, hint="set PARITYGATE_CACHE to the cache, or remove the folder by hand")


def key_folders(folder: Path) -> Iterator[Path]:
    """Yield the folders that entries lie in, one for each question; links are none."""
    yield from (path for path in _listed(folder) if _KEY.fullmatch(path.name) and is_plain_folder(path))


def entries_in(place: Path) -> Iterator[Path]:
    """Yield the entries in the folder of a key; links are none."""
    yield from (path for path in _listed(place) if _ENTRY.fullmatch(path.name) and is_plain_folder(path))


def parts_of(folder: Path) -> Iterator[Path]:
    """Yield what the cache has put into its folder, but the markers and the folders of keys."""
    for place in key_folders(folder):
        yield from entries_in(place)
    for path in _listed(folder):
        if (_STAGED.fullmatch(path.name) and is_plain_folder(path)) or (path.name == DIGESTS and is_plain_file(path)):
            yield path


def others_in(folder: Path) -> tuple[str, ...]:
    """Return the names of what lies in a folder and is not the cache's, sorted; below the folder of a key as well."""
    own = {*parts_of(folder), *(folder / name for name in (MARKER, CACHE_MARKER) if is_plain_file(folder / name))}
    keys = set(key_folders(folder))
    found = [path for path in _listed(folder) if path not in own and path not in keys]
    found += [path for place in keys for path in _listed(place) if path not in own]
    return tuple(sorted(path.relative_to(folder).as_posix() for path in found))


def remove_cache(folder: Path) -> tuple[str, ...]:
    """Remove what is the cache's own, then the folder itself if nothing else lies in it, and return what else does.

    The markers go last: what is left where this is interrupted is a cache still.

    Raises:
        StorageError: The folder is no cache, or something cannot be removed.
    """
    check_is_cache(folder)
    with storage_errors(folder):
        for path in tuple(parts_of(folder)):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        for place in tuple(key_folders(folder)):
            with contextlib.suppress(OSError):
                place.rmdir()
        others = others_in(folder)
        if not others:
            (folder / MARKER).unlink(missing_ok=True)
            (folder / CACHE_MARKER).unlink()
            folder.rmdir()
    return others


def _is_marked(folder: Path) -> bool:
    return is_plain_folder(folder) and is_plain_file(folder / CACHE_MARKER)


def _listed(folder: Path) -> Iterator[Path]:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        yield from folder.iterdir()
