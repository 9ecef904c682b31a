"""`plan`: show what a run of one or several specs would reuse and do."""

from __future__ import annotations

from typing import Any

import click

from paritygate.pipelines.cli import options as shared
from paritygate.pipelines.cli.output import Output, output_options


@click.command("plan")
@click.argument("specs", nargs=-1, required=True, metavar="SPEC...")
@click.option("--samples", "samples_path", metavar="PATH", help="Samples file, as for run.")
@click.option(
    "--benchmark/--no-benchmark", "is_benchmarking", default=None, help="Plan to measure speed, or not, as for run."
)
@shared.target_option
@shared.probes_option
@shared.constraint_option
@shared.root_option
@shared.device_option
@shared.time_limit_option
@output_options("quiet", "json")
def command(
    specs: tuple[str, ...],
    *,
    samples_path: str | None,
    targets: tuple[str, ...],
    probes: str | None,
    constraints: tuple[str, ...],
    output: Output,
    **options: Any,  # noqa: ANN401 - the values of the other options
) -> int:
    """Show which steps a run of each SPEC would reuse, from which run, which it would redo, and why.

    Nothing is run or stored. A step that depends on a redone step is shown as unknown. Give the same options as for
    run. A plan exits with 0, whatever it shows.

    \b
    Example:
      convert-and-validate plan klue-sts
      convert-and-validate plan klue-sts --json -
    """
    from paritygate.pipelines.planning.plan import plan_run
    from paritygate.pipelines.report.terminal.plan import plan_lines
    from paritygate.pipelines.report.terminal.printing import print_lines
    from paritygate.pipelines.run_spec import RunOptions, spec_to_run
    from paritygate.pipelines.spec.limits import parse_constraints
    from paritygate.validate.probes.catalogue import probes_named

    asked = RunOptions(limits=parse_constraints(constraints), **options)
    named_probes = probes_named(probes)
    resolved = [spec_to_run(text, samples_path=samples_path, targets=targets, probes=named_probes) for text in specs]
    plans = [plan_run(spec, asked, samples_path=samples_path) for spec in resolved]
    if not output.to_stderr:
        print_lines(line for plan in plans for line in plan_lines(plan, is_quiet=output.is_quiet))
    output.write({"plans": [plan.to_json() for plan in plans]})
    return 0
