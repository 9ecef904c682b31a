"""A variant as it stands for a release: what its evidence lets it be, and how fast and how large it is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from paritygate.pipelines.benchmark.result import BenchmarkResult
from paritygate.pipelines.choice.constraint import broken_constraints
from paritygate.pipelines.choice.figures import Figures, MeasuringRules, Point, figures_of_variant

__all__ = ["PREFERENCES", "Candidate", "ChoiceRules", "Preference", "candidates_of", "in_order_of"]

Preference = Literal["fastest", "smallest"]
PREFERENCES: tuple[Preference, ...] = ("fastest", "smallest")
# The figure by which each preference orders what is left.
_ORDERED_BY: Mapping[str, str] = {"fastest": "latency_p50_ms", "smallest": "size_mb"}


@dataclass(frozen=True, kw_only=True, slots=True)
class ChoiceRules:
    """What is asked of a release.

    Attributes:
        devices: Where it will run: what was not measured there does not count.
        points: Batch sizes and concurrencies that speed counts at, as the spec says them: latency, throughput and
            cost are those at the first.
        prefer: `fastest`, `smallest`, or variants of which the first that fits is taken; all that fit if None.
        limits: Limits by the names of `CONSTRAINTS`.
        accept: Kind of evidence accepted in place of `verified` for a device that is absent, by variant.
    """

    devices: tuple[str, ...]
    points: tuple[Point, ...]
    prefer: Preference | tuple[str, ...] | None = None
    limits: Mapping[str, float] = field(default_factory=dict)
    accept: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """One target of the spec as it stands for a release.

    Attributes:
        entry: The entry of the evidence that counts.
        hindrance: Why the evidence does not let it be released, in words; empty if it does.
        figures: Its speed and size.
        broken: The limits that it breaks, in words.
    """

    entry: Mapping[str, Any]
    hindrance: str
    figures: Figures
    broken: tuple[str, ...]

    @property
    def name(self) -> str:
        """The variant."""
        return str(self.entry["variant"])

    @property
    def is_fit(self) -> bool:
        """Whether evidence and limits let it be released."""
        return not self.hindrance and not self.broken

    def is_measured(self, rules: ChoiceRules) -> bool:
        """Return whether every figure that the rules ask for is known."""
        asked = [*rules.limits, *([_ORDERED_BY[rules.prefer]] if isinstance(rules.prefer, str) else [])]
        return all(self.figures.by_name[name] is not None for name in asked)

    def figure(self, preference: Preference) -> float | None:
        """Return the figure that a preference orders by, smaller is better; None if it was not measured."""
        return self.figures.by_name[_ORDERED_BY[preference]]

    def to_json(self) -> dict[str, Any]:
        """Return the candidate as JSON data."""
        return {
            "variant": self.name,
            "verdict": self.entry["verdict"],
            "evidence": self.entry["evidence"],
            "artifact": self.entry.get("artifact"),
            "is_fit": self.is_fit,
            "hindrance": self.hindrance,
            "broken": list(self.broken),
            "figures": dict(self.figures.by_name),
            "speedup": None if self.figures.speedup is None else asdict(self.figures.speedup),
            "unmeasured": self.figures.unmeasured,
        }


def candidates_of(
    evidence: Mapping[str, Any], benchmark: BenchmarkResult | None, sizes: Mapping[str, int], rules: ChoiceRules
) -> tuple[Candidate, ...]:
    """Return every target of the run as it stands, in the spec's order; arguments as for `choose`."""
    measuring = MeasuringRules(evidence=evidence, devices=rules.devices, points=rules.points)
    return tuple(
        _candidate(
            entry,
            hindrance,
            figures_of_variant(entry, benchmark, sizes.get(entry["variant"]), measuring),
            rules,
        )
        for entry, hindrance in _standings(evidence, rules)
    )


def _standings(evidence: Mapping[str, Any], rules: ChoiceRules) -> Iterable[tuple[Mapping[str, Any], str]]:
    """Yield the entry that counts for each target, and why it may not be released, in words."""
    home = evidence["device"]
    emulated = {
        entry["variant"]: entry
        for entry in evidence.get("emulated", ())
        if entry["verdict"] == "pass" and entry["evidence"] == rules.accept.get(entry["variant"])
    }
    for entry in evidence["variants"]:
        hindrance = _hindrance(entry, rules.devices, home)
        if hindrance and entry["variant"] in emulated and _may_be_emulated(entry, rules.devices, home):
            yield emulated[entry["variant"]], ""
        else:
            yield entry, hindrance


def _may_be_emulated(entry: Mapping[str, Any], devices: tuple[str, ...], home: str) -> bool:
    """Return whether the emulated row may stand for devices that are absent, and for nothing else.

    What ran elsewhere has to have passed there; what was not run has to be of a kind that no runtime here runs. A file
    that failed, crashed or hung is not saved by what would be on another device.
    """
    if entry["evidence"] == "verified":
        return bool(entry["verdict"] == "pass" and (entry["device"] == home or home not in devices))
    return bool(entry["evidence"] == "built" and entry["verdict"] == "error" and home not in devices)


def _hindrance(entry: Mapping[str, Any], devices: tuple[str, ...], home: str) -> str:
    if entry["evidence"] == "built" and entry["verdict"] == "error":
        return f"does not run on {home}"
    if entry["verdict"] != "pass":
        return str(entry["verdict"])
    if entry["evidence"] != "verified":
        return f"passed, and is {entry['evidence']}, not verified"
    if any(entry["device"] != device for device in devices):
        return f"passed on {entry['device']} only"
    return ""


def _candidate(
    entry: Mapping[str, Any],
    hindrance: str,
    figures: Figures,
    rules: ChoiceRules,
) -> Candidate:
    return Candidate(
        entry=entry, hindrance=hindrance, figures=figures, broken=broken_constraints(rules.limits, figures.by_name)
    )


def in_order_of(candidates: Iterable[Candidate], preference: Preference) -> list[Candidate]:
    """Return the candidates that a preference can order, the best first; of equal ones the first stays first."""
    known = [(value, item) for item in candidates if (value := item.figure(preference)) is not None]
    return [item for _, item in sorted(known, key=lambda pair: pair[0])]
