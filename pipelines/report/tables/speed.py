"""Tables of speed: latency and throughput at each batch size, and the cost of loading and memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from paritygate.pipelines.benchmark.result import SOURCE, BenchmarkPoint, BenchmarkResult, Speedup, VariantBenchmark
from paritygate.pipelines.compare.result import NOT_MEASURED
from paritygate.pipelines.report.figures import number, size_words, times
from paritygate.pipelines.report.tables.table import Cell, Row, Table, table_of, text

if TYPE_CHECKING:
    from paritygate.pipelines.report.report_data import ReportData, VariantReport

_POINT_TITLES = (
    "batch size", "concurrency", "p50 ms", "p95 ms", "p99 ms", "calls", "rows per s", "speed-up",
    "95 % interval", "busy cores",
)  # fmt: skip
_COST_TITLE = "cost per million rows"
_FOOTPRINT_TITLES = ("load s", "first call ms", "peak memory", "size of files")


def measured_speed(variant: VariantReport, benchmark: BenchmarkResult) -> tuple[VariantBenchmark | None, str]:
    """Return the benchmark of exactly the variant's current artifact, else None and why."""
    speed = benchmark.of(variant.name)
    if speed is None:
        return None, "the benchmark is without it"
    if speed.artifact is None:
        return None, speed.error or "it could not be loaded"
    if variant.artifact is None or speed.artifact != variant.artifact.digest:
        return None, "it was made again after the benchmark, which measured a different file"
    return speed, ""


def speedup_words(speedup: Speedup) -> str:
    """Return a speed-up with its interval."""
    return f"{times(speedup.ratio)} ({number(speedup.low)} to {number(speedup.high)})"


def speed_lead(benchmark: BenchmarkResult) -> str:
    """Return a description of the measurement."""
    machine = benchmark.machine
    cpu: Mapping[str, Any] = machine.get("cpu") or {}
    rounds = max((point.rounds for variant in benchmark.variants for point in variant.points), default=0)
    cores = f", {machine['cores']} cores" if machine.get("cores") else ""
    return (
        "Latency is that of one call with real rows of the samples. The source and the variants took turns in "
        f"{rounds} rounds, so that what slows the machine down slows all of them. Speed-up is the latency of the "
        "source by that of the variant at the same batch size and concurrency, p50 by p50, which is the median of the "
        f"rounds' medians, with its 95 % interval by resampling rounds. Measured on {benchmark.device}: "
        f"{cpu.get('model', 'a processor that is not known')}{cores}."
    )


def speed_table(report: ReportData, benchmark: BenchmarkResult) -> Table:
    """Return latency, throughput and speed-up, one row per batch size and concurrency, the source first."""
    has_cost = benchmark.price_per_hour is not None
    titles = (*_POINT_TITLES, *((_COST_TITLE,) if has_cost else ()))
    rows = [
        row
        for name, speed, _ in _speeds(report, benchmark)
        for row in _point_rows(name, speed, benchmark, has_cost=has_cost)
    ]
    columns = ("variant", *(f">{title}" for title in titles))
    return table_of("Latency, throughput and speed-up", columns, rows)


def short_speed_table(report: ReportData, benchmark: BenchmarkResult) -> Table:
    """Return the part of `speed_table` for 80 columns: cost may replace throughput, and instances replace p95."""
    has_instances, has_cost = len(benchmark.concurrency) > 1, benchmark.price_per_hour is not None
    titles = (
        *(("instances", "p50 ms") if has_instances else ("p50 ms", "p95 ms")),
        "cost/million" if has_cost else "rows per s",
        "95 % interval",
    )
    columns = (">speed-up", "variant", *(f">{title}" for title in ("batch", *titles)))
    rows = []
    for name, speed, _ in _speeds(report, benchmark):
        for point in speed.points if speed is not None else ():
            p50, p95, _p99, _calls, rows_per_s, speedup, interval, _cores = _point_cells(
                point, is_source=name.text == SOURCE
            )
            latency = (number(point.concurrency), p50) if has_instances else (p50, p95)
            served = number(point.cost_per_million) if has_cost else rows_per_s
            rows.append((speedup, name, number(point.batch_size), *latency, served, interval))
    return table_of(f"{report.model}: speed beside its source", columns, rows)


def footprint_table(report: ReportData, benchmark: BenchmarkResult) -> Table:
    """Return load time, memory and size of each variant, the source first."""
    rows = [(name, *_footprint_cells(speed)) for name, speed, _ in _speeds(report, benchmark)]
    columns = ("variant", *(f">{title}" for title in _FOOTPRINT_TITLES), "ran on")
    return table_of("Loading, memory and size", columns, rows)


def speed_notes(report: ReportData, benchmark: BenchmarkResult) -> tuple[str, ...]:
    """Return why a variant was not, or not fully, measured, and notes on figures, one sentence each."""
    notes = []
    for cell, speed, why in _speeds(report, benchmark):
        reason = why or (speed.error if speed is not None else "")
        if reason:
            state = "not fully measured" if speed is not None and speed.points else NOT_MEASURED
            notes.append(f"{cell.text}: {state}: {reason}")
        notes += [f"{cell.text}: {note}" for note in (speed.notes if speed is not None else ())]
    return (*notes, *benchmark.notes)


def _speeds(report: ReportData, benchmark: BenchmarkResult) -> Iterable[tuple[Cell, VariantBenchmark | None, str]]:
    source = benchmark.of(SOURCE)
    yield (
        text(SOURCE, remark=_mark(report, SOURCE)),
        source,
        "" if source is not None else "the benchmark is without it",
    )
    for variant in report.variants:
        speed, why = measured_speed(variant, benchmark)
        yield text(variant.name, remark=_mark(report, variant.name)), speed, why


def _mark(report: ReportData, name: str) -> str:
    return report.mark if name in report.marked else ""


def _point_rows(
    name: Cell, speed: VariantBenchmark | None, benchmark: BenchmarkResult, *, has_cost: bool
) -> Iterable[Row]:
    if speed is None or not speed.points:
        yield name, "-", "-", *(NOT_MEASURED,) * (len(_POINT_TITLES) - 2 + has_cost)
        return
    wanted = [(size, instances) for size in benchmark.batch_sizes for instances in benchmark.concurrency]
    is_source = name.text == SOURCE
    for size, instances in wanted:
        point = speed.at(size, instances)
        cells = _point_cells(point, is_source=is_source)
        cost = (number(point.cost_per_million if point is not None else None),) if has_cost else ()
        yield name, number(size), number(instances), *cells, *cost


def _point_cells(point: BenchmarkPoint | None, *, is_source: bool) -> Row:
    if point is None:
        return (NOT_MEASURED,) * 8
    latency = tuple(number(point.latency_ms.get(name)) for name in ("p50", "p95", "p99"))
    speedup = point.speedup
    if speedup is None:
        words = ("1x", "-") if is_source else (NOT_MEASURED, NOT_MEASURED)
    else:
        words = times(speedup.ratio), f"{number(speedup.low)} to {number(speedup.high)}"
    return (*latency, number(point.calls), _throughput(point.rows_per_s), *words, number(point.cpu_cores))


def _throughput(rows_per_s: float) -> str:
    """Return a throughput, in full from 100 on because three digits would need a power of ten."""
    return number(round(rows_per_s) if rows_per_s >= 100 else rows_per_s)  # noqa: PLR2004 - three digits


def _footprint_cells(speed: VariantBenchmark | None) -> Row:
    if speed is None:
        return (*(NOT_MEASURED,) * 4, NOT_MEASURED)
    runtime = " ".join(word for word in (speed.runtime, speed.version) if word)
    return (
        number(speed.load_s),
        number(speed.first_call_ms),
        NOT_MEASURED if speed.peak_memory_bytes is None else size_words(speed.peak_memory_bytes),
        "not known" if speed.size_bytes is None else size_words(speed.size_bytes),
        f"{runtime}, {speed.device}" if runtime else NOT_MEASURED,
    )
