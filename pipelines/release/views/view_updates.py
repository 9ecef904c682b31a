"""Rewrite the views that follow an alias when the alias moves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from paritygate.codec import to_data
from paritygate.errors import ParitygateError
from paritygate.pipelines.release.repository.inspect import read_state
from paritygate.pipelines.release.views.request import ViewRequest
from paritygate.pipelines.release.views.subscriptions import subscriptions, warmup_rows
from paritygate.roots import Root

if TYPE_CHECKING:
    from paritygate.pipelines.release.views.publish import PublishedView

# Others keep moving an alias that moves on every try, and they write its views.
_TRIES = 5


class ViewUpdate(Struct, frozen=True, kw_only=True):
    """Describe what happened to a view whose alias was moved."""

    place: Root  # the model's folder on the server; the record of the request if that is corrupt
    request: ViewRequest | None  # None if its record is corrupt
    is_there: bool = True  # on this machine; others are left out
    published: PublishedView | None = None  # None where nothing was written
    is_changed: bool = False
    error: ParitygateError | None = None  # the server goes on with what it has

    @property
    def version(self) -> int | None:
        """The version that it shows now; None where it was not written."""
        return None if self.published is None else self.published.version

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON data."""
        why = None if self.error is None else self.error.to_json()
        order_data = {"place": str(self.place), "order": to_data(self.request), "is_there": self.is_there}
        shown = {} if self.published is None else self.published.view.to_json()
        return {
            **order_data,
            "version": self.version,
            "is_changed": self.is_changed,
            "tuned": shown.get("tuned"),
            "error": why,
        }


def update_views(repository: Root, model: str, *aliases: str) -> tuple[ViewUpdate, ...]:
    """Rewrite each view that follows one of the aliases, unless it shows the right version already.

    The aliases have moved by then, so a view that cannot be written is reported and raises nothing.
    """
    updates: list[ViewUpdate] = []
    for subscription in subscriptions(repository, model):
        if subscription.request is None:
            updates.append(ViewUpdate(place=subscription.path, request=None, error=subscription.error))
        elif subscription.request.which in aliases:
            updates.append(_follow(repository, subscription.request))
    return tuple(updates)


def _follow(repository: Root, request: ViewRequest) -> ViewUpdate:
    # Imported only where a view is written, because an unchanged run writes none.
    from paritygate.pipelines.release.views.publish import publish_view

    try:
        update = ViewUpdate(place=request.place, request=request, is_there=_is_there(request))
        if not update.is_there:
            return update
        with warmup_rows(repository, request) as samples:
            # Another process may move the alias and write the view meanwhile, so the last writer checks.
            for _ in range(_TRIES):
                published = publish_view(repository, request, samples)
                is_changed = update.is_changed or published.written.is_changed
                update = replace(update, published=published, is_changed=is_changed)
                if read_state(repository, request.model).aliases.get(request.which) == published.version:
                    break
    except ParitygateError as err:
        return ViewUpdate(place=request.place, request=request, error=err)
    return update


def _is_there(request: ViewRequest) -> bool:
    from paritygate.pipelines.release.views.places import place_of

    return place_of(request.root).is_there(request.name)
