"""Speed against difference: for each variant how much of the tolerance it takes and how much faster it is for that."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from paritygate.pipelines.benchmark.result import BenchmarkResult, Speedup
from paritygate.pipelines.choice.limit_share import limit_share
from paritygate.pipelines.report.figures import share
from paritygate.pipelines.report.report_data import ReportData, VariantReport
from paritygate.pipelines.report.tables.speed import measured_speed, speedup_words


@dataclass(frozen=True, kw_only=True, slots=True)
class TradeoffPoint:
    """One variant.

    Attributes:
        name: The variant.
        verdict: `pass`, `fail` or `inconclusive`.
        share: Difference as a part of its nearest limit: 0 where nothing differs, infinite where it is not finite.
        speedup: How many times as fast as the source.
        mark: `released`, `chosen`, or empty.
    """

    name: str
    verdict: str
    share: float
    speedup: Speedup
    mark: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Tradeoff:
    """What the chart shows, and says in words.

    Attributes:
        points: One for each variant that was both compared and benchmarked.
        at: Where the speed-up was measured, in words.
        words: The chart in words, one sentence for each point.
        left_out: What is not in the chart and why, one sentence each.
    """

    points: tuple[TradeoffPoint, ...]
    at: str
    words: tuple[str, ...]
    left_out: tuple[str, ...]


def tradeoff_of(report: ReportData) -> Tradeoff | None:
    """Return what the chart shows; None without a benchmark."""
    benchmark = report.benchmark
    if benchmark is None:
        return None
    found = [_point(variant, report, benchmark) for variant in report.variants]
    points = tuple(item for item in found if isinstance(item, TradeoffPoint))
    side_by_side = f" and concurrency {benchmark.concurrency[0]}" if benchmark.concurrency[0] != 1 else ""
    return Tradeoff(
        points=points,
        at=f"at batch size {benchmark.batch_sizes[0]}{side_by_side}",
        words=tuple(map(_in_words, points)),
        left_out=(*(item for item in found if isinstance(item, str)), *_emulated(report.variants)),
    )


def _point(variant: VariantReport, report: ReportData, benchmark: BenchmarkResult) -> TradeoffPoint | str:
    """Return the variant's point, or a sentence why it has none."""
    result = variant.result
    if result is None or not result.is_measured:
        return f"{variant.name}: its difference was not measured."
    part = limit_share((check.name, check.measured, check.limit) for check in result.checks)
    if part is None:
        return f"{variant.name}: it has no float output whose difference could be drawn."
    speed, why = measured_speed(variant, benchmark)
    point = None if speed is None else speed.at(benchmark.batch_sizes[0], benchmark.concurrency[0])
    if point is None:
        return f"{variant.name}: its speed was not measured ({why or (speed.error if speed else '')})."
    if point.speedup is None:
        return f"{variant.name}: the speed of the source was not measured, so there is no speed-up."
    is_marked = variant.name in report.marked
    return TradeoffPoint(
        name=variant.name,
        verdict=variant.verdict,
        share=part,
        speedup=point.speedup,
        mark=report.mark if is_marked else "",
    )


def _emulated(variants: Sequence[VariantReport]) -> Iterable[str]:
    # What ran on a GPU itself is in the chart itself.
    absent = (variant for variant in variants if not (variant.device or "").startswith("cuda"))
    names = [variant.name for variant in absent if variant.emulated is not None]
    if names:
        noun = "row" if len(names) == 1 else "rows"
        yield f"The emulated {noun} of {', '.join(names)}: the device is absent, so how fast it is there is not known."


def _in_words(point: TradeoffPoint) -> str:
    if point.share == 0:
        difference = "no difference"
    elif math.isinf(point.share):
        difference = "a difference that is not finite or has a limit of 0"
    else:
        difference = f"difference {share(point.share, 1.0)} {'the' if point.share >= 10 else 'of the'} nearest limit"  # noqa: PLR2004 - where `share` changes its words
    mark = f", {point.mark}" if point.mark else ""
    return f"{point.name}: {point.verdict}, {difference}, {speedup_words(point.speedup)} the source{mark}."
