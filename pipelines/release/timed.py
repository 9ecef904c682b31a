"""Compare the latency of a variant now with that of a release, as far as the timings can be trusted."""

from __future__ import annotations

from msgspec import Struct

from paritygate.pipelines.benchmark.result import BenchmarkPoint, BenchmarkResult
from paritygate.pipelines.benchmark.trust import contradictions, is_beside_other_work
from paritygate.pipelines.choice.figures import machine_in_words
from paritygate.pipelines.run.evidence import EvidenceEntry


class Timed(Struct, frozen=True, kw_only=True):
    """Hold the timing of one variant, then or now."""

    place: str  # the device and the machine
    point: BenchmarkPoint | None  # at the load asked for; None where it was not measured
    doubt: str  # why the timing is not trusted; empty if it is

    @property
    def p50_ms(self) -> float | None:
        """The median latency of a call."""
        return None if self.point is None else self.point.latency_ms["p50"]


def timed(entry: EvidenceEntry, benchmark: BenchmarkResult, load: tuple[int, int]) -> Timed | None:
    """Return the timing of the artifact of an entry at a batch size and concurrency; None if it was not timed."""
    timing = benchmark.of(entry.variant)
    if timing is None or timing.artifact is None or timing.artifact != entry.artifact:
        return None
    place = f"{timing.device} of {machine_in_words(benchmark.machine, timing.device)}"
    doubted = {item.variant for item in contradictions(benchmark) if item.point == load}
    doubt = ""
    if entry.variant in doubted:
        doubt = "its median and throughput disagree"
    elif is_beside_other_work(benchmark):
        doubt = "other work ran on the machine"
    return Timed(place=place, point=timing.at(*load), doubt=doubt)


def why_not_comparable(now: Timed | None, was: Timed | None) -> str:
    """Return why the two were not measured alike; empty if they were."""
    if now is None or was is None:
        return f"it was not measured {'now' if now is None else 'then'}"
    if now.place != was.place:
        return f"it was measured on {now.place} now, and on {was.place} then"
    return "it was measured at another load" if now.point is None or was.point is None else ""


def why_not_trusted(now: Timed, was: Timed, allowed_ms: float) -> str:
    """Return why the timings do not show whether the latency is worse; empty if they do.

    Other work makes a call longer and never shorter. A release then looks slow, and too much is allowed. In a run it
    matters only if the latency is beyond `allowed_ms`, and some round may still be within.
    """
    if was.doubt:
        return f"{was.doubt} then"
    if now.point is None or now.point.latency_ms["p50"] <= allowed_ms:
        return ""
    if now.doubt:
        return f"{now.doubt} now"
    if min(now.point.round_medians_ms) <= allowed_ms:
        return f"{now.p50_ms:.3g} ms is more than {allowed_ms:.3g} ms, but not in every round"
    return ""
