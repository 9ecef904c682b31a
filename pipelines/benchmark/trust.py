"""Find timings that cannot be trusted: the median and the throughput of a variant disagree on a busy machine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from paritygate.pipelines.benchmark.load import is_noisy
from paritygate.pipelines.benchmark.result import SOURCE, BenchmarkResult

# Median and throughput contradict each other where one ratio of two speeds is this many times the other one.
_FACTOR = 2.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Contradiction:
    """The speed-up of one variant at one point, by two figures that disagree.

    The source may be the one that other work disturbed, so neither the variant nor the source is to be trusted there.

    Attributes:
        variant: The variant.
        point: Batch size and concurrency.
        by_median: Its speed-up over the source by the median latency.
        by_throughput: Its speed-up over the source by the rows per second.
    """

    variant: str
    point: tuple[int, int]
    by_median: float
    by_throughput: float


def is_beside_other_work(result: BenchmarkResult) -> bool:
    """Return whether other work took cores while this was measured; false where the load is not known."""
    return is_noisy(result.machine.get("others_cores"), result.machine.get("cores") or 1)


def disagree(by_median: float, by_throughput: float) -> bool:
    """Return whether two ratios of the same speeds, one by median and one by throughput, are too far apart."""
    return max(by_median / by_throughput, by_throughput / by_median) >= _FACTOR


def contradictions(result: BenchmarkResult) -> tuple[Contradiction, ...]:
    """Return the contradictions of a benchmark; none where the machine was idle, or its load is not known."""
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
