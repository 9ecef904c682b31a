"""What is compared of files, folders and links between one run and the next."""

from __future__ import annotations

import hashlib
import importlib.machinery
import os
import stat
from collections.abc import Iterable

# Which names in a folder count: all, all but files of `--json`, those of modules and packages, those of packages alone.
ALL_NAMES = "names"
NAMES_BUT_REPORTS = "names but reports"
NAMES_OF_MODULES = "modules"
NAMES_OF_PACKAGES = "packages"
KINDS_OF_NAMES = frozenset({ALL_NAMES, NAMES_BUT_REPORTS, NAMES_OF_MODULES, NAMES_OF_PACKAGES})
_OF_PACKAGES = (".dist-info", ".egg-info", ".egg")
_EGG_INFO = "egg-info"
_ENDINGS = importlib.machinery.all_suffixes()
_OF_MODULES = (*_ENDINGS, *_OF_PACKAGES, ".pth")
# Where `--json` is to write, and what stands in each such file, which may be large.
_OF_REPORTS = ".json"
_IN_REPORTS = (b'"schema_version"', b'"exit_code"')
_MOST_REPORT_BYTES = 1 << 24
# Of a file that is written twice within a step of the kernel's clock (1/HZ, 10 ms at the most), the time is the same.
CLOCK_STEP_NS = 10_000_000
# How many new names in a folder are told from those that were there.
_MOST_ADDED = 20
_PART_BYTES = 1 << 20


def names_in(folder: str, kind: str = ALL_NAMES) -> str:
    """Return the digest of the names in a folder and what each is, but for what Python keeps of the modules there.

    Args:
        folder: The folder.
        kind: Which names count, one of `KINDS_OF_NAMES`.

    Raises:
        OSError: It cannot be listed.
    """
    return _digest_of_names(_counting(folder, kind))


def _is_report(path: str, name: str) -> bool:
    """Return whether a file is one that a command wrote for `--json`."""
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
    """Return the name that was added to a folder since its names had a digest, one of them where several were.

    Args:
        folder: The folder.
        before: What `names_in` returned.
        kind: As of `names_in`.

    Returns:
        The name; None where it cannot be told, such as where one was removed.
    """
    try:
        names = _counting(folder, kind)
        newest = sorted(names, key=lambda name: os.lstat(os.path.join(folder, name[1:])).st_ctime_ns, reverse=True)  # noqa: PTH118 - of many
    except OSError:
        return None
    for count, name in enumerate(newest[:_MOST_ADDED], start=1):
        for added in ({name}, set(newest[:count])):
            if _digest_of_names([each for each in names if each not in added]) == before:
                return name[1:]
    return None


def _counting(folder: str, kind: str) -> list[str]:
    """Return the names that count, each after a letter for what it is, as whoever lists them is told."""
    with os.scandir(folder) as found:
        names = [f"{_letter(entry)}{entry.name}" for entry in found if entry.name != "__pycache__"]
    if kind == NAMES_BUT_REPORTS:
        return [name for name in names if not _is_report(f"{folder}/{name[1:]}", name)]
    if kind == NAMES_OF_MODULES:
        return [name for name in names if name.lower().endswith(_OF_MODULES) or "." not in name]
    if kind == NAMES_OF_PACKAGES:
        return [name for name in names if name.lower().endswith(_OF_PACKAGES) or name[1:].lower() == _EGG_INFO]
    return names


def endings_of_module(path: str) -> str:
    """Return what is there of a module, each with a letter for what it is.

    Args:
        path: Its path, without an ending.
    """
    found = ((ending, _letter_of(f"{path}{ending}")) for ending in ("", *_ENDINGS))
    return " ".join(f"{letter}{ending}" for ending, letter in found if letter)


def ending_added(path: str, before: str) -> str | None:
    """Return what is there of a module that was not when `endings_of_module` returned `before`; None for nothing."""
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
    found = b"/".join(sorted(os.fsencode(name) for name in names))
    return f"sha256:{hashlib.sha256(found).hexdigest()}"


def target_of(path: str) -> str | None:
    """Return where a link leads to, as it is written in it; None for what is no link, or not there."""
    try:
        return os.readlink(path)  # noqa: PTH115 - as it was written
    except OSError:
        return None


def identity_of(found: os.stat_result) -> tuple[int, ...]:
    """Return what stays the same as long as a file is not written: device, inode, size and its times."""
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def content_of(path: str) -> str:
    """Return the digest of a file's content, read to its end: what the kernel makes up has no size.

    Raises:
        OSError: It cannot be read.
    """
    digest = hashlib.sha256()
    with open(path, "rb") as stream:  # noqa: PTH123 - as it was written
        while part := stream.read(_PART_BYTES):
            digest.update(part)
    return f"sha256:{digest.hexdigest()}"


def attributes_of(path: str) -> str:
    """Return the digest of the extended attributes of a file.

    Raises:
        OSError: They cannot be read.
    """
    names = sorted(os.listxattr(path))
    found = "\0".join(f"{name}={os.getxattr(path, name).hex()}" for name in names)
    return f"sha256:{hashlib.sha256(found.encode()).hexdigest()}"
