"""What the module of a kind of model server offers, and what passes between it and those who use it."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, cast

from paritygate.errors import ChangedViewError, UsageError
from paritygate.pipelines.serving import SERVERS

if TYPE_CHECKING:
    from pathlib import Path

    from paritygate.artifact import Artifact
    from paritygate.pipelines.serving.place import Place
    from paritygate.pipelines.serving.written import Head
    from paritygate.validate.samples.source import SampleSource


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelToServe:
    """A variant of a release, and what is asked for of its view.

    Attributes:
        artifact: The variant.
        name: The model's name on the server.
        version: The release, and the version on the server.
        root: Where the server looks for models; absolute.
        head: The head of the file that names the version.
        devices: Where the variant was verified, such as `cpu` and `cuda:sm90`.
        own: What the spec says under `serve`, by server.
        samples: Where real inputs for the warm-up come from; None for no warm-up.
        server: The release of the server; None if nobody named it.
        base_path: The folder of all models as the server sees it; None for `root`.
        storage_uri: The same as a cluster sees it; None without a cluster.
    """

    artifact: Artifact
    name: str
    version: int
    root: Path
    head: Head
    devices: Sequence[str] = ()
    own: Mapping[str, Any] = field(default_factory=dict)
    samples: SampleSource | None = None
    server: str | None = None
    base_path: str | None = None
    storage_uri: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Guide:
    """What a user does with a view that was written.

    Attributes:
        start: The command that starts the server.
        address: Where the model answers then.
        backend: The part of the server that runs the model; empty where it has no such parts.
        messages: What the server will find, a line each.
        copy: What is to be copied where before the start; empty where the server reads the view's own folder.
        reload: How a running server comes to read a new version; nothing where `copy` and `start` bring it there.
        carried_over: What became of settings measured for the version before; empty without such.
        renaming: The options of `compare` for tensors that the server calls otherwise.
    """

    start: str
    address: str
    backend: str = ""
    messages: Sequence[str] = ()
    copy: str = ""
    reload: Sequence[str] = ()
    carried_over: str = ""
    renaming: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class WrittenView:
    """What writing a view came to.

    Attributes:
        is_changed: Whether anything was written.
        added: The folders that were added; None where they are not listed.
        models: The models that the server has; None where no file lists them.
    """

    is_changed: bool
    added: Sequence[str] | None = None
    models: Sequence[str] | None = None

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON data."""
        lists = {"added": self.added, "models": self.models}
        return {
            "is_changed": self.is_changed,
            **{key: list(value) for key, value in lists.items() if value is not None},
        }


class ServerView(Protocol):
    """A version of a model as one kind of server reads it, not written yet."""

    @property
    def name(self) -> str:
        """The model's name on the server."""

    def to_json(self) -> dict[str, Any]:
        """Return what is particular to the kind of server as JSON data."""

    def write(self, place: Place, *, overwrite: bool = False) -> WrittenView:
        """Write it; `overwrite` replaces files that were changed by hand or asked for with more.

        Raises:
            ChangedViewError: A file was changed by hand, or written with options that are left out now.
            UsageError: Something else is there.
            ArtifactIntegrityError: A file is not what was released.
            StorageError: The place cannot be written.
        """

    def guide(self, root: Path, written: WrittenView) -> Guide:
        """Return what a user does with it; `root` is the folder of all views."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerKind:
    """What the module of a kind of server offers.

    Attributes:
        reads: What reads the files, for messages.
        formats: The formats of variants that it serves.
        own_format: The one that it runs as it was verified; empty where that is so of all.
        make: Return the view of a model that is to be written to a place.
        shown: Return the version of a model that a place shows; None where there is none, or it cannot be read.
        files_of: Return the files of a version's folder: by the name there, the name in the artifact's folder.
        required: The options without which no view is made, each with an example.
        folder: The folder of a version in the root.
        is_one_per_name: Whether two views of one name exclude each other, whichever folders they lie in.
    """

    reads: str
    formats: tuple[str, ...]
    make: Callable[[ModelToServe, Place], ServerView]
    shown: Callable[[Place, str], int | None]
    files_of: Callable[[Artifact], Mapping[str, str]] = lambda artifact: {name: name for name in artifact.files}
    required: Mapping[str, str] = field(default_factory=dict)
    own_format: str = ""
    folder: str = "{name}/{version}"
    is_one_per_name: bool = False

    def folder_of(self, name: str, version: int) -> str:
        """Return the folder of a version in the root."""
        return self.folder.format(name=name, version=version)


def path_on_server(base_path: str, name: str) -> str:
    """Return the folder of a model as the server sees it, from that of all models.

    Raises:
        UsageError: It is not absolute.
    """
    if not base_path.startswith("/"):
        msg = f"the base path {base_path!r} is not absolute"
        raise UsageError(msg, hint="give the folder as the server sees it, such as --base-path /models")
    return f"{base_path.rstrip('/')}/{name}"


def check_same_path(file: str, name: str, before: str, now: str) -> None:
    """Check that a list of models has a model where it is written now; `file` is the list as messages have it.

    Raises:
        ChangedViewError: It has it elsewhere.
    """
    if before != now:
        msg = f"{file} has {name} at {before}, and this call has it at {now}"
        raise ChangedViewError(msg, hint=f"give --base-path {before.removesuffix(f'/{name}')}")


def kind_of(command: str) -> ServerKind:
    """Return the kind of server that a command writes views for."""
    return cast("ServerKind", importlib.import_module(SERVERS[command].module).KIND)
