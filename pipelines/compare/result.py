"""The result of one comparison, as the terminal, the JSON file and the report have it.

The JSON Schema is made from these classes: `convert-and-validate schema` prints it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, TypeVar, cast

from paritygate import __version__
from paritygate.codec import schema_of
from paritygate.pipelines.compare.drawing import DrawingResult, drawing_result
from paritygate.pipelines.compare.kind_before import kind_before, words_before
from paritygate.text import counted
from paritygate.validate.measure.check import UNDECLARED_PADDING, Kind, Status
from paritygate.validate.words.sentence import Sentence

if TYPE_CHECKING:
    from paritygate.validate.causes.cause import Cause
    from paritygate.validate.detections.measurement import MatchStatistics
    from paritygate.validate.detections.tally import MatchFigures
    from paritygate.validate.gold.measurement import GoldStatistics
    from paritygate.validate.measure.check import Check
    from paritygate.validate.measure.decisions import DecisionStatistics
    from paritygate.validate.measure.measurement import Measurement
    from paritygate.validate.measure.profile import OutputProfile
    from paritygate.validate.measure.tolerance import Limits

_Result = TypeVar("_Result")

SCHEMA_VERSION = 1
# Beside the words for checks: what came of a probe that has nothing to ask of this candidate.
NOT_ASKED = "not asked"
# The verdict of a variant that this machine cannot run, such as an engine without a GPU: no error, and no pass.
NOT_RUN_HERE = "not run here"
# What stands where there is no comparison of a variant.
NOT_MEASURED = "not measured"
# The verdict of a variant that cannot be made of this model, since the target lacks what the model needs.
NOT_AVAILABLE = "not available for this model"
# What a check may come to.
_STATUSES = (*map(str, Status), NOT_RUN_HERE)
# Where a comparison is made: a model that is an object of Python code is known to its process alone.
CHILD_PROCESS = "a child process"
THIS_PROCESS = "this process"


@dataclass(frozen=True, kw_only=True, slots=True)
class LimitRange:
    """A limit over the channels of an output; both ends are the same where there is one channel."""

    lowest: float
    highest: float


@dataclass(frozen=True, kw_only=True, slots=True)
class WorstRowResult:
    """One of the rows that differ most: its value that is nearest to its limit, or furthest beyond it.

    `limit` is the max limit of that value; 0 where it is compared exactly. Of text, which counts as 1 where it differs,
    `actual` and `expected` are null.
    """

    row_id: str
    max_abs_diff: float | None
    index: list[int]
    actual: float | None
    expected: float | None
    limit: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class OutputResult:
    """The difference of one output. Numbers that could not be measured are null.

    `scale` is max(1, spread of the reference's bulk), the largest over the channels; default limits are multiplied by
    it, and `limits` are those of the bulk. `fill_values` were compared exactly.
    `reference_spread` is that spread itself, the largest over the channels: variants that are equally fast are told
    apart by the largest difference as a part of it.
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
    worst_rows: list[WorstRowResult]
    rows_beyond: int | None = None
    fill_values: int = 0
    fill_mismatches: int = 0
    looks_like: list[str] = field(default_factory=list)
    reference_spread: float | None = None
    drawing: DrawingResult | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class DecisionResult:
    """The decisions taken on one output; `constant` is why all rows may have the same answer, as declared."""

    rule: str
    rows: int
    decisions: int
    mismatches: int
    inside_band: int
    outside_band: int
    rows_mismatched: int
    mismatch_rate_upper_95: float
    classes: dict[str, int]
    examples: list[str]
    constant: str = ""


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
    max_rel_diff: float | None = None
    max_row_rel_diff: float | None = None
    mismatches: int | None = None
    non_finite: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class StratumResult:
    """The rows of one stratum: a fault that lives there is bounded by these rows alone."""

    rows: int
    outputs: dict[str, StratumOutput]
    decisions: dict[str, DecisionResult]


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckResult:
    """One check and what came of it: pass, warning, edge, fail, error or inconclusive.

    `kind` says how it came to that, `rows` how many rows it is about, `words` is what `detail` is made of. Results of
    earlier versions have none of these.
    """

    name: str
    status: str
    detail: str
    output: str | None = None
    measured: float | None = None
    limit: float | None = None
    kind: str = ""
    rows: int | None = None
    words: list[Sentence] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not self.kind:
            object.__setattr__(self, "kind", str(kind_before(self.status, self.detail)))
        if not self.words:
            object.__setattr__(self, "words", list(words_before(self.detail, self.measured, self.limit)))
        if self.status not in _STATUSES:
            msg = f"check {self.name!r} has the status {self.status!r} (allowed: {', '.join(_STATUSES)})"
            raise ValueError(msg)


@dataclass(frozen=True, kw_only=True, slots=True)
class CauseResult:
    """A cause of a failure, and what came of looking for it; `outcome` is `named` where it explains the difference.

    Of a trial, `before` and `after` are the largest difference in `rows` that confirm it, as multiples of its limit.
    """

    kind: str
    outcome: str
    detail: str
    rows: int | None = None
    before: float | None = None
    after: float | None = None
    words: list[Sentence] = field(default_factory=list)


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
class GoldStratumResult:
    """A metric over the rows of one stratum; null where it is not defined."""

    rows: int
    reference: float | None
    candidate: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class GoldResult:
    """A metric of both sides against gold. Null is what is not defined, or not known.

    `limit` is the least that the candidate may have; the intervals are of the candidate's metric less the reference's,
    and less the limit.
    """

    metric: str
    output: str
    rows: int
    rows_without: int
    reference: float | None
    candidate: float | None
    difference: float | None
    difference_low_95: float | None
    difference_high_95: float | None
    limit: float | None
    margin_low_95: float | None
    margin_high_95: float | None
    ratio: float | None
    max_drop: float | None
    gold_above: float | None
    digest: str
    strata: dict[str, dict[str, GoldStratumResult]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class MatchStratumResult:
    """Detections matched in the rows of one stratum; `missing` and `extra` have no partner, `near_floor` need none.

    `at_end` counts those of `near_floor` that are near the end of a full list; `below_floor` of the reference were not
    looked at.
    """

    rows: int
    expected: int
    actual: int
    matched: int
    missing: int
    extra: int
    near_floor: int
    non_finite: int
    min_iou: float | None
    max_box_diff: float | None
    max_score_diff: float | None
    below_floor: int = 0
    at_end: int = 0
    max_other_diff: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class MatchResult(MatchStratumResult):
    """The same of all rows, with what was matched by which rule, and apart for each value of every stratum."""

    outputs: list[str]
    iou: float
    score_tolerance: float
    score_floor: float
    examples: list[str]
    strata: dict[str, dict[str, MatchStratumResult]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class ProbeFailureResult:
    """One batch of a probe that the candidate answered otherwise; batch -1 is all of them together.

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
    words: list[Sentence] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True, slots=True)
class EdgeFindingResult(ProbeFailureResult):
    """What is answered otherwise in made-up rows that are unlike every sample, and the probe that found it."""

    probe: str


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
        if not self.kind:
            object.__setattr__(self, "kind", str(kind_before(self.status, self.detail)))
        if not self.words:
            object.__setattr__(self, "words", list(words_before(self.detail)))

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
    """Why nothing could be measured."""

    kind: str
    message: str
    hint: str


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
    decisions: dict[str, DecisionResult] = field(default_factory=dict)
    strata: dict[str, dict[str, StratumResult]] = field(default_factory=dict)
    checks: list[CheckResult] = field(default_factory=list)
    causes: list[CauseResult] = field(default_factory=list)
    probes: ProbesResult = field(default_factory=ProbesResult)
    edge_findings: list[EdgeFindingResult] = field(default_factory=list)
    gold: dict[str, GoldResult] = field(default_factory=dict)
    matches: dict[str, MatchResult] = field(default_factory=dict)
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
        return [cause.detail for cause in self.causes if cause.outcome == "named"]

    @property
    def padding_findings(self) -> list[CheckResult]:
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


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


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
        return _number(float(value))
    return list(value) if isinstance(value, tuple) else value


def _rows_beyond(measured: Measurement, output: str) -> int | None:
    return measured.patterns[output].beyond if output in measured.patterns else None


def output_result(
    name: str, measured: Measurement, profile: OutputProfile, limits: Limits, looks_like: Iterable[str] = ()
) -> OutputResult:
    """Return the result of one output, and what its difference looks like where it failed."""
    statistics = measured.statistics[name]
    repeat_max_abs_diff = measured.repeat_max_abs_diff.get(name)
    # Of text, that it differs was measured, and no number.
    apart: dict[str, None] = {"actual": None, "expected": None} if profile.dtype == "string" else {}
    return _taken(
        OutputResult,
        statistics,
        dtype=profile.dtype,
        axis=profile.axis,
        scale=float(profile.scale.max()),
        repeat_max_abs_diff=None if repeat_max_abs_diff is None else _number(repeat_max_abs_diff),
        mismatches=None if profile.is_float else statistics.mismatches,
        non_finite=statistics.non_finite + statistics.non_finite_mismatches,
        limits={
            "max_abs_diff": _range(limits.max_abs_diff),
            "mean_abs_diff": _range(limits.mean_abs_diff),
            "repeat_max_abs_diff": _range(limits.repeat_max_abs_diff),
            "max_row_rel_diff": _range([limits.max_row_rel_diff]),
        },
        worst_rows=[_taken(WorstRowResult, row, **apart) for row in statistics.worst_rows],
        rows_beyond=_rows_beyond(measured, name),
        looks_like=list(looks_like),
        reference_spread=_number(float(profile.spread.max())),
        drawing=drawing_result(measured.drawings[name], statistics.beyond) if name in measured.drawings else None,
    )


def decision_result(statistics: DecisionStatistics) -> DecisionResult:
    """Return the result of the decisions on one output."""
    classes = {str(name): count for name, count in statistics.classes.items()}
    return _taken(DecisionResult, statistics, rule=statistics.decision, classes=classes)


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
        decisions={output: decision_result(decision) for output, decision in measured.decisions.items()},
    )


def gold_result(measured: GoldStatistics) -> GoldResult:
    """Return the result of a metric against gold."""
    rule, interval, margin = measured.rule, measured.interval, measured.margin
    return _taken(
        GoldResult,
        measured,
        metric=rule.metric,
        output=rule.output,
        difference_low_95=None if interval is None else interval.low,
        difference_high_95=None if interval is None else interval.high,
        margin_low_95=None if margin is None else margin.low,
        margin_high_95=None if margin is None else margin.high,
        ratio=rule.ratio,
        max_drop=rule.max_drop,
        gold_above=rule.gold_above,
        strata={
            name: {value: _taken(GoldStratumResult, item) for value, item in values.items()}
            for name, values in measured.strata.items()
        },
    )


def match_result(measured: MatchStatistics) -> MatchResult:
    """Return the result of detections matched."""
    rule = measured.rule
    return _matched(
        MatchResult,
        measured,
        outputs=list(rule.outputs),
        iou=rule.iou,
        score_tolerance=rule.score_tolerance,
        score_floor=rule.score_floor,
        strata={
            name: {value: _matched(MatchStratumResult, found) for value, found in values.items()}
            for name, values in measured.strata.items()
        },
    )


def _matched(kind: type[_Result], measured: MatchFigures, /, **own: object) -> _Result:
    # Of no pair, no difference is known.
    figures = () if measured.matched else ("max_box_diff", "max_score_diff", "max_other_diff")
    return _taken(kind, measured, **dict.fromkeys(figures), **own)


def edge_findings_of(probes: ProbesResult) -> list[EdgeFindingResult]:
    """Return the findings of all probes, each with its probe."""
    return [
        _taken(EdgeFindingResult, finding, probe=name)
        for name, probe in probes.asked.items()
        for finding in probe.findings
    ]


def check_result(check: Check) -> CheckResult:
    """Return a check as the report has it."""
    return _taken(
        CheckResult,
        check,
        status=str(check.status),
        kind=str(check.kind),
        measured=None if check.measured is None else _number(float(check.measured)),
        limit=None if check.limit is None else _number(float(check.limit)),
    )


def cause_result(cause: Cause) -> CauseResult:
    """Return a cause as the report has it."""
    return _taken(CauseResult, cause)


def code_notes(*sides: SideResult) -> list[str]:
    """Return a note for each side whose loading executes code of its author, whatever came of it."""
    return [f"loading {side.name} executes code of its author" for side in sides if side.executes_code]


def error_result(error: Exception, *, kind: str = "") -> ErrorResult:
    """Return an error as the report has it."""
    return ErrorResult(kind=kind or type(error).__name__, message=str(error), hint=getattr(error, "hint", ""))


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
