"""A run or a comparison as test cases: one suite per variant, one case per check."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from paritygate.errors import ExitCode, ParitygateError
from paritygate.pipelines.compare.redaction import hidden
from paritygate.pipelines.compare.result import NOT_ASKED, NOT_AVAILABLE, NOT_RUN_HERE, ComparisonResult, error_result
from paritygate.pipelines.report.report_data import ReportData, VariantReport
from paritygate.pipelines.report.why import why, why_of_variant
from paritygate.text import StrEnum
from paritygate.validate.measure.check import Check
from paritygate.validate.words.sentence import Sentence, render

_PROBE = "probe_"
_FOUND = frozenset({"warning", "edge"})
_SKIPPED = frozenset({NOT_RUN_HERE, NOT_AVAILABLE, NOT_ASKED})


class CaseStatus(StrEnum):
    """The status of a check in a CI system."""

    PASSED = "passed"
    FAILED = "failed"
    # It could not be measured.
    ERROR = "error"
    SKIPPED = "skipped"


class Case(Struct, frozen=True, kw_only=True):
    """One check of a variant.

    `name` includes the output. `message` is why it does not pass, `details` more, such as the hint. `output` is a
    warning or out-of-sample finding of a pass.
    """

    name: str
    status: CaseStatus = CaseStatus.PASSED
    message: str = ""
    details: str = ""
    output: str = ""


class Suite(Struct, frozen=True, kw_only=True):
    """One variant, one comparison, or the whole run.

    `verdict` and `reason` (empty for a pass) are the report's. `is_required` means that the exit code depends on it.
    Names of cases are unique. `seconds` is the time of the comparison.
    """

    model: str
    name: str
    verdict: str
    reason: str = ""
    is_required: bool = True
    cases: tuple[Case, ...]
    seconds: float = 0.0
    properties: Mapping[str, str] = field(default_factory=dict)

    def count(self, status: CaseStatus) -> int:
        """Return the number of cases with a status."""
        return sum(case.status is status for case in self.cases)


def suites_of_run(report: ReportData, *, exit_code: int, not_released: str) -> tuple[Suite, ...]:
    """Return one suite per variant and per emulated row, and one for a failed release.

    Only required variants have failures and errors, and others have skipped cases. So a build with a failed case fails
    exactly where `exit_code` is not 0.
    """
    suites = []
    for variant in report.variants:
        suites.append(_of_variant(report, variant))
        if variant.emulated is not None:
            suite = suite_of_comparison(variant.emulated, model=report.model, name=f"{variant.name} emulated")
            suites.append(_as_optional(suite, "an emulated row decides nothing by itself"))
    if exit_code not in {ExitCode.PASS, report.exit_code}:
        # All required variants passed, but the release failed, or what follows it.
        case = Case(name="release", status=CaseStatus.ERROR, message=not_released)
        suites.append(Suite(model=report.model, name="release", verdict="error", reason=case.message, cases=(case,)))
    return tuple(suites)


def suite_of_comparison(result: ComparisonResult, *, model: str = "", name: str = "") -> Suite:
    """Return the suite of one comparison, where all checks count; empty names are those of the models."""
    return Suite(
        model=model or result.reference.name,
        name=name or result.candidate.name,
        verdict=result.verdict,
        reason=why(result),
        cases=_with_own_names(_cases_of(result)),
        seconds=result.seconds,
        properties=_properties(result),
    )


def suite_of_error(model: str, error: ParitygateError, *, is_hiding: bool = False) -> Suite:
    """Return the suite of a spec that could not be measured, without names of rows if it hides them."""
    result = hidden(error_result(error)) if is_hiding else error_result(error)
    words, hint = result.message, result.hint
    case = Case(name="run", status=CaseStatus.ERROR, message=words, details=_hint(hint))
    return Suite(model=model, name="run", verdict="error", reason=words, cases=(case,))


def _of_variant(report: ReportData, variant: VariantReport) -> Suite:
    reason = why_of_variant(variant)
    if variant.result is not None:
        suite = suite_of_comparison(variant.result, model=report.model, name=variant.name)
    else:
        case = Case(
            name="compared",
            status=CaseStatus.SKIPPED if variant.verdict in _SKIPPED else CaseStatus.ERROR,
            message=reason,
            details=_hint(variant.hint),
        )
        suite = Suite(model=report.model, name=variant.name, verdict=variant.verdict, cases=(case,))
    properties = {**suite.properties, "run": str(report.folder), "required": "yes" if variant.is_required else "no"}
    suite = replace(suite, verdict=variant.verdict, reason=reason, properties=properties)
    if not variant.is_required:
        return _as_optional(suite, "it is not required")
    if variant.verdict in _SKIPPED:
        # A required variant that does not run here was not measured, so the run has not passed.
        cases = tuple(
            replace(case, status=CaseStatus.ERROR, message=f"{variant.verdict}, and required: {case.message}")
            for case in suite.cases
        )
        return replace(suite, cases=cases)
    return suite


def _as_optional(suite: Suite, reason: str) -> Suite:
    """Return the suite with failures and errors as skipped cases, because the run does not require it."""
    cases = tuple(
        replace(case, status=CaseStatus.SKIPPED, message=f"{reason}; {case.status}: {case.message}")
        if case.status in {CaseStatus.FAILED, CaseStatus.ERROR}
        else case
        for case in suite.cases
    )
    return replace(suite, cases=cases, is_required=False)


def _cases_of(result: ComparisonResult) -> Iterator[Case]:
    if result.error is not None:
        yield Case(
            name="compared", status=CaseStatus.ERROR, message=result.error.message, details=_hint(result.error.hint)
        )
        return
    if result.not_run_here:
        yield Case(name="compared", status=CaseStatus.SKIPPED, message=f"{NOT_RUN_HERE}: {result.not_run_here}")
        return
    findings: dict[str, list[str]] = {}
    for finding in result.edge_findings:
        findings.setdefault(f"{_PROBE}{finding.probe}", []).append(
            f"out-of-sample finding: {finding.edge}: {finding.check}: {finding.detail}"
        )
    for check in result.checks:
        yield _of_check(check, result, findings.pop(check.name, ()))
    named = {check.name for check in result.checks}
    for name, probe in result.probes.asked.items():
        if f"{_PROBE}{name}" not in named and probe.status == NOT_ASKED:
            yield Case(name=f"{_PROBE}{name}", status=CaseStatus.SKIPPED, message=_not_asked(probe.words))
    for name in result.probes.switched_off:
        yield Case(name=f"{_PROBE}{name}", status=CaseStatus.SKIPPED, message="switched off")


def _of_check(check: Check, result: ComparisonResult, findings: Sequence[str]) -> Case:
    name = f"{check.name}[{check.output}]" if check.output else check.name
    output = result.outputs.get(check.output or "")
    looks_like = [] if output is None else [f"looks like {words}" for words in output.looks_like]
    if check.status == "fail":
        causes = [f"cause: {words}" for words in result.named_causes]
        details = "\n".join((*causes, *looks_like))
        return Case(name=name, status=CaseStatus.FAILED, message=check.detail, details=details)
    if check.status == NOT_RUN_HERE:
        return Case(name=name, status=CaseStatus.SKIPPED, message=check.detail)
    if check.status in {"error", "inconclusive"}:
        return Case(name=name, status=CaseStatus.ERROR, message=f"{check.status}: {check.detail}")
    remarks = [f"{check.status}: {check.detail}"] if check.status in _FOUND else []
    return Case(name=name, output="\n".join((*remarks, *findings)))


def _with_own_names(cases: Iterable[Case]) -> tuple[Case, ...]:
    """Return the cases with a number after each repeated name."""
    seen: Counter[str] = Counter()
    named = []
    for case in cases:
        seen[case.name] += 1
        count = seen[case.name]
        named.append(case if count == 1 else replace(case, name=f"{case.name} ({count})"))
    return tuple(named)


def _properties(result: ComparisonResult) -> dict[str, str]:
    properties = {
        "verdict": result.verdict_words,
        "precision": result.precision,
        "rows": str(result.rows),
        "device": result.candidate.device or "",
        "runtime": " ".join(filter(None, (result.candidate.runtime, result.candidate.version))),
        "samples": result.samples_digest or "",
    }
    return {name: value for name, value in properties.items() if value}


def _not_asked(words: Sequence[Sentence]) -> str:
    is_said = any(item.key == "probe.not_asked" for item in words)
    return render(words) if is_said else f"{NOT_ASKED}: {render(words)}"


def _hint(hint: str) -> str:
    return f"hint: {hint}" if hint else ""
