"""`history`: the records of a model."""

from __future__ import annotations

import click

from paritygate.pipelines.cli.options import repository_option
from paritygate.pipelines.cli.output import Output, output_options
from paritygate.roots import Root


@click.command("history")
@click.argument("model")
@click.option("--alias", help="Print only the records that moved this alias.")
@repository_option
@output_options("json")
def command(model: str, *, alias: str | None, repository: Root, output: Output) -> int:
    """Print every record of MODEL's log, oldest first: releases, moved aliases, rollbacks and collections.

    \b
    Example:
      convert-and-validate history klue-sts
      convert-and-validate history klue-sts --alias prod --json -
    """
    from paritygate.codec import to_data
    from paritygate.pipelines.release.repository.inspect import read_state
    from paritygate.pipelines.report.terminal.release import print_history

    numbered = enumerate(read_state(repository, model).history, start=1)
    records = {number: record for number, record in numbered if alias is None or alias in record.aliases}
    if not output.to_stderr:
        print_history(model, records)
    history = [{"number": number, **to_data(record)} for number, record in records.items()]
    output.write({"model": model, "history": history})
    return 0
