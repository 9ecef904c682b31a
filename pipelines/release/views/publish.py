"""Write the view of a release for a model server, whichever kind of server reads it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from msgspec import Struct

from paritygate.errors import UsageError
from paritygate.pipelines.release.views.compare_options import compare_options, samples_to_compare
from paritygate.pipelines.release.views.folder import check_folder
from paritygate.pipelines.release.views.places import place_of
from paritygate.pipelines.release.views.request import ViewRequest
from paritygate.pipelines.release.views.to_serve import ReleaseToServe, release_to_serve
from paritygate.pipelines.serving.server_kind import ModelToServe, ServerView, WrittenView, kind_of
from paritygate.pipelines.serving.written import Head
from paritygate.pipelines.spec.names import check_name
from paritygate.roots import Root, absolute
from paritygate.validate.samples.source import SampleSource


class PublishedView(Struct, frozen=True, kw_only=True):
    """Describe a written view.

    `reference`, `samples` and `compare` are what `compare` needs to judge the server's answers: the model at its alias
    or version, the rows, and further options. `samples` is None where none can be read from here.
    """

    model: str
    version: int
    aliases: tuple[str, ...]
    variant: str
    artifact: Path
    repository: Root
    reference: str
    samples: str | None
    compare: tuple[str, ...]
    root: Root  # where the server looks for models
    view: ServerView  # at the root
    written: WrittenView  # by this call

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


def publish_view(
    repository: Root, request: ViewRequest, samples: SampleSource | None = None, *, overwrite: bool = False
) -> PublishedView:
    """Write the view of a release, whose files are verified first, and return its description.

    Without `samples` there is no warm-up. `overwrite` replaces files changed by hand or written with more options, and
    a view of another alias.

    Raises:
        ChangedViewError: Such files or such a view are there, and are not to be replaced.
        UsageError: There is no such release or variant, or the server does not serve it or refuses the configuration.
        UsageError: The folder holds a view for another kind of server.
        ArtifactIntegrityError: The release is corrupt.
        InputFileError: There is no such repository, or the samples cannot be read.
        StorageError: The view cannot be written.
    """
    kind, options = kind_of(request.command), request.options
    missing = [f"{option} {example}" for option, example in kind.required.items() if option not in options]
    if missing:
        msg = f"{request.command} needs {' and '.join(example.split()[0] for example in missing)}"
        raise UsageError(msg, hint=f"give for example {' '.join(missing)}")
    if not isinstance(request.root, Path) and not kind.reads_stores:
        msg = f"{kind.reads} cannot read a view from {request.root} (expected a folder on this machine)"
        raise UsageError(msg, hint="write it to a folder, and copy that folder")
    to_serve = release_to_serve(repository, request.model, request.which, kind, variant=request.variant)
    check_folder(repository, request, overwrite=overwrite)
    place = place_of(request.root)
    view = kind.make(model_to_serve(to_serve, request, samples), place)
    written = view.write(place, overwrite=overwrite)
    is_first = to_serve.details.manifest["variants"][0]["name"] == to_serve.variant
    return PublishedView(
        model=to_serve.details.model,
        version=to_serve.details.version,
        aliases=to_serve.details.aliases,
        variant=to_serve.variant,
        artifact=to_serve.artifact.path,
        repository=repository,
        reference=f"{request.model}@{request.which}" + ("" if is_first else f"/{to_serve.variant}"),
        samples=request.samples or samples_to_compare(to_serve.details),
        compare=compare_options(to_serve.details, to_serve.artifact.variant),
        root=request.root,
        view=view,
        written=written,
    )


def model_to_serve(found: ReleaseToServe, request: ViewRequest, samples: SampleSource | None) -> ModelToServe:
    """Return a released variant with the requests for its view; raise UsageError if its name is not allowed."""
    version = found.details.version
    spec = (found.details.manifest.get("provenance") or {}).get("spec") or {}
    return ModelToServe(
        artifact=found.artifact,
        name=check_name("model", request.name),
        version=version,
        root=absolute(request.root),
        # Aliases are left out: the server need not load again when one more points here.
        head=Head(
            said=f"{request.model} version {version}, {found.variant}",
            files=found.artifact.digest,
            options=request.head_options,
        ),
        devices=found.devices,
        own=spec.get("serve") or {},
        samples=samples,
        server=request.server,
        base_path=request.base_path,
        storage_uri=request.storage_uri,
    )
