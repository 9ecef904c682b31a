"""The result of `endurance` in the terminal: with `-v` one line per period, the figures, and the verdict."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from paritygate.pipelines.live.endurance_page import batch_tables, endurance_facts, endurance_notes
from paritygate.pipelines.live.endurance_result import EnduranceResult, Period
from paritygate.pipelines.live.page import title_of
from paritygate.pipelines.report.figures import number, seconds_words
from paritygate.pipelines.report.terminal.printing import Shown, print_lines, print_message
from paritygate.pipelines.report.terminal.screen import path_line, screen_table, wrapped


def print_period(period: Period, shown: Shown) -> None:
    """Print one period when it ends, if verbose."""
    if shown.is_verbose:
        memory = "" if period.memory is None else f", {number(period.memory)} MiB"
        latency = number(period.p50_ms, missing="no")
        print_lines([f"{period.at:.0f} s: {period.requests} requests, p50 {latency} ms{memory}"], err=True)


def print_endurance(result: EnduranceResult, page: Path | None, shown: Shown) -> None:
    """Print the outcome of a long load."""
    if shown.is_quiet:
        print_message(_verdict(result), err=shown.to_stderr)
    else:
        print_lines(_lines(result, page, shown), err=shown.to_stderr)


def _lines(result: EnduranceResult, page: Path | None, shown: Shown) -> Iterator[str]:
    yield from wrapped(f"{title_of(result.served)}, over {result.served.transport}", width=shown.width)
    for name, cell in endurance_facts(result):
        yield from wrapped(f"{name}: {cell.text}", width=shown.width)
    if shown.is_verbose or any(each.wrong for each in (*result.batches_before, *result.batches_after)):
        for table in batch_tables(result):
            yield from screen_table(table, shown.width)
    for note in endurance_notes(result):
        yield from wrapped(f"note: {note}", width=shown.width)
    if page is not None:
        yield from path_line("report", page, shown.width)
    yield from wrapped(_verdict(result), width=shown.width)


def _verdict(result: EnduranceResult) -> str:
    if result.reasons:
        return f"verdict: {result.verdict}: {'; '.join(result.reasons)}"
    return f"verdict: {result.verdict}: {result.requests:,} requests in {seconds_words(result.seconds)}"
