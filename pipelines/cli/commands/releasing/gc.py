"""`gc`: releases that nobody needs are deleted."""

from __future__ import annotations

import click

from paritygate.pipelines.cli.options import reason_option, repository_option
from paritygate.pipelines.cli.output import Output, output_options
from paritygate.roots import Root


@click.command("gc")
@click.argument("model", required=False)
@click.option(
    "--keep",
    type=click.IntRange(min=1),
    required=True,
    metavar="N",
    help="Keep the versions that the last N records of a model name, not counting records of gc.",
)
@click.option("--dry-run", is_flag=True, help="Print what would be deleted, and delete nothing.")
@reason_option
@repository_option
@output_options("json")
def command(model: str | None, *, keep: int, dry_run: bool, reason: str, repository: Root, output: Output) -> int:
    """Delete the releases of MODEL, or of all models, that neither an alias nor one of the last N records names.

    Each is recorded as collected before its files are deleted, so no alias moves there any more. A command that was
    killed in between is completed by the next one.

    \b
    Example:
      convert-and-validate gc --keep 5 --dry-run
      convert-and-validate gc klue-sts --keep 5 --reason "disk space"
    """
    import platform

    from paritygate.machine import user_name
    from paritygate.pipelines.release.repository.aliases import Note
    from paritygate.pipelines.release.repository.collection import collect
    from paritygate.pipelines.release.repository.inspect import list_models
    from paritygate.pipelines.report.terminal.release import print_collection

    note = Note(reason=reason, who=user_name(), host=platform.node())
    names = [summary.model for summary in list_models(repository)] if model is None else [model]
    models = [collect(repository, name, keep=keep, note=note, is_dry_run=dry_run) for name in names]
    for collection in models:
        print_collection(collection, to_stderr=output.to_stderr)
    output.write({"repository": str(repository), "is_dry_run": dry_run, "models": models})
    return 0
