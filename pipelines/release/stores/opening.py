"""Open the store at a place."""

from __future__ import annotations

from pathlib import Path

from paritygate.pipelines.release.stores.disk import DiskStore
from paritygate.pipelines.release.stores.store import Store
from paritygate.roots import Root


def store_of(place: Root) -> Store:
    """Return the store at a place.

    Raises:
        MissingBackendError: The package for object stores is not installed.
        StorageError: The address cannot be opened.
    """
    if isinstance(place, Path):
        return DiskStore(place)
    from paritygate.pipelines.release.stores.objects import object_store

    return object_store(place)
