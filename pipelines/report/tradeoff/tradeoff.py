"""Speed against difference: for each variant, the tolerance used and the speed-up."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from msgspec import Struct

from paritygate.pipelines.benchmark.result import BenchmarkResult, Speedup
from paritygate.pipelines.choice.tolerance_used import tolerance_used
from paritygate.pipelines.report.figures import share
from paritygate.pipelines.report.report_data import ReportData, VariantReport
from paritygate.pipelines.report.tables.speed import measured_speed, speedup_words


class TradeoffPoint(Struct, frozen=True, kw_only=True):
    """A variant's point.

    `share` is the difference as a part of its nearest limit: 0 without any, infinite if it is not finite. `mark` is
    `released`, `chosen`, or empty.
    """

    name: str
    verdict: str
    share: float
    speedup: Speedup
    mark: str = ""


class Tradeoff(Struct, frozen=True, kw_only=True):
    """The contents of the chart.

    `points` are variants that were both compared and benchmarked, `at` this point of the benchmark. `words` describe
    each point, and `left_out` each variant without one, in one sentence.
    """

    points: tuple[TradeoffPoint, ...]
    at: str
    words: tuple[str, ...]
    left_out: tuple[str, ...]


def tradeoff_of(report: ReportData, benchmark: BenchmarkResult) -> Tradeoff:
    """Return the contents of the chart."""
    items = [_point(variant, report, benchmark) for variant in report.variants]
    points = tuple(item for item in items if isinstance(item, TradeoffPoint))
    side_by_side = f" and concurrency {benchmark.concurrency[0]}" if benchmark.concurrency[0] != 1 else ""
    return Tradeoff(
        points=points,
        at=f"at batch size {benchmark.batch_sizes[0]}{side_by_side}",
        words=tuple(map(_in_words, points)),
        left_out=(*(item for item in items if isinstance(item, str)), *_emulated(report.variants)),
    )


def _point(variant: VariantReport, report: ReportData, benchmark: BenchmarkResult) -> TradeoffPoint | str:
    result = variant.result
    if result is None or not result.is_measured:
        return f"{variant.name}: its difference was not measured."
    part = tolerance_used((check.name, check.measured, check.limit) for check in result.checks)
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
    # Variants that ran on a GPU are in the chart themselves.
    absent = (variant for variant in variants if not (variant.device or "").startswith("cuda"))
    names = [variant.name for variant in absent if variant.emulated is not None]
    if names:
        noun = "row" if len(names) == 1 else "rows"
        yield f"The emulated {noun} of {', '.join(names)}: the device is absent, so its speed there is unknown."


def _in_words(point: TradeoffPoint) -> str:
    if point.share == 0:
        difference = "no difference"
    elif math.isinf(point.share):
        difference = "a difference that is not finite or has a limit of 0"
    else:
        difference = f"difference {share(point.share, 1.0)} {'the' if point.share >= 10 else 'of the'} nearest limit"  # noqa: PLR2004 - where `share` changes its words
    mark = f", {point.mark}" if point.mark else ""
    return f"{point.name}: {point.verdict}, {difference}, {speedup_words(point.speedup)} the source{mark}."
