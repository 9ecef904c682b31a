"""Views that follow an alias: written where a model server looks, and written again when the alias moves."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from paritygate.codec import to_data
from paritygate.errors import ParitygateError
from paritygate.pipelines.release.kept_orders import kept_orders, kept_rows
from paritygate.pipelines.release.published_view import PublishedView
from paritygate.pipelines.release.repository.inspect import read_state
from paritygate.pipelines.release.view_order import ViewOrder
from paritygate.validate.samples.source import SampleSource

# An alias that others move all the time is left to them.
_TRIES = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class FollowingView:
    """A view whose alias was moved.

    Attributes:
        place: The model's folder on the server; the record of what was asked for where that cannot be read.
        order: What was asked for; None where that cannot be read.
        is_there: Whether the model's folder is on this machine: one that is not is left out.
        published: What it is now; None where nothing was written.
        is_changed: Whether anything was written.
        error: Why it could not be written: the server goes on with what it has.
    """

    place: Path
    order: ViewOrder | None
    is_there: bool = True
    published: PublishedView[Any, Any] | None = None
    is_changed: bool = False
    error: ParitygateError | None = None

    @property
    def version(self) -> int | None:
        """The version that it shows now; None where it was not written."""
        return None if self.published is None else self.published.version

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON data."""
        why = None if self.error is None else {"message": str(self.error), "hint": self.error.hint}
        said = {"place": str(self.place), "order": to_data(self.order), "is_there": self.is_there}
        shown = {} if self.published is None else self.published.view.to_json()
        return {
            **said,
            "version": self.version,
            "is_changed": self.is_changed,
            "tuned": shown.get("tuned"),
            "error": why,
        }


def publish_order(
    repository: Path, order: ViewOrder, samples: SampleSource | None, *, overwrite: bool = False
) -> PublishedView[Any, Any]:
    """Write a view, and return what it is.

    Args:
        repository: The root of the repository.
        order: What is asked for.
        samples: Where the rows for the warm-up come from; no warm-up if None.
        overwrite: Whether files are replaced that were changed by hand, asked for with more, or follow another alias.

    Raises:
        ChangedViewError: They were, or the view follows another alias, and are not to be replaced.
        UsageError: The folder holds a view for a server of another kind.
        ParitygateError: As `publish_triton_view`, `publish_kserve_view` and `publish_saved_model`.
    """
    # What writes views is imported where one is written: a run of which nothing has changed writes none.
    if order.command == "triton":
        from paritygate.pipelines.release.triton_view import publish_triton_view

        return publish_triton_view(repository, order, samples, overwrite=overwrite)
    if order.command == "kserve":
        from paritygate.pipelines.release.kserve_view import publish_kserve_view

        return publish_kserve_view(repository, order, samples, overwrite=overwrite)
    from paritygate.pipelines.release.tensorflow_serving_view import publish_saved_model

    return publish_saved_model(repository, order, overwrite=overwrite)


def write_following_views(repository: Path, model: str, alias: str | None) -> tuple[FollowingView, ...]:
    """Write every view again that follows an alias of a model: those that show what it points to stay as they are.

    The alias has moved by then: what cannot be written is said, and raises nothing.
    """
    found = []
    for kept in kept_orders(repository, model):
        if kept.order is None:
            found.append(FollowingView(place=kept.path, order=None, error=kept.error))
        elif kept.order.which == alias:
            found.append(_follow(repository, kept.order))
    return tuple(found)


def _follow(repository: Path, order: ViewOrder) -> FollowingView:
    found = FollowingView(place=order.place, order=order, is_there=order.place.is_dir())
    if not found.is_there:
        return found
    rows = kept_rows(repository, order)
    samples = None if order.samples is None else SampleSource(text=rows.name, folder=rows.parent.absolute())
    try:
        # Whoever moves the alias meanwhile may have written the view already: the last to write has to know.
        for _ in range(_TRIES):
            published = publish_order(repository, order, samples)
            is_changed = found.is_changed or published.written.is_changed
            found = replace(found, published=published, is_changed=is_changed)
            if read_state(repository, order.model).aliases.get(order.which) == published.version:
                break
    except ParitygateError as err:
        return FollowingView(place=order.place, order=order, error=err)
    return found
