"""`report`: show two runs side by side."""

from __future__ import annotations

from pathlib import Path

import click

from paritygate.pipelines.cli.options import run_and_root_options, run_path


@click.command("report")
@run_and_root_options
@click.option(
    "--against", type=run_path, metavar="DIR", help="The run folder to compare with, such as that of the last release."
)
def command(*, run_folder: Path | None, against: Path | None) -> int:
    """Set a run beside another one: verdicts, differences, size, speed, and what was changed between the two.

    The page is written into the folder of --run, as HTML and as Markdown. Nothing is measured, and the exit code is 0
    whatever the verdicts are.

    \b
    Example:
      convert-and-validate report \\
        --run artifacts/runs/klue-sts/20261123T101500Z-1a2b \\
        --against artifacts/runs/klue-sts/20261120T091500Z-3c4d
    """
    from paritygate.errors import UsageError
    from paritygate.pipelines.report.against.write import write_against
    from paritygate.pipelines.report.terminal.printing import print_lines
    from paritygate.pipelines.report.terminal.screen import path_line, wrapped
    from paritygate.pipelines.run.workspace import open_run

    if run_folder is None or against is None:
        missing = "--run DIR" if run_folder is None else "--against DIR"
        msg = f"report needs {missing}"
        raise UsageError(msg, hint="give both run folders; the report of one run is report.html in its folder")
    run, other = open_run(run_folder), open_run(against)
    if run.folder.resolve() == other.folder.resolve():
        msg = f"--run and --against are the same run: {run.folder}"
        raise UsageError(msg, hint="give another run: the runs are in artifacts/runs/MODEL")
    side_by_side, pages = write_against(run, other)
    print_lines([*wrapped(side_by_side.headline), *(line for page in pages for line in path_line("report", page))])
    return 0
