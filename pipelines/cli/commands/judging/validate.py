"""`validate`: compare every exported variant of a run with the recorded reference."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from paritygate.pipelines.cli import options as shared
from paritygate.pipelines.cli.formats import Result, result_options


@click.command("validate")
@shared.run_and_root_options
@shared.probes_option
@click.option(
    "--scratch",
    "is_scratch",
    is_flag=True,
    help="Write evidence, results and reports to DIR/scratch, and leave those of the run unchanged.",
)
@shared.device_option
@shared.limit_options
@result_options()
def command(
    *,
    run_folder: Path | None,
    probes: str | None,
    is_scratch: bool,
    device: str,
    time_limit_s: float,
    written: Result,
) -> int:
    """Compare every exported variant of a run with its recorded reference, and write evidence and reports.

    The exit code is that of the worst required variant. If --probes leaves out a probe of the spec, the results go
    to DIR/scratch. The evidence of the run then stays unchanged.

    \b
    Example:
      convert-and-validate validate \\
        --run artifacts/runs/klue-sts/20261120T101500Z-1a2b
    """
    from paritygate.pipelines.report.terminal.run import print_outcome
    from paritygate.pipelines.report.write import write_reports
    from paritygate.pipelines.run.validate import validate_stage
    from paritygate.pipelines.run_spec import RunOutcome, exit_code_of_run
    from paritygate.text import echo
    from paritygate.validate.probes.catalogue import probes_named

    named_probes = probes_named(probes)
    run = shared.open_given_run(run_folder, "export")
    left_out = [name for name in run.resolved.probes if named_probes is not None and name not in named_probes]
    # Fewer probes than in the spec are no evidence.
    run = replace(run, is_scratch=is_scratch or bool(left_out))
    with written.shown.progress(run.resolved.name) as progress:
        results = validate_stage(run, time_limit_s=time_limit_s, progress=progress, device=device, probes=named_probes)
    failures = run.failures()
    outcome = RunOutcome(
        run=run,
        results=results,
        failures=failures,
        release=None,
        repository=None,
        not_released="not asked for",
        exit_code=exit_code_of_run(run, results, failures),
        reports=write_reports(run),
    )
    report = outcome.report()
    with written.printing():
        print_outcome(outcome, report, written.shown)
        if left_out:
            echo(
                f"note: the result is in {run.findings} and is not evidence, because probes of the spec were left out "
                f"({', '.join(left_out)}); earlier evidence decides what may be released",
                err=written.shown.to_stderr,
            )
    written.add_outcome(outcome, report)
    written.write({"schema_version": 1, "exit_code": outcome.exit_code, "runs": [outcome.to_json()]})
    return outcome.exit_code
