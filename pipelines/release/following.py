"""Views that follow an alias: written where a model server looks, and written again when the alias moves.

What was asked for is kept in the repository, `views/<model>/`, with the rows that the server is warmed up with: no code
and no samples of the user's are asked again.
"""

from __future__ import annotations

import hashlib
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from paritygate.codec import from_data, to_data
from paritygate.errors import InputFileError, ParitygateError
from paritygate.files import read_json, storage_errors, write_json_atomically
from paritygate.pipelines.release.published_view import PublishedView
from paritygate.pipelines.release.repository.disk import make_folders
from paritygate.pipelines.release.repository.inspect import read_state
from paritygate.pipelines.release.view_order import ViewOrder
from paritygate.validate.samples.in_memory import store_samples
from paritygate.validate.samples.samples import open_samples
from paritygate.validate.samples.source import SampleSource

__all__ = ["FollowingView", "keep_order", "publish_order", "write_following_views"]

_FOLDER = "views"
_ID = 16
# An alias that others move all the time is left to them.
_TRIES = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class FollowingView:
    """A view whose alias was moved.

    Attributes:
        place: The model's folder on the server; the record of what was asked for where that cannot be read.
        order: What was asked for; None where that cannot be read.
        version: The version that it shows now; None where it could not be written.
        is_changed: Whether anything was written.
        error: Why it could not be written: the server goes on with what it has.
    """

    place: Path
    order: ViewOrder | None
    version: int | None = None
    is_changed: bool = False
    error: ParitygateError | None = None

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON data."""
        why = None if self.error is None else {"message": str(self.error), "hint": self.error.hint}
        said = {"place": str(self.place), "order": to_data(self.order)}
        return {**said, "version": self.version, "is_changed": self.is_changed, "error": why}


def publish_order(repository: Path, order: ViewOrder, samples: SampleSource | None) -> PublishedView[Any, Any]:
    """Write a view, and return what it is.

    Raises:
        ParitygateError: As `publish_triton_view`, `publish_kserve_view` and `publish_saved_model`.
    """
    if order.command == "triton":
        from paritygate.pipelines.release.triton_view import publish_triton_view

        return publish_triton_view(repository, order, samples)
    if order.command == "kserve":
        from paritygate.pipelines.release.kserve_view import publish_kserve_view

        return publish_kserve_view(repository, order, samples)
    from paritygate.pipelines.release.tensorflow_serving_view import publish_saved_model

    return publish_saved_model(repository, order)


def keep_order(repository: Path, order: ViewOrder, samples: SampleSource | None, *, is_followed: bool) -> None:
    """Keep what was asked for, so that the view follows its alias; or forget what was kept of that place.

    Raises:
        UsageError: The warm-up rows are of a dtype that cannot be kept.
        StorageError: The repository cannot be written.
    """
    if not (is_followed and order.follows):
        with storage_errors(repository):
            for path in (_record_of(repository, order), _rows_of(repository, order)):
                path.unlink(missing_ok=True)
        return
    folder = make_folders(repository, _FOLDER, order.model)
    if samples is not None:
        with storage_errors(folder), tempfile.TemporaryDirectory(dir=folder) as place:
            stored = store_samples(next(iter(open_samples(samples)())).inputs, Path(place), samples)
            Path(stored.text).replace(_rows_of(repository, order))
    write_json_atomically(_record_of(repository, order), {"schema_version": 1, "order": to_data(order)})


def write_following_views(repository: Path, model: str, alias: str | None) -> tuple[FollowingView, ...]:
    """Write every view again that follows an alias of a model: those that show what it points to stay as they are.

    The alias has moved by then: what cannot be written is said, and raises nothing.
    """
    found = []
    for path in sorted((repository / _FOLDER / model).glob("*.json")):
        order = None
        try:
            order = _read_order(path)
            if order.which == alias:
                found.append(_follow(repository, order))
        except ParitygateError as err:
            found.append(FollowingView(place=path if order is None else order.place, order=order, error=err))
    return tuple(found)


def _read_order(path: Path) -> ViewOrder:
    try:
        return from_data(ViewOrder, read_json(path)["order"])
    except (OSError, KeyError, TypeError, ValueError) as err:
        msg = f"{path} is damaged: {type(err).__name__}: {err}"
        raise InputFileError(msg, hint="remove it, and write its view again") from err


def _follow(repository: Path, order: ViewOrder) -> FollowingView:
    if not order.place.is_dir():
        msg = f"there is no {order.place} here"
        raise InputFileError(msg, hint=f"write it again, or remove {_record_of(repository, order)} to forget it")
    rows = _rows_of(repository, order)
    samples = None if order.samples is None else SampleSource(text=rows.name, folder=rows.parent.absolute())
    found = FollowingView(place=order.place, order=order)
    # Whoever moves the alias meanwhile may have written the view already: the last to write has to know.
    for _ in range(_TRIES):
        published = publish_order(repository, order, samples)
        is_changed = found.is_changed or published.written.is_changed
        found = replace(found, version=published.version, is_changed=is_changed)
        if read_state(repository, order.model).aliases.get(order.which) == published.version:
            break
    return found


def _record_of(repository: Path, order: ViewOrder) -> Path:
    # One place, one view: another order for it takes the place of the first.
    place = hashlib.sha256(f"{order.command} {order.place}".encode()).hexdigest()[:_ID]
    return repository / _FOLDER / order.model / f"{place}.json"


def _rows_of(repository: Path, order: ViewOrder) -> Path:
    return _record_of(repository, order).with_suffix(".npz")
