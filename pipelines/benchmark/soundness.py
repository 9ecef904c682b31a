"""Whether what a benchmark file holds can have been measured: a release is chosen by it, and files can be damaged."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from paritygate.pipelines.benchmark.result import BenchmarkPoint, BenchmarkResult, VariantBenchmark

__all__ = ["check_benchmark"]

_ROUNDING = 1e-6
_LATENCIES = ("p50", "p95", "p99", "mean", "min", "max")


def check_benchmark(result: BenchmarkResult) -> None:
    """Do nothing if every value is one that a benchmark measures.

    Raises:
        ValueError: One is not; the message names it, and what is allowed.
        TypeError: The machine is not described as one.
    """
    for name in ("batch_sizes", "concurrency"):
        numbers = getattr(result, name)
        if not numbers:
            msg = f"{name} is empty"
            raise ValueError(msg)
        for number in numbers:
            _check_count(name, number)
    _check_machine(result.machine)
    if result.price_per_hour is not None:
        _check_positive("price_per_hour", result.price_per_hour)
    names = [variant.name for variant in result.variants]
    if len(set(names)) != len(names):
        msg = f"a variant stands twice (seen: {', '.join(names)})"
        raise ValueError(msg)
    for variant in result.variants:
        _check_variant(variant)
    _check_speedups(result)


def _check_machine(machine: object) -> None:
    if not isinstance(machine, Mapping):
        msg = f"machine is {machine!r}, not a mapping"
        raise TypeError(msg)
    for part in ("cpu", "gpu"):
        if not isinstance(machine.get(part), Mapping | None):
            msg = f"{part} of the machine is {machine[part]!r}, not a mapping"
            raise TypeError(msg)


def _check_variant(variant: VariantBenchmark) -> None:
    for name in ("load_s", "first_call_ms", "peak_memory_bytes", "size_bytes"):
        value = getattr(variant, name)
        if value is not None:
            _check_positive(f"{variant.name}: {name}", value)
    for point in variant.points:
        _check_point(variant.name, point)


def _check_point(variant: str, point: BenchmarkPoint) -> None:
    for name in ("batch_size", "concurrency", "rounds", "calls"):
        _check_count(f"{variant}: {name}", getattr(point, name))
    at = f"{variant} at batch size {point.batch_size}, concurrency {point.concurrency}"
    missing = [name for name in _LATENCIES if name not in point.latency_ms]
    if missing:
        msg = f"{at}: latency_ms is without {', '.join(missing)}"
        raise ValueError(msg)
    figures: dict[str, object] = {f"latency_ms {name}": point.latency_ms[name] for name in _LATENCIES}
    figures["rows_per_s"] = point.rows_per_s
    if point.cost_per_million is not None:
        figures["cost_per_million"] = point.cost_per_million
    if point.speedup is not None:
        figures |= {f"speedup {name}": getattr(point.speedup, name) for name in ("ratio", "low", "high")}
    figures |= {f"round_medians_ms {number}": value for number, value in enumerate(point.round_medians_ms)}
    for name, value in figures.items():
        _check_positive(f"{at}: {name}", value)
    if len(point.round_medians_ms) != point.rounds:
        msg = f"{at}: round_medians_ms has {len(point.round_medians_ms)} values of {point.rounds} rounds"
        raise ValueError(msg)
    _check_same(f"{at}: latency_ms p50", point.latency_ms["p50"], statistics.median(point.round_medians_ms))


def _check_speedups(result: BenchmarkResult) -> None:
    """Check that a speed-up is the ratio of the latencies beside it, and within its interval."""
    source = result.variants[0] if result.variants else None
    for variant in result.variants:
        for point in variant.points:
            against = None if source is None else source.at(point.batch_size, point.concurrency)
            if point.speedup is None or against is None:
                continue
            at = f"{variant.name} at batch size {point.batch_size}, concurrency {point.concurrency}: speedup"
            _check_same(f"{at} ratio", point.speedup.ratio, against.latency_ms["p50"] / point.latency_ms["p50"])
            if not point.speedup.low <= point.speedup.ratio <= point.speedup.high:
                msg = f"{at} ratio {point.speedup.ratio:g} is outside of {point.speedup.low:g}-{point.speedup.high:g}"
                raise ValueError(msg)


def _check_same(name: str, value: float, other: float) -> None:
    if not math.isclose(value, other, rel_tol=_ROUNDING):
        msg = f"{name} is {value:g}, and its rounds come to {other:g}: it is from another version, or was changed"
        raise ValueError(msg)


def _check_count(name: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        msg = f"{name} is {value!r}, not a whole number of at least 1"
        raise ValueError(msg)


def _check_positive(name: str, value: object) -> None:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not math.isfinite(value) or value <= 0:
        msg = f"{name} is {value!r}, not a finite number above 0"
        raise ValueError(msg)
