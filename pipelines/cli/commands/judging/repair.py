"""`repair`: keep the fewest operators of a failed variant in FP32, or propose a repair of its conversion."""

from __future__ import annotations

from pathlib import Path

import click

from paritygate.errors import UsageError
from paritygate.pipelines.cli.options import (
    memory_limit_option,
    open_given_run,
    run_and_root_options,
    time_limit_option,
)
from paritygate.pipelines.cli.output import Output, output_options


@click.command("repair")
@run_and_root_options
@click.option("--variant", metavar="NAME", help="The variant that failed: FP16, INT8, or onnx-fp32.")
@click.option(
    "--max-runs",
    type=click.IntRange(min=1),
    default=60,
    show_default=True,
    help="How often the search may run the rows that it measures on.",
)
@time_limit_option
@memory_limit_option
@output_options("quiet", "json")
def command(
    run_folder: Path | None,
    *,
    variant: str | None,
    max_runs: int,
    time_limit_s: float,
    output: Output,
) -> int:
    """Keep the fewest operators of a failed FP16 or INT8 variant in FP32, so that it is within its limits.

    The search measures on rows of the samples that the comparison leaves out. Then the file passes the whole gate on
    the other rows, or it is called unrepaired. The file and `repair.json` are below the run folder.

    Where FP32 fails, the conversion is at fault. For onnx-fp32, another exporter or opset is tried, then weights and
    attributes of the source. What passes is proposed, and a spec has to accept it.

    The exit code is 0 if it is repaired or proposed, 1 if the gate fails, 4 if nothing was found or FP32 fails too. It
    is 2 if the variant does not fail, or is of another precision.

    \b
    Example:
      convert-and-validate repair --variant onnx-fp16 \\
        --run artifacts/runs/klue-sts/20261120T101500Z-1a2b
    """
    from paritygate.pipelines.repair.repair import data_of_repair, exit_code_of_repair, repair
    from paritygate.pipelines.report.terminal.repair import print_repair

    run = open_given_run(run_folder, "run")
    if variant is None:
        msg = "repair needs --variant NAME"
        raise UsageError(msg, hint=f"name a variant that failed: {', '.join(run.resolved.target_names)}")
    with output.progress("repair") as progress:
        repaired = repair(run, variant, max_runs=max_runs, time_limit_s=time_limit_s, progress=progress)
    if not output.to_stderr:
        print_repair(repaired)
    output.write(data_of_repair(repaired))
    return exit_code_of_repair(repaired)
