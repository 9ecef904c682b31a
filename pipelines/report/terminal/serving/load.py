"""The result of `load` in the terminal: with `-v` one line per loop as it ends, a table, and the verdict."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from paritygate.pipelines.live.judge import share_of_limit
from paritygate.pipelines.live.page import failure_words, load_notes, load_tables, rate_words, title_of
from paritygate.pipelines.live.result import LoadResult, Step
from paritygate.pipelines.report.figures import number
from paritygate.pipelines.report.terminal.printing import Shown, print_lines, print_message
from paritygate.pipelines.report.terminal.screen import path_line, screen_table, wrapped
from paritygate.text import counted


def print_step(step: Step, shown: Shown) -> None:
    """Print one loop when it ends, if verbose."""
    if shown.is_verbose:
        load = f"{step.users} users" if step.rate is None else f"{number(step.rate)} requests a second"
        latency = number(step.p99_ms, missing="no end")
        print_lines([f"{load}: {rate_words(step.per_second)} answers/s, p99 {latency} ms"], err=True)


def print_load(result: LoadResult, page: Path | None, shown: Shown) -> None:
    """Print the outcome of a load."""
    if shown.is_quiet:
        print_message(_verdict(result), err=shown.to_stderr)
    else:
        print_lines(_lines(result, page, shown), err=shown.to_stderr)


def _lines(result: LoadResult, page: Path | None, shown: Shown) -> Iterator[str]:
    yield from wrapped(f"{title_of(result.served)}, over {result.served.transport}", width=shown.width)
    for table in load_tables(result.steps):
        yield from screen_table(table, shown.width)
    words = (
        f"{counted(result.answers, 'answer')} compared: {result.wrong} wrong, {counted(result.flips, 'row')} changed; "
        f"largest difference: {share_of_limit(result.largest_share)}"
    )
    yield from wrapped(words, width=shown.width)
    if result.first_failure is not None:
        yield from wrapped(f"first failure: {failure_words(result.first_failure)}", width=shown.width)
    for note in load_notes(result):
        yield from wrapped(f"note: {note}", width=shown.width)
    if page is not None:
        yield from path_line("report", page, shown.width)
    yield from wrapped(_verdict(result), width=shown.width)


def _verdict(result: LoadResult) -> str:
    if result.reasons:
        return f"verdict: {result.verdict}: {'; '.join(result.reasons)}"
    after = ", and is right after the stress" if result.is_right_after_stress else ""
    rate = rate_words(result.highest_rate or 0.0)
    return f"verdict: {result.verdict}: the server sustains {rate} answers a second{after}"
