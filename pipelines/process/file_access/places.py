"""Resolve a path as the process that uses it does, through links and open files."""

from __future__ import annotations

import os
import re

from msgspec import Struct

from paritygate.pipelines.process.file_access.states import target_of

# The kernel's limit: a path with more links is an error.
_MOST_LINKS = 40
# Listing folders again each time that something moves would take longer than asking about each path.
_MOST_LISTED = 16
# These links lead to open files and folders of a process; their text is not always a path.
_OF_PROCESS = re.compile(r"/proc/\d+(?:/task/\d+)?/(?:cwd|root|exe|fd/\d+|map_files/[^/]+)")
# Where a path may lead through what a process has open.
_MADE_UP = ("/proc/", "/dev/")


class WatchedPlace(Struct, frozen=True, kw_only=True):
    """Where a path leads to.

    Attributes:
        written: The absolute path as the process wrote it.
        real: The path without links. Something without a path, such as a pipe, does not begin with a slash.
        crossed: The links on the way, in order.
    """

    written: str
    real: str
    crossed: tuple[str, ...]


class Places:
    """Resolves paths and remembers where folders lead to."""

    def __init__(self) -> None:
        """Begin without known folders."""
        self._folders: dict[str, tuple[str, tuple[str, ...]]] = {}
        # The names of the links in each folder.
        self._links: dict[str, frozenset[str]] = {}
        self._forgotten = 0

    def forget(self) -> None:
        """Forget all folders, because a link was made or a path moved."""
        self._folders.clear()
        self._links.clear()
        self._forgotten += 1

    def place(self, path: str, pid: int, *, is_followed: bool = True) -> WatchedPlace:
        """Return where an absolute path leads to for a process or thread.

        If `is_followed` is false, a link at the end of the path is not resolved.
        """
        folder, _, name = path.rpartition("/")
        if name in {"", ".", ".."} or any(part in path for part in _MADE_UP):
            real, crossed = _walk(path, pid, is_followed=is_followed)
            return WatchedPlace(written=path, real=real, crossed=crossed)
        walked = self._folders.get(folder)
        if walked is None:
            walked = self._folders[folder] = _walk(folder, pid, is_followed=True)
        real = f"{walked[0].rstrip('/')}/{name}"
        if is_followed and self._is_link(walked[0], name, real):
            real, crossed = _walk(path, pid, is_followed=True)
            return WatchedPlace(written=path, real=real, crossed=crossed)
        return WatchedPlace(written=path, real=real, crossed=walked[1])

    def _is_link(self, folder: str, name: str, path: str) -> bool:
        if self._forgotten > _MOST_LISTED:
            return target_of(path) is not None
        links = self._links.get(folder)
        if links is None:
            try:
                with os.scandir(folder) as entries:
                    links = frozenset(entry.name for entry in entries if entry.is_symlink())
            except FileNotFoundError:
                links = frozenset()
            except OSError:
                return target_of(path) is not None
            self._links[folder] = links
        return name in links


def _walk(path: str, pid: int, *, is_followed: bool) -> tuple[str, tuple[str, ...]]:
    done = ""
    crossed: list[str] = []
    left = path.split("/")[::-1]
    links = 0
    while left:
        name = left.pop()
        if name in {"", "."}:
            continue
        if name == "..":
            done = done.rpartition("/")[0]
            continue
        place = f"{done}/{name}"
        is_last = not left
        target = None if is_last and not is_followed else _target(place, pid)
        if target is None or links >= _MOST_LINKS:
            done = place
            continue
        links += 1
        if _OF_PROCESS.fullmatch(place):
            if not target.startswith("/"):
                # A pipe, a socket, or memory.
                return target, tuple(crossed)
        elif not place.startswith("/proc/"):
            crossed.append(place)
        if target.startswith("/"):
            done = ""
        left.extend(target.split("/")[::-1])
    return done or "/", tuple(crossed)


def _target(place: str, pid: int) -> str | None:
    if place == "/proc/self":
        # This link leads each reader to itself.
        return str(pid)
    if place == "/proc/thread-self":
        return f"{pid}/task/{pid}"
    return target_of(place)
