"""Show which variants of a validated run would be released, and why; nothing is released."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from paritygate.errors import ArtifactIntegrityError, InputFileError, UsageError
from paritygate.file_names import check_names
from paritygate.files import corrupt_errors
from paritygate.formats import ENGINE_FORMATS
from paritygate.models.digest import digest_of_model
from paritygate.models.recorded_source import size_of_source
from paritygate.pipelines.benchmark.result import SOURCE
from paritygate.pipelines.choice.choice import Choice, choose
from paritygate.pipelines.choice.options import ChoiceRules, ReleaseOption
from paritygate.pipelines.run.comparisons import MADE_FROM, RAN, StalenessCheck
from paritygate.pipelines.run.evidence import Evidence, EvidenceEntry
from paritygate.pipelines.run.record import check_recording_rules
from paritygate.pipelines.run.workspace import RunFolder
from paritygate.pipelines.spec.benchmark_plan import plan_of
from paritygate.pipelines.spec.limits import Preference
from paritygate.validate.reference.recording import Recording

_GPU = re.compile(r"cuda:sm[0-9]{2,3}")


def choose_stage(
    run: RunFolder,
    *,
    evidence: Evidence | None = None,
    devices: tuple[str, ...] | None = None,
    prefer: Preference | None = None,
    limits: Mapping[str, float] | None = None,
) -> Choice:
    """Return the variants of a validated run to release.

    `evidence` avoids a second read of `evidence_to_choose_by`. The default devices are the spec's, else the evidence's.
    `limits` add to the spec's, or replace those of the same name.

    Raises:
        InputFileError: The run was not validated, or its evidence or benchmark is corrupt.
        UsageError: A requested device has no evidence, or nothing to release runs on a device of the release.
        ArtifactIntegrityError: The evidence is about another reference or file, or was judged by other rules than the
            spec's.
    """
    current = evidence_to_choose_by(run) if evidence is None else evidence
    engines = _engines(run)
    binding = StalenessCheck(run, Recording.load(run.reference))
    current = about_what_is_there(current, binding)
    _check_binding(run, binding, current)
    part = run.resolved.spec.promote
    declared = tuple(part.prefer) if isinstance(part.prefer, list) else part.prefer
    rules = ChoiceRules(
        devices=tuple(dict.fromkeys(devices or part.devices or (current.device,))),
        points=plan_of(run.resolved).points,
        prefer=prefer or declared,
        limits={**part.limits, **(limits or {})},
        accept=part.accept,
    )
    choice = choose(current, run.benchmark(), _sizes(run, current), rules, engines)
    for candidate in choice.candidates:
        if not candidate.why_not:
            _check_artifact(run, binding, candidate)
    if devices:
        _check_devices(current, choice)
    _check_served(choice)
    return choice


def _engines(run: RunFolder) -> dict[str, Mapping[str, Any]]:
    return {
        name: artifact.made_by.get("facts", {})
        for name, artifact in run.artifacts().items()
        if artifact.variant.format in ENGINE_FORMATS
    }


def about_what_is_there(evidence: Evidence, binding: StalenessCheck) -> Evidence:
    """Return the evidence without other devices' entries about other files; variants that did not run have no file."""

    def current(entries: Iterable[EvidenceEntry]) -> tuple[EvidenceEntry, ...]:
        return tuple(entry for entry in entries if not binding.is_about_another_file(entry))

    others = (
        replace(item, variants=current(item.variants), emulated=current(item.emulated)) for item in evidence.others
    )
    return replace(evidence, others=tuple(others))


def _check_served(choice: Choice) -> None:
    if choice.unserved:
        names = ", ".join(candidate.name for candidate in choice.chosen)
        msg = f"nothing that would be released runs on {', '.join(choice.unserved)} (it would be: {names}"
        left_out = _reasons_against(choice)
        raise UsageError(
            f"{msg}; left out: {left_out})" if left_out else f"{msg})",
            hint="validate such a variant on every device of the release, let promote.prefer choose several, or "
            "leave the device out",
        )


def _reasons_against(choice: Choice) -> str:
    return ", ".join(f"{item.name}: {item.why_not}" for item in choice.candidates if item.why_not)


def _check_binding(run: RunFolder, binding: StalenessCheck, evidence: Evidence) -> None:
    """Check that the evidence was measured on these files, and judged as the spec asks now."""
    for device, document in evidence.by_device().items():
        for entry in document.variants:
            _check_changes(run, entry, device, binding.changes(entry, device))


def _check_changes(run: RunFolder, entry: EvidenceEntry, device: str, changes: Collection[str]) -> None:
    if not changes:
        return
    what = f"the evidence of {entry.variant} on {device}"
    if MADE_FROM in changes:
        msg = f"{what} is about a file that was made from a different source than the current one"
    elif RAN in changes:
        msg = f"{what} is about an engine that was built from a different file than the one that ran"
    else:
        msg = f"{what} was judged by other rules than the run's spec has now: limits, decisions or probes changed since"
    raise ArtifactIntegrityError(msg, hint=_again(run))


def _again(run: RunFolder) -> str:
    return f"convert-and-validate validate --run {shlex.quote(str(run.folder))}"


def _check_artifact(run: RunFolder, binding: StalenessCheck, candidate: ReleaseOption) -> None:
    """Check that the file that passed is the one in the run, because no other may be recommended."""
    artifact = run.artifact(candidate.name)
    for entry in (candidate.entry, *candidate.entries.values()):
        if entry.artifact != artifact.digest:
            msg = f"the evidence of {candidate.name} is about {entry.artifact}, not about {artifact.digest}"
            raise ArtifactIntegrityError(msg, hint=_again(run))
        if entry.evidence == "emulated":
            _check_changes(run, entry, str(entry.device), binding.changes(entry, "cpu", is_emulated=True))


def evidence_to_choose_by(run: RunFolder) -> Evidence:
    """Return the run's evidence, after a check that it is about the current reference.

    Raises:
        InputFileError: The run was not validated, or its evidence is corrupt.
        ArtifactIntegrityError: The evidence is about another reference, or the reference was recorded by other rules
            than the spec's.
    """
    again = _again(run)
    evidence = run.evidence()
    if evidence is None:
        raise InputFileError(f"run {run.folder} was not validated: {run.evidence_file.name} is missing", hint=again)
    with corrupt_errors(run.evidence_file, hint=again):
        _check_names(run, evidence)
    recording = Recording.load(run.reference)
    if {recording.digest} != {document.reference.digest for document in evidence.by_device().values()}:
        msg = f"the evidence of run {run.run_id} is about another reference than the one in {run.reference}"
        raise ArtifactIntegrityError(msg, hint=again)
    check_recording_rules(run, recording)
    return evidence


def _check_names(run: RunFolder, evidence: Evidence) -> None:
    """Check that names that become paths are below a folder, and variants are the run's; raise ValueError if not."""
    check_names(evidence.reference.model.get("files", ()))
    for document in evidence.by_device().values():
        for entry in document.entries:
            if entry.variant not in run.resolved.target_names:
                msg = f"{entry.variant!r} is not a target of the run (targets: {', '.join(run.resolved.target_names)})"
                raise ValueError(msg)


def _check_devices(evidence: Evidence, choice: Choice) -> None:
    """Check that requested devices have evidence, GPUs at least an accepted row: otherwise a name is mistyped."""
    entries = [entry for document in evidence.by_device().values() for entry in document.variants]
    seen = sorted({entry.device for entry in entries if entry.device})
    accepted = {device for item in choice.candidates if not item.why_not for device in item.entries}
    for device in choice.rules.devices:
        if device in seen or (device in accepted and _GPU.fullmatch(device)):
            continue
        msg = f"nothing in this run was verified on {device!r} (verified on: {', '.join(seen) or 'no device'})"
        if choice.rules.accept:
            msg += f", and nothing that is accepted stands for it ({_reasons_against(choice)})"
        raise UsageError(msg, hint=f"validate on that device first, or name one of: {', '.join(seen) or 'none'}")


def _sizes(run: RunFolder, evidence: Evidence) -> dict[str, int]:
    """Return the size of each artifact, and of the recorded source if it is files."""
    sizes = {}
    source = _size_of_recorded_source(run, evidence)
    if source is not None:
        sizes[SOURCE] = source
    for name, artifact in run.artifacts().items():
        if all((artifact.folder / file).is_file() for file in artifact.files):
            sizes[name] = artifact.size_bytes
    return sizes


def _size_of_recorded_source(run: RunFolder, evidence: Evidence) -> int | None:
    try:
        source = run.resolved.source
        is_recorded = digest_of_model(source) == evidence.reference.model["digest"]
        return size_of_source(source) if is_recorded else None
    except InputFileError:
        # The source is needed to make variants, but not to choose among them.
        return None
