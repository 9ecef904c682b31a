"""`benchmark`: measure the speed of the source and the exported variants of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from paritygate.pipelines.cli import options as shared
from paritygate.pipelines.cli.output import Output, output_options


@click.command("benchmark")
@shared.run_and_root_options
@click.option(
    "--batch-size",
    "batch_sizes",
    type=click.IntRange(min=1),
    multiple=True,
    metavar="N",
    help="Rows a call; may be given several times. The spec's if absent.",
)
@click.option(
    "--concurrency",
    type=click.IntRange(min=1),
    multiple=True,
    metavar="K",
    help="Instances side by side, each with its own thread; may be given several times.",
)
@click.option("--rounds", type=click.IntRange(min=2), metavar="N", help="How often every variant runs, at least.")
@click.option(
    "--seconds",
    type=shared.AMOUNT,
    metavar="S",
    help="The least time to measure each variant, batch size, concurrency and round.",
)
@click.option(
    "--price-per-hour",
    type=shared.AMOUNT,
    metavar="P",
    help="Price of the machine, to show the cost of a million rows.",
)
@shared.device_option
@shared.limit_options
@output_options()
def command(
    *,
    run_folder: Path | None,
    device: str,
    time_limit_s: float,
    output: Output,
    **changes: Any,  # noqa: ANN401 - the values of the other options
) -> int:
    """Measure latency, throughput, memory and load time of a run's variants beside those of its source.

    All are called with the same rows, in turns, so that what slows the machine slows all alike. Rounds are added for up
    to 60 s while a choice by speed would be a guess. The exit code is 5 if the source or a required variant could not
    be measured. `-v` prints load time, memory and size as well.

    \b
    Example:
      convert-and-validate benchmark \\
        --run artifacts/runs/klue-sts/20261120T101500Z-1a2b
      convert-and-validate benchmark \\
        --run artifacts/runs/klue-sts/20261120T101500Z-1a2b \\
        --batch-size 1 --batch-size 32
    """
    from paritygate.pipelines.report.report_data import collect_report
    from paritygate.pipelines.report.terminal.benchmark import print_benchmark
    from paritygate.pipelines.report.write import write_reports
    from paritygate.pipelines.run.benchmark import benchmark_stage, exit_code_of_benchmark
    from paritygate.pipelines.spec.benchmark_plan import plan_of

    run = shared.open_given_run(run_folder, "export or run")
    plan = plan_of(run.resolved, {name: value for name, value in changes.items() if value})
    with output.progress(run.resolved.name) as progress:
        result = benchmark_stage(run, plan, time_limit_s=time_limit_s, progress=progress, device=device)
    if run.evidence_file.is_file():
        # A later release of this run includes the report, with the speed in it.
        write_reports(run)
    code = exit_code_of_benchmark(run, result)
    print_benchmark(collect_report(run), output)
    output.write(result, exit_code=code)
    return code
