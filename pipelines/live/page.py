"""The tables of a load, and its page in HTML."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from paritygate.files import write_bytes_atomically
from paritygate.pipelines.live.chart import latency_chart
from paritygate.pipelines.live.judge import share_of_limit
from paritygate.pipelines.live.metrics.server_counts import ServerCounts
from paritygate.pipelines.live.metrics.triton_page import MachineUse
from paritygate.pipelines.live.result import LiveResult, LoadResult, Served, Step
from paritygate.pipelines.live.traffic import Failure
from paritygate.pipelines.report.drawings.plot import Plot
from paritygate.pipelines.report.figures import amount
from paritygate.pipelines.report.html_page import html_page
from paritygate.pipelines.report.tables.table import Row, Table, facts, table_of, text
from paritygate.text import counted


def write_page(
    result: LiveResult, path: Path | None, kicker: str, tables: Sequence[Table], plots: Sequence[Plot | None]
) -> None:
    """Write a self-contained page, if a path is given; may raise StorageError."""
    if path is None:
        return
    content = html_page(
        "live",
        kicker=kicker,
        title=title_of(result.served),
        verdict=result.verdict,
        why="; ".join(result.reasons),
        tables=tables,
        plots=[plot for plot in plots if plot is not None],
        notes=notes_of(result),
    )
    write_bytes_atomically(path, content.encode(), elsewhere="name another file with --report")


def write_load_page(result: LoadResult, path: Path | None) -> None:
    """Write the page of a load, if a path is given; may raise StorageError."""
    rate = result.highest_rate
    highest = [] if rate is None else [("highest sustained rate, answers a second", amount(rate))]
    figures = live_facts(result, sum(step.unsent for step in result.steps), highest)
    tables = [facts("Answers", figures), *load_tables(result.steps)]
    write_page(result, path, "Load report", tables, [latency_chart(result.steps)])


def title_of(served: Served) -> str:
    """Return what was loaded: the release, and the server."""
    of = f"{served.model} version {served.version}, {served.reference or served.variant}"
    # A server of no known kind calls itself nothing.
    return of if served.server == "unknown" else f"{of}, on {served.server} {served.server_version}"


def live_facts(result: LiveResult, unsent: int, more: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Yield how many requests were sent, and what came back; then `more` figures, and the first failure."""
    yield "requests", f"{result.requests:,}"
    yield "wrong answers", f"{result.wrong:,}"
    yield "rows that changed", f"{result.flips:,}"
    yield "largest difference", largest_words(result)
    yield "answered with an error", f"{result.errors:,}"
    yield "without an answer", f"{result.lost:,}"
    if unsent:
        yield "not sent", f"{unsent:,}"
    yield from more
    if result.first_failure is not None:
        yield "first failure", failure_words(result.first_failure)


def largest_words(result: LiveResult) -> str:
    """Return the text of the largest difference of all answers that were compared."""
    return share_of_limit(result.largest_share) if result.answers > result.unreadable else "not measured"


def failure_words(failure: Failure) -> str:
    """Return the first request that failed, and why; without values."""
    other = f"; it is the answer to {failure.answer_of}" if failure.answer_of else ""
    return f"request {failure.id} ({failure.rows}): {failure.why}{other}"


def notes_of(result: LiveResult) -> list[str]:
    """Return the remarks on a load."""
    described = [f"description: {words}" for words in result.described_otherwise]
    watched = [f"CPU and memory were not measured: {result.not_watched}"] if result.not_watched else []
    return [*described, *(f"left out: {words}" for words in result.left_out), *watched, *result.notes]


def load_tables(steps: Sequence[Step]) -> Iterator[Table]:
    """Yield the tables of all loops: as this client sees them, and as the server counts them."""
    if steps:
        yield _steps_table(steps)
    if any(step.server is not None for step in steps):
        columns = ("load", ">requests", ">queued ms", ">computed ms", ">rows a call", ">CPU", ">MiB")
        yield table_of("by the server's metrics", columns, map(_server_row, steps))


def _server_row(step: Step) -> Row:
    server, use = step.server or ServerCounts(rows=0, calls=0), step.machine or MachineUse()
    share = "-" if use.cpu_share is None else f"{100 * use.cpu_share:.0f} %"
    figures = (server.queue_ms, server.compute_ms, server.rows_per_call, use.memory_mib)
    *counts, memory = (amount(each, missing="-") for each in figures)
    cells = (f"{server.requests:,}", *counts, share, memory)
    return (_load_words(step), *cells)


def _steps_table(steps: Sequence[Step]) -> Table:
    columns = ("load", ">answers/s", ">p50", ">p95", ">p99 ms", ">errors", ">lost", ">wrong", ">CPU", ">MiB")
    caption = f"{counted(len(steps), 'loop')}, one after the other"
    return table_of(caption, columns, map(_row, steps))


def _row(step: Step) -> Row:
    unsent = f"; {counted(step.unsent, 'request')} not sent" if step.unsent else ""
    remark = f"not sustained: {step.why_not}{unsent}" if step.why_not else ""
    latencies = (amount(each, missing="never") for each in (step.p50_ms, step.p95_ms, step.p99_ms))
    counts = (f"{each:,}" for each in (step.errors, step.lost, step.wrong))
    use = ("-" if step.cpu is None else f"{step.cpu:.2f}", amount(step.memory, missing="-"))
    cells = (amount(step.per_second), *latencies, *counts, *use)
    return (text(_load_words(step), remark=remark), *cells)


def _load_words(step: Step) -> str:
    load = counted(step.users, "user") if step.rate is None else f"{amount(step.rate)}/s"
    return f"{load}, stress" if step.is_stress else load
