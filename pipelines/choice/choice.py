"""Choose among the variants that passed, with a reason: by evidence, limits on speed and size, and preference.

Pure: from a run's evidence and benchmark as data to names and a text.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from paritygate.pipelines.benchmark.result import SOURCE, BenchmarkResult
from paritygate.pipelines.choice.by_speed import SpeedRanking, rank_by_speed
from paritygate.pipelines.choice.eligibility import can_run_on
from paritygate.pipelines.choice.figures import Figures, MeasuringRules, figures_of_source, point_in_words
from paritygate.pipelines.choice.options import ChoiceRules, ReleaseOption, in_order_of, options_of
from paritygate.pipelines.choice.reason import why_none, why_these
from paritygate.pipelines.run.evidence import Evidence
from paritygate.pipelines.spec.limits import COST, Preference, broken_constraints


class Choice(Struct, frozen=True, kw_only=True):
    """The variants to release.

    - `batch_size`, `concurrency`: of the latencies that count; None without a benchmark.
    - `candidates`: every target, in the spec's order. `chosen`: empty if nothing fits.
    - `reason`: why these, or why none; empty where all that passed are released.
    - `source`: the source's own speed and size. `source_broken`: the limits that it breaks, as text.
    - `by_speed`: None where speed does not decide.
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
        """The devices of the release that nothing chosen runs on; empty where nothing is chosen."""
        if not self.chosen:
            return ()
        return tuple(
            device
            for device in self.rules.devices
            if not any(can_run_on(candidate.name, device) for candidate in self.chosen)
        )

    @property
    def is_open(self) -> bool:
        """True where nothing is chosen only because a variant that passed was not measured."""
        return not self.chosen and bool(self._unmeasured)

    @property
    def is_undecided(self) -> bool:
        """True where the timings do not decide which is the fastest, so that accuracy alone chooses among the ties."""
        return self.by_speed is not None and bool(self.by_speed.undecided)

    @property
    def _unmeasured(self) -> list[ReleaseOption]:
        passed = [candidate for candidate in self.candidates if not candidate.why_not]
        return [candidate for candidate in passed if not candidate.is_measured(self.rules)]

    def how_to_measure(self, folder: Path, *, has_price: bool) -> str:
        """Return the command that measures what is missing (a cost may need a price) or undecided, or an empty text."""
        if self.is_undecided and self.by_speed is not None:
            # Four times as many rounds halve the interval.
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
    """Return the variants of a run to release.

    Of the benchmark, only measurements of the evidence's own artifact count, on its machine and every device of the
    release. `sizes` are bytes by variant, and of the `SOURCE` if it is files. `engines` are conversion facts by
    variant, such as the GPUs an engine was built for.
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
