"""Compare the version that a view shows with the version that its alias points to."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from paritygate.codec import to_data
from paritygate.errors import ParitygateError
from paritygate.pipelines.release.repository.inspect import read_state, show
from paritygate.pipelines.release.views.places import place_of
from paritygate.pipelines.release.views.request import ViewRequest
from paritygate.pipelines.release.views.to_serve import variant_to_serve
from paritygate.pipelines.serving import SERVERS
from paritygate.pipelines.serving.place import Place
from paritygate.pipelines.serving.server_kind import kind_of
from paritygate.pipelines.serving.written import is_changed
from paritygate.roots import Root


class ViewState(Struct, frozen=True, kw_only=True):
    """Describe the state of a view.

    `is_changed` means that its file was changed by hand, so it is not rewritten. `changed_files` are the missing and
    corrupt files of the shown version; None if unknown, because the view is elsewhere or there is no such release.
    """

    is_there: bool  # on this machine
    shown: int | None  # None where its file is missing or unreadable
    released: int | None  # by its alias; None where the alias is gone
    is_changed: bool = False
    changed_files: tuple[str, ...] | None = None

    @property
    def is_behind(self) -> bool:
        """Whether it is there and shows another version than its alias points to."""
        return self.is_there and self.shown != self.released

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON data."""
        return {**to_data(self), "is_behind": self.is_behind}


def state_of_view(repository: Root, request: ViewRequest) -> ViewState:
    """Return the version that a view shows by its server's file, and whether its files are those released.

    Raises:
        ParitygateError: The log of the model cannot be read.
    """
    place = place_of(request.root)
    is_there = place.is_there(request.name)
    server, kind = SERVERS[request.command], kind_of(request.command)
    # A file of one model may be changed by hand; a shared file is of all models.
    written = None if server.is_shared else place.read(server.file_of(request.name))
    shown = kind.shown(place, request.name)
    return ViewState(
        is_changed=written is not None and is_changed(written),
        is_there=is_there,
        shown=shown,
        released=read_state(repository, request.model).aliases.get(request.which),
        changed_files=_changed_files(repository, request, place, shown) if shown and is_there else None,
    )


def _changed_files(repository: Root, request: ViewRequest, place: Place, version: int) -> tuple[str, ...] | None:
    kind = kind_of(request.command)
    try:
        details = show(repository, request.model, version)
        artifact = variant_to_serve(repository, details, kind, variant=request.variant).artifact
        files = kind.files_of(artifact)
    except ParitygateError:
        return None
    there = place.digests(kind.folder_of(request.name, version))
    return tuple(sorted(name for name, own in files.items() if there.get(name) != artifact.files[own]))
