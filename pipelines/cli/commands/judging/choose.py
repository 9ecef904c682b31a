"""`choose`: show which variant of a run would be released, and why."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from paritygate.pipelines.cli import options as shared
from paritygate.pipelines.cli.output import Output, output_options

if TYPE_CHECKING:
    from paritygate.pipelines.spec.limits import Preference


@click.command("choose")
@shared.run_and_root_options
@shared.constraint_option
@click.option(
    "--prefer",
    type=click.Choice(["fastest", "smallest"]),
    help="Choose by this instead of the spec's promote.prefer; fastest if neither is given.",
)
@click.option(
    "--for",
    "devices",
    multiple=True,
    metavar="DEVICE",
    help="The device that it will run on, such as cpu. Only variants verified and measured there count.",
)
@output_options("verbose", "json")
def command(
    *,
    run_folder: Path | None,
    constraints: tuple[str, ...],
    prefer: Preference | None,
    devices: tuple[str, ...],
    output: Output,
) -> int:
    """Show which variant of a validated and benchmarked run to serve, and why. Nothing is released.

    A variant must pass on the device and meet the limits of the spec and of --constraint.

    The exit code is 0 if a variant fits, 1 if none fits, and 3 if the timings cannot show which is fastest. It is 5
    if none fits because a limited value was not measured. With 3, the command names the most accurate of the tied
    variants, and promote releases that one.

    \b
    Example:
      convert-and-validate choose \\
        --run artifacts/runs/klue-sts/20261120T101500Z-1a2b \\
        --constraint latency_p95_ms=20
    """
    from paritygate.pipelines.choice.choose import choose_stage
    from paritygate.pipelines.report.terminal.choice import exit_code_of_choice, print_choice
    from paritygate.pipelines.spec.limits import parse_constraints

    limits = parse_constraints(constraints)
    run = shared.open_given_run(run_folder, "run or validate")
    wanted = prefer or (None if run.resolved.spec.promote.prefer else "fastest")
    choice = choose_stage(run, devices=devices or None, prefer=wanted, limits=limits)
    print_choice(choice, run, output)
    code = exit_code_of_choice(choice)
    output.write({"exit_code": code, "run": str(run.folder), **choice.to_json()})
    return code
