"""Release the variants that passed, if nothing required failed. If none passed, the source may be released."""

from __future__ import annotations

import platform
import shutil
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from paritygate.artifact import ARTIFACT_FILE, file_digests
from paritygate.backends import BACKENDS, backend_state
from paritygate.codec import to_data
from paritygate.errors import ExitCode, MeasurementError, UsageError
from paritygate.file_names import path_below
from paritygate.files import (
    MARKER,
    digest_of_file,
    digest_of_files,
    json_bytes,
    read_json,
    storage_errors,
    temporary_folder,
    write_json_atomically,
)
from paritygate.machine import user_name
from paritygate.models.digest import digest_of_model, files_of_model
from paritygate.models.recorded_source import source_changed
from paritygate.models.source import ModelRef, SourceKind
from paritygate.models.source_copy import CODE_FOLDER, SOURCE_FILE
from paritygate.pipelines.choice.choice import Choice
from paritygate.pipelines.choice.choose import about_what_is_there, choose_stage, evidence_to_choose_by
from paritygate.pipelines.choice.eligibility import unmet_requirements
from paritygate.pipelines.choice.options import ReleaseOption
from paritygate.pipelines.compare.redaction import hidden, without_inputs
from paritygate.pipelines.compare.result import reasons
from paritygate.pipelines.packing.unpacked import TrustedEvidence, believed
from paritygate.pipelines.release.repository.candidate import (
    Provenance,
    ReleaseCandidate,
    VariantCandidate,
    VariantEvidence,
)
from paritygate.pipelines.release.repository.commit import Commit
from paritygate.pipelines.release.repository.log import read_records
from paritygate.pipelines.release.repository.release import StoredRelease, promote
from paritygate.pipelines.release.repository.state import state_of
from paritygate.pipelines.release.repository_of_run import promote_command
from paritygate.pipelines.release.signing.keys import SigningKey
from paritygate.pipelines.report.html_report import render_html
from paritygate.pipelines.report.markdown_report import render_markdown
from paritygate.pipelines.report.report_data import ReportData, collect_report, report_without_inputs, run_command
from paritygate.pipelines.run.comparisons import RAN, StalenessCheck
from paritygate.pipelines.run.evidence import Evidence, EvidenceEntry
from paritygate.pipelines.run.probes_left_out import edge_findings, edge_not_asked, padding_findings, probes_not_asked
from paritygate.pipelines.run.released_to import note_release_to, write_released_to
from paritygate.pipelines.run.variant_maker import bases_of
from paritygate.pipelines.run.workspace import LEFT_OUT, RunFolder
from paritygate.pipelines.spec.benchmark_plan import price_of
from paritygate.precision import Variant
from paritygate.roots import Root
from paritygate.text import is_placeholder
from paritygate.validate.probes.inputs.survey import SURVEY, SURVEY_FILE
from paritygate.validate.reference.recording import Recording

SOURCE_VARIANT = "source"
# Verdicts that leave open whether a converted variant answers like the source.
_OPEN = frozenset({"error", "inconclusive"})
_NOT_PASSED = _OPEN | {"fail"}


class NothingToRelease(MeasurementError):  # noqa: N818 - it says what is the case
    """No variant passed, and the source is not to be released either."""


class FailedRunError(NothingToRelease):
    """Something that the run requires did not pass, so the run changes nothing.

    `would_release` is what would have been released otherwise, and why; empty for nothing.
    """

    def __init__(self, message: str, *, hint: str, would_release: str, note: str) -> None:
        super().__init__(message, hint=hint)
        self.would_release = would_release
        self.note = note


def promote_stage(  # noqa: PLR0913 - one argument for each option of the command
    run: RunFolder,
    *,
    repository: Root,
    alias: str | None,
    devices: tuple[str, ...] | None = None,
    limits: Mapping[str, float] | None = None,
    if_current: int | None = None,
    despite: str = "",
    trust: str = "",
    signer: SigningKey | None = None,
    choice: Choice | None = None,
    commit: Commit[StoredRelease] | None = None,
) -> StoredRelease:
    """Release the variants of a run that passed on every device of the release, the preferred ones.

    `devices` is where the release will run; None takes the spec's, else the device of the validation. `limits` on speed
    and size replace those of the spec by name. `if_current` is the version that the alias must point to, 0 for a new
    alias. `despite` is why to release although something required did not pass; the release records it. `trust` is the
    digest of the pack whose evidence is trusted. `signer` signs the release. `choice` is the result of `choose_stage`
    for the same arguments. `commit` receives the release before and after it is recorded.

    Raises:
        FailedRunError: Something that the run requires did not pass, and no reason was given.
        InputFileError: The run was not validated, or its evidence or benchmark is corrupt.
        UsageError: No variant was verified or accepted on a wanted device, or none of the release runs there.
        UsageError: Nothing passed, and a variant was not measured because the spec or the samples are wrong.
        UsageError: A reason was given and everything required passed, or the pack is not the trusted one.
        NothingToRelease: Nothing fits, and the source may not take its place.
        MeasurementError: Nothing fits because the speed of the passing variants was not measured.
        RepositoryError: The repository refused the release.
        ArtifactIntegrityError: Artifacts, reference, source or unpacked evidence changed since.
        StorageError: The disk is full.
    """
    if is_placeholder(despite):
        msg = f"--despite {despite} gives no reason, only the placeholder"
        raise UsageError(msg, hint="give a reason, which the release records: --despite 'FP16 is not served yet'")
    trusted = believed(
        run, evidence_to_choose_by(run), devices=devices or run.resolved.spec.promote.devices or (), trust=trust
    )
    # A message is for this terminal alone, so it has the reasons in full.
    reasons = {entry.variant: entry.reason for entry in trusted.evidence.variants}
    if run.resolved.hides_inputs(is_leaving=True):
        trusted = replace(trusted, evidence=hidden(trusted.evidence))
    run, evidence = trusted.run, trusted.evidence
    if choice is None:
        choice = choose_stage(run, evidence=evidence, devices=devices, limits=limits)
    unmet = _unmet(run, evidence, choice, despite)
    if unmet and not despite:
        raise failed_run(run, repository, unmet, choice, alias)
    with temporary_folder("source") as place:
        if choice.chosen:
            reason = choice.reason
            variants = tuple(_variant(run, item) for item in choice.chosen)
        else:
            reason = _fallback_reason(run, choice, repository, alias, reasons)
            variants = (_source_variant(run, evidence, place / SOURCE_VARIANT),)
        candidate = ReleaseCandidate(
            model=run.resolved.name,
            variants=variants,
            provenance=replace(_provenance(run, evidence), pack=trusted.pack),
            evidence=to_data(evidence),
            alias=alias,
            if_current=if_current,
            reports=_reports(run, replace(trusted, evidence=evidence), choice),
            accepted={item.name: "emulated" for item in choice.chosen if item.entry.evidence == "emulated"},
            reason=_with_word_of_spec(reason, run, evidence),
            choice=choice.to_json(),
            despite=despite,
            trust=trusted.trust,
            who=user_name(),
            host=platform.node(),
            signer=signer,
        )
        return _promote_noted(run, repository, candidate, commit or Commit())


def _promote_noted(
    run: RunFolder, repository: Root, candidate: ReleaseCandidate, commit: Commit[StoredRelease]
) -> StoredRelease:
    """Release a run, after its own folder notes it: whatever ends this process, no release lacks the note."""
    before = note_release_to(run.folder, repository)
    try:
        return promote(repository, candidate, commit)
    finally:
        # A release that existed already rests on another run.
        if commit.done is None or not commit.done.is_new:
            write_released_to(run.folder, before)


def _with_word_of_spec(reason: str, run: RunFolder, evidence: Evidence) -> str:
    """Return the reason of a release, with the spec's reason why it requires less than failed runs did."""
    if not any(item.asked_less for item in evidence.earlier_failures):
        return reason
    asked_less = f"it checks less than a run that failed: {run.resolved.spec.reason}"
    return f"{reason}; {asked_less}" if reason else asked_less


def _unmet(run: RunFolder, evidence: Evidence, choice: Choice, despite: str) -> Mapping[str, str]:
    """Return what the run requires and did not pass. Refuse `despite` if there is nothing."""
    binding = StalenessCheck(run, Recording.load(run.reference))
    unmet = unmet_requirements(run, about_what_is_there(evidence, binding), choice.rules.devices)
    if not unmet and despite:
        raise UsageError("all required variants passed, so --despite has no effect", hint="leave --despite out")
    return unmet


def is_only_part(unmet: Mapping[str, str]) -> bool:
    """Return whether a run lacks nothing but variants that `--target` left out."""
    return set(unmet.values()) == {LEFT_OUT}


def failed_run(
    run: RunFolder, repository: Root, unmet: Mapping[str, str], choice: Choice, alias: str | None
) -> FailedRunError:
    """Return the error that something required did not pass, with what would have been released.

    `unmet` has the verdict of each required variant that did not pass.
    """
    names = ", ".join(f"{name} ({verdict})" for name, verdict in unmet.items())
    is_part = LEFT_OUT in unmet.values()
    if is_only_part(unmet):
        names = f"{', '.join(unmet)} ({LEFT_OUT})"
    stays = f", and alias {alias} is neither set nor moved" if alias else ""
    msg = f"{'not run' if is_only_part(unmet) else 'required and not passed'}: {names}; so nothing is released{stays}"
    see = f"see why in {run.folder / 'report.html'}"
    if set(unmet.values()) == {"inconclusive"}:
        see = "do as the lines above advise, such as with more samples, and run it again"
    if is_part:
        see = f"make all targets: {run_command(run)}"
    declared = run.resolved.spec.promote.fallback
    note = ""
    if declared in {"source", "replace"}:
        note = (
            f"promote.fallback: {declared} has no effect where something required did not pass; to release the source "
            "rather than nothing, require nothing: required: []"
        )
    would_release = ", ".join(item.name for item in choice.chosen)
    again = promote_command(run, repository, "--despite", "REASON")
    return FailedRunError(
        msg,
        hint=f"{see}; to release it all the same: {again}" if would_release else see,
        would_release=f"{would_release}, because {choice.reason}" if would_release and choice.reason else would_release,
        note=note,
    )


def _fallback_reason(
    run: RunFolder, choice: Choice, repository: Root, alias: str | None, reasons: Mapping[str, str]
) -> str:
    misused = [item for item in choice.candidates if item.entry.exit_code == ExitCode.USAGE]
    if misused:
        # The source is no way out of a slip in the spec.
        msg = f"nothing to release: {misused[0].name} was not measured: {reasons[misused[0].name]}"
        raise UsageError(
            msg, hint="correct the spec or the samples, and start a new run", command="convert-and-validate run SPEC"
        )
    if choice.is_open:
        # The source is for runs in which every variant failed, not for those that were not measured.
        msg = f"nothing to release: {choice.reason}"
        has_price = price_of(run.resolved) is not None
        raise MeasurementError(msg, hint=choice.how_to_measure(run.folder, has_price=has_price))
    if choice.source_broken:
        msg = f"nothing to release: {choice.reason}. The fallback does not apply either"
        raise NothingToRelease(msg, hint="raise promote.limits, or see the report of the run")
    fallback = run.resolved.spec.promote.fallback or "source"
    if fallback == "none":
        msg = f"nothing to release: {choice.reason}, and the spec has no fallback"
        raise NothingToRelease(msg, hint="see the report of the run, or set promote.fallback: source")
    open_ones = [item.name for item in choice.candidates if item.entry.verdict in _OPEN]
    if open_ones:
        msg = f"nothing to release: {choice.reason}. The source cannot replace variants that were not measured"
        raise NothingToRelease(msg, hint=f"see the report of the run for {', '.join(open_ones)}")
    current = _released_now(repository, run.resolved.name, alias)
    if fallback == "source" and current:
        msg = f"nothing to release: {choice.reason}; {current}, which the source does not replace"
        raise NothingToRelease(msg, hint="to release the source even so, set promote.fallback: replace")
    return f"fallback: {fallback}, because {choice.reason}"


def _released_now(repository: Root, model: str, alias: str | None) -> str:
    """Describe what is released of the model already; empty for nothing."""
    state = state_of(read_records(repository, model))
    if alias is None:
        return f"version {max(state.releases)} is released" if state.releases else ""
    return f"alias {alias} is at version {state.aliases[alias]}" if alias in state.aliases else ""


def _variant(run: RunFolder, chosen: ReleaseOption) -> VariantCandidate:
    folder = run.variant_folder(chosen.name)
    evidence = [_evidence(entry, chosen) for entry in _distinct((chosen.entry, *chosen.entries.values()))]
    return VariantCandidate(
        name=chosen.name,
        folder=folder,
        record=read_json(folder / ARTIFACT_FILE),
        evidence=replace(evidence[0], also=tuple(evidence[1:])),
    )


def _distinct(entries: Iterable[EvidenceEntry]) -> list[EvidenceEntry]:
    distinct: list[EvidenceEntry] = []
    for entry in entries:
        if entry not in distinct:
            distinct.append(entry)
    return distinct


def _evidence(entry: EvidenceEntry, chosen: ReleaseOption) -> VariantEvidence:
    ran, stage = entry.result and entry.result.candidate, entry.stage
    return VariantEvidence(
        verdict=entry.verdict,
        artifact=str(entry.artifact),
        kind=entry.evidence,
        device=str(entry.device),
        runtime=f"{ran.runtime} {ran.version}" if ran else "",
        emulated_from=stage.reads.get(RAN) if stage else None,
        has_run=chosen.has_run,
        devices=tuple(device for device, counting in chosen.entries.items() if counting == entry),
        rules=stage.rules if stage else None,
    )


def _source_variant(run: RunFolder, evidence: Evidence, place: Path) -> VariantCandidate:
    """Return the source as a variant to release: its files, or the code and name of a callable."""
    source = run.resolved.source
    description = {**evidence.reference.model, "rename": run.resolved.rename}
    _copy_source(source, place, description)
    write_json_atomically(place / SOURCE_FILE, {key: description[key] for key in sorted(description)})
    files = file_digests(place)
    return VariantCandidate(
        name=SOURCE_VARIANT,
        folder=place,
        record={"variant": SOURCE_VARIANT, "files": files, "digest": digest_of_files(files), "main": SOURCE_FILE},
        evidence=None,
        is_source=True,
    )


def _copy_source(source: ModelRef, place: Path, description: Mapping[str, Any]) -> None:
    with storage_errors(place):
        for name in description["files"]:
            _copy_file(path_below(source.folder, name), place / CODE_FOLDER / name)
        if source.kind is not SourceKind.CALLABLE:
            _copy_model(source, place)
    _check_source_copy(source, place, description)


def _copy_model(source: ModelRef, place: Path) -> None:
    if source.path.is_dir():
        shutil.copytree(source.path, place / source.path.name, ignore=shutil.ignore_patterns(MARKER))
        return
    for path in files_of_model(source).values():
        _copy_file(path, place / path.relative_to(source.path.parent))


def _copy_file(path: Path, target: Path) -> None:
    if not path.is_file():
        raise source_changed(path, "is missing")
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(path, target)


def _check_source_copy(source: ModelRef, place: Path, description: Mapping[str, Any]) -> None:
    """Check that the copied files are those that the reference was recorded from."""
    for name, digest in description["files"].items():
        if digest_of_file(place / CODE_FOLDER / name) != digest:
            raise source_changed(source.folder / name, "was changed")
    if source.kind is not SourceKind.CALLABLE:
        copy = replace(source, text=source.path.name, folder=place)
        if digest_of_model(copy) != description["digest"]:
            raise source_changed(source.path, "was changed")


def _provenance(run: RunFolder, evidence: Evidence) -> Provenance:
    versions = {name: backend_state(name).version for name in BACKENDS}
    tools = {name: version for name, version in versions.items() if version is not None}
    tools["paritygate"] = evidence.paritygate
    return Provenance(
        source=evidence.reference.model.get("digest"),
        samples=evidence.samples.digest,
        reference=evidence.reference.digest,
        tools=tools,
        # Measured on this machine, which is not where it is released.
        device=evidence.machine,
        machines={device: document.machine for device, document in evidence.by_device().items()},
        tolerances={entry.variant: entry.result.tolerance if entry.result else {} for entry in evidence.variants},
        looser_tolerances={
            entry.variant: entry.result.looser_than_default
            for entry in evidence.variants
            if entry.result and entry.result.looser_than_default
        },
        ignored_outputs=run.resolved.ignored,
        constant_decisions=run.resolved.constant_decisions,
        asked_less=[to_data(item) for item in evidence.earlier_failures if item.asked_less],
        probes_not_asked=probes_not_asked(evidence.by_device().values()),
        edge_findings=edge_findings(evidence.by_device().values()),
        padding_findings=padding_findings(evidence.by_device().values()),
        edge_not_asked=edge_not_asked(evidence.by_device().values()),
        emulated_not_passed=_emulated_not_passed(evidence),
        repairs=_repairs(run, evidence),
        spec=run.resolved.spec.model_dump(mode="json", by_alias=True),
    )


def _repairs(run: RunFolder, evidence: Evidence) -> dict[str, dict[str, Any]]:
    """Return the accepted repairs, by the variants that are repaired or made from what is."""
    found = {}
    for entry in evidence.variants:
        for name in (entry.variant, *bases_of(Variant.parse(entry.variant))):
            part = run.resolved.repair(name)
            if part is not None:
                found[entry.variant] = part.model_dump(mode="json")
    return found


def _emulated_not_passed(evidence: Evidence) -> dict[str, str]:
    """Return, by variant, where its precision is real and what fails there in its emulated row."""
    failed: dict[str, str] = {}
    for document in evidence.by_device().values():
        for entry in document.emulated:
            if entry.verdict in _NOT_PASSED:
                lines = [] if entry.result is None else reasons(entry.result, with_findings=False)
                why = lines[0] if lines else f"{entry.verdict}: {entry.reason}"
                failed.setdefault(entry.variant, f"{entry.device or 'emulated'}: {why}")
    return failed


def _reports(run: RunFolder, found: TrustedEvidence, choice: Choice) -> dict[str, Callable[[], bytes]]:
    """Return the reports, the survey of the inputs and the benchmark that are kept with the release."""
    is_hiding = run.resolved.hides_inputs(is_leaving=True)

    @cache
    def report() -> ReportData:
        collected = replace(collect_report(run, choice=choice, evidence=found.evidence), trust=found.trust)
        return report_without_inputs(collected) if is_hiding else collected

    def benchmark() -> bytes:
        data = read_json(run.benchmark_file)
        return json_bytes(without_inputs(data) if is_hiding else data)

    pages = {
        "report.html": lambda: render_html(report()).encode(),
        "report.md": lambda: render_markdown(report()).encode(),
    }
    survey = Recording.load(run.reference).settings.get(SURVEY)
    if survey is not None:
        pages[SURVEY_FILE] = lambda: json_bytes(survey)
    is_measured = not run.is_without_benchmark and run.benchmark_file.is_file()
    return {**pages, run.benchmark_file.name: benchmark} if is_measured else pages
