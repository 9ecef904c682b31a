"""The view of a release for a model server in the terminal."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from paritygate.errors import ChangedViewError
from paritygate.pipelines.release.repository.commands import command_on
from paritygate.pipelines.release.views.publish import PublishedView
from paritygate.pipelines.release.views.request import ViewRequest
from paritygate.pipelines.release.views.state import ViewState
from paritygate.pipelines.release.views.subscriptions import ViewSubscription
from paritygate.pipelines.release.views.view_updates import ViewUpdate
from paritygate.pipelines.report.terminal.printing import print_lines
from paritygate.pipelines.report.terminal.screen import WIDTH, command_lines, wrapped
from paritygate.pipelines.run.workspace import worst_code
from paritygate.pipelines.serving import SERVERS
from paritygate.pipelines.serving.server_kind import Guide
from paritygate.roots import Root
from paritygate.text import from_here

if TYPE_CHECKING:
    # Read by type checkers alone: no other command writes manifests.
    from paritygate.pipelines.release.deploy import Deployed

_SAVED_SAMPLES = "inputs.npz"
_SAVE_SAMPLES = f"save the inputs that the service sends as {_SAVED_SAMPLES}, with one array for each"


def print_view(published: PublishedView, *, follows: str | None, is_quiet: bool, to_stderr: bool) -> None:
    """Print the server's files, the settings and their reasons, and how to start and compare it."""
    guide = published.view.guide(published.root, published.written)
    lines = list(wrapped(_first_line(published, "" if is_quiet else guide.backend, is_quiet=is_quiet)))
    if not is_quiet:
        for message in (*guide.messages, *_following(follows)):
            lines += wrapped(message)
        lines += _start_lines(guide, WIDTH)
        if published.samples is None:
            lines += wrapped(f"note: compare cannot read the spec's samples: {_SAVE_SAMPLES}")
        samples = ("--samples", published.samples or _SAVED_SAMPLES)
        words = ("compare", published.reference, guide.address, *guide.renaming, *samples, *published.compare)
        next_step = "next" if published.samples else "then"
        lines += command_lines(f"{next_step}: {command_on(published.repository, *words)}")
    print_lines(lines, err=to_stderr)


def print_deployed(deployed: Deployed, *, is_quiet: bool, to_stderr: bool) -> None:
    """Print the file of manifests, its objects, and how to apply it."""
    path = from_here(deployed.file)
    done = "written" if deployed.is_changed else "there already, nothing was written"
    names = ", ".join(f"{each['kind']} {each['metadata']['name']}" for each in deployed.objects)
    messages = [f"{deployed.pod.model} version {deployed.pod.version}: {deployed.pod.variant}: {done}: {path}"]
    messages += [] if is_quiet else [f"objects: {names}", *deployed.notes]
    start = [] if is_quiet else command_lines(f"start: kubectl apply --filename {shlex.quote(path)}")
    print_lines([*(line for message in messages for line in wrapped(message)), *start], err=to_stderr)


def _first_line(published: PublishedView, backend: str, *, is_quiet: bool) -> str:
    alias = f" ({', '.join(published.aliases)})" if published.aliases else ""
    again = "there already" if is_quiet else "there already, nothing was written"
    done = "written" if published.written.is_changed else again
    place = f"{from_here(published.root)}/{published.view.name}"
    variant = f"{published.variant} for {backend}" if backend else published.variant
    return f"{published.model} version {published.version}{alias}: {variant}: {done}: {place}"


def _following(alias: str | None) -> Iterator[str]:
    if alias is not None:
        yield f"follows {alias}: promote, run, rollback and alias write it again when they move that (--no-follow: not)"


def _start_lines(guide: Guide, width: int | None) -> Iterator[str]:
    if guide.copy:
        yield from wrapped(f"copy: {guide.copy}", width=width)
    yield from command_lines(f"start: {guide.start}", width=width)


def update_lines(views: Iterable[ViewUpdate], repository: Root, width: int | None) -> Iterator[str]:
    """Yield the outcome of the views that follow a moved alias."""
    for view in views:
        name = f"view {from_here(view.place)}" if view.request is None else _view_name(view.request)
        if view.error is not None:
            yield from wrapped(f"{name} is behind, its server keeps what it has: {view.error}", width=width)
            yield from wrapped(f"hint: {view.error.hint}", width=width)
            if view.request is not None:
                options = ("--overwrite",) if isinstance(view.error, ChangedViewError) else ()
                yield from command_lines(f"next: {view.request.command_line(repository, *options)}", width=width)
        elif not view.is_there:
            yield from wrapped(f"warning: {name} is not on this machine and was left out", width=width)
            if view.request is not None:
                yield from _if_it_is_gone(view.request, repository, width)
        else:
            done = "now shows" if view.is_changed else "shows already"
            yield from wrapped(f"{name} {done} version {view.version}", width=width)
            if view.published is not None:
                yield from _to_the_server(view.published, width, is_changed=view.is_changed)


def _to_the_server(published: PublishedView, width: int | None, *, is_changed: bool) -> Iterator[str]:
    """Yield what a server needs to read an updated view."""
    guide = published.view.guide(published.root, published.written)
    if is_changed:
        for message in guide.reload:
            yield from wrapped(message, width=width)
        if not guide.reload:
            yield from _start_lines(guide, width)
    if guide.carried_over:
        yield from wrapped(f"note: {guide.carried_over}", width=width)


def _view_name(request: ViewRequest) -> str:
    return f"{SERVERS[request.command].title} view {from_here(request.place)}"


def _if_it_is_gone(request: ViewRequest, repository: Root, width: int | None = WIDTH) -> Iterator[str]:
    yield from command_lines(f"write it again: {request.command_line(repository)}", width=width)
    forget = command_on(repository, "views", "--forget", from_here(request.place))
    yield from command_lines(f"forget it: {forget}", width=width)


def code_of_views(views: Sequence[ViewUpdate]) -> int:
    """Return the worst exit code of the views that are behind their alias."""
    return worst_code([view.error.exit_code for view in views if view.error is not None])


def print_view_updates(views: Sequence[ViewUpdate], repository: Root, *, is_quiet: bool, to_stderr: bool) -> None:
    """Print the outcome of the views that follow an alias."""
    remarks = [view for view in views if view.error is not None or not view.is_there]
    lines = list(update_lines(remarks if is_quiet else views, repository, WIDTH))
    print_lines(lines, err=to_stderr or bool(remarks))


def subscription_lines(kept: Iterable[tuple[ViewSubscription, ViewState | None]], repository: Root) -> Iterator[str]:
    """Yield one line per view that follows an alias, and how to forget a missing one."""
    views = list(kept)
    if not views:
        yield from wrapped(f"no view follows an alias: repository {from_here(repository)}")
    for each, state in views:
        if each.error is not None:
            yield from wrapped(f"{each.error}; hint: {each.error.hint}")
        if each.request is None or state is None:
            continue
        request = each.request
        message = f"{_view_name(request)} follows {request.which} of {request.model}"
        if not state.is_there:
            yield from wrapped(f"{message}, and is not on this machine")
            yield from _if_it_is_gone(request, repository)
        elif state.is_behind:
            at = "nowhere" if state.released is None else state.released
            by_hand = ", and was changed by hand" if state.is_changed else ""
            yield from wrapped(f"{message}; behind: shows {state.shown or 'nothing'}, {request.which} is {at}{by_hand}")
            over = ("--overwrite",) if state.is_changed else ()
            yield from command_lines(f"next: {request.command_line(repository, *over)}")
        else:
            yield from wrapped(message)
        if state.is_there and state.changed_files:
            folder = f"{from_here(request.place)}/{state.shown}"
            names = ", ".join(state.changed_files)
            yield from wrapped(f"corrupt: {folder}: missing or not what was released: {names}")
            yield from command_lines(f"remove {folder}, and then: {request.command_line(repository)}")


def forgotten_lines(requests: Iterable[ViewRequest]) -> Iterator[str]:
    """Yield one line per forgotten view."""
    for request in requests:
        yield from wrapped(
            f"{_view_name(request)} follows {request.which} of {request.model} no more, and stays as it is"
        )
