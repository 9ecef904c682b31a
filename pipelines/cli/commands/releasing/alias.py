"""`alias`: an alias points to a release."""

from __future__ import annotations

from pathlib import Path

import click

from paritygate.codec import to_data
from paritygate.pipelines.cli.options import json_option, quiet_option, reason_option, repository_option

__all__ = ["command"]


@click.command("alias")
@click.argument("model")
@click.argument("name")
@click.argument("version", metavar="VERSION|ALIAS")
@reason_option
@repository_option
@quiet_option
@json_option
def command(
    model: str, name: str, version: str, *, reason: str, repository: Path, quiet: bool, json_target: str | None
) -> int:
    """Point the alias NAME of MODEL, which is made where there is none, to a release whose files are verified first.

    The release is named by its number, or by another alias that points to it. The exit code is 5 if its files are
    not what was released; the alias then stays where it is. Views that follow the alias are written again.

    \b
    Example:
      convert-and-validate alias klue-sts canary 1
      convert-and-validate alias klue-sts prod canary \\
        --reason "a week without complaints"
    """
    import platform

    from paritygate.machine import user_name
    from paritygate.pipelines.cli.console import write_json
    from paritygate.pipelines.cli.summaries.release import print_alias_move
    from paritygate.pipelines.cli.summaries.serving import print_following_views
    from paritygate.pipelines.release.following import write_following_views
    from paritygate.pipelines.release.repository.aliases import Note, point_alias

    note = Note(reason=reason, who=user_name(), host=platform.node())
    move = point_alias(repository, model, name, version, note=note)
    print_alias_move(move, is_quiet=quiet, to_stderr=json_target == "-")
    views = write_following_views(repository, model, move.alias)
    code = print_following_views(views, repository, is_quiet=quiet, to_stderr=json_target == "-")
    write_json(json_target, {"schema_version": 1, **to_data(move), "views": [view.to_json() for view in views]})
    return code
