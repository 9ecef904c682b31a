"""Open the place that a server reads its models from: a folder, or a prefix in an object store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from paritygate.file_names import checked_name
from paritygate.pipelines.release.stores.objects import ObjectStore, object_store
from paritygate.pipelines.serving.place import Content, Place, digest_of
from paritygate.roots import Address, Root


class StorePlace(Place):
    """A prefix in an object store.

    Nothing is renamed there. A folder is added object by object and never changes, so the file that names it is
    written last, and a server must read only when it is told to.
    """

    adds_at_once = False

    def __init__(self, address: Address) -> None:
        """Use a prefix, which need not exist, as the root."""
        self._address = address

    @property
    def _store(self) -> ObjectStore:
        return object_store(self._address)

    def within(self, folder: str) -> Place:
        """Return a folder of this place as a place."""
        return StorePlace(self._address / checked_name(folder))

    def path_of(self, name: str) -> str:
        """Return the address of a name for messages."""
        return self._address / checked_name(name)

    def is_there(self, folder: str) -> bool:
        """Return whether any object is below a folder."""
        return object_store(self._address / checked_name(folder)).is_there()

    def read(self, name: str) -> bytes | None:
        """Return a small object; None where there is none."""
        try:
            return next(self._store.read([checked_name(name)]))
        except FileNotFoundError:
            return None

    def folders(self, folder: str) -> Sequence[str]:
        """Return the sorted names of the folders in a folder, or in the root for an empty name."""
        return self._store.folders(checked_name(folder) if folder else "")

    def digests(self, folder: str) -> Mapping[str, str]:
        """Return the digest of every object below a folder by its name within it."""
        return object_store(self._address / checked_name(folder)).digests()

    def add_folder(self, folder: str, files: Mapping[str, Content]) -> None:
        """Add these files to a folder, whose other files stay.

        Raises:
            StorageError: One is there with another content, or they cannot be written.
        """
        named = {checked_name(name): content for name, content in files.items()}
        self._store.add(checked_name(folder), named, {name: digest_of(content) for name, content in named.items()})

    def replace(self, name: str, content: bytes) -> None:
        """Write a small object, or raise StorageError."""
        self._store.replace(checked_name(name), content)

    def remove_folder(self, folder: str) -> None:
        """Remove the objects below a folder, or raise StorageError."""
        for name in self.digests(folder):
            self._store.remove(f"{checked_name(folder)}/{name}")


def place_of(root: Root) -> Place:
    """Return the place at a folder or an address.

    Raises:
        MissingBackendError: The package for object stores is not installed.
    """
    return Place(root) if isinstance(root, Path) else StorePlace(root)
