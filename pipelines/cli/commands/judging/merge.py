"""`merge`: the verdict of a comparison that several machines measured in parts."""

from __future__ import annotations

from pathlib import Path

import click

from paritygate.pipelines.cli.formats import Result, result_options


@click.command("merge")
@click.argument("parts", nargs=-1, required=True, metavar="PART...", type=click.Path(path_type=Path))
@result_options(has_report=True)
def command(
    parts: tuple[Path, ...],
    *,
    written: Result,
) -> int:
    """Merge the parts that `compare --shard` wrote, and give the verdict.

    Give each file of --out, whatever its name. The result is that of all rows, in any order of the parts. No model
    runs, and no samples are read.

    The exit code is that of compare: 0 for pass, 1 for fail, 3 for inconclusive.

    \b
    Example:
      convert-and-validate merge part-1.json part-2.json --json result.json
    """
    from paritygate.pipelines.compare.shards.merged import merge_parts

    job, result = merge_parts(parts)
    written.show_comparison(result, job)
    return result.exit_code
