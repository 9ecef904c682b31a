"""`runs`: list the runs and their outcomes."""

from __future__ import annotations

from pathlib import Path

import click

from paritygate.pipelines.cli.options import releases_option, root_option
from paritygate.pipelines.cli.output import Output, output_options


@click.command("runs")
@click.argument("model", required=False)
@root_option
@releases_option
@output_options("json")
def command(model: str | None, *, root: Path, repositories: tuple[Path, ...], output: Output) -> int:
    """List the runs of MODEL, or of all models, the newest first: verdict, exit code, what was released, size on disk.

    The verdict is that of the evidence of what a run requires; nothing is measured, and the exit code is 0 whatever it
    is. A run that is corrupt or was stopped halfway is listed as that. Wherever a command takes --run DIR, the id of a
    run will do, or its beginning, or latest, or latest:MODEL.

    \b
    Example:
      convert-and-validate runs
      convert-and-validate runs klue-sts --json -
    """
    from paritygate.pipelines.cache.cache import cache_folder
    from paritygate.pipelines.past_runs.listing import bytes_on_disk, list_runs
    from paritygate.pipelines.report.terminal.past_runs import runs_lines
    from paritygate.pipelines.report.terminal.printing import print_lines

    listed = list_runs(root, model, repositories)
    cache = cache_folder(root)
    size = 0 if cache is None or not cache.is_dir() else bytes_on_disk(cache)
    if not output.to_stderr:
        print_lines(runs_lines(listed, root, cache, size))
    output.write(
        {
            "root": str(root),
            "runs": [item.to_json() for item in listed],
            "cache": {"folder": None if cache is None else str(cache), "size_bytes": size},
        },
    )
    return 0
