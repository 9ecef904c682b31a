"""Keep the request of each view that follows an alias, one file each in `views/<model>/` of the repository.

Its warm-up rows lie next to it, so that later rewrites need neither the user's code nor the samples.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paritygate.codec import from_data, to_data
from paritygate.errors import InputFileError, UsageError
from paritygate.file_names import check_names
from paritygate.files import read_json, storage_errors, write_json_atomically
from paritygate.pipelines.release.repository.commands import command_on
from paritygate.pipelines.release.stores.folders import make_folders
from paritygate.pipelines.release.views.request import ViewRequest
from paritygate.pipelines.serving import SERVERS
from paritygate.roots import Root
from paritygate.text import from_here
from paritygate.validate.samples.in_memory import store_samples
from paritygate.validate.samples.samples import open_samples
from paritygate.validate.samples.source import SampleSource

_FOLDER = "views"
_ID = 16


@dataclass(frozen=True, kw_only=True, slots=True)
class ViewSubscription:
    """Hold the kept request of a view that follows an alias, or the error why it cannot be read."""

    path: Path
    request: ViewRequest | None = None  # None where the file is corrupt
    error: InputFileError | None = None

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON data."""
        is_there = self.request is not None and self.request.place.is_dir()
        why = None if self.error is None else self.error.to_json()
        return {"record": str(self.path), "order": to_data(self.request), "is_there": is_there, "error": why}


def subscribe(repository: Root, request: ViewRequest, samples: SampleSource | None, *, is_followed: bool) -> None:
    """Keep the request, so that the view follows its alias; or forget the request of that place.

    Raises:
        UsageError: The warm-up rows are of a dtype that cannot be kept.
        StorageError: The repository cannot be written.
    """
    if not isinstance(repository, Path):
        # What moves its alias elsewhere cannot write a folder of this machine.
        return
    record = _record_of(repository, request)
    # The place may have shown another model.
    others = [path for path in (repository / _FOLDER).glob(f"*/{record.name}") if path != record]
    with storage_errors(repository):
        for path in others if is_followed and request.follows else (*others, record):
            _remove(path)
    if not (is_followed and request.follows):
        return
    folder = make_folders(repository, _FOLDER, request.model)
    if samples is not None:
        with storage_errors(folder), tempfile.TemporaryDirectory(dir=folder) as place:
            stored = store_samples(next(iter(open_samples(samples)())).inputs, Path(place), samples)
            Path(stored.text).replace(warmup_rows(repository, request))
    write_json_atomically(record, {"schema_version": 1, "order": to_data(request)})


def subscriptions(repository: Root, model: str = "*") -> Iterator[ViewSubscription]:
    """Yield the kept requests for views of a model, or of all models."""
    for path in () if not isinstance(repository, Path) else sorted((repository / _FOLDER).glob(f"{model}/*.json")):
        yield _read(path)


def warmup_rows(repository: Path, request: ViewRequest) -> Path:
    """Return the file of the server's warm-up rows."""
    return _record_of(repository, request).with_suffix(".npz")


def forget_view(repository: Root, place: Path) -> tuple[ViewRequest, ...]:
    """Forget the requests of a view and return them: the view stays as it is, and follows its alias no longer.

    `place` is the model's folder on the server, which may be gone.

    Raises:
        UsageError: No view there follows an alias.
        StorageError: The repository cannot be written.
    """
    followed = [(each.path, each.request) for each in subscriptions(repository) if each.request is not None]
    of_place = [(path, request) for path, request in followed if _is_same(request.place, place)]
    if not of_place:
        places = ", ".join(sorted({from_here(request.place) for _, request in followed})) or "none"
        msg = f"no view in {from_here(place.absolute())} follows an alias (those that do: {places})"
        raise UsageError(msg, hint="see them", command=command_on(repository, "views"))
    for path, _ in of_place:
        with storage_errors(path):
            _remove(path)
    return tuple(request for _, request in of_place)


def _read(path: Path) -> ViewSubscription:
    try:
        request = from_data(ViewRequest, read_json(path)["order"])
        check_names((request.model, request.name))
        SERVERS[request.command]  # A later version may have more kinds.
        return ViewSubscription(path=path, request=request)
    except (OSError, KeyError, TypeError, ValueError) as err:
        msg = f"{path} is corrupt: {type(err).__name__}: {err}"
        return ViewSubscription(path=path, error=InputFileError(msg, hint="remove it, and write its view again"))


def _is_same(one: Path, other: Path) -> bool:
    # A folder that is gone has no links to follow.
    return os.path.abspath(one) == os.path.abspath(other)  # noqa: PTH100 - `absolute` keeps `..`


def _remove(record: Path) -> None:
    for path in (record, record.with_suffix(".npz")):
        path.unlink(missing_ok=True)


def _record_of(repository: Path, request: ViewRequest) -> Path:
    # One view for each place: a later request replaces the first.
    place = hashlib.sha256(f"{request.command} {request.place}".encode()).hexdigest()[:_ID]
    return repository / _FOLDER / request.model / f"{place}.json"
