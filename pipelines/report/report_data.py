"""Gather the data of a run's report from its folder.

A result counts only where the run's evidence names it, for the artifact and samples in the folder now. Everything else
is reported as not measured.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paritygate import __version__
from paritygate.artifact import Artifact
from paritygate.codec import with_fields_of
from paritygate.errors import ExitCode
from paritygate.models.source import OBJECTS
from paritygate.pipelines.compare.redaction import hidden, may_say_why
from paritygate.pipelines.compare.result import NOT_AVAILABLE, NOT_MEASURED, NOT_RUN_HERE, ComparisonResult
from paritygate.pipelines.run.evidence import EarlierFailure, Evidence, EvidenceEntry
from paritygate.pipelines.run.workspace import FailedVariant, RunFolder, required_variants, worst_code
from paritygate.text import HIDDEN
from paritygate.validate.measure.check import Status
from paritygate.validate.reference.recorded_outputs import RECORD_FILE
from paritygate.validate.reference.recording import Recording
from paritygate.validate.words import sentence

if TYPE_CHECKING:
    from paritygate.pipelines.benchmark.result import BenchmarkResult
    from paritygate.pipelines.choice.choice import Choice

_NOTHING_REQUIRED = "nothing required"
_VERDICT_OF_CODE = {ExitCode.PASS: "pass", ExitCode.PARITY_FAILED: "fail", ExitCode.INCONCLUSIVE: "inconclusive"}
_ORDER = ("pass", "fail", "error", "inconclusive", NOT_RUN_HERE, NOT_AVAILABLE, NOT_MEASURED)


@dataclass(frozen=True, kw_only=True, slots=True)
class VariantReport:
    """A target of the spec with its outcome.

    - `verdict`: one of `_ORDER`. `evidence`: `verified`, `emulated`, `built` or `none`.
    - `reason`, `hint`: why it could not be made or measured, and what to do.
    - `operators`: unsupported ones, `(operator, node, reason, hint)` each.
    - `result`: None unless of this artifact on these samples. `emulated`: the same with emulated precision, if it ran.
    """

    name: str
    is_required: bool
    verdict: str
    exit_code: int
    evidence: str = "none"
    reason: str = ""
    hint: str = ""
    operators: tuple[tuple[str, ...], ...] = ()
    result: ComparisonResult | None = None
    emulated: ComparisonResult | None = None
    artifact: Artifact | None = None

    @property
    def device(self) -> str | None:
        """The device of the measurement, or None."""
        return self.result.candidate.device if self.result is not None else None

    @property
    def is_source(self) -> bool:
        """True for a copy of the source file, where nothing was converted; unknown, so false, for objects."""
        if self.result is None or self.result.candidate.kind in OBJECTS:
            return False
        return any(check.name == "distinct" and check.status == Status.WARNING for check in self.result.checks)


@dataclass(frozen=True, kw_only=True, slots=True)
class ReportData:
    """A run as it is reported.

    - `verdict`: of the required variants: `pass`, `fail`, `inconclusive`, `error`, or `nothing required`.
    - `variants`: one per target, in the spec's order. `marked`: those released or chosen, as `mark` tells.
    - `machines`: (names of variants, machine) for each machine. `others`: evidence of other devices, same reference.
    - `earlier`: earlier failures that were replaced, or that have looser limits now. `reason`: the spec's, for those.
    - `commands`: `(purpose, command)` to repeat steps. `trust`: digest of the trusted pack, or empty. `written`: UTC.
    """

    model: str
    run_id: str
    source: str
    spec: str
    samples: str
    folder: Path
    verdict: str
    exit_code: int
    headline: str
    variants: tuple[VariantReport, ...]
    recording: Recording | None
    release: Mapping[str, Any] | None
    benchmark: BenchmarkResult | None
    marked: tuple[str, ...]
    mark: str
    machines: tuple[tuple[str, Mapping[str, Any]], ...]
    commands: tuple[tuple[str, str], ...]
    written: str
    others: tuple[Evidence, ...] = ()
    earlier: tuple[EarlierFailure, ...] = ()
    reason: str = ""
    trust: str = ""
    paritygate: str = field(default=__version__)


def collect_report(
    run: RunFolder,
    *,
    release: Mapping[str, Any] | None = None,
    choice: Choice | None = None,
    evidence: Evidence | None = None,
) -> ReportData:
    """Return the data of a run's report; raise InputFileError if the recorded reference or benchmark is corrupt.

    `release` is as `Release.to_json` returns it; `choice` is for a run not yet released. `evidence` defaults to all.
    """
    if evidence is None:
        evidence = run.evidence()
    recording = Recording.load(run.reference) if (run.reference / RECORD_FILE).is_file() else None
    failures = run.failures()
    required = required_variants(run)
    variants = tuple(
        _failed_variant(failures[name], is_required=name in required)
        if name in failures
        else _variant(run, name, evidence=evidence, recording=recording, is_required=name in required)
        for name in run.resolved.target_names
    )
    verdict, code = _outcome(variants)
    samples = run.resolved.samples(run.samples_path)
    return ReportData(
        model=run.resolved.name,
        run_id=run.run_id,
        source=run.resolved.spec.model.source,
        spec=run.resolved.origin,
        samples=f"{samples.text} of {samples.path}" if samples.path else samples.text,
        folder=run.folder,
        verdict=verdict,
        exit_code=code,
        headline=_headline(variants),
        variants=variants,
        recording=recording,
        release=release,
        benchmark=run.benchmark(),
        marked=_marked(release, choice),
        mark="released" if release is not None else "chosen",
        machines=_machines(variants),
        commands=_commands(run),
        others=_others(evidence, recording),
        earlier=() if evidence is None else evidence.earlier_failures,
        reason=run.resolved.spec.reason or "",
        trust=(release or {}).get("trust", ""),
        written=datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
    )


def report_without_inputs(report: ReportData) -> ReportData:
    """Return a report without user data: the rows that differ most, and the inputs on which probes fail."""
    return replace(
        report,
        variants=tuple(map(_variant_without_inputs, report.variants)),
        others=tuple(map(hidden, report.others)),
        earlier=tuple(map(hidden, report.earlier)),
        recording=report.recording and without_row_words(report.recording),
    )


def without_row_words(recording: Recording) -> Recording:
    """Return a recording whose health checks hold no user data."""
    checks = tuple(replace(item, words=sentence.without_inputs(item.words)) for item in recording.health_checks)
    return replace(recording, health=tuple(item.as_text for item in checks), health_checks=checks)


def _variant_without_inputs(variant: VariantReport) -> VariantReport:
    result = variant.result and hidden(variant.result)
    shown = replace(variant, result=result, emulated=variant.emulated and hidden(variant.emulated))
    if result is not None:
        # Unmeasured results have their own reason.
        return replace(shown, reason=variant.reason and result.why_not_measured, hint=variant.hint and HIDDEN)
    return shown if may_say_why(variant.verdict) else replace(shown, reason=HIDDEN, hint=variant.hint and HIDDEN)


def _marked(release: Mapping[str, Any] | None, choice: Choice | None) -> tuple[str, ...]:
    if release is not None:
        return tuple(release["variants"])
    return () if choice is None else tuple(candidate.name for candidate in choice.chosen)


def _others(evidence: Evidence | None, recording: Recording | None) -> tuple[Evidence, ...]:
    if evidence is None or recording is None:
        return ()
    return tuple(item for item in evidence.others if item.reference.digest == recording.digest)


def _failed_variant(failure: FailedVariant, *, is_required: bool) -> VariantReport:
    return with_fields_of(
        VariantReport,
        failure,
        name=failure.variant,
        is_required=is_required,
        reason=failure.message,
    )


def _variant(
    run: RunFolder, name: str, *, evidence: Evidence | None, recording: Recording | None, is_required: bool
) -> VariantReport:
    # Only its record, because the comparison checked the files, and `verify` checks a release.
    artifact = Artifact.read_record(run.variant_folder(name)) if name in run.exported() else None
    entry = None if evidence is None else evidence.entry(name)
    missing = _why_not_measured(run, artifact, entry, recording)
    if missing is not None or evidence is None or entry is None or entry.result is None:
        reason, hint = missing or ("", "")
        return VariantReport(
            name=name,
            is_required=is_required,
            verdict=NOT_MEASURED,
            exit_code=int(ExitCode.NOT_MEASURED),
            reason=reason,
            hint=hint,
            artifact=artifact,
        )
    return VariantReport(
        name=name,
        is_required=is_required,
        verdict=entry.verdict,
        exit_code=entry.exit_code,
        evidence=entry.evidence,
        reason=entry.reason,
        hint=entry.result.error.hint if entry.result.error is not None else "",
        result=entry.result,
        emulated=None if (row := evidence.emulated_entry(name)) is None else row.result,
        artifact=artifact,
    )


def _why_not_measured(
    run: RunFolder, artifact: Artifact | None, entry: EvidenceEntry | None, recording: Recording | None
) -> tuple[str, str] | None:
    """Return reason and hint if there is no comparison of this artifact on these samples; None if there is."""
    again = _validate_command(run)
    if artifact is None:
        return "it was not exported", run_command(run)
    if entry is None or entry.result is None:
        return "it was exported, but no evidence of a comparison was written", again
    if not entry.result.is_measured:
        # A failed comparison needs no check against the artifact: it has no figures.
        return None
    if entry.artifact != artifact.digest:
        return "it was exported again after the comparison, which measured a different file", again
    if recording is None or recording.samples_digest != entry.result.samples_digest:
        return "the reference was recorded again on other samples after the comparison", again
    return None


def _outcome(variants: Sequence[VariantReport]) -> tuple[str, int]:
    """Return verdict and exit code of the required variants together: a pass only if each passes."""
    codes = [variant.exit_code for variant in variants if variant.is_required]
    if not codes:
        return _NOTHING_REQUIRED, int(ExitCode.PASS)
    code = worst_code(codes)
    verdict = _VERDICT_OF_CODE.get(ExitCode(code), "error")
    return verdict, code


def _headline(variants: Sequence[VariantReport]) -> str:
    required = [variant for variant in variants if variant.is_required]
    counted = required or variants
    passed = [variant for variant in counted if variant.verdict == "pass"]
    if required and len(passed) == len(required) == sum(variant.is_source for variant in required):
        return _nothing_converted(required, variants)
    if required and len(passed) == len(required):
        which = f"{required[0].name} answers" if len(required) == 1 else f"All {len(required)} required variants answer"
        return f"{which} like the source, within the limits."
    others = "; ".join(
        f"{verdict}: {', '.join(names)}" for verdict in _ORDER[1:] if (names := list(_named(counted, verdict)))
    )
    noun = "variant" if len(counted) == 1 else "variants"
    optional = "not required" if len(counted) == 1 else "none of them required"
    which = f"required {noun}" if required else f"{noun}, {optional},"
    return f"{len(passed)} of {len(counted)} {which} passed" + (f" ({others})." if others else ".")


def _nothing_converted(required: Sequence[VariantReport], variants: Sequence[VariantReport]) -> str:
    names = ", ".join(variant.name for variant in required)
    are = "is" if len(required) == 1 else "are"
    converted = next((variant.name for variant in variants if not variant.is_source), None)
    to_do = (
        f"require a variant that is converted, such as required: [{converted}]"
        if converted is not None
        else "add a target that is converted, or compare the file with the model that it was made from"
    )
    return f"nothing was converted or compared, because {names} {are} the source itself: {to_do}."


def _named(variants: Iterable[VariantReport], verdict: str) -> Iterable[str]:
    return (variant.name for variant in variants if variant.verdict == verdict)


def _machines(variants: Iterable[VariantReport]) -> tuple[tuple[str, Mapping[str, Any]], ...]:
    by_machine: list[tuple[list[str], Mapping[str, Any]]] = []
    for variant in variants:
        machine = variant.result.machine if variant.result is not None else {}
        same = [names for names, other in by_machine if other == machine]
        if same:
            same[0].append(variant.name)
        elif machine:
            by_machine.append(([variant.name], machine))
    return tuple((", ".join(names), machine) for names, machine in by_machine)


def _commands(run: RunFolder) -> tuple[tuple[str, str], ...]:
    benchmark = f"convert-and-validate benchmark --run {shlex.quote(str(run.folder))}"
    return (
        ("Compare these files once more", _validate_command(run)),
        ("Measure their speed", benchmark),
        ("Do the whole run again", run_command(run)),
    )


def _validate_command(run: RunFolder) -> str:
    return f"convert-and-validate validate --run {shlex.quote(str(run.folder))}"


def run_command(run: RunFolder) -> str:
    """Return the command that makes all targets of the run's spec."""
    origin = Path(run.resolved.origin)
    # A packaged spec has a name; a file gets a path that works from anywhere.
    spec = str(run.resolved.folder / origin.name) if origin.suffix else run.resolved.origin
    samples = f" --samples {shlex.quote(run.samples_path)}" if run.samples_path else ""
    return f"convert-and-validate run {shlex.quote(spec)}{samples}"
