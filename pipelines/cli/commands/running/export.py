"""`export`: convert the source to the target formats."""

from __future__ import annotations

from pathlib import Path

import click

from paritygate.pipelines.cli.options import limit_options, target_option, written_root_option
from paritygate.pipelines.cli.output import Output, output_options


@click.command("export")
@click.argument("spec")
@click.option("--samples", "samples_path", metavar="PATH", help="Samples file for the later stages of this run.")
@target_option
@written_root_option
@limit_options
@output_options()
def command(
    spec: str,
    *,
    samples_path: str | None,
    targets: tuple[str, ...],
    root: Path,
    time_limit_s: float,
    output: Output,
) -> int:
    """Convert the model of SPEC to its targets, in a new run folder, whose path is printed.

    The exit code is 0 if every required target was made, 4 if one could not be, 5 if a package or GPU is missing. An
    engine that cannot be built here can be built elsewhere, from the run folder alone: pack, unpack, build.

    \b
    Example:
      convert-and-validate export klue-sts
      convert-and-validate export klue-sts --target onnx-fp32 --target onnx-fp16
    """
    from paritygate.pipelines.report.terminal.made import made_to_json, print_made
    from paritygate.pipelines.run.export import export_stage
    from paritygate.pipelines.run.stopped import noting_why_it_stops
    from paritygate.pipelines.run.workspace import new_run, required_variants, worst_code
    from paritygate.pipelines.spec.loading import load_spec_to_run
    from paritygate.pipelines.spec.target_choice import with_targets

    resolved = with_targets(load_spec_to_run(spec, samples_path=samples_path), targets)
    run = new_run(resolved, root=root, samples_path=samples_path)
    with output.progress(resolved.name) as progress, noting_why_it_stops(run):
        failures = export_stage(run, time_limit_s=time_limit_s, progress=progress)
    artifacts = {name: run.artifact(name) for name in run.exported()}
    print_made(run, "exported", artifacts, failures, output)
    code = worst_code([failures[name].exit_code for name in required_variants(run) if name in failures])
    output.write(made_to_json(run, artifacts, failures), exit_code=code)
    return code
