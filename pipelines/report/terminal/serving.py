"""The view of a release on a model server in the terminal."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from paritygate.errors import ChangedViewError
from paritygate.pipelines.release.following import FollowingView
from paritygate.pipelines.release.kept_orders import KeptOrder
from paritygate.pipelines.release.kserve_view import PublishedKServe
from paritygate.pipelines.release.published_view import PublishedView
from paritygate.pipelines.release.repository.commands import command_on
from paritygate.pipelines.release.tensorflow_serving_view import PublishedSavedModel
from paritygate.pipelines.release.triton_view import PublishedTritonView
from paritygate.pipelines.release.view_order import ViewOrder
from paritygate.pipelines.release.view_state import ViewState
from paritygate.pipelines.report.terminal.printing import print_lines
from paritygate.pipelines.report.terminal.screen import WIDTH, command_lines, wrapped
from paritygate.pipelines.run.workspace import worst_code
from paritygate.pipelines.serving.kinds import KINDS
from paritygate.pipelines.serving.kserve import MANIFEST, KServeView
from paritygate.pipelines.serving.tensorflow_serving import MODELS_FILE
from paritygate.pipelines.serving.triton.settings import TunedUse
from paritygate.pipelines.serving.triton.view import TritonView
from paritygate.text import counted, from_here

# The option by which TensorFlow Serving reads the list of models again.
_POLLS = "--model_config_file_poll_wait_seconds"


def print_triton_view(published: PublishedTritonView, *, follows: str | None, is_quiet: bool, to_stderr: bool) -> None:
    """Print what the server will find, what was decided of it and why, and how to start and to judge it."""
    if _print_first(published, published.view.backend, is_quiet=is_quiet, to_stderr=to_stderr):
        return
    messages = (*_messages(published.view), *_following(follows))
    print_lines([line for message in messages for line in wrapped(message)], err=to_stderr)
    root = shlex.quote(from_here(published.root))
    # A server that neither polls nor is told goes on with what it read at its start.
    start = f"start: tritonserver --model-repository={root} --model-control-mode=poll"
    print_lines(command_lines(start), err=to_stderr)
    address = f"grpc://127.0.0.1:8001/{published.view.name}"
    print_lines(_next_lines(published, address, _renaming(published.view)), err=to_stderr)


def _next_lines(published: PublishedView[Any, Any], address: str, renaming: Sequence[str] = ()) -> list[str]:
    """Return the command that judges what the server answers."""
    words = ["compare", published.reference, address, *renaming, *published.compare]
    return command_lines(f"next: {command_on(published.repository, *words)}")


def _print_first(published: PublishedView[Any, Any], backend: str = "", *, is_quiet: bool, to_stderr: bool) -> bool:
    """Print what was written and where, and return whether that is all that is to be printed."""
    alias = f" ({', '.join(published.aliases)})" if published.aliases else ""
    done = "written" if published.written.is_changed else "there already"
    place = f"{from_here(published.root)}/{published.view.name}"
    variant = published.variant if is_quiet or not backend else f"{published.variant} for Triton's backend {backend}"
    if done != "written" and not is_quiet:
        done += ", nothing was written"
    said = f"{published.model} version {published.version}{alias}: {variant}: {done}: {place}"
    print_lines(wrapped(said), err=to_stderr)
    return is_quiet


def _following(alias: str | None) -> Iterator[str]:
    if alias is not None:
        yield f"follows {alias}: promote, run, rollback and alias write it again when they move that (--no-follow: not)"


def _messages(view: TritonView) -> Iterator[str]:
    for side in ("input", "output"):
        yield f"{side}s: {', '.join(map(_tensor, view.config[side]))}"
    rows, batching = int(view.config["max_batch_size"]), view.config.get("dynamic_batching")
    if batching is not None:
        sizes = " and ".join(map(str, batching.get("preferred_batch_size", ())))
        preferred = f", {sizes} preferred" if sizes else ""
        delay = batching.get("max_queue_delay_microseconds", 0)
        yield f"batching: up to {rows} rows a call{preferred}, a request waits {delay} us for others"
    elif rows > 0:
        yield f"batching: up to {rows} rows a call, as a request brings them"
    requests = len(view.config.get("model_warmup", ()))
    warmed = counted(requests, "request") if requests else "none: --samples gives it real inputs"
    yield f"warm-up: {warmed}"
    yield from (f"note: {note}" for note in view.notes)


def _tensor(entry: Mapping[str, Any]) -> str:
    dims = ", ".join(str(dim) for dim in entry["dims"])
    return f"{entry['name']} {entry['data_type'].removeprefix('TYPE_')}[{dims}]"


def _renaming(view: TritonView) -> list[str]:
    # Where the file names no tensors, the server's names are of their positions.
    sides = [entry["name"] for side in ("input", "output") for entry in view.config[side]]
    pairs = [f"{name}={name.rpartition('__')[0]}" for name in sides if view.backend == "pytorch"]
    return [word for pair in pairs for word in ("--map", pair)]


def print_saved_model(published: PublishedSavedModel, *, follows: str | None, is_quiet: bool, to_stderr: bool) -> None:
    """Print what TensorFlow Serving will find, and how to start and to judge it."""
    if _print_first(published, is_quiet=is_quiet, to_stderr=to_stderr):
        return
    view = published.view
    place = view.base_path.removesuffix(f"/{view.name}")
    batching = ""
    if view.batching is not None:
        batching = f" --enable_batching --batching_parameters_file={place}/{view.batching_file}"
    start = f"start: tensorflow_model_server --model_config_file={place}/{MODELS_FILE}{batching}"
    print_lines(
        [
            *wrapped(f"models in {MODELS_FILE}: {', '.join(published.written.models)}"),
            *(line for note in view.notes for line in wrapped(f"note: {note}")),
            *(line for message in _following(follows) for line in wrapped(message)),
            *command_lines(f"{start} {_POLLS}=60 --rest_api_port=8501"),
            *_next_lines(published, f"http://127.0.0.1:8501/v1/models/{view.name}"),
        ],
        err=to_stderr,
    )


def print_kserve_view(published: PublishedKServe, *, follows: str | None, is_quiet: bool, to_stderr: bool) -> None:
    """Print what KServe will run, and how to bring it there and to judge it."""
    view = published.view
    if _print_first(published, view.triton.backend, is_quiet=is_quiet, to_stderr=to_stderr):
        return
    messages = (*_messages(view.triton), *_following(follows))
    address = f"http://HOST/v2/models/{view.name}"
    print_lines(
        [
            *(line for message in messages for line in wrapped(message)),
            *_to_the_cluster(published, WIDTH),
            *_next_lines(published, address, _renaming(view.triton)),
        ],
        err=to_stderr,
    )


def _to_the_cluster(published: PublishedKServe, width: int | None) -> Iterator[str]:
    """Yield what brings a view into the cluster, which nobody but the user does."""
    view = published.view
    manifest = from_here(published.root / view.name / MANIFEST)
    yield from wrapped(f"copy: {from_here(published.root / view.folder)} to {view.storage_uri}", width=width)
    yield from command_lines(f"start: kubectl apply -f {shlex.quote(manifest)}", width=width)


def following_lines(views: Iterable[FollowingView], repository: Path, width: int | None) -> Iterator[str]:
    """Yield the lines of what became of the views that follow an alias which was moved."""
    for view in views:
        name = f"view {from_here(view.place)}" if view.order is None else _view_name(view.order)
        if view.error is not None:
            yield from wrapped(f"{name} is behind, its server keeps what it has: {view.error}", width=width)
            yield from wrapped(f"hint: {view.error.hint}", width=width)
            if view.order is not None:
                options = ("--overwrite",) if isinstance(view.error, ChangedViewError) else ()
                yield from command_lines(f"next: {view.order.command_line(repository, *options)}", width=width)
        elif not view.is_there:
            yield from wrapped(f"warning: {name} is not on this machine and was left out", width=width)
            if view.order is not None:
                yield from _if_it_is_gone(view.order, repository, width)
        else:
            done = "now shows" if view.is_changed else "shows already"
            yield from wrapped(f"{name} {done} version {view.version}", width=width)
            if view.is_changed and view.published is not None:
                yield from _to_the_server(view.published, width)
            if view.published is not None and isinstance(view.published.view, TritonView):
                yield from _tuned_lines(view.published.view, width)


def _tuned_lines(view: TritonView, width: int | None) -> Iterator[str]:
    """Yield what became of the settings that were measured for the version before."""
    if view.tuned.note and view.tuned.use is not TunedUse.MEASURED:
        yield from wrapped(f"note: {view.tuned.note}", width=width)


def _to_the_server(published: PublishedView[Any, Any], width: int | None) -> Iterator[str]:
    """Yield what a server needs to read a view that was written again."""
    if isinstance(published.view, KServeView):
        yield from _to_the_cluster(published, width)
    elif isinstance(published.view, TritonView):
        load = f"POST /v2/repository/models/{published.view.name}/load"
        yield from wrapped(f"a server that polls reads it by itself; with explicit control: {load}", width=width)
    else:
        yield from wrapped(f"a server with {_POLLS} reads it by itself", width=width)
        if published.view.batching is None:
            # The version before may have been one that is batched, and its server reads this one by itself.
            yield from wrapped(
                "note: its requests are not batched: run its server without --enable_batching", width=width
            )


def _view_name(order: ViewOrder) -> str:
    return f"{KINDS[order.command]} view {from_here(order.place)}"


def _if_it_is_gone(order: ViewOrder, repository: Path, width: int | None = WIDTH) -> Iterator[str]:
    """Yield the commands that write a view again whose folder is not there, and that forget it."""
    yield from command_lines(f"write it again: {order.command_line(repository)}", width=width)
    forget = command_on(repository, "views", "--forget", from_here(order.place))
    yield from command_lines(f"forget it: {forget}", width=width)


def code_of_views(views: Sequence[FollowingView]) -> int:
    """Return the exit code of the worst of the views that follow an alias and are behind."""
    return worst_code([view.error.exit_code for view in views if view.error is not None])


def print_following_views(views: Sequence[FollowingView], repository: Path, *, is_quiet: bool, to_stderr: bool) -> None:
    """Print what became of the views that follow an alias."""
    remarks = [view for view in views if view.error is not None or not view.is_there]
    lines = list(following_lines(remarks if is_quiet else views, repository, WIDTH))
    print_lines(lines, err=to_stderr or bool(remarks))


def kept_view_lines(kept: Iterable[tuple[KeptOrder, ViewState | None]], repository: Path) -> Iterator[str]:
    """Yield a line of each view that follows an alias, and how to forget one whose folder is not there."""
    views = list(kept)
    if not views:
        yield from wrapped(f"no view follows an alias: repository {from_here(repository)}")
    for each, state in views:
        if each.error is not None:
            yield from wrapped(f"{each.error}; hint: {each.error.hint}")
        if each.order is None or state is None:
            continue
        order = each.order
        said = f"{_view_name(order)} follows {order.which} of {order.model}"
        if not state.is_there:
            yield from wrapped(f"{said}, and is not on this machine")
            yield from _if_it_is_gone(order, repository)
        elif state.is_behind:
            at = "nowhere" if state.released is None else state.released
            by_hand = ", and was changed by hand" if state.is_changed else ""
            yield from wrapped(f"{said}; behind: shows {state.shown or 'nothing'}, {order.which} is {at}{by_hand}")
            over = ("--overwrite",) if state.is_changed else ()
            yield from command_lines(f"next: {order.command_line(repository, *over)}")
        else:
            yield from wrapped(said)
        if state.is_there and state.changed_files:
            folder = f"{from_here(order.place)}/{state.shown}"
            names = ", ".join(state.changed_files)
            yield from wrapped(f"corrupt: {folder}: missing or not what was released: {names}")
            yield from command_lines(f"remove {folder}, and then: {order.command_line(repository)}")


def forgotten_lines(orders: Iterable[ViewOrder]) -> Iterator[str]:
    """Yield a line of each view that was forgotten."""
    for order in orders:
        yield from wrapped(f"{_view_name(order)} follows {order.which} of {order.model} no more, and stays as it is")
