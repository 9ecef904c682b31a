"""The result of a benchmark, for the terminal, the JSON file, the report and the choice of a release."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import Meta, Struct, field

from paritygate.codec import from_data

# Name of the source, which speed-ups are relative to.
SOURCE = "source"

# Differences within this range do not matter; an interval whose ends are this factor apart decides nothing.
_EQUALLY_FAST = (0.95, 1.05)
_TOO_WIDE = 2.0
# Figures of a file agree if they do so within this share; a latency has these figures.
_ROUNDING = 1e-6
_LATENCIES = ("p50", "p95", "p99", "mean", "min", "max")

# Values that a file may hold.
_Count = Annotated[int, Meta(ge=1)]
_Positive = Annotated[float, Meta(gt=0)]


class Speedup(Struct, frozen=True, kw_only=True):
    """The ratio of the p50 to that of the source, or of another variant, with its 95 % interval."""

    ratio: _Positive
    low: _Positive
    high: _Positive

    @property
    def is_tie(self) -> bool:
        """True where the two are equally fast by the rounds, or differ by 5 % at most."""
        lowest, highest = _EQUALLY_FAST
        return self.low <= 1 <= self.high or (lowest <= self.low and self.high <= highest)

    @property
    def is_too_wide(self) -> bool:
        """True where the interval spans a factor of 2 or more."""
        return self.high >= _TOO_WIDE * self.low

    @property
    def is_undecided(self) -> bool:
        """True where a wide interval allows the other one to be the fastest; one that ends below 1 is slower."""
        return self.is_too_wide and self.high >= 1


class BenchmarkPoint(Struct, frozen=True, kw_only=True):
    """A variant at one batch size (rows per call) and concurrency (instances side by side).

    - `rounds`: those of the other variants come in between. `calls`: timed calls of all instances, without the first.
    - `latency_ms`: `p50`, `p95`, `p99`, `mean`, `min`, `max` of a call; see `latency_summary`.
    - `rows_per_s`: of all instances. `cpu_cores`: processor time over wall time, so 2.0 means two busy cores.
    - `speedup`: against the source at the same point; None for the source.
    - `cost_per_million`: price of a million rows, in the unit of the declared price per hour; None without one.
    - `round_medians_ms`: median of a call in each round, the basis of p50 and speed-up.
    """

    batch_size: _Count
    concurrency: _Count
    rounds: _Count
    calls: _Count
    latency_ms: Mapping[str, _Positive]
    rows_per_s: _Positive
    cpu_cores: float
    speedup: Speedup | None = None
    cost_per_million: _Positive | None = None
    round_medians_ms: tuple[_Positive, ...] = ()


class VariantBenchmark(Struct, frozen=True, kw_only=True):
    """The measurements of a variant, or of the source (`SOURCE`).

    - `artifact`: its digest. The source's is `digest_of_recorded`; None where it did not run or nothing was recorded.
    - `runtime`: None if it could not be loaded. `device`: the one that really ran.
    - `size_bytes`: of all files; None for a source that is code.
    - `load_s`: with frameworks imported before, including the check of the weights' precision and any
      `module:callable`.
    - `first_call_ms`: at the first batch size that it takes.
    - `peak_memory_bytes`: largest resident size of its process, with framework, loading, and all instances.
    - `error`: why anything was not measured, or empty. `notes`: one sentence each, to be read with the figures.
    """

    name: str
    artifact: str | None = None
    runtime: str | None = None
    version: str | None = None
    device: str | None = None
    size_bytes: _Count | None = None
    load_s: _Positive | None = None
    first_call_ms: _Positive | None = None
    peak_memory_bytes: _Count | None = None
    points: tuple[BenchmarkPoint, ...] = ()
    error: str = ""
    notes: tuple[str, ...] = ()

    def at(self, batch_size: int, concurrency: int) -> BenchmarkPoint | None:
        """Return the point at a batch size and concurrency; None if it was not measured."""
        wanted = (batch_size, concurrency)
        return next((point for point in self.points if (point.batch_size, point.concurrency) == wanted), None)


class BenchmarkResult(Struct, frozen=True, kw_only=True):
    """A benchmark of a run; variants are chosen by the first batch size and concurrency.

    - `variants`: the source first, then in the spec's order. `samples_digest`: of the rows in the calls.
    - `machine`: as in evidence, with `cores` to use and `others_cores` that other work kept busy (None: unknown).
    - `device`: the requested one. `round_seconds`: the least seconds of calls per variant, point and round.
    - `seed`: of the order of the turns. `notes`: one sentence each, on all figures.
    """

    schema_version: int = 1
    batch_sizes: Annotated[tuple[_Count, ...], Meta(min_length=1)]
    concurrency: Annotated[tuple[_Count, ...], Meta(min_length=1)]
    variants: tuple[VariantBenchmark, ...]
    samples_digest: str
    price_per_hour: _Positive | None = None
    machine: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    device: str = "cpu"
    round_seconds: float = 0.0
    seed: int = 0
    notes: tuple[str, ...] = ()

    def of(self, name: str) -> VariantBenchmark | None:
        """Return the measurements of a variant, or of the `SOURCE`."""
        return next((item for item in self.variants if item.name == name), None)

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> BenchmarkResult:
        """Return a written result, after a check that its figures agree; raise ValueError if they do not."""
        result = from_data(cls, data)
        names = [variant.name for variant in result.variants]
        if len(set(names)) != len(names):
            raise ValueError(f"a variant occurs twice (got: {', '.join(names)})")
        for part in ("cpu", "gpu"):
            if not isinstance(result.machine.get(part), Mapping | None):
                msg = f"{part} of the machine is {result.machine[part]!r}, not a mapping"
                raise ValueError(msg)  # noqa: TRY004 - of a file, not of a caller
        _check_load(result.machine)
        for variant in result.variants:
            for point in variant.points:
                _check_point(variant.name, point)
        _check_speedups(result)
        return result


def _check_load(machine: Mapping[str, Any]) -> None:
    """Check the figures that decide whether timings can be trusted."""
    for name in ("cores", "others_cores"):
        value = machine.get(name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | float) or not (math.isfinite(value) and value >= 0):
            raise ValueError(f"{name} of the machine is {value!r}, not a number of cores")


def _check_point(variant: str, point: BenchmarkPoint) -> None:
    at = f"{variant} at batch size {point.batch_size}, concurrency {point.concurrency}"
    missing = [name for name in _LATENCIES if name not in point.latency_ms]
    if missing:
        raise ValueError(f"{at}: latency_ms is without {', '.join(missing)}")
    if len(point.round_medians_ms) != point.rounds:
        raise ValueError(f"{at}: round_medians_ms has {len(point.round_medians_ms)} values of {point.rounds} rounds")
    _check_same(f"{at}: latency_ms p50", point.latency_ms["p50"], statistics.median(point.round_medians_ms))


def _check_speedups(result: BenchmarkResult) -> None:
    """Check that a speed-up is the ratio of its latencies, and within its interval."""
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
        msg = f"{name} is {value:g}, but its rounds give {other:g}: the file changed, or is from another version"
        raise ValueError(msg)
