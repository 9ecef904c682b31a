"""`selftest`: plant faults into the spec's own model, to test the gate."""

from __future__ import annotations

from pathlib import Path

import click

from paritygate.pipelines.cli.options import limit_options, probes_option, root_option
from paritygate.pipelines.cli.output import Output, output_options


@click.command("selftest")
@click.argument("spec")
@click.option("--samples", "samples_path", metavar="PATH", help="Samples file to use instead of the spec's.")
@click.option(
    "--fault",
    "faults",
    multiple=True,
    metavar="NAME",
    help="Plant only this fault or equivalent rewrite; may be repeated. All of them if absent.",
)
@probes_option
@click.option("--seed", type=click.IntRange(min=0), metavar="N", help="Seed of all choices; the spec's if absent.")
@root_option
@limit_options
@output_options()
def command(
    spec: str,
    *,
    samples_path: str | None,
    faults: tuple[str, ...],
    probes: str | None,
    seed: int | None,
    root: Path,
    time_limit_s: float,
    output: Output,
) -> int:
    """Plant faults into the model of SPEC, one at a time, and report which ones a validation would catch.

    The model is exported to ONNX and its outputs are recorded. Then known kinds of faults, and equivalent rewrites,
    are applied to the ONNX file. Each is checked with the spec's samples, tolerances, decisions and probes.

    The exit code is 0 even if faults are missed. It is 1 if the unchanged file or an equivalent rewrite fails, and
    3 if there are too few samples to pass.

    \b
    Example:
      convert-and-validate selftest klue-sts
      convert-and-validate selftest klue-sts --fault mask-dropped \\
        --fault gelu-tanh --probes none --json selftest.json
    """
    from paritygate.pipelines.report.terminal.selftest import print_selftest
    from paritygate.pipelines.run.workspace import new_run
    from paritygate.pipelines.selftest.mutations.mutation import chosen_mutations
    from paritygate.pipelines.selftest.stage import SELFTEST_PAGE, SelftestOptions, selftest_stage, spec_of_selftest
    from paritygate.pipelines.spec.loading import load_spec_to_run
    from paritygate.validate.probes.catalogue import probes_named

    options = SelftestOptions(mutations=chosen_mutations(faults), time_limit_s=time_limit_s)
    resolved = load_spec_to_run(spec, samples_path=samples_path)
    run = new_run(
        spec_of_selftest(resolved, probes=probes_named(probes), seed=seed), root=root, samples_path=samples_path
    )
    with output.progress(resolved.name) as progress:
        result = selftest_stage(run, options, progress)
    print_selftest(result, run.folder / SELFTEST_PAGE, output)
    output.write(result.to_json())
    return result.exit_code
