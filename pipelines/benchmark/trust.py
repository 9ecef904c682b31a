"""Find timings that cannot be trusted: on a busy machine, a variant's median and throughput may disagree."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from paritygate.pipelines.benchmark.load import is_noisy
from paritygate.pipelines.benchmark.result import SOURCE, BenchmarkResult

# Two ratios of the same speeds contradict each other if they differ by this factor.
_FACTOR = 2.0


class Contradiction(Struct, frozen=True, kw_only=True):
    """The speed-up at one point (batch size, concurrency) by two figures that disagree, perhaps due to the source."""

    variant: str
    point: tuple[int, int]
    by_median: float
    by_throughput: float


def is_beside_other_work(result: BenchmarkResult) -> bool:
    """Return whether other work took cores during the benchmark; false where the load is unknown."""
    return is_noisy(result.machine.get("others_cores"), result.machine.get("cores") or 1)


def disagree(by_median: float, by_throughput: float) -> bool:
    """Return whether two ratios of the same speeds, by median and by throughput, are too far apart."""
    return max(by_median / by_throughput, by_throughput / by_median) >= _FACTOR


def contradictions(result: BenchmarkResult) -> tuple[Contradiction, ...]:
    """Return the contradictions of a benchmark; none where the machine was idle, or its load is unknown."""
    return tuple(_found(result)) if is_beside_other_work(result) else ()


def _found(result: BenchmarkResult) -> Iterator[Contradiction]:
    source = result.of(SOURCE)
    for variant in result.variants:
        for point in variant.points:
            beside = None if source is None else source.at(point.batch_size, point.concurrency)
            if point.speedup is None or beside is None:
                continue
            by_median, by_throughput = point.speedup.ratio, point.rows_per_s / beside.rows_per_s
            if disagree(by_median, by_throughput):
                yield Contradiction(
                    variant=variant.name,
                    point=(point.batch_size, point.concurrency),
                    by_median=by_median,
                    by_throughput=by_throughput,
                )
