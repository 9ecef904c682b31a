"""A benchmark as a table: one row a variant, batch size and concurrency."""

from __future__ import annotations

from collections.abc import Sequence

import click

from paritygate.pipelines.benchmark.result import BenchmarkPoint, BenchmarkResult, VariantBenchmark
from paritygate.pipelines.console import print_table

__all__ = ["BENCHMARK_COLUMNS", "benchmark_rows", "print_benchmark"]

BENCHMARK_COLUMNS = (
    "variant",
    "batch",
    "conc.",
    "p50 ms",
    "p95 ms",
    "p99 ms",
    "calls",
    "rows/s",
    "speed-up [95 %]",
    "load s",
    "1st ms",
    "peak MB",
    "cores",
    "size MB",
    "cost/1M",
)
_MEGABYTE = 1e6
_NONE = "-"


def print_benchmark(name: str, result: BenchmarkResult, *, to_stderr: bool = False) -> None:
    """Print the table and its notes, and on standard error what was not measured.

    Where standard output holds JSON, there is no table, and the notes are on standard error as well.
    """
    if not to_stderr:
        print_table(f"{name}: speed beside its source", BENCHMARK_COLUMNS, benchmark_rows(result))
    for note in result.notes:
        click.echo(f"note: {note}", err=to_stderr)
    for variant in result.variants:
        for note in variant.notes:
            click.echo(f"{variant.name}: note: {note}", err=to_stderr)
        if variant.error:
            click.echo(f"error: benchmark of {variant.name}: {variant.error}", err=True)


def benchmark_rows(result: BenchmarkResult) -> list[Sequence[str]]:
    """Return one row for each variant and point, in the order of `BENCHMARK_COLUMNS`; `-` where nothing is known."""
    rows: list[Sequence[str]] = []
    for variant in result.variants:
        rows += [_row(variant, point) for point in variant.points] or [_row_without_point(variant)]
    return rows


def _row(variant: VariantBenchmark, point: BenchmarkPoint) -> Sequence[str]:
    *once, size = _of_variant(variant)
    return (
        variant.name,
        str(point.batch_size),
        str(point.concurrency),
        *(_number(point.latency_ms[name]) for name in ("p50", "p95", "p99")),
        str(point.calls),
        _number(point.rows_per_s),
        _speedup(point),
        *once,
        f"{point.cpu_cores:.1f}",
        size,
        _number(point.cost_per_million),
    )


def _row_without_point(variant: VariantBenchmark) -> Sequence[str]:
    *once, size = _of_variant(variant)
    unknown = BENCHMARK_COLUMNS.index("load s") - 1
    return (variant.name, *[_NONE] * unknown, *once, _NONE, size, _NONE)


def _of_variant(variant: VariantBenchmark) -> tuple[str, str, str, str]:
    memory, size = variant.peak_memory_bytes, variant.size_bytes
    return (
        _number(variant.load_s),
        _number(variant.first_call_ms),
        _NONE if memory is None else f"{memory / _MEGABYTE:.0f}",
        _NONE if size is None else _number(size / _MEGABYTE),
    )


def _speedup(point: BenchmarkPoint) -> str:
    found = point.speedup
    return _NONE if found is None else f"{_number(found.ratio)} [{_number(found.low)}, {_number(found.high)}]"


def _number(value: float | None) -> str:
    """Return three digits, or all before the point."""
    if value is None:
        return _NONE
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:#.3g}"  # noqa: PLR2004 - three digits
