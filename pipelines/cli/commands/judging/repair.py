"""`repair`: keep the fewest operators of a failed variant in FP32."""

from __future__ import annotations

from pathlib import Path

import click

from paritygate.errors import UsageError
from paritygate.pipelines.cli.options import (
    json_option,
    memory_limit_option,
    open_given_run,
    quiet_option,
    run_and_root_options,
    time_limit_option,
)


@click.command("repair")
@run_and_root_options
@click.option("--variant", metavar="NAME", help="The FP16 or INT8 variant that failed.")
@click.option(
    "--max-runs",
    type=click.IntRange(min=1),
    default=60,
    show_default=True,
    help="How often the search may run the rows that it measures on.",
)
@time_limit_option
@memory_limit_option
@quiet_option
@json_option
def command(
    run_folder: Path | None,
    *,
    variant: str | None,
    max_runs: int,
    time_limit: float,
    quiet: bool,
    json_target: str | None,
) -> int:
    """Keep the fewest operators of a failed FP16 or INT8 variant in FP32, so that it is within its limits.

    The search measures on rows of the samples that the comparison leaves out. Then the file passes the whole gate on
    the other rows, or it is called unrepaired. The file and `repair.json` are below the run folder. A variant that
    fails in FP32 is refused, because precision is not the cause.

    The exit code is 0 if it is repaired, 1 if the gate fails, 4 if nothing was found or FP32 fails too. It is 2 if
    the variant does not fail, or is of another precision.

    \b
    Example:
      convert-and-validate repair --variant onnx-fp16 \\
        --run artifacts/runs/klue-sts/20261120T101500Z-1a2b
    """
    from paritygate.codec import to_data
    from paritygate.pipelines.cli.console import progress_of, write_json
    from paritygate.pipelines.repair.result import REPAIRED
    from paritygate.pipelines.repair.variant import repair_variant
    from paritygate.pipelines.report.terminal.made import print_repair

    run = open_given_run(run_folder, "run")
    if variant is None:
        msg = "repair needs --variant NAME"
        raise UsageError(msg, hint=f"name a variant that failed: {', '.join(run.resolved.target_names)}")
    with progress_of("repair", is_quiet=quiet) as progress:
        repaired = repair_variant(run, variant, max_runs=max_runs, time_limit_s=time_limit, progress=progress)
    if json_target != "-":
        print_repair(repaired)
    write_json(json_target, {"schema_version": 1, **to_data(repaired), **repaired.repair.for_other_tools})
    return 0 if repaired.outcome == REPAIRED else 1
