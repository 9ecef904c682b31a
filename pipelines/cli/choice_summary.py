"""A choice in the terminal: the table of what there is to choose from, what is chosen, and why."""

from __future__ import annotations

from collections.abc import Sequence

from paritygate.errors import ExitCode
from paritygate.pipelines.benchmark.result import SOURCE
from paritygate.pipelines.choice.choice import Choice
from paritygate.pipelines.choice.figures import Figures
from paritygate.pipelines.choice.limit_share import limit_share
from paritygate.pipelines.choice.options import ReleaseOption
from paritygate.pipelines.cli.console import print_table
from paritygate.pipelines.report.figures import number, share, times
from paritygate.pipelines.report.tables.table import of_texts
from paritygate.pipelines.run.workspace import RunFolder
from paritygate.pipelines.spec.benchmark_plan import price_of
from paritygate.text import echo

__all__ = ["exit_code_of_choice", "print_choice"]

_COLUMNS = (
    "variant", "verdict", "evidence", "max diff", "of its limit", "p50 ms", "p95 ms", "speed-up", "size MB",
    "within limits",
)  # fmt: skip


def exit_code_of_choice(choice: Choice) -> int:
    """Return 0 if something is chosen; 3 if the fastest cannot be told; 5 if what passed was not measured; else 1."""
    if choice.chosen:
        return int(ExitCode.PASS)
    if choice.is_undecided:
        return int(ExitCode.INCONCLUSIVE)
    return int(ExitCode.NOT_MEASURED if choice.is_open else ExitCode.PARITY_FAILED)


def print_choice(choice: Choice, run: RunFolder, *, to_stderr: bool = False) -> None:
    """Print the choice for people; on standard error, without the table, where standard output holds JSON."""
    if not to_stderr:
        at = "" if choice.batch_size is None else f" at batch size {choice.batch_size}"
        title = f"{run.resolved.name}: candidates for {', '.join(choice.rules.devices)}{at}"
        rows = [_row(candidate, has_limits=bool(choice.rules.limits)) for candidate in choice.candidates]
        print_table(of_texts(title, _COLUMNS, [_source_row(choice), *rows]))
    if choice.chosen:
        names = ", ".join(candidate.name for candidate in choice.chosen)
        echo(f"choice: {names}" + (f", because {choice.reason}" if choice.reason else ""), err=to_stderr)
    else:
        echo(f"no choice: {choice.reason}", err=to_stderr)
    command = choice.how_to_measure(run.folder, has_price=price_of(run.resolved) is not None)
    if command:
        again = "more rounds, best while nothing else runs" if choice.is_undecided else "to measure speed"
        echo(f"hint: {again}: {command}", err=True)


def _source_row(choice: Choice) -> Sequence[str]:
    within = "-" if not choice.rules.limits else _within(choice.source_broken)
    return (SOURCE, "-", "-", "-", "-", *_speed_cells(choice.source), within)


def _row(candidate: ReleaseOption, *, has_limits: bool) -> Sequence[str]:
    entry = candidate.entry
    largest, checks = entry.max_abs_diff, () if entry.result is None else entry.result.checks
    part = limit_share((check.name, check.measured, check.limit) for check in checks)
    within = "-" if not has_limits else _within(candidate.broken)
    return (
        candidate.name,
        entry.verdict,
        entry.evidence,
        number(largest, missing="-"),
        "-" if part is None else share(part, 1.0),
        *_speed_cells(candidate.figures),
        within,
    )


def _within(broken: Sequence[str]) -> str:
    return f"no: {', '.join(broken)}" if broken else "yes"


def _speed_cells(figures: Figures) -> tuple[str, ...]:
    names = ("latency_p50_ms", "latency_p95_ms")
    speedup = figures.speedup
    size = figures.by_name["size_mb"]
    return (
        *(number(figures.by_name[name], missing="-") for name in names),
        "-" if speedup is None else f"{times(speedup.ratio)} ({number(speedup.low)}-{number(speedup.high)})",
        number(size, missing="-"),
    )
