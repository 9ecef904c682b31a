"""`build`: build the missing variants of a run from the others."""

from __future__ import annotations

from pathlib import Path

import click

from paritygate.pipelines.cli import options as shared
from paritygate.pipelines.cli.output import Output, output_options


@click.command("build")
@shared.run_and_root_options
@shared.target_option
@click.option(
    "--rebuild", "is_rebuilding", is_flag=True, help="Make them again even if they exist; every engine by default."
)
@shared.limit_options
@output_options()
def command(
    *,
    run_folder: Path | None,
    targets: tuple[str, ...],
    is_rebuilding: bool,
    time_limit_s: float,
    output: Output,
) -> int:
    """Build the missing targets of a run, and corrupt engines, without the source model.

    Use it on the machine with the GPU, after unpack. A rebuilt engine is a new artifact, so validate it before you
    promote it. The exit code is 0 if everything was built, and 4 if a target could not be built. It is 5 if a
    package or GPU is missing, or if an input file was changed.

    \b
    Example:
      convert-and-validate build \\
        --run artifacts/runs/klue-sts/20261120T101500Z-1a2b
      convert-and-validate build \\
        --run artifacts/runs/klue-sts/20261120T101500Z-1a2b \\
        --target tensorrt-fp16 --rebuild
    """
    from paritygate.pipelines.report.terminal.made import made_to_json, print_made
    from paritygate.pipelines.run.build import build_stage
    from paritygate.pipelines.run.workspace import worst_code
    from paritygate.text import echo

    run = shared.open_given_run(run_folder, "export, run or unpack")
    with output.progress(run.resolved.name) as progress:
        outcome = build_stage(
            run, names=targets, is_rebuilding=is_rebuilding, time_limit_s=time_limit_s, progress=progress
        )
    for name in outcome.needs_source:
        echo(f"note: {name} is missing; make it on the machine with the source: export", err=output.to_stderr)
    if not outcome.artifacts and not outcome.failures:
        echo("nothing to build: everything that can be made for this run exists", err=output.to_stderr)
    print_made(run, "built", outcome.artifacts, outcome.failures, output)
    code = worst_code([failure.exit_code for failure in outcome.failures.values()])
    made = made_to_json(run, outcome.artifacts, outcome.failures)
    output.write(made, needs_source=list(outcome.needs_source), exit_code=code)
    return code
