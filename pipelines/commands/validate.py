"""`validate`: every exported variant of a run against the recorded reference."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from paritygate.pipelines.options import (
    device_option,
    json_option,
    probe_names,
    probes_option,
    quiet_option,
    run_option,
    time_limit_option,
)

__all__ = ["command"]


@click.command("validate")
@run_option
@probes_option
@click.option(
    "--aside",
    "is_aside",
    is_flag=True,
    help="Put evidence, results and reports into DIR/aside: those of the run, and what may be released, stay.",
)
@device_option
@time_limit_option
@quiet_option
@json_option
def command(
    *,
    run_folder: Path | None,
    probes: str | None,
    is_aside: bool,
    device: str,
    time_limit: float,
    quiet: bool,
    json_target: str | None,
) -> int:
    """Hold every exported variant of a run against its recorded reference, and write evidence and reports.

    The exit code is that of the worst required variant. With --probes, the evidence says what was left out, and so
    does a release.

    \b
    Example:
      convert-and-validate validate --run artifacts/runs/klue-sts/20261120T101500Z-1a2b
    """
    from paritygate.errors import UsageError
    from paritygate.pipelines.console import progress_of, write_json
    from paritygate.pipelines.report import write_reports
    from paritygate.pipelines.run import RunOutcome, exit_code_of_run
    from paritygate.pipelines.stages.validate import validate_stage
    from paritygate.pipelines.summary import print_outcome
    from paritygate.pipelines.workspace import open_run
    from paritygate.printing import echo

    if run_folder is None:
        msg = "validate needs --run DIR"
        raise UsageError(msg, hint="give the run folder that export printed")
    asked = probe_names(probes)
    run = replace(open_run(run_folder), is_aside=is_aside)
    with progress_of(run.resolved.name, is_quiet=quiet) as progress:
        results = validate_stage(run, time_limit_s=time_limit, progress=progress, device=device, probes=asked)
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
    print_outcome(outcome, to_stderr=json_target == "-")
    left_out = [name for name in run.resolved.probes if asked is not None and name not in asked]
    if left_out and not is_aside:
        # Whoever looked at one probe only should not release by it unawares.
        echo(
            f"note: the evidence of the run is now without probes that its spec asks for ({', '.join(left_out)}), and "
            "a release would say so; validate without --probes to ask them all, with --aside to leave the evidence",
            err=json_target == "-",
        )
    write_json(json_target, {"schema_version": 1, "exit_code": outcome.exit_code, "runs": [outcome.to_json()]})
    return outcome.exit_code
