"""Check the folder that a view is written to: it is for one kind of server, and a view in it follows one alias."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from paritygate.errors import ChangedViewError, UsageError
from paritygate.pipelines.release.views.places import place_of
from paritygate.pipelines.release.views.request import ViewRequest
from paritygate.pipelines.release.views.subscriptions import subscriptions
from paritygate.pipelines.serving import SERVERS
from paritygate.pipelines.serving.place import Place
from paritygate.pipelines.serving.server_kind import kind_of
from paritygate.roots import Root, root_of
from paritygate.text import from_here


def check_folder(repository: Root, request: ViewRequest, *, overwrite: bool = False) -> None:
    """Check that a view may be written to its folder, which is left as it is.

    `overwrite` allows a view that follows another alias to become this one.

    Raises:
        ChangedViewError: A view there follows another alias, and is not to be replaced.
        UsageError: The folder holds a view for a server of another kind.
    """
    check_folder_kind(repository, request)
    before = _in_the_place_of(repository, request)
    if before is not None and not overwrite:
        msg = (
            f"the view {from_here(request.place)} follows {before.which} of {before.model}, "
            f"but would show {request.which} of {request.model} instead"
        )
        raise ChangedViewError(msg, hint=f"write it beside that one: {writing_command(repository, request)}")


def check_folder_kind(repository: Root, request: ViewRequest) -> None:
    """Check that the folder of a view holds none for a server of another kind.

    A server takes every folder there for a model, and two views of one name would write into one folder.

    Raises:
        UsageError: It holds one.
    """
    place, title = place_of(request.root), SERVERS[request.command].title
    for command, file in _files_of_views(place):
        if command != request.command:
            beside = replace(request, root=root_of(f"{request.root}-{request.command}")).command_line(repository)
            msg = (
                f"{from_here(request.root)} has a view for {SERVERS[command].title} ({file}) "
                f"(expected an empty or absent folder, or one with views for {title} only)"
            )
            raise UsageError(msg, hint=f"write it to a separate folder: {beside}")


def _files_of_views(place: Place) -> Iterator[tuple[str, str]]:
    """Yield the server's command and the file of each view that is there, whoever wrote it."""
    for is_shared, folders in ((True, ("",)), (False, place.folders(""))):
        for folder in folders:
            for command, server in SERVERS.items():
                file = server.file_of(folder)
                content = place.read(file) if server.is_shared == is_shared else None
                if content is not None and server.sign.encode() in content:
                    yield command, file


def writing_command(repository: Root, request: ViewRequest) -> str:
    """Return the command that writes a view: beside the one in its place, where that follows another alias."""
    if _in_the_place_of(repository, request) is None:
        return request.command_line(repository)
    if kind_of(request.command).is_one_per_name:
        return replace(request, name=f"{request.name}-{request.which}").command_line(repository)
    return replace(request, root=root_of(f"{request.root}-{request.which}")).command_line(repository)


def _in_the_place_of(repository: Root, request: ViewRequest) -> ViewRequest | None:
    """Return the request of the view that is there and follows another alias; None where there is none."""
    requests = [each.request for each in subscriptions(repository) if each.request is not None]
    others = [each for each in requests if each.is_instead_of(request)]
    return others[0] if others and place_of(request.root).is_there(request.name) else None
