"""The result of one comparison, as the terminal, the JSON file and the report have it.

The JSON Schema is made from these classes: `convert-and-validate schema` prints it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from paritygate import __version__
from paritygate.validate.decisions import DecisionStatistics
from paritygate.validate.measurement import Measurement
from paritygate.validate.profile import OutputProfile
from paritygate.validate.statistics import DiffStatistics
from paritygate.validate.tolerance import Limits
from paritygate.validate.verdict import Check

__all__ = [
    "CheckResult",
    "ComparisonResult",
    "DecisionResult",
    "ErrorResult",
    "LimitRange",
    "OutputResult",
    "ProbeFailureResult",
    "ProbeResult",
    "ProbesResult",
    "RoleResult",
    "SideResult",
    "StratumOutput",
    "StratumResult",
    "WorstRowResult",
    "check_result",
    "decision_result",
    "error_result",
    "output_result",
    "reasons",
    "result_to_json",
    "schema_of_result",
    "stratum_result",
]

SCHEMA_VERSION = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class LimitRange:
    """A limit over the channels of an output; both ends are the same where there is one channel."""

    lowest: float
    highest: float


@dataclass(frozen=True, kw_only=True, slots=True)
class WorstRowResult:
    """One of the rows that differ most."""

    row_id: str
    max_abs_diff: float | None
    index: list[int]
    actual: float | None
    expected: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class OutputResult:
    """The difference of one output. Numbers that could not be measured are null.

    `scale` is max(1, std of the reference), the largest over the channels; default limits are multiplied by it.
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
    mismatches: int
    non_finite: int
    limits: dict[str, LimitRange]
    worst_rows: list[WorstRowResult]


@dataclass(frozen=True, kw_only=True, slots=True)
class DecisionResult:
    """The decisions taken on one output."""

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


@dataclass(frozen=True, kw_only=True, slots=True)
class StratumOutput:
    """The difference of one output within one stratum."""

    max_abs_diff: float | None
    mean_abs_diff: float | None
    std_abs_diff: float | None
    bias: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class StratumResult:
    """The rows of one stratum: a fault that lives there is bounded by these rows alone."""

    rows: int
    outputs: dict[str, StratumOutput]
    decisions: dict[str, DecisionResult]


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckResult:
    """One check and what came of it: pass, warning, fail, error or inconclusive."""

    name: str
    status: str
    detail: str
    output: str | None = None
    measured: float | None = None
    limit: float | None = None


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
    """One batch of a probe that the candidate answered otherwise; batch -1 is all of them together."""

    batch: int
    about: str
    check: str
    detail: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ProbeResult:
    """One probe: inputs derived from the samples, and whether the candidate answers them like the reference."""

    status: str
    detail: str
    batches: int
    rows: int
    dropped: int
    unfit: int
    failed: int
    failures: list[ProbeFailureResult]
    seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class RoleResult:
    """What an input was taken for, and why."""

    role: str
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ProbesResult:
    """All probes: those asked, those switched off, and why none was asked where that is so."""

    asked: dict[str, ProbeResult] = field(default_factory=dict)
    switched_off: list[str] = field(default_factory=list)
    skipped: str = ""
    roles: dict[str, RoleResult] = field(default_factory=dict)
    seed: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class ErrorResult:
    """Why nothing could be measured."""

    kind: str
    message: str
    hint: str

    def to_json(self) -> dict[str, str]:
        """Return the error as JSON data."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True, slots=True)
class ComparisonResult:
    """One candidate against one reference."""

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
    looser_than_default: list[str] = field(default_factory=list)
    outputs: dict[str, OutputResult] = field(default_factory=dict)
    decisions: dict[str, DecisionResult] = field(default_factory=dict)
    strata: dict[str, dict[str, StratumResult]] = field(default_factory=dict)
    checks: list[CheckResult] = field(default_factory=list)
    probes: ProbesResult = field(default_factory=ProbesResult)
    outputs_left_out: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    machine: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    error: ErrorResult | None = None


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _range(values: Iterable[float]) -> LimitRange:
    seen = [float(value) for value in values]
    return LimitRange(lowest=min(seen), highest=max(seen))


def output_result(
    statistics: DiffStatistics, profile: OutputProfile, limits: Limits, repeat_max_abs_diff: float | None
) -> OutputResult:
    """Return the result of one output."""
    plain = {
        name: _number(getattr(statistics, name))
        for name in (
            "max_abs_diff",
            "min_abs_diff",
            "mean_abs_diff",
            "std_abs_diff",
            "p50_abs_diff",
            "p90_abs_diff",
            "p99_abs_diff",
            "p999_abs_diff",
            "bias",
            "bias_low_95",
            "bias_high_95",
            "std_diff",
            "cosine_similarity",
            "max_rel_diff",
            "max_row_rel_diff",
        )
    }
    return OutputResult(
        dtype=profile.dtype,
        axis=profile.axis,
        scale=float(profile.scale.max()),
        rows=statistics.rows,
        values=statistics.values,
        compared=statistics.compared,
        **plain,
        max_row_rel_id=statistics.max_row_rel_id,
        repeat_max_abs_diff=None if repeat_max_abs_diff is None else _number(repeat_max_abs_diff),
        mismatches=statistics.mismatches,
        non_finite=statistics.non_finite + statistics.non_finite_mismatches,
        limits={
            "max_abs_diff": _range(limits.max_abs_diff),
            "mean_abs_diff": _range(limits.mean_abs_diff),
            "repeat_max_abs_diff": _range(limits.repeat_max_abs_diff),
            "max_row_rel_diff": _range([limits.max_row_rel_diff]),
        },
        worst_rows=[
            WorstRowResult(
                row_id=row.row_id,
                max_abs_diff=_number(row.max_abs_diff),
                index=list(row.index),
                actual=_number(row.actual),
                expected=_number(row.expected),
            )
            for row in statistics.worst_rows
        ],
    )


def decision_result(statistics: DecisionStatistics) -> DecisionResult:
    """Return the result of the decisions on one output."""
    return DecisionResult(
        rule=statistics.decision,
        rows=statistics.rows,
        decisions=statistics.decisions,
        mismatches=statistics.mismatches,
        inside_band=statistics.inside_band,
        outside_band=statistics.outside_band,
        rows_mismatched=statistics.rows_mismatched,
        mismatch_rate_upper_95=statistics.mismatch_rate_upper_95,
        classes={str(name): count for name, count in statistics.classes.items()},
        examples=list(statistics.examples),
    )


def stratum_result(measured: Measurement) -> StratumResult:
    """Return the result of one stratum."""
    names = ("max_abs_diff", "mean_abs_diff", "std_abs_diff", "bias")
    return StratumResult(
        rows=measured.rows,
        outputs={
            output: StratumOutput(**{name: _number(getattr(statistics, name)) for name in names})
            for output, statistics in measured.statistics.items()
        },
        decisions={output: decision_result(decision) for output, decision in measured.decisions.items()},
    )


def check_result(check: Check) -> CheckResult:
    """Return a check as the report has it."""
    return CheckResult(
        name=check.name,
        status=str(check.status),
        detail=check.detail,
        output=check.output,
        measured=None if check.measured is None else _number(float(check.measured)),
        limit=None if check.limit is None else _number(float(check.limit)),
    )


def error_result(error: Exception, *, kind: str = "") -> ErrorResult:
    """Return an error as the report has it."""
    return ErrorResult(kind=kind or type(error).__name__, message=str(error), hint=getattr(error, "hint", ""))


_SHOWN = {"fail", "error", "inconclusive", "warning"}


def reasons(result: ComparisonResult) -> list[str]:
    """Return one line for each check that is not a pass."""
    lines = []
    for check in result.checks:
        if check.status in _SHOWN:
            output = f" [{check.output}]" if check.output else ""
            lines.append(f"{check.status}: {check.name}{output}: {check.detail}")
    return lines


def result_to_json(result: ComparisonResult) -> dict[str, Any]:
    """Return the result as JSON data."""
    return asdict(result)


def result_from_json(data: Mapping[str, Any]) -> ComparisonResult:
    """Return the result that `result_to_json` wrote."""
    from pydantic import TypeAdapter

    return TypeAdapter(ComparisonResult).validate_python(data)


def schema_of_result() -> dict[str, Any]:
    """Return the JSON Schema of a comparison's result."""
    from pydantic import TypeAdapter

    schema = TypeAdapter(ComparisonResult).json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "paritygate comparison", **schema}
