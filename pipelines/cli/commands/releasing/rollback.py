"""`rollback`: an alias goes back to where it was."""

from __future__ import annotations

from pathlib import Path

import click

from paritygate.codec import to_data
from paritygate.pipelines.cli.options import json_option, quiet_option, reason_option, repository_option

__all__ = ["command"]


@click.command("rollback")
@click.argument("model")
@click.option("--alias", help="The alias to move; prod, or the only one there is, if not given.")
@click.option(
    "--to",
    type=click.IntRange(min=1),
    metavar="VERSION",
    help="Go back to this version, at which the alias was before; to the nearest one if not given.",
)
@reason_option
@repository_option
@quiet_option
@json_option
def command(
    model: str,
    *,
    alias: str | None,
    to: int | None,
    reason: str,
    repository: Path,
    quiet: bool,
    json_target: str | None,
) -> int:
    """Move an alias of MODEL back to the version that it was at before, whose files are verified first.

    A second rollback goes further back: what was rolled back from is left behind. The exit code is 5 if the files
    are not what was released; the alias then stays where it is. Views that follow the alias are written again.

    \b
    Example:
      convert-and-validate rollback klue-sts
      convert-and-validate rollback klue-sts --alias prod --to 1 \\
        --reason "answers too slowly"
    """
    import platform

    from paritygate.machine import user_name
    from paritygate.pipelines.cli.console import write_json
    from paritygate.pipelines.cli.summaries.release import print_alias_move
    from paritygate.pipelines.cli.summaries.serving import print_following_views
    from paritygate.pipelines.release.following import write_following_views
    from paritygate.pipelines.release.repository.aliases import Note, roll_back

    note = Note(reason=reason, who=user_name(), host=platform.node())
    move = roll_back(repository, model, alias=alias, to=to, note=note)
    print_alias_move(move, is_quiet=quiet, to_stderr=json_target == "-")
    views = write_following_views(repository, model, move.alias)
    code = print_following_views(views, repository, is_quiet=quiet, to_stderr=json_target == "-")
    write_json(json_target, {"schema_version": 1, **to_data(move), "views": [view.to_json() for view in views]})
    return code
