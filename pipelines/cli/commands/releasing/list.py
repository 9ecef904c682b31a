"""`list`: list the models and releases in a repository."""

from __future__ import annotations

import click

from paritygate.codec import to_data
from paritygate.pipelines.cli.options import json_option, repository_option
from paritygate.roots import Root


@click.command("list")
@repository_option
@json_option
def command(*, repository: Root, json_target: str | None) -> int:
    """List the models in a repository with their releases and aliases.

    \b
    Example:
      convert-and-validate list
      convert-and-validate list --repository artifacts/repository --json -
    """
    from paritygate.pipelines.cli.console import write_json
    from paritygate.pipelines.release.repository.inspect import list_models
    from paritygate.pipelines.report.terminal.release import print_repositories

    models = list_models(repository)
    if json_target != "-":
        print_repositories([repository])
    write_json(
        json_target,
        {"schema_version": 1, "repository": str(repository), "models": [to_data(model) for model in models]},
    )
    return 0
