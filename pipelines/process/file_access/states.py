"""The states of files, folders and links that are compared between runs."""

from __future__ import annotations

import hashlib
import importlib.machinery
import os
import stat
from collections.abc import Iterable, Iterator

# Which names in a folder count: all, all except files of `--json`, modules and packages, or only packages.
ALL_NAMES = "names"
NAMES_BUT_REPORTS = "names but reports"
NAMES_OF_MODULES = "modules"
NAMES_OF_PACKAGES = "packages"
KINDS_OF_NAMES = frozenset({ALL_NAMES, NAMES_BUT_REPORTS, NAMES_OF_MODULES, NAMES_OF_PACKAGES})
_OF_PACKAGES = (".dist-info", ".egg-info", ".egg")
_EGG_INFO = "egg-info"
_COMPILED = "__pycache__"
_ENDINGS = importlib.machinery.all_suffixes()
_OF_MODULES = (*_ENDINGS, *_OF_PACKAGES, ".pth")
# How files of `--json` end, and what each contains.
_OF_REPORTS = ".json"
_IN_REPORTS = (b'"schema_version"', b'"exit_code"')
_MOST_REPORT_BYTES = 1 << 24
# Of a file that is written twice within a step of the kernel's clock (1/HZ, 10 ms at the most), the time is the same.
CLOCK_STEP_NS = 10_000_000
# How many new names are tried to explain a changed folder.
_MOST_ADDED = 20
_PART_BYTES = 1 << 20


def names_in(folder: str, kind: str = ALL_NAMES) -> str:
    """Return the digest of the names in a folder that count for a kind, without `__pycache__`; raise OSError."""
    return next(names_of_kinds(folder, kind))


def names_of_kinds(folder: str, *kinds: str) -> Iterator[str]:
    """Yield `names_in` for several kinds, of one look into the folder."""
    names = _listed(folder)
    for kind in kinds:
        yield _digest_of_names(_counting(folder, names, kind))


def _is_report(path: str, name: str) -> bool:
    """Return whether a command wrote this file for `--json`."""
    if not (name.startswith("f") and name.endswith(_OF_REPORTS)):
        return False
    try:
        if os.stat(path).st_size > _MOST_REPORT_BYTES:  # noqa: PTH116 - as it was written
            return False
        with open(path, "rb") as stream:  # noqa: PTH123 - as above
            content = stream.read()
    except OSError:
        return False
    return content.startswith(b"{") and all(part in content for part in _IN_REPORTS)


def name_added(folder: str, before: str, kind: str) -> str | None:
    """Return a name that was added to a folder since `names_in` returned `before`; None if none explains it."""
    try:
        names = _counting(folder, _listed(folder), kind)
        newest = sorted(names, key=lambda name: os.lstat(os.path.join(folder, name[1:])).st_ctime_ns, reverse=True)  # noqa: PTH118 - of many
    except OSError:
        return None
    for count, name in enumerate(newest[:_MOST_ADDED], start=1):
        for added in ({name}, set(newest[:count])):
            if _digest_of_names([each for each in names if each not in added]) == before:
                return name[1:]
    return None


def _listed(folder: str) -> list[str]:
    """Return the names in a folder without `__pycache__`, each after a letter for its kind."""
    with os.scandir(folder) as listing:
        return [f"{_letter(entry)}{entry.name}" for entry in listing if entry.name != _COMPILED]


def _counting(folder: str, names: list[str], kind: str) -> list[str]:
    """Return the names that count, of those in a folder."""
    if kind == NAMES_BUT_REPORTS:
        return [name for name in names if not _is_report(f"{folder}/{name[1:]}", name)]
    if kind == NAMES_OF_MODULES:
        return [name for name in names if is_of_module(name)]
    if kind == NAMES_OF_PACKAGES:
        return [name for name in names if name.lower().endswith(_OF_PACKAGES) or name[1:].lower() == _EGG_INFO]
    return names


def is_of_module(name: str) -> bool:
    """Return whether a name can be that of a module or package, so that it counts for `NAMES_OF_MODULES`."""
    return (name.lower().endswith(_OF_MODULES) or "." not in name) and name != _COMPILED


def letters_of_modules(folder: str) -> dict[str, str]:
    """Return the letter of each name in a folder that counts for `NAMES_OF_MODULES`; raise OSError."""
    return {name[1:]: name[0] for name in _counting(folder, _listed(folder), NAMES_OF_MODULES)}


def endings_of_module(path: str) -> str:
    """Return the endings with which a module path (without an ending) exists, each after a letter for its kind."""
    endings = ((ending, _letter_of(f"{path}{ending}")) for ending in ("", *_ENDINGS))
    return " ".join(f"{letter}{ending}" for ending, letter in endings if letter)


def ending_added(path: str, before: str) -> str | None:
    """Return an ending that is new since `endings_of_module` returned `before`; None if there is none."""
    was = before.split(" ")
    return next((item[1:] for item in endings_of_module(path).split(" ") if item and item not in was), None)


def _letter_of(path: str) -> str:
    try:
        mode = os.lstat(path).st_mode
    except (OSError, ValueError):
        return ""
    return "l" if stat.S_ISLNK(mode) else "d" if stat.S_ISDIR(mode) else "f"


def _letter(entry: os.DirEntry[str]) -> str:
    if entry.is_symlink():
        return "l"
    return "d" if entry.is_dir(follow_symlinks=False) else "f"


def _digest_of_names(names: Iterable[str]) -> str:
    return f"sha256:{hashlib.sha256(os.fsencode('/'.join(sorted(names)))).hexdigest()}"


def target_of(path: str) -> str | None:
    """Return the target of a link as written; None for anything else and for a missing path."""
    try:
        return os.readlink(path)  # noqa: PTH115 - as it was written
    except OSError:
        return None


def identity_of(found: os.stat_result) -> tuple[int, ...]:
    """Return device, inode, size and times, which stay the same until the file is written."""
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def content_of(path: str) -> str:
    """Return the digest of a file, read to its end, because files that the kernel makes up have no size.

    Raises:
        OSError: The file cannot be read.
    """
    digest = hashlib.sha256()
    with open(path, "rb") as stream:  # noqa: PTH123 - as it was written
        while part := stream.read(_PART_BYTES):
            digest.update(part)
    return f"sha256:{digest.hexdigest()}"


def attributes_of(path: str) -> str:
    """Return the digest of the extended attributes of a file.

    Raises:
        OSError: The attributes cannot be read.
    """
    names = sorted(os.listxattr(path))
    text = "\0".join(f"{name}={os.getxattr(path, name).hex()}" for name in names)
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
