"""Which of the variants that passed is released, and why: by evidence, limits on speed and size, and preference.

Pure: from the evidence and the benchmark of a run as data to names and a reason in words.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paritygate.pipelines.benchmark.result import SOURCE, BenchmarkResult
from paritygate.pipelines.choice.by_speed import SpeedRanking, rank_by_speed
from paritygate.pipelines.choice.eligibility import can_run_on
from paritygate.pipelines.choice.figures import Figures, MeasuringRules, figures_of_source, point_in_words
from paritygate.pipelines.choice.options import ChoiceRules, ReleaseOption, in_order_of, options_of
from paritygate.pipelines.choice.reason import why_none, why_these
from paritygate.pipelines.run.evidence import Evidence
from paritygate.pipelines.spec.limits import COST, Preference, broken_constraints


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """What is to be released.

    Attributes:
        rules: What was asked for.
        batch_size: Rows a call of the latencies that count; None without a benchmark.
        concurrency: Instances side by side, of the same.
        candidates: Every target, in the spec's order.
        chosen: Those to release; none if nothing fits.
        reason: Why these, or why none, in words; empty where all that passed are released.
        source: Speed and size of the source itself.
        source_broken: The limits that the source breaks, in words.
        by_speed: How those that may be released compare in speed; None where they are not chosen by it.
    """

    rules: ChoiceRules
    batch_size: int | None
    concurrency: int | None
    candidates: tuple[ReleaseOption, ...]
    chosen: tuple[ReleaseOption, ...]
    reason: str
    source: Figures
    source_broken: tuple[str, ...]
    by_speed: SpeedRanking | None = None

    @property
    def unserved(self) -> tuple[str, ...]:
        """The devices of the release that nothing chosen runs on; none where nothing is chosen."""
        if not self.chosen:
            return ()
        return tuple(
            device
            for device in self.rules.devices
            if not any(can_run_on(candidate.name, device) for candidate in self.chosen)
        )

    @property
    def is_open(self) -> bool:
        """Whether nothing is chosen only because a variant that passed was not measured."""
        return not self.chosen and bool(self._unmeasured)

    @property
    def is_undecided(self) -> bool:
        """Whether the timings do not tell which is the fastest: what ties with it is chosen from by accuracy alone."""
        return self.by_speed is not None and bool(self.by_speed.undecided)

    @property
    def _unmeasured(self) -> list[ReleaseOption]:
        passed = [candidate for candidate in self.candidates if not candidate.why_not]
        return [candidate for candidate in passed if not candidate.is_measured(self.rules)]

    def how_to_measure(self, folder: Path, *, has_price: bool) -> str:
        """Return the command that measures what is asked for and was not, or not well enough; empty if none is needed.

        Args:
            folder: The run's folder.
            has_price: Whether the spec says what the machine costs.
        """
        if self.is_undecided and self.by_speed is not None:
            # Of the interval's width, four times as many rounds leave about half.
            rounds = 4 * len(self.by_speed.fastest.figures.rounds_ms)
            return f"convert-and-validate benchmark --run {shlex.quote(str(folder))} --rounds {rounds}"
        if not self._unmeasured:
            return ""
        price = " --price-per-hour PRICE" if COST in self.rules.limits and not has_price else ""
        return f"convert-and-validate benchmark --run {shlex.quote(str(folder))}{price}"

    def to_json(self) -> dict[str, Any]:
        """Return the choice as JSON data."""
        prefer = self.rules.prefer
        return {
            "prefer": list(prefer) if isinstance(prefer, tuple) else prefer,
            "limits": dict(self.rules.limits),
            "devices": list(self.rules.devices),
            "batch_size": self.batch_size,
            "concurrency": self.concurrency,
            "chosen": [candidate.name for candidate in self.chosen],
            "reason": self.reason,
            "by_speed": None if self.by_speed is None else self.by_speed.to_json(),
            "candidates": [candidate.to_json() for candidate in self.candidates],
            "source": {"figures": dict(self.source.by_name), "broken": list(self.source_broken)},
        }


def choose(
    evidence: Evidence,
    benchmark: BenchmarkResult | None,
    sizes: Mapping[str, int],
    rules: ChoiceRules,
    engines: Mapping[str, Mapping[str, Any]] | None = None,
) -> Choice:
    """Return what is to be released of a run.

    Args:
        evidence: The evidence of the run.
        benchmark: The benchmark of the run; None if none was made. Only what it measured of exactly the artifact
            that the evidence is about, on the machine and on every device of the release, counts.
        sizes: Size in bytes of each artifact that is there, by variant, and of the `SOURCE` where it is files.
        rules: What is asked for.
        engines: What is known of the making of each engine, by variant: the GPUs it was built for among it.
    """
    candidates = options_of(evidence, benchmark, sizes, rules, engines)
    measuring = MeasuringRules(evidence=evidence, devices=rules.devices, points=rules.points)
    source = figures_of_source(benchmark, sizes.get(SOURCE), measuring)
    source_broken = broken_constraints(rules.limits, source.by_name)
    fit = [candidate for candidate in candidates if candidate.is_fit]
    by_speed = rank_by_speed(fit) if rules.prefer == "fastest" else None
    chosen = _preferred(fit, rules.prefer, by_speed)
    at = point_in_words(rules.points[0])
    if chosen:
        reason = why_these(chosen, candidates, rules, by_speed, at=at)
    else:
        reason = why_none(candidates, rules, source_broken)
    return Choice(
        rules=rules,
        batch_size=None if benchmark is None else rules.points[0][0],
        concurrency=None if benchmark is None else rules.points[0][1],
        candidates=candidates,
        chosen=chosen,
        reason=reason,
        source=source,
        source_broken=source_broken,
        by_speed=by_speed,
    )


def _preferred(
    fit: Sequence[ReleaseOption], prefer: Preference | tuple[str, ...] | None, by_speed: SpeedRanking | None
) -> tuple[ReleaseOption, ...]:
    if prefer is None:
        return tuple(fit)
    if isinstance(prefer, tuple):
        by_name = {candidate.name: candidate for candidate in fit}
        return tuple(by_name[name] for name in prefer if name in by_name)[:1]
    if prefer == "fastest":
        return () if by_speed is None else (by_speed.chosen,)
    return tuple(in_order_of(fit, prefer)[:1])
