"""The result of one comparison, for the terminal, the JSON file and the report.

`convert-and-validate schema` prints the JSON Schema of these classes, with their docstrings.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

from paritygate import __version__
from paritygate.codec import finite_or_none, schema_of
from paritygate.text import counted
from paritygate.validate.detections.figures import MatchStatistics
from paritygate.validate.gold.figures import GoldStatistics
from paritygate.validate.measure.check import (
    NAMED,
    UNDECLARED_PADDING,
    Cause,
    Check,
    Kind,
    Status,
    exit_code_of,
    verdict_of,
)
from paritygate.validate.measure.figures import DecisionStatistics, Drawing, WorstRow
from paritygate.validate.measure.tolerance import OUTPUT_LIMITS
from paritygate.validate.words.sentence import Sentence

if TYPE_CHECKING:
    from paritygate.validate.measure.limits import Limits
    from paritygate.validate.measure.measurement import Measurement
    from paritygate.validate.measure.profile import OutputProfile

_Result = TypeVar("_Result")

SCHEMA_VERSION = 1
# The status of a probe that does not apply to this candidate.
NOT_ASKED = "not asked"
# The verdict of a variant that this machine cannot run, such as an engine without a GPU: no error, and no pass.
NOT_RUN_HERE = Status.NOT_RUN_HERE.value
# The verdict of a variant without a comparison.
NOT_MEASURED = "not measured"
# The verdict of a variant that cannot be made, because the target lacks what the model needs.
NOT_AVAILABLE = "not available for this model"
# Where a comparison runs: only its own process has a model that is an object of Python code.
CHILD_PROCESS = "a child process"
THIS_PROCESS = "this process"


@dataclass(frozen=True, kw_only=True, slots=True)
class LimitRange:
    """A limit over the channels of an output; both ends are equal for one channel."""

    lowest: float
    highest: float


@dataclass(frozen=True, kw_only=True, slots=True)
class OutputResult:
    """The difference of one output. Numbers that could not be measured are null.

    `scale` is max(1, spread of the reference's bulk), the largest over the channels. It multiplies default limits, and
    `limits` are those of the bulk. `reference_spread` is that spread itself. The largest difference as a part of it
    orders equally fast variants. `fill_values` were compared exactly. `mismatches` counts values that differ in an
    output that is compared exactly. It is null for one with limits, whose changed answers are in `decisions`.
    `rows_beyond` counts rows beyond a limit. It is null where the output has no row for each input row. `looks_like`
    describes the difference of an output that failed. `drawing` is data for the report's drawing; null for none.
    `sqnr_db` is the signal-to-quantization-noise ratio; null also where nothing differs or the reference is all zeros.
    """

    dtype: str
    axis: int | None
    scale: float
    rows: int
    values: int
    compared: int
    max_abs_diff: float | None
    min_abs_diff: float | None
    mean_abs_diff: float | None
    std_abs_diff: float | None
    p50_abs_diff: float | None
    p90_abs_diff: float | None
    p99_abs_diff: float | None
    p999_abs_diff: float | None
    bias: float | None
    bias_low_95: float | None
    bias_high_95: float | None
    std_diff: float | None
    cosine_similarity: float | None
    max_rel_diff: float | None
    max_row_rel_diff: float | None
    max_row_rel_id: str
    repeat_max_abs_diff: float | None
    mismatches: int | None
    non_finite: int
    limits: dict[str, LimitRange]
    worst_rows: list[WorstRow]
    rows_beyond: int | None = None
    sqnr_db: float | None = None
    fill_values: int = 0
    fill_mismatches: int = 0
    looks_like: list[str] = field(default_factory=list)
    reference_spread: float | None = None
    drawing: Drawing | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class StratumOutput:
    """The difference of one output within one stratum; the counts are of its rows and values alone."""

    max_abs_diff: float | None
    mean_abs_diff: float | None
    std_abs_diff: float | None
    bias: float | None
    rows: int | None = None
    compared: int | None = None
    rows_beyond: int | None = None
    min_abs_diff: float | None = None
    p50_abs_diff: float | None = None
    p90_abs_diff: float | None = None
    p99_abs_diff: float | None = None
    p999_abs_diff: float | None = None
    bias_low_95: float | None = None
    bias_high_95: float | None = None
    std_diff: float | None = None
    cosine_similarity: float | None = None
    sqnr_db: float | None = None
    max_rel_diff: float | None = None
    max_row_rel_diff: float | None = None
    mismatches: int | None = None
    non_finite: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class StratumResult:
    """The rows of one stratum, which alone bound a fault in it."""

    rows: int
    outputs: dict[str, StratumOutput]
    decisions: dict[str, DecisionStatistics]


@dataclass(frozen=True, kw_only=True, slots=True)
class SideResult:
    """The reference or the candidate, and its runtime."""

    name: str
    kind: str
    digest: str | None = None
    runtime: str | None = None
    version: str | None = None
    device: str | None = None
    provider: str | None = None
    precision_found: str | None = None
    tf32: bool | None = None
    optimisation: str | None = None
    executes_code: bool = False
    notes: list[str] = field(default_factory=list)
    provider_warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True, slots=True)
class ProbeFailureResult:
    """One batch of a probe in which the models differ; batch -1 is all batches together.

    Findings have more fields, which are empty for a failure. `edge` is how the rows are unlike every sample, and
    `batches` counts such batches. `if_it_occurs` and `if_it_never_occurs` are what to write in the spec.
    """

    batch: int
    about: str
    check: str
    detail: str
    inputs: str | None = None
    again: str = ""
    edge: str = ""
    batches: int = 1
    if_it_occurs: str = ""
    if_it_never_occurs: str = ""
    probe: str = ""
    words: list[Sentence] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True, slots=True)
class DroppedResult:
    """Batches of a probe that no candidate gets, for one kind of reason; `first` has the reasons of the first ones."""

    batches: int
    in_words: str
    first: list[str]


@dataclass(frozen=True, kw_only=True, slots=True)
class ProbeResult:
    """One probe: inputs derived from the samples, and whether both models agree on them.

    `dropped_by` counts dropped batches by reason, `no_rows_left` among them. `error` is a fault of the probe itself.
    `findings` are out-of-sample differences, the first one of each edge. `edge_off` counts batches that were left out
    for that. `notes` list what else is not covered. Seconds include deriving the inputs. `reference_seconds` is null
    where the reference did not run for this probe.
    """

    looks_for: str
    status: str
    detail: str
    batches: int
    rows: int
    dropped: int
    unfit: int
    unfit_first: list[str]
    failed: int
    failures: list[ProbeFailureResult]
    seconds: float
    reference_seconds: float | None
    dropped_by: dict[str, DroppedResult] = field(default_factory=dict)
    error: str = ""
    findings: list[ProbeFailureResult] = field(default_factory=list)
    edge_off: int = 0
    notes: list[str] = field(default_factory=list)
    kind: str = ""
    words: list[Sentence] = field(default_factory=list)

    @property
    def does_not_apply(self) -> bool:
        """Whether the samples have nothing to derive the probe from."""
        return self.kind == Kind.DOES_NOT_APPLY


@dataclass(frozen=True, kw_only=True, slots=True)
class RoleResult:
    """The role of an input, and why."""

    role: str
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ProbesResult:
    """All probes: those that ran, those switched off, and why none ran.

    `edge` is the status of differences in rows that are unlike every sample: fail, warn, or off for no such rows.
    Seconds are of the samples, to compare those of the probes with; null for a recorded side.
    """

    asked: dict[str, ProbeResult] = field(default_factory=dict)
    switched_off: list[str] = field(default_factory=list)
    skipped: str = ""
    not_recorded: list[str] = field(default_factory=list)
    roles: dict[str, RoleResult] = field(default_factory=dict)
    seed: int = 0
    edge: str = "warn"
    samples_seconds: float | None = None
    reference_samples_seconds: float | None = None

    def seconds(self) -> tuple[float, float]:
        """Return how long both models took for the samples, unless they were recorded before, and for the probes."""
        samples = (self.samples_seconds or 0.0) + (self.reference_samples_seconds or 0.0)
        # The cost of a recorded reference was paid before.
        is_here = self.reference_samples_seconds is not None
        times = (
            probe.seconds + ((probe.reference_seconds or 0.0) if is_here else 0.0) for probe in self.asked.values()
        )
        return samples, sum(times)


@dataclass(frozen=True, kw_only=True, slots=True)
class ErrorResult:
    """Explain why nothing could be measured; `hint` is `advice` and `command` as a sentence, if one command is next."""

    kind: str
    message: str
    hint: str
    command: str = ""
    advice: str = ""

    @property
    def next_step(self) -> dict[str, str]:
        """Hint and command, as arguments of an error."""
        return {"hint": self.advice if self.command else self.hint, "command": self.command}


@dataclass(frozen=True, kw_only=True, slots=True)
class ComparisonResult:
    """The comparison of one candidate with one reference.

    `error` is why the comparison failed, and `not_run_here` why this machine cannot run the candidate. `ran_in` is a
    child process or the caller's. `rows` were compared, also before an error. `limit_rule` is the version of the rule
    for default limits; 1 where it is missing. `mismatches` counts rows with a decision, integer or text that differs,
    each once; of an output with several of them in a row, each.
    """

    schema_version: int = SCHEMA_VERSION
    paritygate: str = __version__
    verdict: str
    exit_code: int
    rows: int
    batches: int = 0
    passes: int = 0
    precision: str
    reference: SideResult
    candidate: SideResult
    samples: str
    samples_digest: str | None = None
    tolerance: dict[str, Any] = field(default_factory=dict)
    limit_rule: int = 1
    looser_than_default: list[str] = field(default_factory=list)
    outputs: dict[str, OutputResult] = field(default_factory=dict)
    decisions: dict[str, DecisionStatistics] = field(default_factory=dict)
    mismatches: int | None = None
    strata: dict[str, dict[str, StratumResult]] = field(default_factory=dict)
    checks: list[Check] = field(default_factory=list)
    causes: list[Cause] = field(default_factory=list)
    probes: ProbesResult = field(default_factory=ProbesResult)
    edge_findings: list[ProbeFailureResult] = field(default_factory=list)
    gold: dict[str, GoldStatistics] = field(default_factory=dict)
    matches: dict[str, MatchStatistics] = field(default_factory=dict)
    outputs_left_out: list[str] = field(default_factory=list)
    outputs_ignored: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    machine: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    error: ErrorResult | None = None
    not_run_here: str = ""
    ran_in: str = CHILD_PROCESS

    @property
    def is_measured(self) -> bool:
        """Whether the candidate was compared."""
        return self.error is None and not self.not_run_here

    def with_check(self, check: Check) -> ComparisonResult:
        """Return the result with one more check, and the verdict of all."""
        checks = [*self.checks, check]
        verdict = verdict_of(checks)
        return replace(self, checks=checks, verdict=str(verdict), exit_code=int(exit_code_of(verdict)))

    @property
    def named_causes(self) -> list[str]:
        """Explanations of the difference, one sentence each."""
        return [cause.detail for cause in self.causes if cause.outcome == NAMED]

    @property
    def padding_findings(self) -> list[Check]:
        """Differences at positions that an undeclared mask leaves out, one for each output."""
        return [check for check in self.checks if check.name == UNDECLARED_PADDING and check.status == Status.EDGE]

    @property
    def edge_words(self) -> str:
        """The number of findings that fail nothing, such as `2 out-of-sample findings`; empty for none."""
        counts = {"out-of-sample finding": len(self.edge_findings), "padding finding": len(self.padding_findings)}
        return ", ".join(counted(count, what) for what, count in counts.items() if count)

    @property
    def verdict_words(self) -> str:
        """The verdict with its findings, such as `pass, 2 out-of-sample findings`, or `pass (without probes)`."""
        has_none = not self.probes.asked and bool(self.probes.skipped or self.probes.not_recorded)
        verdict = f"{self.verdict} (without probes)" if has_none and self.verdict == Status.PASS else self.verdict
        return ", ".join(filter(None, (verdict, self.edge_words)))

    @property
    def why_not_measured(self) -> str:
        """Why the candidate was not compared; empty if it was."""
        return self.not_run_here if self.error is None else self.error.message


def _range(limit: Any) -> LimitRange:  # noqa: ANN401 - an array, or a number
    seen = [float(value) for value in getattr(limit, "flat", [limit])]
    return LimitRange(lowest=min(seen), highest=max(seen))


def _taken(kind: type[_Result], measured: object, /, **own: object) -> _Result:
    """Return a result with the same fields as a measurement, except the given ones; null for what is not a number."""
    names = {item.name for item in fields(cast("Any", kind))} - own.keys()
    values = {name: _plain(getattr(measured, name)) for name in names if hasattr(measured, name)}
    return kind(**values, **own)


def _plain(value: object) -> object:
    if isinstance(value, float):
        return finite_or_none(value)
    return list(value) if isinstance(value, tuple) else value


def _rows_beyond(measured: Measurement, output: str) -> int | None:
    return measured.patterns[output].beyond if output in measured.patterns else None


def _of_text(rows: Iterable[WorstRow]) -> list[WorstRow]:
    # The difference has no number.
    return [replace(row, actual=None, expected=None) for row in rows]


def output_result(
    name: str, measured: Measurement, profile: OutputProfile, limits: Limits, looks_like: Iterable[str] = ()
) -> OutputResult:
    """Return the result of one output, with a description of its difference if it failed."""
    statistics = measured.statistics[name]
    return _taken(
        OutputResult,
        statistics,
        dtype=profile.dtype,
        axis=profile.axis,
        scale=float(profile.scale.max()),
        repeat_max_abs_diff=finite_or_none(measured.repeat_max_abs_diff.get(name)),
        mismatches=statistics.mismatches if limits.is_exact else None,
        non_finite=statistics.non_finite + statistics.non_finite_mismatches,
        limits={name: _range(getattr(limits, name)) for name in OUTPUT_LIMITS},
        worst_rows=list(statistics.worst_rows) if profile.dtype != "string" else _of_text(statistics.worst_rows),
        rows_beyond=_rows_beyond(measured, name),
        looks_like=list(looks_like),
        reference_spread=finite_or_none(float(profile.spread.max())),
        drawing=measured.drawings.get(name),
    )


def stratum_result(measured: Measurement, limits: Mapping[str, Limits]) -> StratumResult:
    """Return the result of one stratum, given the limits of each output."""
    return StratumResult(
        rows=measured.rows,
        outputs={
            output: _taken(
                StratumOutput,
                statistics,
                rows_beyond=_rows_beyond(measured, output),
                mismatches=statistics.mismatches if limits[output].is_exact else None,
                non_finite=statistics.non_finite + statistics.non_finite_mismatches,
            )
            for output, statistics in measured.statistics.items()
        },
        decisions=dict(measured.decisions),
    )


def code_notes(*sides: SideResult) -> list[str]:
    """Return a note for each side whose loading executes code of its author."""
    return [f"loading {side.name} executes code of its author" for side in sides if side.executes_code]


def error_result(error: Exception) -> ErrorResult:
    """Return an error as the report has it."""
    step = {name: str(getattr(error, name, "")) for name in ("hint", "command", "advice")}
    return ErrorResult(kind=type(error).__name__, message=str(error), **step)


_SHOWN = {"fail", "error", "inconclusive", "warning", "edge"}


def reasons(result: ComparisonResult, *, with_findings: bool = True) -> list[str]:
    """Return one line for each check without a pass, if not left out as a finding, and for failed outputs."""
    lines = []
    for check in result.checks:
        if check.status in _SHOWN and (with_findings or check.status != "edge"):
            output = f"[{check.output}]" if check.output else ""
            lines.append(f"{check.status}: {check.name}{output}: {check.detail}")
    # Named causes are below the verdict.
    lines += [f"trial {cause.kind}: {cause.detail}" for cause in result.causes if cause.outcome != "named"]
    lines += [f"looks like [{name}]: {words}" for name, output in result.outputs.items() for words in output.looks_like]
    return lines


def schema_of_result() -> dict[str, Any]:
    """Return the JSON Schema of a comparison's result."""
    return schema_of(ComparisonResult, title="paritygate comparison")
