"""Speed and size of a variant as a release is chosen by them: what was measured of these bytes on these devices."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from paritygate.pipelines.benchmark.result import SOURCE, BenchmarkPoint, BenchmarkResult, Speedup, VariantBenchmark
from paritygate.pipelines.choice.constraint import CONSTRAINTS

__all__ = ["Figures", "figures_of_source", "figures_of_variant", "point_in_words"]

_MEGABYTE = 1e6


@dataclass(frozen=True, kw_only=True, slots=True)
class Figures:
    """Speed and size of one artifact, or of the source.

    Attributes:
        by_name: By the names of `CONSTRAINTS`; None for what was not measured.
        speedup: Against the source; None if it was not measured.
        unmeasured: Why there is no speed, in words; empty if there is.
    """

    by_name: Mapping[str, float | None]
    speedup: Speedup | None = None
    unmeasured: str = ""


def figures_of_variant(
    entry: Mapping[str, Any], benchmark: BenchmarkResult | None, size_bytes: int | None, devices: tuple[str, ...]
) -> Figures:
    """Return speed and size of a variant.

    Args:
        entry: Its entry in the evidence: a benchmark of other bytes than those does not count.
        benchmark: The benchmark of the run; None if none was made.
        size_bytes: Size of its files together; None if they are not there.
        devices: Where it has to have been measured.
    """
    size = {"size_mb": None if size_bytes is None else size_bytes / _MEGABYTE}
    found = None if benchmark is None else benchmark.of(entry["variant"])
    if benchmark is None or found is None:
        why = "no benchmark was made" if benchmark is None else "the benchmark is without it"
        return Figures(by_name=_complete(size), unmeasured=why)
    if found.artifact is None or found.artifact != entry.get("artifact"):
        why = found.error if found.artifact is None and found.error else "another file was benchmarked"
        return Figures(by_name=_complete(size), unmeasured=why)
    return _measured(found, benchmark, size, devices)


def figures_of_source(benchmark: BenchmarkResult | None, devices: tuple[str, ...]) -> Figures:
    """Return speed and size of the source itself, as the benchmark measured it on these devices."""
    found = None if benchmark is None else benchmark.of(SOURCE)
    if benchmark is None or found is None:
        return Figures(by_name=_complete({}), unmeasured="no benchmark was made")
    size = {"size_mb": None if found.size_bytes is None else found.size_bytes / _MEGABYTE}
    return _measured(found, benchmark, size, devices)


def _measured(
    found: VariantBenchmark, benchmark: BenchmarkResult, size: Mapping[str, float | None], devices: tuple[str, ...]
) -> Figures:
    if any(found.device != device for device in devices):
        where = f"benchmarked on {found.device} only" if found.device else found.error or "it did not run"
        return Figures(by_name=_complete(size), unmeasured=where)
    point = found.at(benchmark.batch_sizes[0], benchmark.concurrency[0])
    known: dict[str, float | None] = {
        **size,
        "first_call_ms": found.first_call_ms,
        "load_s": found.load_s,
        "memory_mb": None if found.peak_memory_bytes is None else found.peak_memory_bytes / _MEGABYTE,
    }
    if point is None:
        return Figures(by_name=_complete(known), unmeasured=found.error or f"nothing{point_in_words(benchmark)}")
    return Figures(by_name=_complete(known | _of_point(point)), speedup=point.speedup)


def _of_point(point: BenchmarkPoint) -> dict[str, float | None]:
    return {
        **{f"latency_{name}_ms": point.latency_ms.get(name) for name in ("p50", "p95", "p99")},
        "rows_per_s": point.rows_per_s,
        "cost_per_million": point.cost_per_million,
    }


def _complete(known: Mapping[str, float | None]) -> dict[str, float | None]:
    """Return every figure by name; one that is no finite number was not measured."""
    found = {name: known.get(name) for name in CONSTRAINTS}
    return {name: value if value is not None and math.isfinite(value) else None for name, value in found.items()}


def point_in_words(benchmark: BenchmarkResult) -> str:
    """Return where the latencies were measured that variants are chosen by."""
    side_by_side = f", {benchmark.concurrency[0]} side by side" if benchmark.concurrency[0] != 1 else ""
    return f" at batch size {benchmark.batch_sizes[0]}{side_by_side}"
