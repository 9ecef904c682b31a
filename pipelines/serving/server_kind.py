"""Define the interface of a kind of model server."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, cast

from msgspec import Struct, field

from paritygate.errors import ChangedViewError, UsageError
from paritygate.pipelines.serving import SERVERS

if TYPE_CHECKING:
    from paritygate.artifact import Artifact
    from paritygate.pipelines.serving.place import Place
    from paritygate.pipelines.serving.written import Head
    from paritygate.roots import Root
    from paritygate.validate.samples.source import SampleSource


class ModelToServe(Struct, frozen=True, kw_only=True):
    """A variant of a release, and the requests for its view."""

    artifact: Artifact
    name: str  # of the model on the server
    version: int  # of the release, and on the server
    root: Root  # the server's folder of models, absolute
    head: Head  # of the file that names the version
    devices: Sequence[str] = ()  # where it was verified, such as cpu and cuda:sm90
    own: Mapping[str, Any] = field(default_factory=dict)  # the spec's `serve`, by server
    samples: SampleSource | None = None  # for the warm-up
    server: str | None = None  # its release
    base_path: str | None = None  # the root as the server sees it, if different
    storage_uri: str | None = None  # the root as a cluster sees it


class Guide(Struct, frozen=True, kw_only=True):
    """The user's next steps with a written view."""

    start: str  # the command that starts the server
    address: str  # of the model then
    backend: str = ""  # the server's part that runs the model, if it has any
    messages: Sequence[str] = ()  # what the server finds
    copy: str = ""  # copies before the start, if needed
    reload: Sequence[str] = ()  # how a running server reads a new version
    carried_over: str = ""  # a note on settings measured for the version before
    renaming: Sequence[str] = ()  # options of `compare` for renamed tensors


class WrittenView(Struct, frozen=True, kw_only=True):
    """The result of writing a view."""

    is_changed: bool
    added: Sequence[str] | None = None  # folders, if they are listed
    models: Sequence[str] | None = None  # of the server, if a file lists them

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
        """Return the data specific to the kind of server as JSON."""

    def write(self, place: Place, *, overwrite: bool = False) -> WrittenView:
        """Write it; `overwrite` replaces files that were changed by hand or written with more options.

        Raises:
            ChangedViewError: A file was changed by hand, or written with options that are left out now.
            UsageError: Something else is there.
            ArtifactIntegrityError: A file differs from the release.
            StorageError: The place cannot be written.
        """

    def guide(self, root: Root, written: WrittenView) -> Guide:
        """Return the user's next steps; `root` is the folder of all views."""


class ServerKind(Struct, frozen=True, kw_only=True):
    """The `KIND` of a server's module."""

    reads: str  # the reader of the files, for messages
    formats: tuple[str, ...]  # of variants that it serves
    make: Callable[[ModelToServe, Place], ServerView]  # the view of a model for a place
    shown: Callable[[Place, str], int | None]  # the version of a model in a place, if readable
    files_of: Callable[[Artifact], Mapping[str, str]] = lambda artifact: {name: name for name in artifact.files}
    required: Mapping[str, str] = field(default_factory=dict)  # options with examples
    own_format: str = ""  # the one that it runs as verified; empty means all
    folder: str = "{name}/{version}"  # of a version in the root
    reads_stores: bool = False  # its views may be in an object store
    is_one_per_name: bool = False  # two views of one name exclude each other, in any folders

    def folder_of(self, name: str, version: int) -> str:
        """Return the folder of a version in the root."""
        return self.folder.format(name=name, version=version)


def path_on_server(base_path: str, name: str) -> str:
    """Return the folder of a model as the server sees it; raise UsageError if the base path is not absolute."""
    if not base_path.startswith("/"):
        msg = f"the base path {base_path!r} is not absolute"
        raise UsageError(msg, hint="give the folder as the server sees it, such as --base-path /models")
    return f"{base_path.rstrip('/')}/{name}"


def check_same_path(file: str, name: str, before: str, now: str) -> None:
    """Raise ChangedViewError if a list of models, `file`, has a model elsewhere."""
    if before != now:
        msg = f"{file} has {name} at {before}, but this call has it at {now}"
        raise ChangedViewError(msg, hint=f"give --base-path {before.removesuffix(f'/{name}')}")


def kind_of(command: str) -> ServerKind:
    """Return the kind of server that a command writes views for."""
    return cast("ServerKind", importlib.import_module(SERVERS[command].module).KIND)
