"""`show`: show one release."""

from __future__ import annotations

from pathlib import Path

import click

from paritygate.pipelines.cli.options import repository_option
from paritygate.pipelines.cli.output import Output, output_options
from paritygate.pipelines.cli.places import OwnPath
from paritygate.roots import Root


@click.command("show")
@click.argument("model")
@click.argument("which", required=False, metavar="[VERSION|ALIAS]")
@click.option(
    "--bom",
    type=OwnPath(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write its bill of materials too: files, samples, precisions and figures, as CycloneDX 1.6.",
)
@repository_option
@output_options("verbose", "json")
def command(model: str, which: str | None, *, bom: Path | None, repository: Root, output: Output) -> int:
    """Show a release of MODEL: its variants and what was measured of them, aliases and history; by default the newest.

    \b
    Example:
      convert-and-validate show klue-sts prod
      convert-and-validate show klue-sts prod --bom bom.json
    """
    from paritygate.files import write_json_atomically
    from paritygate.pipelines.release.bom import bom_of
    from paritygate.pipelines.release.repository.inspect import show
    from paritygate.pipelines.report.terminal.release import print_release_details

    details = show(repository, model, which)
    if bom is not None:
        write_json_atomically(bom, bom_of(details), elsewhere="name another file with --bom")
    if not output.to_stderr:
        print_release_details(details, output)
    output.write(details.to_json())
    return 0
