"""`views`: list the model-server views that follow an alias."""

from __future__ import annotations

import click

from paritygate.codec import to_data
from paritygate.pipelines.cli.options import repository_option
from paritygate.pipelines.cli.output import Output, output_options
from paritygate.pipelines.cli.places import RepositoryPlace
from paritygate.roots import Root


@click.command("views")
@click.argument("model", required=False)
@click.option(
    "--forget",
    type=RepositoryPlace(),
    metavar="DIR",
    help="Forget the view in this folder, DIR/NAME of the command that wrote it: it no longer follows an alias.",
)
@repository_option
@output_options("json")
def command(*, model: str | None, forget: Root | None, repository: Root, output: Output) -> int:
    """List the views of MODEL, or of all models, that promote, run, rollback and alias write again.

    The files of each are compared with those released. A view that is forgotten stays as it is, and so does its
    server. The command that writes a view lets it follow its alias, and so does the same command again after it was
    forgotten.
    The exit code is 5 where a file of a view is missing or is not what was released.

    \b
    Example:
      convert-and-validate views
      convert-and-validate views --forget models/klue-sts
    """
    from paritygate.errors import ExitCode, UsageError
    from paritygate.pipelines.release.repository.inspect import list_models, read_state
    from paritygate.pipelines.release.views.state import state_of_view
    from paritygate.pipelines.release.views.subscriptions import forget_view, subscriptions
    from paritygate.pipelines.report.terminal.printing import print_lines
    from paritygate.pipelines.report.terminal.serving.views import forgotten_lines, subscription_lines

    if forget is not None and model is not None:
        msg = "views takes either a MODEL or --forget DIR"
        raise UsageError(msg, hint="leave the model out, because the folder names the view")
    if model is None:
        # There is such a repository.
        list_models(repository)
    else:
        read_state(repository, model)
    if forget is not None:
        forgotten = forget_view(repository, forget)
        print_lines(forgotten_lines(forgotten), err=output.to_stderr)
        output.write({"forgotten": [to_data(request) for request in forgotten]})
        return 0
    followed_views = list(subscriptions(repository, model))
    states = [None if each.request is None else state_of_view(repository, each.request) for each in followed_views]
    print_lines(subscription_lines(zip(followed_views, states, strict=True), repository), err=output.to_stderr)
    views = [
        {**each.to_json(), **({} if state is None else state.to_json())}
        for each, state in zip(followed_views, states, strict=True)
    ]
    output.write({"views": views})
    is_corrupt = any(state is not None and state.changed_files for state in states)
    return int(ExitCode.NOT_MEASURED if is_corrupt else ExitCode.PASS)
