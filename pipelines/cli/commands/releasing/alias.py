"""`alias`: point an alias to a release."""

from __future__ import annotations

import click

from paritygate.pipelines.cli import options as shared
from paritygate.pipelines.cli.output import Output, output_options
from paritygate.roots import Root


@click.command("alias")
@click.argument("model")
@click.argument("name")
@click.argument("version", metavar="VERSION|ALIAS")
@click.option(
    "--also",
    multiple=True,
    metavar="NAME=VERSION|ALIAS",
    help="Move this alias as well, in the same record: all of them move, or none. Repeatable.",
)
@shared.if_current_option
@shared.reason_option
@shared.repository_option
@output_options("quiet", "json")
def command(
    model: str,
    name: str,
    version: str,
    *,
    also: tuple[str, ...],
    if_current: int | None,
    reason: str,
    repository: Root,
    output: Output,
) -> int:
    """Point the alias NAME of MODEL, which is made where there is none, to a release whose files are verified first.

    The release is named by its number, or by another alias that points to it. The exit code is 5 if its files are
    not what was released; the alias then stays where it is. Views that follow the alias are written again.

    \b
    Example:
      convert-and-validate alias klue-sts canary 1
      convert-and-validate alias klue-sts prod canary \\
        --reason "a week without complaints"
      convert-and-validate alias klue-sts prod 3 \\
        --also previous=prod --if-current 2
    """
    from paritygate.pipelines.cli.moving import move_alias
    from paritygate.pipelines.release.repository.aliases import point_alias

    others = _others(also)
    return move_alias(
        repository,
        lambda note, commit: point_alias(
            repository, model, name, version, also=others, if_current=if_current, note=note, commit=commit
        ),
        reason=reason,
        output=output,
    )


def _others(texts: tuple[str, ...]) -> dict[str, int | str]:
    from paritygate.errors import UsageError

    others: dict[str, int | str] = {}
    for text in texts:
        name, equals, which = text.partition("=")
        if not (name and equals and which) or name in others:
            msg = f"--also {text} does not name another alias and its version"
            raise UsageError(msg, hint="write --also NAME=VERSION, once for each alias")
        others[name] = which
    return others
