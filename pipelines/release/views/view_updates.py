"""Views that follow an alias: written where a model server looks, and written again when the alias moves."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paritygate.codec import to_data
from paritygate.errors import ParitygateError
from paritygate.pipelines.release.repository.inspect import read_state
from paritygate.pipelines.release.views.request import ViewRequest
from paritygate.pipelines.release.views.subscriptions import subscriptions, warmup_rows
from paritygate.roots import Root
from paritygate.validate.samples.source import SampleSource

if TYPE_CHECKING:
    from paritygate.pipelines.release.views.publish import PublishedView

# An alias that others move all the time is left to them.
_TRIES = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class ViewUpdate:
    """A view whose alias was moved.

    Attributes:
        place: The model's folder on the server; the record of what was asked for where that cannot be read.
        request: What was asked for; None where that cannot be read.
        is_there: Whether the model's folder is on this machine: one that is not is left out.
        published: What it is now; None where nothing was written.
        is_changed: Whether anything was written.
        error: Why it could not be written: the server goes on with what it has.
    """

    place: Path
    request: ViewRequest | None
    is_there: bool = True
    published: PublishedView | None = None
    is_changed: bool = False
    error: ParitygateError | None = None

    @property
    def version(self) -> int | None:
        """The version that it shows now; None where it was not written."""
        return None if self.published is None else self.published.version

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON data."""
        why = None if self.error is None else self.error.to_json()
        said = {"place": str(self.place), "order": to_data(self.request), "is_there": self.is_there}
        shown = {} if self.published is None else self.published.view.to_json()
        return {
            **said,
            "version": self.version,
            "is_changed": self.is_changed,
            "tuned": shown.get("tuned"),
            "error": why,
        }


def update_views(repository: Root, model: str, *aliases: str) -> tuple[ViewUpdate, ...]:
    """Rewrite each view that follows one of the aliases, unless it shows the right version already.

    The aliases have moved by then, so a view that cannot be written is reported and raises nothing.
    """
    found: list[ViewUpdate] = []
    if not isinstance(repository, Path):
        return ()
    for kept in subscriptions(repository, model):
        if kept.request is None:
            found.append(ViewUpdate(place=kept.path, request=None, error=kept.error))
        elif kept.request.which in aliases:
            found.append(_follow(repository, kept.request))
    return tuple(found)


def _follow(repository: Path, request: ViewRequest) -> ViewUpdate:
    # What writes views is imported where one is written: a run of which nothing has changed writes none.
    from paritygate.pipelines.release.views.publish import publish_view

    found = ViewUpdate(place=request.place, request=request, is_there=request.place.is_dir())
    if not found.is_there:
        return found
    rows = warmup_rows(repository, request)
    samples = None if request.samples is None else SampleSource(text=rows.name, folder=rows.parent.absolute())
    try:
        # Whoever moves the alias meanwhile may have written the view already: the last to write has to know.
        for _ in range(_TRIES):
            published = publish_view(repository, request, samples)
            is_changed = found.is_changed or published.written.is_changed
            found = replace(found, published=published, is_changed=is_changed)
            if read_state(repository, request.model).aliases.get(request.which) == published.version:
                break
    except ParitygateError as err:
        return ViewUpdate(place=request.place, request=request, error=err)
    return found
