"""`list`: list the models and releases in a repository."""

from __future__ import annotations

import click

from paritygate.pipelines.cli.options import repository_option
from paritygate.pipelines.cli.output import Output, output_options
from paritygate.roots import Root


@click.command("list")
@repository_option
@output_options("json")
def command(*, repository: Root, output: Output) -> int:
    """List the models in a repository with their releases and aliases.

    \b
    Example:
      convert-and-validate list
      convert-and-validate list --repository artifacts/repository --json -
    """
    from paritygate.pipelines.release.repository.inspect import list_models
    from paritygate.pipelines.report.terminal.release import print_repositories

    models = list_models(repository)
    if not output.to_stderr:
        print_repositories([repository])
    output.write({"repository": str(repository), "models": models})
    return 0
