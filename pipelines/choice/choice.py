"""Which of the variants that passed is released, and why: by evidence, limits on speed and size, and preference.

Pure: from the evidence and the benchmark of a run as data to names and a reason in words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paritygate.pipelines.benchmark.result import BenchmarkResult
from paritygate.pipelines.choice.candidates import Candidate, ChoiceRules, Preference, candidates_of, in_order_of
from paritygate.pipelines.choice.constraint import broken_constraints
from paritygate.pipelines.choice.figures import Figures, figures_of_source, point_in_words
from paritygate.pipelines.choice.reason import why_none, why_these

__all__ = ["Choice", "choose"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """What is to be released.

    Attributes:
        rules: What was asked for.
        batch_size: Rows a call of the latencies; None without a benchmark.
        concurrency: Instances side by side, of the same.
        candidates: Every target, in the spec's order.
        chosen: Those to release; none if nothing fits.
        reason: Why these, or why none, in words; empty where all that passed are released.
        source: Speed and size of the source itself.
        source_broken: The limits that the source breaks, in words.
    """

    rules: ChoiceRules
    batch_size: int | None
    concurrency: int | None
    candidates: tuple[Candidate, ...]
    chosen: tuple[Candidate, ...]
    reason: str
    source: Figures
    source_broken: tuple[str, ...]

    @property
    def is_open(self) -> bool:
        """Whether nothing is chosen only because a variant that passed was not measured."""
        passed = [candidate for candidate in self.candidates if not candidate.hindrance]
        return not self.chosen and not all(candidate.is_measured(self.rules) for candidate in passed)

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
            "candidates": [candidate.to_json() for candidate in self.candidates],
            "source": {"figures": dict(self.source.by_name), "broken": list(self.source_broken)},
        }


def choose(
    evidence: Mapping[str, Any],
    benchmark: BenchmarkResult | None,
    sizes: Mapping[str, int],
    rules: ChoiceRules,
) -> Choice:
    """Return what is to be released of a run.

    Args:
        evidence: The evidence of the run, as `evidence.json` holds it.
        benchmark: The benchmark of the run; None if none was made. Only what it measured of exactly the artifact
            that the evidence is about, on every device of the release, counts.
        sizes: Size in bytes of each artifact that is there, by variant.
        rules: What is asked for.
    """
    candidates = candidates_of(evidence, benchmark, sizes, rules)
    source = figures_of_source(benchmark, rules.devices)
    source_broken = broken_constraints(rules.limits, source.by_name)
    chosen = _preferred([candidate for candidate in candidates if candidate.is_fit], rules.prefer)
    if chosen:
        reason = why_these(chosen, candidates, rules, at="" if benchmark is None else point_in_words(benchmark))
    else:
        reason = why_none(candidates, rules, source_broken)
    return Choice(
        rules=rules,
        batch_size=None if benchmark is None else benchmark.batch_sizes[0],
        concurrency=None if benchmark is None else benchmark.concurrency[0],
        candidates=candidates,
        chosen=chosen,
        reason=reason,
        source=source,
        source_broken=source_broken,
    )


def _preferred(fit: Sequence[Candidate], prefer: Preference | tuple[str, ...] | None) -> tuple[Candidate, ...]:
    if prefer is None:
        return tuple(fit)
    if isinstance(prefer, tuple):
        by_name = {candidate.name: candidate for candidate in fit}
        return tuple(by_name[name] for name in prefer if name in by_name)[:1]
    return tuple(in_order_of(fit, prefer)[:1])
