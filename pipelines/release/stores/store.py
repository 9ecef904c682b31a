"""The protocol of a store: the few operations that a repository needs, on disk as in an object store."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from paritygate.roots import Root


class NotAFileError(OSError):
    """A name is that of a folder, a link or a device, where a file is expected."""


class Store(Protocol):
    """Keep files below one place; every name is relative to it and has slashes."""

    @property
    def place(self) -> Root:
        """The folder or the address."""

    def is_there(self) -> bool:
        """Return whether the place exists."""

    def names(self, folder: str) -> tuple[str, ...]:
        """Return the names of files and folders directly below a folder, sorted; none if there is no such folder."""

    def tags(self, folder: str) -> Mapping[str, Hashable]:
        """Return, for each file directly below a folder, a tag that changes with its content; None where unknown."""

    def read(self, names: Sequence[str]) -> Iterator[bytes]:
        """Yield the contents of files.

        Raises:
            FileNotFoundError: There is no such file.
            NotAFileError: It is not a plain file.
        """

    def read_tagged(self, names: Sequence[str]) -> Iterator[tuple[bytes, Hashable]]:
        """Yield the contents of files like `read`, each with its tag as in `tags`; None where unknown."""

    def digests(self, note: Callable[[int], None] | None = None) -> dict[str, str]:
        """Return the digest of every file below the place by its name; `note` gets the sizes of the parts read."""

    def size_bytes(self, folder: str) -> int:
        """Return the size of all files below a folder."""

    def age_s(self, folder: str) -> float:
        """Return the seconds since the last change at or below a folder; 0 if nothing is there."""

    def staging(self) -> AbstractContextManager[Path]:
        """Make a local folder that `create` and `publish` need, with an empty `release/`; deleted at the end.

        Raises:
            StorageError: The place cannot be written to, or cannot keep releases safely.
        """

    def create(self, name: str, content: bytes, staging: Path) -> bool:
        """Write a lasting file unless its name is taken; return whether this call wrote it. One of several wins."""

    def replace(self, name: str, content: bytes) -> None:
        """Write a lasting small file at once, whatever has its name."""

    def remove(self, name: str) -> None:
        """Delete a file, if it is there."""

    def is_created(self, name: str, content: bytes, staging: Path) -> bool:
        """Return whether a `create` that failed wrote its file after all."""

    def publish(self, staging: Path, name: str) -> bool:
        """Make `release/` of the staging folder lasting as a folder of the store; return False if it is taken.

        Raises:
            StorageError: It cannot be written; nothing is left of it.
        """

    def withdraw(self, name: str, staging: Path) -> None:
        """Delete a folder; files that no process deleted before a kill are deleted later."""
