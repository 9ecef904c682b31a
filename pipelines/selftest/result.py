"""The request and the result of a selftest, for the terminal, the JSON file and the page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from paritygate import __version__
from paritygate.codec import schema_of, to_data
from paritygate.errors import ExitCode
from paritygate.pipelines.compare.job import ComparisonJob
from paritygate.pipelines.run.workspace import worst_code
from paritygate.text import counted

SCHEMA_VERSION = 1
CAUGHT_BY_SAMPLES, CAUGHT_BY_PROBES, CAUGHT_BY_BOTH = "caught by samples", "caught by probes", "caught by both"
MISSED, NOT_APPLICABLE, PASSED, FALSE_ALARM = "missed", "not applicable", "passed", "false alarm"


class SelftestRequest(Struct, frozen=True, kw_only=True):
    """The mutations to plant, and the comparison to plant them into.

    `job` compares the unchanged ONNX artifact with the recorded reference. `most_rows` is the declared largest batch;
    None if undeclared. `folder` is empty.
    """

    job: ComparisonJob
    mutations: tuple[str, ...]
    most_rows: int | None
    folder: Path
    run: Path
    seed: int


class FindingResult(Struct, frozen=True, kw_only=True):
    """A failed check."""

    check: str
    output: str | None
    detail: str


class EffectResult(Struct, frozen=True, kw_only=True):
    """The largest change of an output by a missed fault, over everything that ran.

    `max_abs_diff` is None where it is not finite. `where` is `samples` or the name of a probe. `in_limits` is a
    multiple of the limit on the samples; None for outputs compared exactly. `is_rounding`: within a few ULPs, as
    another order of summation would be.
    """

    output: str
    max_abs_diff: float | None
    where: str
    in_limits: float | None
    is_rounding: bool


class PlantResult(Struct, frozen=True, kw_only=True):
    """The outcome of one fault or equivalent rewrite.

    `outcome` of a fault: caught by samples, probes or both, or missed; of a rewrite: passed, or false alarm. `what` was
    changed, or why nothing was. `effects` and `why` (what would catch it) belong to a miss.
    """

    name: str
    title: str
    is_innocent: bool
    outcome: str
    what: str
    by_samples: list[FindingResult] = field(default_factory=list)
    by_probes: list[FindingResult] = field(default_factory=list)
    effects: list[EffectResult] = field(default_factory=list)
    why: str = ""
    seconds: float = 0.0

    @property
    def has_no_effect(self) -> bool:
        """True where all measured effects are rounding."""
        return bool(self.effects) and all(effect.is_rounding for effect in self.effects)


class SelftestResult(Struct, frozen=True, kw_only=True):
    """The outcome of a selftest; `plants` is empty where the unchanged artifact fails."""

    model: str
    run: str
    variant: str
    precision: str
    rows: int
    probe_rows: dict[str, int]
    probes_off: list[str]
    seed: int
    unchanged: str
    unchanged_findings: list[FindingResult]
    plants: list[PlantResult]
    seconds: float
    version: str = __version__
    schema_version: int = SCHEMA_VERSION

    def having(self, *outcomes: str) -> list[PlantResult]:
        """Return the plants with these outcomes."""
        return [plant for plant in self.plants if plant.outcome in outcomes]

    def to_json(self) -> dict[str, Any]:
        """Return the result as JSON data, with its summary and its exit code."""
        return {**to_data(self), "summary": self.summary, "exit_code": self.exit_code}

    @property
    def exit_code(self) -> int:
        """0 unless the unchanged artifact does not pass or an equivalent rewrite fails; a miss is information."""
        unchanged = {"pass": ExitCode.PASS, "inconclusive": ExitCode.INCONCLUSIVE, "fail": ExitCode.PARITY_FAILED}
        alarm = ExitCode.PARITY_FAILED if self.having(FALSE_ALARM) else ExitCode.PASS
        return worst_code([int(unchanged.get(self.unchanged, ExitCode.NOT_MEASURED)), int(alarm)])

    @property
    def summary(self) -> str:
        """The whole selftest in one line."""
        if not self.plants:
            return f"nothing was planted: the unchanged {self.variant} does not pass"
        on_samples = len(self.having(CAUGHT_BY_SAMPLES, CAUGHT_BY_BOTH))
        by_probes, missed = len(self.having(CAUGHT_BY_PROBES)), self.having(MISSED)
        silent = sum(plant.has_no_effect for plant in missed)
        faults = f"{on_samples} caught on the samples, {by_probes} more by probes, {len(missed)} missed"
        if silent:
            faults += f" ({silent} of them without effect on these inputs)"
        alarms = len(self.having(FALSE_ALARM))
        return (
            f"{counted(on_samples + by_probes + len(missed), 'fault')} planted: {faults}; "
            f"{counted(len(self.having(PASSED)) + alarms, 'equivalent rewrite')}: {counted(alarms, 'false alarm')}"
        )


def schema_of_selftest() -> dict[str, Any]:
    """Return the JSON Schema of a selftest's result."""
    schema = schema_of(SelftestResult, title="paritygate selftest")
    schema["properties"] |= {"summary": {"type": "string"}, "exit_code": {"type": "integer"}}
    return schema


def why_missed(
    effects: Sequence[EffectResult], *, reached_by: str, probes_off: Sequence[str], at_edge: Sequence[str] = ()
) -> str:
    """Return why a fault was missed, and what would catch it.

    `reached_by` are the inputs that show it; empty for any. `at_edge` are checks that find it where no sample is, or at
    padding, which fails nothing by itself.
    """
    if at_edge:
        return f"a finding of {', '.join(at_edge)}: where no sample is, or at padding; edge: fail would catch it"
    off = f"; probes that did not run: {', '.join(probes_off)}" if probes_off else ""
    if all(effect.is_rounding for effect in effects):
        wanted = f"; this would show it: {reached_by}" if reached_by else ", so on these inputs it is not a fault"
        return f"no sample and no probe has an answer that changes beyond rounding{wanted}{off}"
    worst = max(effects, key=lambda effect: (effect.max_abs_diff is None, effect.in_limits or 0.0))
    if worst.max_abs_diff is None:
        return f"{worst.output} changes to or from NaN or infinity ({worst.where}), which is not counted{off}"
    size = f"{worst.output} changes by {worst.max_abs_diff:.3g} at most ({worst.where})"
    if worst.in_limits is None:
        return f"{size}, in answers that are held to finiteness and contract alone{off}"
    if worst.in_limits > 1:
        return f"{size}, {worst.in_limits:.2g} limits of the samples: the limit is wider where answers are larger{off}"
    wanted = f"; shown better by: {reached_by}" if reached_by else ""
    return (
        f"{size}, {worst.in_limits:.2g} of the limit: "
        f"a max_abs_diff below {worst.max_abs_diff:.2g} would catch it{wanted}{off}"
    )
