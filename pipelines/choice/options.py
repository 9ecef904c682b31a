"""A variant as a candidate of a release: its evidence, its speed and its size."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from paritygate.pipelines.benchmark.result import BenchmarkResult
from paritygate.pipelines.choice.eligibility import eligibilities_of
from paritygate.pipelines.choice.figures import Figures, MeasuringRules, Point, figures_of_variant
from paritygate.pipelines.compare.result import OutputResult
from paritygate.pipelines.run.evidence import Evidence, EvidenceEntry
from paritygate.pipelines.spec.limits import Preference, broken_constraints
from paritygate.precision import Precision, Variant

# The figure that each preference orders by.
_ORDERED_BY: Mapping[str, str] = {"fastest": "latency_p50_ms", "smallest": "size_mb"}
# The most precise first; a mixed one is partly FP16, so never less precise than FP16.
_PRECISIONS = (Precision.FP32, Precision.TF32, Precision.MIXED, Precision.FP16, Precision.BF16, Precision.INT8)


@dataclass(frozen=True, kw_only=True, slots=True)
class ChoiceRules:
    """The request for a release.

    - `devices`: where it will run; measurements elsewhere do not count.
    - `points`: the spec's batch sizes and concurrencies; latency, throughput and cost count at the first.
    - `prefer`: `fastest`, `smallest`, variants of which the first fitting one is taken, or None for all that fit.
    - `limits`: by the names of `CONSTRAINTS`. `accept`: by variant, the evidence accepted for an absent device.
    """

    devices: tuple[str, ...]
    points: tuple[Point, ...]
    prefer: Preference | tuple[str, ...] | None = None
    limits: Mapping[str, float] = field(default_factory=dict)
    accept: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class ReleaseOption:
    """A target of the spec as a candidate of a release.

    - `entry`: the deciding entry of the evidence; `entries`: one for each device of the release that it runs on.
    - `why_not`: why the evidence does not allow a release, or empty. `broken`: the limits that it breaks, as text.
    - `has_run`: the file itself was compared on some device.
    """

    entry: EvidenceEntry
    why_not: str
    figures: Figures
    broken: tuple[str, ...]
    entries: Mapping[str, EvidenceEntry] = field(default_factory=dict)
    has_run: bool = True

    @property
    def name(self) -> str:
        """The variant."""
        return self.entry.variant

    @property
    def is_fit(self) -> bool:
        """True where evidence and limits allow a release."""
        return not self.why_not and not self.broken

    def is_measured(self, rules: ChoiceRules) -> bool:
        """Return whether every figure that the rules need is known."""
        names = [*rules.limits, *([_ORDERED_BY[rules.prefer]] if isinstance(rules.prefer, str) else [])]
        return all(self.figures.by_name[name] is not None for name in names)

    @property
    def accuracy(self) -> tuple[float, int]:
        """The accuracy, smaller is better: by difference (unknown ones last), then by precision; never by timings."""
        difference = math.inf if self.difference is None else self.difference
        return difference, _PRECISIONS.index(Variant.parse(self.name).precision)

    @property
    def difference(self) -> float | None:
        """The largest part of the reference's spread, over all float outputs and devices; None if one is unknown."""
        entries = (self.entry, *self.entries.values())
        outputs = [output for entry in entries if entry.result for output in entry.result.outputs.values()]
        # The scores' difference stands in for a label's; other integers are equal in a pass.
        parts = [_part_of_spread(output) for output in outputs if output.mismatches is None]
        finite = [part for part in parts if part is not None]
        return max(finite, default=0.0) if outputs and len(finite) == len(parts) else None

    def figure(self, preference: Preference) -> float | None:
        """Return the figure that a preference orders by, smaller is better; None if it was not measured."""
        return self.figures.by_name[_ORDERED_BY[preference]]

    def to_json(self) -> dict[str, Any]:
        """Return the candidate as JSON data."""
        return {
            "variant": self.name,
            "verdict": self.entry.verdict,
            "evidence": self.entry.evidence,
            "artifact": self.entry.artifact,
            "devices": {device: entry.evidence for device, entry in self.entries.items()},
            "has_run": self.has_run,
            "is_fit": self.is_fit,
            "hindrance": self.why_not,
            "broken": list(self.broken),
            "difference": self.difference,
            "figures": dict(self.figures.by_name),
            "speedup": None if self.figures.speedup is None else asdict(self.figures.speedup),
            "unmeasured": self.figures.unmeasured,
            "distrust": self.figures.distrust,
        }


def _part_of_spread(output: OutputResult) -> float | None:
    difference, spread = output.max_abs_diff, output.reference_spread
    if difference == 0:
        return 0.0
    # A constant output has no spread to measure its difference by.
    return difference / spread if difference is not None and spread else None


def options_of(
    evidence: Evidence,
    benchmark: BenchmarkResult | None,
    sizes: Mapping[str, int],
    rules: ChoiceRules,
    engines: Mapping[str, Mapping[str, Any]] | None = None,
) -> tuple[ReleaseOption, ...]:
    """Return every target of the run as a candidate, in the spec's order; arguments as for `choose`."""
    options = []
    for item in eligibilities_of(evidence, devices=rules.devices, accept=rules.accept, engines=engines or {}):
        # Its speed on devices that it cannot run on does not matter.
        measuring = MeasuringRules(evidence=evidence, devices=item.devices or rules.devices, points=rules.points)
        figures = figures_of_variant(item.entry, benchmark, sizes.get(item.entry.variant), measuring)
        option = ReleaseOption(
            entry=item.entry,
            why_not=item.why_not,
            figures=figures,
            broken=broken_constraints(rules.limits, figures.by_name),
            entries=item.entries,
            has_run=item.has_run,
        )
        options.append(option)
    return tuple(options)


def in_order_of(candidates: Iterable[ReleaseOption], preference: Preference) -> list[ReleaseOption]:
    """Return the candidates with the preference's figure, the best first; ties keep their order."""
    pairs = [(value, item) for item in candidates if (value := item.figure(preference)) is not None]
    return [item for _, item in sorted(pairs, key=lambda pair: pair[0])]
