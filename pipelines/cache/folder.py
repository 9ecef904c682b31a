"""The folder of the cache: which files in it are the cache's own, so that no others are replaced or removed.

<cache>/.paritygate-cache        marks the folder as a cache <cache>/digests.json             digests of files that were
read <cache>/.partial-*               unfinished entries <cache>/<key>/<when>-<random>.<bytes>/   entries
"""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from paritygate.errors import StorageError
from paritygate.files import MARKER, is_plain_file, is_plain_folder, listed, storage_errors

CACHE_MARKER = ".paritygate-cache"
DIGESTS = "digests.json"
STAGED = ".partial-"
_KEY = re.compile(r"[0-9a-f]{32,64}")
_ENTRY = re.compile(r"\d{8}T\d{12}-[0-9a-f]{4}\.\d+")
_STAGED = re.compile(re.escape(STAGED) + r"\d+-[0-9a-f]{8}")


def make_cache_folder(folder: Path) -> None:
    """Create and mark the folder of a cache; a cache of an earlier version is marked too.

    Raises:
        StorageError: It cannot be written, or has files that are not a cache's.
    """
    if _is_marked(folder):
        return
    with storage_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    others = others_in(folder)
    if folder.is_symlink() or others:
        why = "a link" if folder.is_symlink() else f"{others[0]} is in it"
        msg = f"{folder} is not used as a cache, because {why}"
        raise StorageError(msg, hint="name a separate folder with PARITYGATE_CACHE")
    with storage_errors(folder):
        (folder / MARKER).touch()
        (folder / CACHE_MARKER).touch()


def check_is_cache(folder: Path) -> None:
    """Check that a folder is a cache, so that its own files may be removed.

    Raises:
        StorageError: It is none.
    """
    if not _is_marked(folder):
        msg = f"{folder} has no {CACHE_MARKER} file, so it is not the stage cache and is not changed"
        raise StorageError(msg, hint="set PARITYGATE_CACHE to the cache, or remove the folder by hand")


def key_folders(folder: Path) -> Iterator[Path]:
    """Yield the folders of entries, one for each request, without links."""
    yield from (path for path in listed(folder) if _KEY.fullmatch(path.name) and is_plain_folder(path))


def entries_in(place: Path) -> Iterator[Path]:
    """Yield the entries in the folder of a key, without links."""
    yield from (path for path in listed(place) if _ENTRY.fullmatch(path.name) and is_plain_folder(path))


def parts_of(folder: Path) -> Iterator[Path]:
    """Yield the cache's own files in its folder, except markers and folders of keys."""
    for place in key_folders(folder):
        yield from entries_in(place)
    for path in listed(folder):
        if (_STAGED.fullmatch(path.name) and is_plain_folder(path)) or (path.name == DIGESTS and is_plain_file(path)):
            yield path


def others_in(folder: Path) -> tuple[str, ...]:
    """Return the sorted names of files in a folder that are not the cache's, also below the folders of keys."""
    own = {*parts_of(folder), *(folder / name for name in (MARKER, CACHE_MARKER) if is_plain_file(folder / name))}
    keys = set(key_folders(folder))
    paths = [path for path in listed(folder) if path not in own and path not in keys]
    paths += [path for place in keys for path in listed(place) if path not in own]
    return tuple(sorted(path.relative_to(folder).as_posix() for path in paths))


def remove_cache(folder: Path) -> tuple[str, ...]:
    """Remove the cache's own files, and the folder if it is empty then; return the other files in it.

    The markers go last, so that an interrupted removal leaves a cache.

    Raises:
        StorageError: The folder is not a cache, or something cannot be removed.
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
