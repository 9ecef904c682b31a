"""The store in an object store: a record and a release's number are taken by create-if-absent."""

from __future__ import annotations

import contextlib
import functools
import hashlib
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from paritygate.errors import InputFileError, StorageError
from paritygate.files import digest_of_bytes, storage_errors, temporary_folder
from paritygate.pipelines.release.stores.client import bucket_client, probe, reason_of
from paritygate.pipelines.release.stores.disk import digests_below
from paritygate.pipelines.release.stores.staging import CONTENT
from paritygate.roots import Address

# Which file of a release takes its number.
_CLAIM = "manifest.json"
_WORKERS = 8
_CHUNK_BYTES = 16 << 20


class ObjectStore:
    """Keep files as objects below the prefix of an address."""

    def __init__(self, place: Address, client: Any) -> None:  # noqa: ANN401 - of a package without types
        self.place = place
        self._client = client
        self._is_fit = False
        # The staging folders of records that may still arrive: their releases must not be deleted.
        self._uncertain: set[Path] = set()

    def is_there(self) -> bool:
        """Return whether any object is below the prefix."""
        with self._errors("read"):
            return any(self._client.list(self._key("")))

    def names(self, folder: str) -> tuple[str, ...]:
        """Return the names directly below a folder."""
        listing = self._list_folder(folder)
        paths = (*listing["common_prefixes"], *(item["path"] for item in listing["objects"]))
        return tuple(sorted(path.rpartition("/")[2] for path in paths))

    def folders(self, folder: str) -> tuple[str, ...]:
        """Return the names of the folders directly below a folder."""
        return tuple(sorted(path.rpartition("/")[2] for path in self._list_folder(folder)["common_prefixes"]))

    def tags(self, folder: str) -> Mapping[str, Hashable]:
        """Return the e-tag and the size of each object directly below a folder."""
        objects = self._list_folder(folder)["objects"]
        return {item["path"].rpartition("/")[2]: _tag(item) for item in objects}

    def read(self, names: Sequence[str]) -> Iterator[bytes]:
        """Yield the contents of objects."""
        return (content for content, _ in self.read_tagged(names))

    def read_tagged(self, names: Sequence[str]) -> Iterator[tuple[bytes, Hashable]]:
        """Yield the contents and tags of objects, several of which are fetched at once."""
        if len(names) == 1:
            yield self._read(names[0])
            return
        with ThreadPoolExecutor(_WORKERS) as workers:
            yield from workers.map(self._read, names)

    def digests(self, note: Callable[[int], None] | None = None) -> dict[str, str]:
        """Return the digest of every object below the prefix."""
        return self._digests("", note)

    def size_bytes(self, folder: str) -> int:
        """Return the size of all objects below a folder."""
        return sum(self._sizes(folder).values())

    def age_s(self, folder: str) -> float:
        """Return the seconds since an object below a folder was written, by the clocks of the server and this host."""
        with self._errors("read", folder):
            times = [item["last_modified"] for part in self._client.list(self._key(folder)) for item in part]
        return (datetime.now(timezone.utc) - max(times)).total_seconds() if times else 0.0

    @contextlib.contextmanager
    def staging(self) -> Iterator[Path]:
        """Make a temporary folder, after probing once whether the server keeps what is created."""
        if not self._is_fit:
            with self._errors("written"):
                problem = probe(self._client, self._key("staging/probe"))
            if problem:
                msg = f"{self.place} cannot keep releases: {problem}"
                raise StorageError(msg, hint="use a store with conditional writes, such as S3")
            self._is_fit = True
        with temporary_folder("release") as folder:
            (folder / CONTENT).mkdir()
            yield folder

    def create(self, name: str, content: bytes, staging: Path) -> bool:
        """Put an object with the condition that there is none."""
        self._uncertain.add(staging)
        is_created = self._put_new(name, content)
        self._uncertain.discard(staging)
        # A request that was repeated because its answer was lost finds its own object.
        return is_created or self.is_created(name, content, staging)

    def replace(self, name: str, content: bytes) -> None:
        """Put an object."""
        with self._errors("written", name):
            self._client.put(self._key(name), content)

    def remove(self, name: str) -> None:
        """Delete an object, if it is there."""
        with self._errors("deleted", name), contextlib.suppress(FileNotFoundError):
            self._client.delete(self._key(name))

    def is_created(self, name: str, content: bytes, staging: Path) -> bool:
        """Return whether the object has the content."""
        del staging
        with contextlib.suppress(OSError):
            return self._read(name)[0] == content
        return False

    def publish(self, staging: Path, name: str) -> bool:
        """Take the number by the manifest, upload the other files, and compare all of them read back."""
        content = staging / CONTENT
        digests = digests_below(content)
        claim = (content / _CLAIM).read_bytes()
        if not self._put_new(f"{name}/{_CLAIM}", claim) and not self.is_created(f"{name}/{_CLAIM}", claim, staging):
            return False
        try:
            self._upload(content, name, digests)
        except BaseException:
            with contextlib.suppress(OSError):
                self._delete(name)
            raise
        return True

    def _upload(self, content: Path, name: str, digests: Mapping[str, str]) -> None:
        for file in sorted(digests.keys() - {_CLAIM}):
            with self._errors("written", f"{name}/{file}"):
                self._client.put(self._key(f"{name}/{file}"), content / file)
        if self._digests(name) != digests:
            msg = f"{self.place / name} differs from the files that were uploaded"
            raise StorageError(msg, hint="promote again, and check the store if this happens again")

    def add(self, folder: str, files: Mapping[str, Path | bytes], digests: Mapping[str, str]) -> None:
        """Create objects below a folder, and compare them read back; those that are there already must be the same.

        Raises:
            StorageError: An object is another one, or they cannot be written.
        """
        for name, content in files.items():
            self._put_new(f"{folder}/{name}", content)
        there = self._digests(folder)
        others = [name for name, digest in digests.items() if there.get(name) != digest]
        if others:
            msg = f"{self.place / folder} differs from the files that were uploaded: {', '.join(others)}"
            raise StorageError(msg, hint="remove it, and write it again")

    def withdraw(self, name: str, staging: Path) -> None:
        """Delete the objects of a release, its manifest last; nothing if its record may still arrive."""
        if staging not in self._uncertain:
            self._delete(name)

    def download(self, names: Mapping[str, str], folder: Path) -> dict[str, str]:
        """Write objects below a local folder, and return the digest of each; missing ones are left out."""
        sizes = {name: size for name, size in self._sizes("").items() if name in names}

        def fetch(name: str) -> str:
            path = folder / name
            with storage_errors(path):
                path.parent.mkdir(parents=True, exist_ok=True)
                with path.open("wb") as stream:
                    return self._digest(name, sizes[name], stream.write)

        with ThreadPoolExecutor(_WORKERS) as workers:
            return dict(zip(sizes, workers.map(fetch, sizes), strict=True))

    def _key(self, name: str) -> str:
        return "/".join(filter(None, (self.place.prefix, name)))

    @contextlib.contextmanager
    def _errors(self, verb: str, name: str = "") -> Iterator[None]:
        """Turn an error of the client into a clear one; that there is no such object stays `FileNotFoundError`."""
        from obstore.exceptions import BaseError

        try:
            yield
        except BaseError as err:
            place = self.place / name if name else self.place
            msg = f"{place} could not be {verb}: {reason_of(err)}"
            raise StorageError(msg, hint="check the address, the network and the credentials") from None

    def _list_folder(self, folder: str) -> Any:  # noqa: ANN401 - of a package without types
        try:
            with self._errors("read", folder):
                return self._client.list_with_delimiter(self._key(folder))
        except FileNotFoundError as err:
            msg = f"the bucket of {self.place} does not exist"
            raise InputFileError(msg, hint="create it, or correct the address") from err

    def _sizes(self, folder: str) -> dict[str, int]:
        """Return the size of every object below a folder by its name there."""
        start = len(self._key(folder)) + 1 if self._key(folder) else 0
        with self._errors("read", folder):
            return {
                item["path"][start:]: item["size"] for part in self._client.list(self._key(folder)) for item in part
            }

    def _read(self, name: str) -> tuple[bytes, Hashable]:
        with self._errors("read", name):
            found = self._client.get(self._key(name))
            return bytes(found.bytes()), _tag(found.meta)

    def _digests(self, folder: str, note: Callable[[int], None] | None = None) -> dict[str, str]:
        sizes = self._sizes(folder)
        names = {name: "/".join(filter(None, (folder, name))) for name in sizes}
        with ThreadPoolExecutor(_WORKERS) as workers:
            digests = workers.map(lambda name: self._digest(names[name], sizes[name], note=note), sizes)
            return dict(zip(sizes, digests, strict=True))

    def _digest(
        self,
        name: str,
        size: int,
        write: Callable[[bytes], object] | None = None,
        note: Callable[[int], None] | None = None,
    ) -> str:
        state = hashlib.sha256()
        for start in range(0, size, _CHUNK_BYTES):
            with self._errors("read", name):
                length = min(_CHUNK_BYTES, size - start)
                chunk = bytes(self._client.get_range(self._key(name), start=start, length=length))
            state.update(chunk)
            if write is not None:
                write(chunk)
            if note is not None:
                note(length)
        return f"sha256:{state.hexdigest()}" if size else digest_of_bytes(b"")

    def _put_new(self, name: str, content: Path | bytes) -> bool:
        from obstore.exceptions import AlreadyExistsError

        try:
            with self._errors("written", name):
                try:
                    self._client.put(self._key(name), content, mode="create")
                except AlreadyExistsError:
                    return False
        except FileNotFoundError as err:
            msg = f"the bucket of {self.place} does not exist"
            raise InputFileError(msg, hint="create it, or correct the address") from err
        return True

    def _delete(self, name: str) -> None:
        # The manifest last: until then nobody else takes the number, whose objects would be deleted with these.
        names = sorted(self._sizes(name), key=lambda file: file == _CLAIM)
        with self._errors("deleted", name):
            for batch in (names[:-1], names[-1:]):
                if batch:
                    self._client.delete([self._key(f"{name}/{file}") for file in batch])


def _tag(meta: Mapping[str, Any]) -> Hashable:
    # Azure quotes it only with the object.
    return None if meta["e_tag"] is None else (meta["e_tag"].strip('"'), meta["size"])


@functools.cache
def object_store(place: Address) -> ObjectStore:
    """Return the store at an address; it is opened once in a process.

    Raises:
        MissingBackendError: The package for object stores is not installed.
        StorageError: The address cannot be opened.
    """
    return ObjectStore(place, bucket_client(place))
