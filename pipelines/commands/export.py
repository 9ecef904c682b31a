"""`export`: the source becomes the target formats."""

from __future__ import annotations

from pathlib import Path

import click

from paritygate.pipelines.options import json_option, quiet_option, root_option, time_limit_option

__all__ = ["command"]


@click.command("export")
@click.argument("spec")
@click.option("--samples", "samples_path", metavar="PATH", help="Samples file that later stages of this run shall use.")
@root_option
@time_limit_option
@quiet_option
@json_option
def command(
    spec: str, *, samples_path: str | None, root: Path, time_limit: float, quiet: bool, json_target: str | None
) -> int:
    """Convert the model of SPEC to its targets, in a new run folder, whose path is printed.

    The exit code is 0 if every required target was made, 4 if one could not be, 5 if a package is missing.

    \b
    Example:
      convert-and-validate export klue-sts
    """
    from paritygate.pipelines.console import print_table, progress_of, write_json
    from paritygate.pipelines.spec_loading import load_spec_to_run
    from paritygate.pipelines.stages.export import export_stage
    from paritygate.pipelines.summary import export_rows, print_failures
    from paritygate.pipelines.workspace import new_run, required_variants, worst_code

    run = new_run(load_spec_to_run(spec, samples_path=samples_path), root=root, samples_path=samples_path)
    with progress_of(run.resolved.name, is_quiet=quiet) as progress:
        failures = export_stage(run, time_limit_s=time_limit, progress=progress)
    artifacts = {name: run.artifact(name) for name in run.exported()}
    if json_target != "-":
        print_table(f"{run.resolved.name}: exported", ("variant", "size", "digest", "notes"), export_rows(artifacts))
    print_failures(failures)
    click.echo(f"run: {run.folder}", err=json_target == "-")
    code = worst_code([failures[name].exit_code for name in required_variants(run) if name in failures])
    write_json(
        json_target,
        {
            "schema_version": 1,
            "run": str(run.folder),
            "exit_code": code,
            "artifacts": {name: {"digest": item.digest, "files": dict(item.files)} for name, item in artifacts.items()},
            "failures": {name: item.to_json() for name, item in failures.items()},
        },
    )
    return code
