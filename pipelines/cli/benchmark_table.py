"""A benchmark as a table: one row a variant, batch size and concurrency."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from paritygate.pipelines.benchmark.result import BenchmarkPoint, BenchmarkResult, VariantBenchmark
from paritygate.pipelines.cli.console import print_table
from paritygate.text import echo

__all__ = ["benchmark_table", "print_benchmark"]

_MEGABYTE = 1e6
_NONE = "-"


def print_benchmark(
    name: str, result: BenchmarkResult, *, not_run_here: Collection[str] = (), to_stderr: bool = False
) -> None:
    """Print the table and its notes, and on standard error what was not measured.

    Where standard output holds JSON, there is no table, and the notes are on standard error as well. That what is not
    run here has no speed here is no error: why it is not run is said elsewhere.
    """
    if not to_stderr:
        columns, rows = benchmark_table(result)
        print_table(f"{name}: speed beside its source", columns, rows)
    for note in result.notes:
        echo(f"note: {note}", err=to_stderr)
    for variant in result.variants:
        for note in variant.notes:
            echo(f"{variant.name}: note: {note}", err=to_stderr)
        if variant.error and variant.name not in not_run_here:
            echo(f"error: benchmark of {variant.name}: {variant.error}", err=True)


def benchmark_table(result: BenchmarkResult) -> tuple[Sequence[str], list[Sequence[str]]]:
    """Return the columns, and one row for each variant and point.

    What is not known is `-`. What holds for a variant at every point stands in its first row alone. There is no
    column of concurrency where there is but one, and none of cost without a price.
    """
    rows = [row for variant in result.variants for row in _rows_of(variant)]
    left_out = {
        *(("conc.",) if result.concurrency == (1,) else ()),
        *(("cost/1M",) if result.price_per_hour is None else ()),
    }
    columns = tuple(name for name in rows[0] if name not in left_out)
    return columns, [tuple(row[name] for name in columns) for row in rows]


def _rows_of(variant: VariantBenchmark) -> Iterator[Mapping[str, str]]:
    once = _of_variant(variant)
    for point in variant.points or (None,):
        yield {"variant": variant.name, **_of_point(point), **once}
        once = dict.fromkeys(once, "")


def _of_point(point: BenchmarkPoint | None) -> Mapping[str, str]:
    latency = {} if point is None else point.latency_ms
    return {
        "batch": _NONE if point is None else str(point.batch_size),
        "conc.": _NONE if point is None else str(point.concurrency),
        **{f"{name} ms": _number(latency.get(name)) for name in ("p50", "p95", "p99")},
        "calls": _NONE if point is None else str(point.calls),
        "rows/s": _number(None if point is None else point.rows_per_s),
        "speed-up [95 %]": _speedup(point),
        "cores": _NONE if point is None else f"{point.cpu_cores:.1f}",
        "cost/1M": _number(None if point is None else point.cost_per_million),
    }


def _of_variant(variant: VariantBenchmark) -> dict[str, str]:
    memory, size = variant.peak_memory_bytes, variant.size_bytes
    return {
        "load s": _number(variant.load_s),
        "1st ms": _number(variant.first_call_ms),
        "peak MB": _NONE if memory is None else f"{memory / _MEGABYTE:.0f}",
        "size MB": _number(None if size is None else size / _MEGABYTE),
    }


def _speedup(point: BenchmarkPoint | None) -> str:
    found = None if point is None else point.speedup
    return _NONE if found is None else f"{_number(found.ratio)} [{_number(found.low)}, {_number(found.high)}]"


def _number(value: float | None) -> str:
    """Return three digits, or all before the point."""
    if value is None:
        return _NONE
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:#.3g}"  # noqa: PLR2004 - three digits
