"""The tables of a long load, and its page in HTML."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from paritygate.pipelines.live.chart import series_chart
from paritygate.pipelines.live.endurance_result import EnduranceResult
from paritygate.pipelines.live.judge import share_of_limit
from paritygate.pipelines.live.page import live_facts, write_page
from paritygate.pipelines.live.slope import Trend
from paritygate.pipelines.report.drawings.plot import Plot
from paritygate.pipelines.report.figures import amount
from paritygate.pipelines.report.tables.table import Table, facts, table_of


def write_endurance_page(result: EnduranceResult, path: Path | None) -> None:
    """Write the page of a long load, if a path is given; may raise StorageError."""
    charts: list[Plot | None] = []
    tables: list[Table] = []
    for model in (result, *result.also):
        of = f": {model.served.url}" if result.also else ""
        tables += [facts(f"Over the whole time{of}", endurance_facts(model)), *batch_tables(model)]
        charts += _charts(model, of)
    write_page(result, path, "Endurance report", tables, charts)


def _charts(result: EnduranceResult, of: str) -> Iterator[Plot | None]:
    memory = [(period.at, period.memory) for period in result.periods if period.memory is not None]
    latency = [(period.at, period.p50_ms) for period in result.periods if period.p50_ms is not None]
    drift = [(period.at, 100 * period.share) for period in result.periods if period.share is not None]
    yield series_chart(f"Memory of the server{of}", "MiB", memory)
    yield series_chart(f"Latency, p50{of}", "ms", latency)
    yield series_chart(f"Drift: median difference of a period{of}", "% of its limit", drift)


def endurance_facts(result: EnduranceResult) -> Iterator[tuple[str, str]]:
    """Yield the figures of a long load."""
    yield from live_facts(result, result.unsent, _trends(result))


def _trends(result: EnduranceResult) -> Iterator[tuple[str, str]]:
    if result.memory is not None:
        yield "memory", trend_words(result.memory, "MiB")
    if result.latency is not None:
        yield "latency, p50", trend_words(result.latency, "ms")
    if result.drift is not None:
        first, last = (share_of_limit(share) for share in (result.drift.first, result.drift.last))
        yield "median difference of a period", f"{first} at first, then up to {last}"


def trend_words(trend: Trend, unit: str) -> str:
    """Return how a series grows, with the interval."""
    interval = f"{amount(trend.low)} to {amount(trend.high)}"
    return (
        f"{amount(trend.first)} to {amount(trend.last)} {unit}, {amount(trend.per_minute)} {unit} a minute "
        f"(99 % interval: {interval})"
    )


def batch_tables(result: EnduranceResult) -> Sequence[Table]:
    """Return the table of one row repeated in a batch; none without a batch."""
    cells = []
    for when, batches in (("before", result.batches_before), ("after", result.batches_after)):
        for each in batches:
            same = f"{each.same_bytes} of {each.rows}"
            figures = (f"{each.size}", f"{each.wrong}", same, (each.refused or "-"))
            cells.append((when, *figures))
    columns = ("load", ">rows", ">wrong", ">same bytes", "refused")
    return [table_of("One row repeated in a batch", columns, cells)] if cells else []
