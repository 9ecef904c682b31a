"""Speed and size of a variant, as the choice of a release uses them: of these bytes, on this machine, at this load."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from paritygate.models.recorded_source import digest_of_recorded
from paritygate.pipelines.benchmark.result import SOURCE, BenchmarkPoint, BenchmarkResult, Speedup, VariantBenchmark
from paritygate.pipelines.benchmark.trust import contradictions, is_beside_other_work
from paritygate.pipelines.run.evidence import Evidence, EvidenceEntry
from paritygate.pipelines.spec.limits import CONSTRAINTS

_MEGABYTE = 1e6
_NO_BENCHMARK = "no benchmark was made"
_DISTRUST = "its median and throughput disagree, and other work ran on the machine"

# Batch size and concurrency.
Point = tuple[int, int]


class Figures(Struct, frozen=True, kw_only=True):
    """Speed and size of one artifact, or of the source.

    - `by_name`: by the names of `CONSTRAINTS`; None if not measured. `speedup`: against the source.
    - `rounds_ms`: median of a call in each round, at the point that decides; empty if not measured.
    - `unmeasured`: why there is no speed, or empty.
    - `distrust`: why the speed cannot be compared, or empty; it still counts for limits, since load worsens all
      figures.
    """

    by_name: Mapping[str, float | None]
    speedup: Speedup | None = None
    rounds_ms: tuple[float, ...] = ()
    unmeasured: str = ""
    distrust: str = ""
    is_beside_other_work: bool = False


class MeasuringRules(Struct, frozen=True, kw_only=True):
    """The conditions for a benchmark to count.

    `evidence` names the source and the machine of the validation; `devices` are those of the benchmark. `points` are
    the spec's batch sizes and concurrencies; latency, throughput and cost count at the first.
    """

    evidence: Evidence
    devices: tuple[str, ...]
    points: tuple[Point, ...]


def figures_of_variant(
    entry: EvidenceEntry, benchmark: BenchmarkResult | None, size_bytes: int | None, rules: MeasuringRules
) -> Figures:
    """Return speed and size of a variant; a benchmark of other bytes than the evidence's does not count."""
    size = _size(size_bytes)
    measured = None if benchmark is None else benchmark.of(entry.variant)
    if benchmark is None or measured is None:
        why = _NO_BENCHMARK if benchmark is None else "the benchmark is without it"
        return Figures(by_name=_complete(size), unmeasured=why)
    if measured.artifact is None or measured.artifact != entry.artifact:
        why = measured.error if measured.artifact is None and measured.error else "another file was benchmarked"
        return Figures(by_name=_complete(size), unmeasured=why)
    return _measured(measured, benchmark, size, rules)


def figures_of_source(benchmark: BenchmarkResult | None, size_bytes: int | None, rules: MeasuringRules) -> Figures:
    """Return speed and size of the source itself."""
    size = _size(size_bytes)
    measured = None if benchmark is None else benchmark.of(SOURCE)
    if benchmark is None or measured is None:
        return Figures(by_name=_complete(size), unmeasured=_NO_BENCHMARK)
    if not _is_recorded_source(measured, rules):
        return Figures(by_name=_complete(size), unmeasured=measured.error or "another source was benchmarked")
    return _measured(measured, benchmark, size, rules)


def _size(size_bytes: int | None) -> dict[str, float | None]:
    return {"size_mb": None if size_bytes is None else size_bytes / _MEGABYTE}


def _is_recorded_source(source: VariantBenchmark, rules: MeasuringRules) -> bool:
    recorded = digest_of_recorded(rules.evidence.reference.model)
    return source.artifact is not None and source.artifact == recorded


def _measured(
    found: VariantBenchmark, benchmark: BenchmarkResult, size: Mapping[str, float | None], rules: MeasuringRules
) -> Figures:
    why_not = _why_elsewhere(found, benchmark, rules)
    if why_not:
        return Figures(by_name=_complete(size), unmeasured=why_not)
    measured = set(itertools.product(benchmark.batch_sizes, benchmark.concurrency))
    first = rules.points[0]
    is_first_call_of = benchmark.batch_sizes[0] == first[0]
    figures: dict[str, float | None] = {
        **size,
        "load_s": found.load_s,
        "first_call_ms": found.first_call_ms if is_first_call_of else None,
        # A peak over fewer instances, or smaller batches, would be too low.
        "memory_mb": _memory_mb(found) if measured.issuperset(rules.points) else None,
    }
    point = found.at(*first)
    if point is None:
        nothing = f"it was not benchmarked{point_in_words(first)}"
        return Figures(by_name=_complete(figures), unmeasured=found.error or nothing)
    source = benchmark.of(SOURCE)
    is_against_source = source is not None and _is_recorded_source(source, rules)
    return Figures(
        by_name=_complete(figures | _of_point(point)),
        speedup=point.speedup if is_against_source else None,
        rounds_ms=point.round_medians_ms,
        distrust=_distrust(found, benchmark, first),
        is_beside_other_work=is_beside_other_work(benchmark),
    )


def _distrust(found: VariantBenchmark, benchmark: BenchmarkResult, point: Point) -> str:
    """Return why the speed at a point cannot be compared with others, or an empty text."""
    is_doubted = any((item.variant, item.point) == (found.name, point) for item in contradictions(benchmark))
    return _DISTRUST if is_doubted else ""


def _memory_mb(found: VariantBenchmark) -> float | None:
    return None if found.peak_memory_bytes is None else found.peak_memory_bytes / _MEGABYTE


def _why_elsewhere(found: VariantBenchmark, benchmark: BenchmarkResult, rules: MeasuringRules) -> str:
    """Return why the benchmark ran on another machine or device than the validation, or an empty text."""
    if any(found.device != device for device in rules.devices):
        return f"benchmarked on {found.device} only" if found.device else found.error or "it did not run"
    # The device's own validation names the machine, whatever was validated elsewhere since.
    judged_on = rules.evidence.by_device().get(str(found.device), rules.evidence).machine
    here, there = (machine_in_words(facts, found.device) for facts in (judged_on, benchmark.machine))
    return "" if here == there else f"benchmarked on {there}, validated on {here}"


def machine_in_words(facts: Mapping[str, Any], device: str | None) -> str:
    """Return a description of a device's machine, as far as speed depends on it."""
    cpu, gpu = facts.get("cpu") or {}, facts.get("gpu") or {}
    words = f"{cpu.get('model', 'a processor that is not known')} with {facts.get('cores', '?')} cores"
    return f"{words} and {gpu.get('name', 'no GPU')}" if device is not None and device != "cpu" else words


def _of_point(point: BenchmarkPoint) -> dict[str, float | None]:
    return {
        **{f"latency_{name}_ms": point.latency_ms.get(name) for name in ("p50", "p95", "p99")},
        "rows_per_s": point.rows_per_s,
        "cost_per_million": point.cost_per_million,
    }


def _complete(known: Mapping[str, float | None]) -> dict[str, float | None]:
    """Return every figure by name; a figure that is not finite was not measured."""
    figures = {name: known.get(name) for name in CONSTRAINTS}
    return {name: value if value is not None and math.isfinite(value) else None for name, value in figures.items()}


def point_in_words(point: Point) -> str:
    """Return the point that decides, as text that follows a number."""
    batch_size, concurrency = point
    return f" at batch size {batch_size}" + (f", {concurrency} side by side" if concurrency != 1 else "")
