"""A choice in the terminal: the table of candidates, the chosen ones, and why."""

from __future__ import annotations

from collections.abc import Sequence

from paritygate.errors import ExitCode
from paritygate.pipelines.benchmark.result import SOURCE
from paritygate.pipelines.choice.choice import Choice
from paritygate.pipelines.choice.figures import Figures
from paritygate.pipelines.choice.options import ReleaseOption
from paritygate.pipelines.choice.tolerance_used import tolerance_used
from paritygate.pipelines.report.figures import number, share, times
from paritygate.pipelines.report.summary import verdict_words
from paritygate.pipelines.report.tables.table import Row, Table, figure, status, table_of, text
from paritygate.pipelines.report.terminal.printing import Shown, print_lines, print_table
from paritygate.pipelines.report.terminal.screen import screen_table, wrapped
from paritygate.pipelines.run.workspace import RunFolder
from paritygate.pipelines.spec.benchmark_plan import price_of
from paritygate.pipelines.spec.limits import UNMEASURED

_COLUMNS = (
    "variant", "verdict", "evidence", "max diff", "of its limit", "p50 ms", "p95 ms", "speed-up", "size MB",
    "within limits",
)  # fmt: skip


def exit_code_of_choice(choice: Choice) -> int:
    """Return 0 if something is chosen, 3 if the fastest is unknown, 5 if a pass was not measured, else 1.

    Runs and releases end in 0 on a tie, because they take the most accurate variant; a question for the fastest does
    not.
    """
    if choice.is_undecided:
        return int(ExitCode.INCONCLUSIVE)
    if choice.chosen:
        return int(ExitCode.PASS)
    return int(ExitCode.NOT_MEASURED if choice.is_open else ExitCode.PARITY_FAILED)


def print_choice(choice: Choice, run: RunFolder, shown: Shown) -> None:
    """Print the choice for people; on standard error and without the table if standard output holds JSON."""
    if not shown.to_stderr:
        at = "" if choice.batch_size is None else f" at batch size {choice.batch_size}"
        title = f"{run.resolved.name}: candidates for {', '.join(choice.rules.devices)}{at}"
        if shown.is_verbose:
            rows = [_row(candidate, has_limits=bool(choice.rules.limits)) for candidate in choice.candidates]
            print_table(table_of(title, _COLUMNS, [_source_row(choice), *rows]))
        else:
            print_lines(screen_table(_short_table(title, choice)))
    if choice.chosen:
        names = ", ".join(candidate.name for candidate in choice.chosen)
        word = "a tie" if choice.is_undecided else "choice"
        message = f"{word}: {names}" + (f", because {choice.reason}" if choice.reason else "")
    else:
        message = f"no choice: {choice.reason}"
    print_lines(wrapped(message, width=shown.width), err=shown.to_stderr)
    command = choice.how_to_measure(run.folder, has_price=price_of(run.resolved) is not None)
    if command:
        again = "more rounds, best while nothing else runs" if choice.is_undecided else "to measure speed"
        print_lines(wrapped(f"hint: {again}: {command}", width=shown.width), err=True)


def _short_table(title: str, choice: Choice) -> Table:
    """Return a table for 80 columns; what keeps a variant from being chosen is a remark."""
    columns = ("verdict", "variant", ">tolerance used", ">p50 ms", ">p95 ms", ">speed-up", ">size MB")
    rows = [("-", text(SOURCE, remark=_beyond(choice.source_broken)), *_figures("-", choice.source))]
    for option in choice.candidates:
        unlike = "" if option.entry.evidence == "verified" else option.entry.evidence
        remark = "; ".join(filter(None, (unlike, _beyond(option.broken))))
        verdict = verdict_words(option.entry.verdict)
        rows.append((status(verdict), text(option.name, remark=remark), *_figures(_of_limit(option), option.figures)))
    return table_of(title, columns, rows)


def _beyond(broken: Sequence[str]) -> str:
    # Unmeasured figures are reported once, below the table.
    beyond = [words for words in broken if not words.endswith(UNMEASURED)]
    return f"not within its limits: {', '.join(beyond)}" if beyond else ""


def _figures(part: str, figures: Figures) -> Row:
    p50, p95, _, size = _speed_cells(figures)
    speedup = "-" if figures.speedup is None else times(figures.speedup.ratio)
    return tuple(map(figure, (part, p50, p95, speedup, size)))


def _of_limit(option: ReleaseOption) -> str:
    checks = () if option.entry.result is None else option.entry.result.checks
    part = tolerance_used((check.name, check.measured, check.limit) for check in checks)
    return "-" if part is None else share(part, 1.0)


def _source_row(choice: Choice) -> Sequence[str]:
    within = "-" if not choice.rules.limits else _within(choice.source_broken)
    return (SOURCE, "-", "-", "-", "-", *_speed_cells(choice.source), within)


def _row(candidate: ReleaseOption, *, has_limits: bool) -> Sequence[str]:
    entry = candidate.entry
    within = "-" if not has_limits else _within(candidate.broken)
    return (
        candidate.name,
        entry.verdict,
        entry.evidence,
        number(entry.max_abs_diff, missing="-"),
        _of_limit(candidate),
        *_speed_cells(candidate.figures),
        within,
    )


def _within(broken: Sequence[str]) -> str:
    if broken and all(words.endswith(UNMEASURED) for words in broken):
        return f"not known: {', '.join(broken)}"
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
