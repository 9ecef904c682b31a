"""The options of work by many workers, and a comparison by them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import click

from paritygate.errors import UsageError
from paritygate.pipelines.cli.output import all_of

if TYPE_CHECKING:
    from paritygate.pipelines.cli.formats import Result
    from paritygate.pipelines.compare.job import ComparisonJob
    from paritygate.pipelines.report.terminal.printing import Shown
    from paritygate.pipelines.scale.engine import Engine


def engine_options(workers_help: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that gives a command --engine, --workers and --ray-address."""
    return all_of(
        click.option(
            "--engine",
            type=click.Choice(["processes", "ray"]),
            help="Where the workers are: processes of this machine, which is the default, or a Ray cluster.",
        ),
        click.option("--workers", type=click.IntRange(min=1, max=256), metavar="N", help=workers_help),
        click.option(
            "--ray-address", metavar="HOST:PORT", help="The Ray cluster of --engine ray, instead of a new one."
        ),
    )


def engine_of(
    engine: str | None, workers: int | None, ray_address: str | None, without: Mapping[str, object]
) -> Engine | None:
    """Return the workers of the options above; None without any. The options in `without` have to be None then.

    Raises:
        UsageError: An option is there that another one needs, or does not go with it.
    """
    if ray_address is not None and engine != "ray":
        raise UsageError("--ray-address is for --engine ray", hint="add --engine ray")
    if workers is None and engine is not None:
        raise UsageError(f"--engine {engine} needs --workers N", hint="add for example --workers 2")
    if workers is None:
        return None
    for option, value in without.items():
        if value is not None:
            raise UsageError(f"--workers and {option} exclude each other", hint="leave out one of them")
    from paritygate.pipelines.scale.engine import Engine

    return Engine(kind=engine or "processes", workers=workers, address=ray_address)


def say_unless_quiet(shown: Shown) -> Callable[[str], None]:
    """Return a function that prints a text to standard error, unless --quiet is given."""
    from paritygate.pipelines.report.terminal.printing import print_lines
    from paritygate.pipelines.report.terminal.screen import wrapped

    return lambda text: None if shown.is_quiet else print_lines(wrapped(text), err=True)


def compare_with(engine: Engine, job: ComparisonJob, written: Result, *, time_limit_s: float) -> int:
    """Compare by many workers, print and write the result, and return the exit code."""
    from paritygate.pipelines.process.stages import stage
    from paritygate.pipelines.scale.comparison import compare_by_workers
    from paritygate.text import counted

    say = say_unless_quiet(written.shown)
    with written.shown.progress(job.candidate.name) as progress, stage(progress, "comparing") as did:
        result = compare_by_workers(job, engine, time_limit_s=time_limit_s, progress=progress, say=say)
        did(f"compared {counted(result.rows, 'row')}")
    written.show_comparison(result, job)
    return result.exit_code
