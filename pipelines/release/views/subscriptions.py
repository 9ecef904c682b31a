"""Keep the request of each view that follows an alias, one file each in `views/<model>/` of the repository.

Its warm-up rows lie next to it, so that later rewrites need neither the user's code nor the samples.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct

from paritygate.codec import from_data, to_data
from paritygate.errors import InputFileError, UsageError
from paritygate.file_names import check_names
from paritygate.files import json_bytes, parse_json, temporary_folder
from paritygate.pipelines.release.repository.commands import command_on
from paritygate.pipelines.release.stores.folders import reading_errors
from paritygate.pipelines.release.stores.opening import store_of
from paritygate.pipelines.release.views.request import ViewRequest
from paritygate.pipelines.serving import SERVERS
from paritygate.roots import Root, absolute
from paritygate.text import from_here
from paritygate.validate.samples.in_memory import store_samples
from paritygate.validate.samples.samples import open_samples
from paritygate.validate.samples.source import SampleSource

_FOLDER = "views"
_ID = 16


class ViewSubscription(Struct, frozen=True, kw_only=True):
    """Hold the kept request of a view that follows an alias, or the error why it cannot be read."""

    path: Root
    request: ViewRequest | None = None  # None where the file is corrupt
    error: InputFileError | None = None

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON data."""
        why = None if self.error is None else self.error.to_json()
        return {"record": str(self.path), "order": to_data(self.request), "is_there": False, "error": why}


def subscribe(repository: Root, request: ViewRequest, samples: SampleSource | None, *, is_followed: bool) -> None:
    """Keep the request, so that the view follows its alias; or forget the request of that place.

    Raises:
        UsageError: The warm-up rows are of a dtype that cannot be kept.
        StorageError: The repository cannot be written.
    """
    store, record = store_of(repository), _record_of(request)
    is_kept = is_followed and request.follows
    # The place may have shown another model.
    for model in {*store.names(_FOLDER), request.model}:
        if not (is_kept and model == request.model):
            _remove(repository, _record_of(request, model))
    if not is_kept:
        return
    if samples is not None:
        with temporary_folder("warmup") as place:
            stored = store_samples(next(iter(open_samples(samples)())).inputs, place, samples)
            store.replace(_rows_of(record), Path(stored.text).read_bytes())
    store.replace(record, json_bytes({"schema_version": 1, "order": to_data(request)}))


def subscriptions(repository: Root, model: str | None = None) -> Iterator[ViewSubscription]:
    """Yield the kept requests for views of a model, or of all models."""
    store = store_of(repository)
    for each in store.names(_FOLDER) if model is None else (model,):
        for name in store.names(f"{_FOLDER}/{each}"):
            if name.endswith(".json"):
                yield _read(repository, f"{_FOLDER}/{each}/{name}")


@contextlib.contextmanager
def warmup_rows(repository: Root, request: ViewRequest) -> Iterator[SampleSource | None]:
    """Yield the kept warm-up rows of a view; None if it has none.

    Raises:
        InputFileError: They are missing.
    """
    if request.samples is None:
        yield None
        return
    name = _rows_of(_record_of(request))
    with temporary_folder("warmup") as folder:
        with reading_errors(repository / name):
            (folder / "rows.npz").write_bytes(next(store_of(repository).read([name])))
        yield SampleSource(text="rows.npz", folder=folder)


def forget_view(repository: Root, place: Root) -> tuple[ViewRequest, ...]:
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
        msg = f"no view in {from_here(absolute(place))} follows an alias (views that do: {places})"
        raise UsageError(msg, hint="see them", command=command_on(repository, "views"))
    for path, _ in of_place:
        _remove(repository, "/".join(str(path).rsplit("/", 3)[1:]))
    return tuple(request for _, request in of_place)


def _read(repository: Root, name: str) -> ViewSubscription:
    path = repository / name
    try:
        request = from_data(ViewRequest, parse_json(next(store_of(repository).read([name])))["order"])
        check_names((request.model, request.name))
        SERVERS[request.command]  # A later version may have more kinds.
        return ViewSubscription(path=path, request=request)
    except (OSError, KeyError, TypeError, ValueError) as err:
        msg = f"{path} is corrupt: {type(err).__name__}: {err}"
        return ViewSubscription(path=path, error=InputFileError(msg, hint="remove it, and write its view again"))


def _is_same(one: Root, other: Root) -> bool:
    # A folder that is gone has no links to follow.
    return _as_named(one) == _as_named(other)


def _as_named(place: Root) -> str:
    return os.path.abspath(place) if isinstance(place, Path) else place  # noqa: PTH100 - `absolute` keeps `..`


def _remove(repository: Root, record: str) -> None:
    store, folder = store_of(repository), record.rpartition("/")[0]
    # Somebody who may only read the repository has no view to remove.
    there = store.names(folder)
    for name in (record, _rows_of(record)):
        if name.rpartition("/")[2] in there:
            store.remove(name)


def _record_of(request: ViewRequest, model: str | None = None) -> str:
    # One view for each place: a later request replaces the first.
    place = hashlib.sha256(f"{request.command} {request.place}".encode()).hexdigest()[:_ID]
    return f"{_FOLDER}/{model or request.model}/{place}.json"


def _rows_of(record: str) -> str:
    return f"{record.removesuffix('.json')}.npz"
