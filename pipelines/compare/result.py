"""The result of one comparison, as the terminal, the JSON file and the report have it.

The JSON Schema is made from these classes: `convert-and-validate schema` prints it.
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
from paritygate.validate.measure.check import NAMED, UNDECLARED_PADDING, Cause, Check, Kind, Status
from paritygate.validate.measure.drawing import Drawing
from paritygate.validate.measure.figures import DecisionStatistics, WorstRow
from paritygate.validate.words.sentence import Sentence

if TYPE_CHECKING:
    from paritygate.validate.measure.measurement import Measurement
    from paritygate.validate.measure.profile import OutputProfile
    from paritygate.validate.measure.tolerance import Limits

_Result = TypeVar("_Result")

SCHEMA_VERSION = 1
# Beside the words for checks: what came of a probe that has nothing to ask of this candidate.
NOT_ASKED = "not asked"
# The verdict of a variant that this machine cannot run, such as an engine without a GPU: no error, and no pass.
NOT_RUN_HERE = Status.NOT_RUN_HERE.value
# What stands where there is no comparison of a variant.
NOT_MEASURED = "not measured"
# The verdict of a variant that cannot be made of this model, since the target lacks what the model needs.
NOT_AVAILABLE = "not available for this model"
# Where a comparison is made: a model that is an object of Python code is known to its process alone.
CHILD_PROCESS = "a child process"
THIS_PROCESS = "this process"


@dataclass(frozen=True, kw_only=True, slots=True)
class LimitRange:
    """A limit over the channels of an output; both ends are the same where there is one channel."""

    lowest: float
    highest: float


@dataclass(frozen=True, kw_only=True, slots=True)
class OutputResult:
    """The difference of one output. Numbers that could not be measured are null.

    `scale` is max(1, spread of the reference's bulk), the largest over the channels; default limits are multiplied by
    it, and `limits` are those of the bulk. `fill_values` were compared exactly.
    `reference_spread` is that spread itself, the largest over the channels: variants that are equally fast are told
    apart by the largest difference as a part of it.
    `sqnr_db` is the signal-to-quantization-noise ratio; null also where nothing differs or the reference is all zeros.
    `drawing` is what a report draws; null where that is nothing, or the result was written before there was any.
    `mismatches` counts the values that differ of an output that is compared exactly; of a float output it is null, and
    what differs in its answers is in `decisions`. `rows_beyond` counts rows beyond a limit, null where the output has
    no row of its own per input; `looks_like` says of an output that failed what its difference looks like.
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
    """The rows of one stratum: a fault that lives there is bounded by these rows alone."""

    rows: int
    outputs: dict[str, StratumOutput]
    decisions: dict[str, DecisionStatistics]


@dataclass(frozen=True, kw_only=True, slots=True)
class SideResult:
    """The reference or the candidate: what it is and what ran it."""

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
    """One batch of a probe that the candidate answered otherwise; batch -1 is all of them together.

    Results of earlier versions name the probe of a finding alone.
    Of a finding, `edge` says how the rows that differ are unlike every sample, `batches` how many batches are, and the
    last two what to write in the spec where such rows occur, and where they never do; of a failure they are empty.
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
    """Batches of a probe that no candidate is asked, for one kind of reason; the first ones with the reason itself."""

    batches: int
    in_words: str
    first: list[str]


@dataclass(frozen=True, kw_only=True, slots=True)
class ProbeResult:
    """One probe: inputs derived from the samples, and whether the candidate answers them like the reference.

    What was dropped is counted by why, `no_rows_left` among it; `error` says what of ours failed in the probe. Findings
    are differences where no sample is, the first one of each edge; `edge_off` counts batches not asked for that;
    `notes` say what else is not covered. Times are of deriving and answering: the reference's is null where it answers
    nothing of its own to the probe.
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

    def __post_init__(self) -> None:
        if not (self.kind and self.words):
            # Only results of earlier versions need it.
            from paritygate.validate.words.earlier import kind_before, words_before

            object.__setattr__(self, "kind", self.kind or kind_before(self.status, self.detail))
            object.__setattr__(self, "words", self.words or list(words_before(self.detail)))

    @property
    def does_not_apply(self) -> bool:
        """Whether the samples hold nothing to derive the probe from."""
        return self.kind == Kind.DOES_NOT_APPLY


@dataclass(frozen=True, kw_only=True, slots=True)
class RoleResult:
    """What an input was taken for, and why."""

    role: str
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ProbesResult:
    """All probes: those asked, those switched off, and why none was asked where that is so.

    `edge` says what a difference comes to in rows that are unlike every sample: fail, warn, or off, which asks none.
    The seconds are of the samples, for those of the probes to be held against: null where they were answered before.
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
        """Return how long both sides took over the samples, as far as they answered them now, and over the probes."""
        samples = (self.samples_seconds or 0.0) + (self.reference_samples_seconds or 0.0)
        # Of a reference that answered before, its part was paid before.
        is_here = self.reference_samples_seconds is not None
        times = (
            probe.seconds + ((probe.reference_seconds or 0.0) if is_here else 0.0) for probe in self.asked.values()
        )
        return samples, sum(times)


@dataclass(frozen=True, kw_only=True, slots=True)
class ErrorResult:
    """Why nothing could be measured; `hint` is `advice` and `command` as a sentence, where one command is next."""

    kind: str
    message: str
    hint: str
    command: str = ""
    advice: str = ""

    @property
    def next_step(self) -> dict[str, str]:
        """Hint and command as an error takes them."""
        return {"hint": self.advice if self.command else self.hint, "command": self.command}


@dataclass(frozen=True, kw_only=True, slots=True)
class ComparisonResult:
    """One candidate against one reference.

    `error` says why the comparison could not be made, `not_run_here` why the candidate does not run on this machine,
    `ran_in` whether it was made in a child process or in that of the caller. `rows` were compared; of a comparison that
    broke off with an error, those before that. `limit_rule` is the version of the rule that made limits of the
    tolerance; what does not say it is of version 1.
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

    @property
    def named_causes(self) -> list[str]:
        """What explains the difference, one sentence each."""
        return [cause.detail for cause in self.causes if cause.outcome == NAMED]

    @property
    def padding_findings(self) -> list[Check]:
        """What differs where a mask leaves out that nobody declared, one for each output."""
        return [check for check in self.checks if check.name == UNDECLARED_PADDING and check.status == Status.EDGE]

    @property
    def edge_words(self) -> str:
        """How much is answered otherwise and fails nothing, such as `2 edge findings`; empty for nothing."""
        counts = {"edge finding": len(self.edge_findings), "padding finding": len(self.padding_findings)}
        return ", ".join(counted(count, what) for what, count in counts.items() if count)

    @property
    def verdict_words(self) -> str:
        """The verdict with its findings, such as `pass, 2 edge findings`."""
        return ", ".join(filter(None, (self.verdict, self.edge_words)))

    @property
    def why_not_measured(self) -> str:
        """Why the candidate was not compared, in words; empty if it was."""
        return self.not_run_here if self.error is None else self.error.message


def _range(values: Iterable[float]) -> LimitRange:
    seen = [float(value) for value in values]
    return LimitRange(lowest=min(seen), highest=max(seen))


def _taken(kind: type[_Result], measured: object, /, **own: object) -> _Result:
    """Return a result of what was measured under the same names, but for what is given; null is what is no number."""
    names = {item.name for item in fields(cast("Any", kind))} - own.keys()
    found = {name: _plain(getattr(measured, name)) for name in names if hasattr(measured, name)}
    return kind(**found, **own)


def _plain(value: object) -> object:
    if isinstance(value, float):
        return finite_or_none(value)
    return list(value) if isinstance(value, tuple) else value


def _rows_beyond(measured: Measurement, output: str) -> int | None:
    return measured.patterns[output].beyond if output in measured.patterns else None


def _of_text(rows: Iterable[WorstRow]) -> list[WorstRow]:
    # That it differs was measured, and no number.
    return [replace(row, actual=None, expected=None) for row in rows]


def output_result(
    name: str, measured: Measurement, profile: OutputProfile, limits: Limits, looks_like: Iterable[str] = ()
) -> OutputResult:
    """Return the result of one output, and what its difference looks like where it failed."""
    statistics = measured.statistics[name]
    return _taken(
        OutputResult,
        statistics,
        dtype=profile.dtype,
        axis=profile.axis,
        scale=float(profile.scale.max()),
        repeat_max_abs_diff=finite_or_none(measured.repeat_max_abs_diff.get(name)),
        mismatches=None if profile.is_float else statistics.mismatches,
        non_finite=statistics.non_finite + statistics.non_finite_mismatches,
        limits={
            "max_abs_diff": _range(limits.max_abs_diff),
            "mean_abs_diff": _range(limits.mean_abs_diff),
            "repeat_max_abs_diff": _range(limits.repeat_max_abs_diff),
            "max_row_rel_diff": _range([limits.max_row_rel_diff]),
        },
        worst_rows=list(statistics.worst_rows) if profile.dtype != "string" else _of_text(statistics.worst_rows),
        rows_beyond=_rows_beyond(measured, name),
        looks_like=list(looks_like),
        reference_spread=finite_or_none(float(profile.spread.max())),
        drawing=measured.drawings.get(name),
    )


def stratum_result(measured: Measurement, profiles: Mapping[str, OutputProfile]) -> StratumResult:
    """Return the result of one stratum, given the profile of each output."""
    return StratumResult(
        rows=measured.rows,
        outputs={
            output: _taken(
                StratumOutput,
                statistics,
                rows_beyond=_rows_beyond(measured, output),
                mismatches=None if profiles[output].is_float else statistics.mismatches,
                non_finite=statistics.non_finite + statistics.non_finite_mismatches,
            )
            for output, statistics in measured.statistics.items()
        },
        decisions=dict(measured.decisions),
    )


def code_notes(*sides: SideResult) -> list[str]:
    """Return a note for each side whose loading executes code of its author, whatever came of it."""
    return [f"loading {side.name} executes code of its author" for side in sides if side.executes_code]


def error_result(error: Exception, *, kind: str = "") -> ErrorResult:
    """Return an error as the report has it."""
    step = {name: str(getattr(error, name, "")) for name in ("hint", "command", "advice")}
    return ErrorResult(kind=kind or type(error).__name__, message=str(error), **step)


_SHOWN = {"fail", "error", "inconclusive", "warning", "edge"}


def reasons(result: ComparisonResult, *, with_findings: bool = True) -> list[str]:
    """Return one line for each check that is not a pass, and what the outputs that failed look like.

    Args:
        result: The comparison.
        with_findings: Whether probes with findings, and no failure, have a line.
    """
    lines = []
    for check in result.checks:
        if check.status in _SHOWN and (with_findings or check.status != "edge"):
            output = f"[{check.output}]" if check.output else ""
            lines.append(f"{check.status}: {check.name}{output}: {check.detail}")
    # Those that are named stand below the verdict.
    lines += [f"trial {cause.kind}: {cause.detail}" for cause in result.causes if cause.outcome != "named"]
    lines += [f"looks like [{name}]: {words}" for name, output in result.outputs.items() for words in output.looks_like]
    return lines


def schema_of_result() -> dict[str, Any]:
    """Return the JSON Schema of a comparison's result."""
    return schema_of(ComparisonResult, title="paritygate comparison")
