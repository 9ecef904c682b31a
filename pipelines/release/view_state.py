"""What a view that follows an alias shows, beside what its alias points to."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paritygate.codec import to_data
from paritygate.errors import ParitygateError
from paritygate.pipelines.release.repository.inspect import read_state, show
from paritygate.pipelines.release.to_serve import variant_to_serve
from paritygate.pipelines.release.view_order import ViewOrder
from paritygate.pipelines.serving.kserve import MANIFEST, version_in_kserve
from paritygate.pipelines.serving.place import LocalPlace
from paritygate.pipelines.serving.tensorflow_serving import FORMAT, version_in_models_file
from paritygate.pipelines.serving.triton.backends import BACKENDS, files_of
from paritygate.pipelines.serving.triton.view import CONFIG_FILE, version_in_config
from paritygate.pipelines.serving.written import is_changed

_SHOWN = {"triton": version_in_config, "tfserving": version_in_models_file, "kserve": version_in_kserve}
# The file of a view that somebody may have changed by hand; that of TensorFlow Serving is shared by all its models.
_FILES = {"triton": CONFIG_FILE, "kserve": MANIFEST}


@dataclass(frozen=True, kw_only=True, slots=True)
class ViewState:
    """What a view shows.

    Attributes:
        is_there: Whether the model's folder is on this machine.
        shown: The version that it shows; None where its file is not there or cannot be read.
        released: The version that its alias points to; None where there is no such alias any more.
        is_changed: Whether its file was changed by hand, and is not written again as it is.
        changed_files: The files of the version shown that are missing, or are not what was released; None where that is
            not known, since the view is elsewhere or there is no such release.
    """

    is_there: bool
    shown: int | None
    released: int | None
    is_changed: bool = False
    changed_files: tuple[str, ...] | None = None

    @property
    def is_behind(self) -> bool:
        """Whether it is there and shows another version than its alias points to."""
        return self.is_there and self.shown != self.released

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON data."""
        return {**to_data(self), "is_behind": self.is_behind}


def state_of_view(repository: Path, order: ViewOrder) -> ViewState:
    """Return what a view shows now, by the file that its server reads, and whether its files are those released.

    Raises:
        ParitygateError: The log of the model cannot be read.
    """
    place = LocalPlace(order.root)
    written = None if order.command not in _FILES else place.read(f"{order.name}/{_FILES[order.command]}")
    shown = _SHOWN[order.command](place, order.name)
    return ViewState(
        is_changed=written is not None and is_changed(written),
        is_there=order.place.is_dir(),
        shown=shown,
        released=read_state(repository, order.model).aliases.get(order.which),
        changed_files=_changed_files(repository, order, place, shown) if shown and order.place.is_dir() else None,
    )


def _changed_files(repository: Path, order: ViewOrder, place: LocalPlace, version: int) -> tuple[str, ...] | None:
    try:
        details = show(repository, order.model, version)
        formats = (FORMAT,) if order.command == "tfserving" else tuple(BACKENDS)
        artifact = variant_to_serve(
            repository, details, variant=order.variant, formats=formats, server=order.command
        ).artifact
        files = {name: name for name in artifact.files} if order.command == "tfserving" else files_of(artifact)
    except ParitygateError:
        return None
    folder = f"{order.name}/{version}"
    there = place.digests(f"{folder}/{folder}" if order.command == "kserve" else folder)
    return tuple(sorted(name for name, own in files.items() if there.get(name) != artifact.files[own]))
