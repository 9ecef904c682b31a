"""Options and work of the commands that write a release where a model server reads it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from paritygate.pipelines.cli.options import repository_option
from paritygate.pipelines.cli.output import Output, all_of, output_options
from paritygate.pipelines.cli.places import WrittenPath, WrittenRepositoryPlace
from paritygate.roots import Root

_OPTIONS = (
    click.option("--name", metavar="NAME", help="The model's name on the server; MODEL if not given."),
    click.option("--variant", metavar="NAME", help="The variant to serve; the first that is served if not given."),
    click.option(
        "--no-follow",
        is_flag=True,
        help="Leave the view as it is when promote, run, rollback or alias moves the alias.",
    ),
    click.option(
        "--overwrite",
        is_flag=True,
        help=("Replace files of the view that were edited or written with other options, and a view of another alias."),
    ),
    repository_option,
    output_options("quiet", "json"),
)

base_path_option = click.option(
    "--base-path",
    metavar="PATH",
    help="The folder DIR as the server sees it, such as /models in a container; DIR if not given.",
)
warm_up_option = click.option(
    "--samples",
    metavar="FILE|MODULE:CALLABLE",
    help="Warm the server up with the first row of these inputs before it reports ready.",
)


def view_options(out: str, *, is_address: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command the arguments and options of all views; `out` is the help of --out, which may be an address."""
    kind = WrittenRepositoryPlace() if is_address else WrittenPath(file_okay=False, path_type=Path)
    return all_of(
        click.argument("model"),
        click.argument("which", required=False, default="prod", metavar="[VERSION|ALIAS]"),
        click.option("--out", required=True, type=kind, metavar="DIR|URL" if is_address else "DIR", help=out),
        *_OPTIONS,
    )


def write_view(  # noqa: PLR0913 - the options of all views but those of the request
    kind: str,
    *,
    out: Root,
    no_follow: bool,
    overwrite: bool,
    repository: Root,
    output: Output,
    **options: Any,  # noqa: ANN401 - the values of the other options
) -> int:
    """Write a view, keep its request, and print what was written; `options` are the other fields of the request."""
    from paritygate.errors import ChangedViewError, StorageError, UsageError
    from paritygate.pipelines.release.views.publish import publish_view
    from paritygate.pipelines.release.views.request import ViewRequest
    from paritygate.pipelines.release.views.subscriptions import subscribe
    from paritygate.pipelines.report.terminal.serving.views import print_view
    from paritygate.roots import absolute
    from paritygate.validate.samples.source import SampleSource

    options["name"] = options["name"] or options["model"]
    request = ViewRequest(command=kind, root=absolute(out), **options)
    source = None if request.samples is None else SampleSource(text=request.samples, folder=Path.cwd())
    try:
        published = publish_view(repository, request, source, overwrite=overwrite)
    except ChangedViewError as err:
        over = request.command_line(repository, *(("--no-follow",) if no_follow else ()), "--overwrite")
        raise ChangedViewError(str(err), hint=f"{err.hint}; or overwrite it: {over}") from err
    try:
        subscribe(repository, request, source, is_followed=not no_follow)
    except (StorageError, UsageError) as err:
        msg = f"the view was written, but will not follow {request.which}: {err}"
        raise type(err)(msg, hint="give --no-follow to turn this off") from err
    follows = request.which if request.follows and not no_follow else None
    print_view(published, follows=follows, is_quiet=output.is_quiet, to_stderr=output.to_stderr)
    output.write(published.to_json(), follows=follows)
    return 0
