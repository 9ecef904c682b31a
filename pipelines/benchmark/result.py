"""What a benchmark measured, as the terminal, the JSON file, the report and the choice of a release have it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from annotated_types import Ge, Gt, Lt, MinLen

from paritygate.codec import from_data

# The row of the source itself, which speed-ups are relative to.
SOURCE = "source"

# A difference within this is of no use to anybody; an interval whose ends are this factor apart tells nothing.
_EQUALLY_FAST = (0.95, 1.05)
_TOO_WIDE = 2.0
# What of a file is checked to be consistent agrees within this share; these figures of a latency are in it.
_ROUNDING = 1e-6
_LATENCIES = ("p50", "p95", "p99", "mean", "min", "max")

# What a file may say.
_Count = Annotated[int, Ge(1)]
_Positive = Annotated[float, Gt(0), Lt(math.inf)]


@dataclass(frozen=True, kw_only=True, slots=True)
class Speedup:
    """How many times as fast as the source, or as another variant: the ratio of the p50, and its 95 % interval."""

    ratio: _Positive
    low: _Positive
    high: _Positive

    @property
    def is_tie(self) -> bool:
        """Whether the two are equally fast as far as the rounds tell, or differ by 5 % at most."""
        lowest, highest = _EQUALLY_FAST
        return self.low <= 1 <= self.high or (lowest <= self.low and self.high <= highest)

    @property
    def is_too_wide(self) -> bool:
        """Whether the interval spans a factor of 2 or more."""
        return self.high >= _TOO_WIDE * self.low

    @property
    def is_undecided(self) -> bool:
        """Whether the interval is too wide to tell it from the fastest; a variant is slower where it ends below 1."""
        return self.is_too_wide and self.high >= 1


@dataclass(frozen=True, kw_only=True, slots=True)
class BenchmarkPoint:
    """One variant at one batch size and concurrency.

    Attributes:
        batch_size: Rows a call.
        concurrency: Instances of the model that ran side by side.
        rounds: Rounds that the calls were spread over, those of the other variants in between.
        calls: Calls timed, of all instances together; the first call is not among them.
        latency_ms: `p50`, `p95`, `p99`, `mean`, `min`, `max` of a call, in milliseconds; see `latency_summary`.
        rows_per_s: Throughput of all instances together.
        cpu_cores: Processor time over wall time while calls ran: 2.0 means two busy cores.
        speedup: By latency against the source at the same batch size and concurrency; None for the source itself.
        cost_per_million: Price of a million rows, in the unit of the declared price per hour; None if none was.
        round_medians_ms: Median of a call in each round, in milliseconds: what p50 and speed-up are computed from.
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


@dataclass(frozen=True, kw_only=True, slots=True)
class VariantBenchmark:
    """One variant, or the source.

    Attributes:
        name: The variant, or `SOURCE`.
        artifact: Digest of what ran. That of the source is over what the reference was recorded from, as
            `digest_of_recorded`; None where that did not run, or nothing was recorded yet.
        runtime: What ran it; None if it could not be loaded.
        version: Its version.
        device: The device that really ran.
        size_bytes: Size of all files together; None for a source that is code.
        load_s: Seconds to load it, frameworks imported already, as it is loaded here: that the precision of the
            weights is looked at is part of it, and so is the call of a source's `module:callable`.
        first_call_ms: The first call after loading, apart from all others; at the first batch size it takes.
        peak_memory_bytes: Largest resident size of the process that ran it, its framework and as many instances as
            the highest concurrency included, and what loading took at its worst.
        points: What was measured.
        error: Why nothing or not everything was measured, in words; empty if all was.
        notes: What is to be known when its figures are read, one sentence each.
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
        """Return what was measured at a batch size and concurrency; None if nothing was."""
        wanted = (batch_size, concurrency)
        return next((point for point in self.points if (point.batch_size, point.concurrency) == wanted), None)


@dataclass(frozen=True, kw_only=True, slots=True)
class BenchmarkResult:
    """A benchmark of a run.

    Attributes:
        batch_sizes: Those that were measured; variants are chosen by the first.
        concurrency: Those that were measured; variants are chosen by the first.
        variants: The source first, then the variants in the spec's order.
        samples_digest: Digest of the rows that the calls were made of.
        price_per_hour: As declared; None if it was not.
        machine: What it was measured on; beside the facts of evidence `cores`, how many may be used, and
            `others_cores`, how many other work kept busy meanwhile; None where that is not known.
        seconds: How long it took.
        device: The device that was asked for.
        round_seconds: How long calls were timed at least, for each variant, point and round.
        seed: Seed of the order in which variants took their turns.
        notes: What is to be known when all figures are read, one sentence each.
    """

    schema_version: int = 1
    batch_sizes: Annotated[tuple[_Count, ...], MinLen(1)]
    concurrency: Annotated[tuple[_Count, ...], MinLen(1)]
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
        """Return what was measured of a variant, or of the `SOURCE`."""
        return next((item for item in self.variants if item.name == name), None)

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> BenchmarkResult:
        """Return the result that was written, once its figures are found to agree with each other.

        Raises:
            ValueError: It is none, or a value is none that a benchmark measures.
        """
        result = from_data(cls, data)
        names = [variant.name for variant in result.variants]
        if len(set(names)) != len(names):
            msg = f"a variant occurs twice (got: {', '.join(names)})"
            raise ValueError(msg)
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
    """Check the figures that say whether timings can be trusted."""
    for name in ("cores", "others_cores"):
        value = machine.get(name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | float) or not (math.isfinite(value) and value >= 0):
            msg = f"{name} of the machine is {value!r}, not a number of cores"
            raise ValueError(msg)


def _check_point(variant: str, point: BenchmarkPoint) -> None:
    at = f"{variant} at batch size {point.batch_size}, concurrency {point.concurrency}"
    missing = [name for name in _LATENCIES if name not in point.latency_ms]
    if missing:
        msg = f"{at}: latency_ms is without {', '.join(missing)}"
        raise ValueError(msg)
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
        msg = f"{name} is {value:g}, but its rounds give {other:g}: the file is from another version, or changed"
        raise ValueError(msg)
