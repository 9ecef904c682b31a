"""What the view of a release on a model server came to, whichever server reads it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from paritygate.pipelines.release.compare_options import compare_options
from paritygate.pipelines.release.to_serve import ReleaseToServe
from paritygate.pipelines.release.view_order import ViewOrder


class _View(Protocol):
    @property
    def name(self) -> str: ...

    def to_json(self) -> dict[str, Any]: ...


class _Written(Protocol):
    @property
    def is_changed(self) -> bool: ...

    def to_json(self) -> dict[str, Any]: ...


_ViewOf = TypeVar("_ViewOf", bound=_View)
_WrittenOf = TypeVar("_WrittenOf", bound=_Written)


@dataclass(frozen=True, kw_only=True)
class PublishedView(Generic[_ViewOf, _WrittenOf]):
    """A view that was written.

    Attributes:
        model: The model's name in the repository.
        version: The release that is served.
        aliases: The aliases that point to it.
        variant: The variant that is served.
        artifact: What of it its runtime opens.
        repository: The root of the repository.
        reference: The same as `compare` is given it: the model at its alias or version, with the variant where that is
            not the preferred one.
        compare: The options with which `compare` judges what the server answers.
        root: Where the server looks for models.
        view: What it has there.
        written: What was written of it now.
    """

    model: str
    version: int
    aliases: tuple[str, ...]
    variant: str
    artifact: Path
    repository: Path
    reference: str
    compare: tuple[str, ...]
    root: Path
    view: _ViewOf
    written: _WrittenOf

    def to_json(self) -> dict[str, Any]:
        """Return what was written as JSON data."""
        return {
            "model": self.model,
            "version": self.version,
            "aliases": list(self.aliases),
            "variant": self.variant,
            "name": self.view.name,
            "root": str(self.root),
            **self.view.to_json(),
            **self.written.to_json(),
        }


def published_view(
    repository: Path, found: ReleaseToServe, order: ViewOrder, view: _ViewOf, written: _WrittenOf
) -> PublishedView[_ViewOf, _WrittenOf]:
    """Return what was written of a release, and where."""
    is_first = found.details.manifest["variants"][0]["name"] == found.variant
    return PublishedView(
        model=found.details.model,
        version=found.details.version,
        aliases=found.details.aliases,
        variant=found.variant,
        artifact=found.artifact.path,
        repository=repository,
        reference=f"{order.model}@{order.which}" + ("" if is_first else f"/{found.variant}"),
        compare=compare_options(found.details, found.artifact.variant, order.samples),
        root=order.root,
        view=view,
        written=written,
    )
