"""`rollback`: move an alias back."""

from __future__ import annotations

from typing import Any

import click

from paritygate.pipelines.cli import options as shared
from paritygate.pipelines.cli.output import Output, output_options
from paritygate.roots import Root


@click.command("rollback")
@click.argument("model")
@click.option("--alias", help="The alias to move; prod, or the only one there is, if not given.")
@click.option(
    "--to",
    type=click.IntRange(min=1),
    metavar="VERSION",
    help="Go back to this earlier version of the alias; the one before if not given.",
)
@shared.if_current_option
@shared.reason_option
@shared.repository_option
@output_options("quiet", "json")
def command(
    model: str,
    *,
    reason: str,
    repository: Root,
    output: Output,
    **options: Any,  # noqa: ANN401 - the values of the other options
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
    from paritygate.pipelines.cli.moving import move_alias
    from paritygate.pipelines.release.repository.aliases import roll_back

    return move_alias(
        repository,
        lambda note, commit: roll_back(repository, model, note=note, commit=commit, **options),
        reason=reason,
        output=output,
    )
