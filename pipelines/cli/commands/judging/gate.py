"""`gate`: compare a run with the released version."""

from __future__ import annotations

from pathlib import Path

import click

from paritygate.pipelines.cli.options import open_given_run, root_option, run_option
from paritygate.pipelines.cli.output import Output, output_options
from paritygate.pipelines.cli.places import RepositoryPlace
from paritygate.roots import Root


@click.command("gate")
@run_option
@click.option(
    "--against",
    "against",
    required=True,
    metavar="ALIAS|VERSION",
    help="The release to compare the run with, such as prod.",
)
@click.option(
    "--worse",
    "factors",
    multiple=True,
    metavar="NAME=FACTOR",
    help="The factor by which a figure may grow, such as max_abs_diff=1.5, instead of the spec's promote.against: "
    "max_abs_diff, mismatch_rate, gold, size_mb, latency_p50_ms; may be repeated.",
)
@click.option(
    "--allow",
    "allowed",
    multiple=True,
    type=click.Choice(["interface", "fewer-variants", "first-release"]),
    help=(
        "Accept a change: interface, a deliberate change of inputs or outputs; fewer-variants, a run without some "
        "released variants; first-release, a model without a release. May be repeated."
    ),
)
@click.option(
    "--repository",
    type=RepositoryPlace(),
    metavar="DIR|URL",
    help="The repository of the release instead of the spec's.",
)
@root_option
@output_options()
def command(
    *,
    run_folder: Path | None,
    against: str,
    factors: tuple[str, ...],
    allowed: tuple[str, ...],
    repository: Root | None,
    root: Path,
    output: Output,
) -> int:
    """Fail if a variant of a run is worse than the released one by more than a factor.

    It also fails if the change would break a client of the release, unless --allow interface is given. That is a
    removed, renamed or retyped input or output, or a new input. A new output breaks no client.

    Nothing is measured or released. The exit code is 0 if nothing is worse, 1 if a variant is worse or fails, and 2
    if there is no such release. It is 3 to 5 if the run did not measure or make a released variant. It is 1 for a
    released variant that is not a target of the run, unless --allow fewer-variants is given.

    \b
    Example:
      convert-and-validate gate \\
        --run artifacts/runs/klue-sts/20261120T101500Z-1a2b --against prod
    """
    from paritygate.pipelines.release.regression import FIRST_RELEASE, compare_with_release, first_release
    from paritygate.pipelines.release.repository.inspect import show
    from paritygate.pipelines.release.repository_of_run import repository_of
    from paritygate.pipelines.report.terminal.gate import print_held
    from paritygate.pipelines.spec.against import parse_factors

    in_force = parse_factors(factors)
    run = open_given_run(run_folder, "run or validate")
    place = repository or repository_of(run, root)
    first = first_release(run, place, in_force) if FIRST_RELEASE in allowed else None
    if first is not None:
        print_held(first, output)
        output.write(first)
        return first.exit_code
    released = show(place, run.resolved.name, against)
    comparison = compare_with_release(run, released, in_force, allowed=allowed)
    print_held(comparison, output)
    output.write(comparison)
    return comparison.exit_code
