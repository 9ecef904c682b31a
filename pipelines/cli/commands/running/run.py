"""`run`: do everything for one or several specs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from paritygate.pipelines.cli import options as shared
from paritygate.pipelines.cli.engine_options import engine_of, engine_options
from paritygate.pipelines.cli.formats import Result, result_options
from paritygate.pipelines.cli.places import WrittenRepositoryPlace


@click.command("run")
@click.argument("specs", nargs=-1, required=True, metavar="SPEC...")
@click.option(
    "--samples",
    "samples_path",
    metavar="PATH",
    help="Samples file that replaces the spec's, or that its sample function receives.",
)
@click.option(
    "--benchmark/--no-benchmark",
    "is_benchmarking",
    default=None,
    help="Measure speed, or not; by default only if the spec or its choice of a variant needs it.",
)
@engine_options("Run each spec in its own process, N at a time.")
@click.option("--promote/--no-promote", "is_promoting", default=True, show_default=True, help="Release what passes.")
@click.option(
    "--diagnose/--no-diagnose",
    "is_diagnosing",
    default=True,
    show_default=True,
    help="Name the operators where a failing ONNX variant first differs from the reference.",
)
@click.option(
    "--repository",
    type=WrittenRepositoryPlace(),
    metavar="DIR|URL",
    help="Release into this repository instead of the spec's.",
)
@click.option("--alias", help="Move this alias instead of the spec's.")
@shared.sign_option
@click.option(
    "--cache/--no-cache",
    "is_cached",
    default=True,
    show_default=True,
    help="Reuse results of earlier runs with the same files, or redo everything.",
)
@shared.target_option
@shared.probes_option
@shared.constraint_option
@shared.written_root_option
@shared.device_option
@shared.limit_options
@result_options()
def command(
    specs: tuple[str, ...],
    *,
    samples_path: str | None,
    is_benchmarking: bool | None,
    engine: str | None,
    workers: int | None,
    ray_address: str | None,
    sign: Path | None,
    is_cached: bool,
    targets: tuple[str, ...],
    probes: str | None,
    constraints: tuple[str, ...],
    root: Path,
    written: Result,
    **options: Any,  # noqa: ANN401 - the values of the other options
) -> int:
    """Export, record, validate, benchmark, report and promote, for each SPEC.

    A SPEC is a .yaml file, a folder of them, or the name of a packaged spec; speed is measured where it asks for
    that. With a folder or --workers, a spec that cannot be read stops no other, and a page lists all runs. The exit
    code is that of the worst required variant of all specs, 5 before 4 before 1 before 3. If a spec requires what
    this machine only builds, such as an engine without a GPU, that was not measured: 5.

    \b
    Example:
      convert-and-validate run klue-sts klue-sts-tf
      convert-and-validate run klue-sts --samples klue-sts-v1.1_dev.json \\
        --no-promote --json -
      convert-and-validate run specs/ --workers 4
    """
    from paritygate.pipelines.cache.finished_run import AskedOfRun
    from paritygate.pipelines.cli.signing import signing_key
    from paritygate.pipelines.cli.unchanged_run import replay_last_run

    signer = signing_key(sign)
    is_folder_named = any(Path(text).is_dir() for text in specs)
    if is_folder_named:
        from paritygate.pipelines.fleet.fleet import specs_in

        specs = tuple(specs_in(specs))
    requests = [AskedOfRun.now(text, _options_of_run(), root) for text in specs] if is_cached else []
    # These use current figures, or more of a run than the cache has; a file may hold another key by now.
    may_be_finished = (
        is_cached and not (is_benchmarking or written.shown.is_verbose or signer) and written.form in {"text", "json"}
    )
    by_workers = engine_of(engine, workers or 1 if is_folder_named else workers, ray_address, {})
    if by_workers is not None:
        from paritygate.pipelines.cli.many_specs import ManySpecs

        return ManySpecs(
            specs=specs,
            engine=by_workers,
            root=root,
            requests=requests if may_be_finished else [],
            written=written,
        ).run()
    if may_be_finished and replay_last_run(requests, written):
        return 0
    from paritygate.pipelines.cli.running import SpecRuns
    from paritygate.pipelines.run_spec import RunOptions, check_options, spec_to_run
    from paritygate.pipelines.spec.limits import parse_constraints
    from paritygate.validate.probes.catalogue import probes_named

    asked = RunOptions(
        is_benchmarking=is_benchmarking, root=root, limits=parse_constraints(constraints), signer=signer, **options
    )
    asked_probes = probes_named(probes)
    # All specs are read before any work starts, so that an error in the second does not cost the first's time.
    resolved = [spec_to_run(text, samples_path=samples_path, targets=targets, probes=asked_probes) for text in specs]
    for spec in resolved:
        check_options(spec, asked)
    runs = SpecRuns(options=asked, samples_path=samples_path, written=written)
    try:
        for at, spec in enumerate(resolved):
            runs.run(spec, requests[at] if is_cached else None)
        return runs.finish()
    finally:
        written.json.discard()


def _options_of_run() -> dict[str, object]:
    """Return the options of this call that a run depends on as JSON data, without those of printing."""
    params = click.get_current_context().params
    shown = {
        "specs",
        "root",
        "is_cached",
        "engine",
        "workers",
        "ray_address",
        "quiet",
        "verbose",
        "form",
        "json_target",
    }
    return {
        name: str(value) if isinstance(value, Path) else value for name, value in params.items() if name not in shown
    }
