"""`show`: show one release."""

from __future__ import annotations

import click

from paritygate.pipelines.cli.options import json_option, repository_option, verbose_option
from paritygate.roots import Root


@click.command("show")
@click.argument("model")
@click.argument("which", required=False, metavar="[VERSION|ALIAS]")
@repository_option
@verbose_option
@json_option
def command(model: str, which: str | None, *, repository: Root, verbose: bool, json_target: str | None) -> int:
    """Show a release of MODEL: its variants and what was measured of them, aliases and history; by default the newest.

    \b
    Example:
      convert-and-validate show klue-sts prod
    """
    from paritygate.pipelines.cli.console import write_json
    from paritygate.pipelines.release.repository.inspect import show
    from paritygate.pipelines.report.terminal.printing import Shown
    from paritygate.pipelines.report.terminal.release import print_release_details

    details = show(repository, model, which)
    if json_target != "-":
        print_release_details(details, Shown(is_verbose=verbose))
    write_json(json_target, {"schema_version": 1, **details.to_json()})
    return 0
