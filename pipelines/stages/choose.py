"""Choose: which variants of a validated run would be released, and why; nothing is released."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paritygate.artifact import Artifact
from paritygate.errors import ArtifactIntegrityError, InputFileError, UsageError
from paritygate.files import digest_of_files, read_json
from paritygate.model_digest import digest_of_model
from paritygate.pipelines.benchmark.plan import plan_of
from paritygate.pipelines.benchmark.recorded_source import digest_of_recorded, size_of_source
from paritygate.pipelines.benchmark.result import SOURCE, BenchmarkResult
from paritygate.pipelines.choice.candidates import Candidate, ChoiceRules, Preference
from paritygate.pipelines.choice.choice import Choice, choose
from paritygate.pipelines.workspace import RunFolder
from paritygate.validate.recording import Recording

__all__ = ["choose_stage", "read_benchmark", "read_evidence"]


def choose_stage(
    run: RunFolder,
    *,
    evidence: Mapping[str, Any] | None = None,
    devices: tuple[str, ...] | None = None,
    prefer: Preference | None = None,
    limits: Mapping[str, float] | None = None,
) -> Choice:
    """Return which variants of a run are to be released.

    Args:
        run: The run, validated.
        evidence: What `read_evidence` returned, where it was read already.
        devices: Where the release will run; the spec's, else the device that the run was validated on, if None.
        prefer: The preference; the spec's if None.
        limits: Limits on speed and size beside those of the spec, and in place of them where they name the same.

    Raises:
        InputFileError: The run was not validated, or its evidence or benchmark is damaged.
        UsageError: Nothing in the run was verified on a device that was asked for.
        ArtifactIntegrityError: The evidence is about another reference than the one that is there, or a variant that
            passed is not the file that it is about.
    """
    found = read_evidence(run) if evidence is None else evidence
    part = run.resolved.spec.promote
    if devices:
        _check_devices(found, devices)
    declared = tuple(part.prefer) if isinstance(part.prefer, list) else part.prefer
    rules = ChoiceRules(
        devices=devices or tuple(part.devices or (found["device"],)),
        points=plan_of(run.resolved).points,
        prefer=prefer or declared,
        limits={**part.limits, **(limits or {})},
        accept=part.accept,
    )
    choice = choose(found, read_benchmark(run), _sizes(run, found), rules)
    for candidate in choice.candidates:
        if not candidate.hindrance:
            _check_artifact(run, candidate)
    return choice


def _check_artifact(run: RunFolder, candidate: Candidate) -> None:
    """Check that what passed is what is there: nothing else is to be recommended."""
    artifact, judged = run.artifact(candidate.name), candidate.entry["artifact"]
    if artifact.digest != judged:
        msg = f"the evidence of {candidate.name} is about {judged}, not about {artifact.digest}"
        raise ArtifactIntegrityError(msg, hint=f"convert-and-validate validate --run {run.folder}")


def read_evidence(run: RunFolder) -> dict[str, Any]:
    """Return the run's evidence, which is about the reference that is there: it may have been recorded again since.

    Raises:
        InputFileError: The run was not validated, or its evidence is damaged.
        ArtifactIntegrityError: The evidence is about another reference.
    """
    again = f"convert-and-validate validate --run {run.folder}"
    if not run.evidence_file.is_file():
        msg = f"run {run.folder} was not validated: {run.evidence_file.name} is missing"
        raise InputFileError(msg, hint=again)
    try:
        evidence: dict[str, Any] = read_json(run.evidence_file)
        reference, _, _ = evidence["reference"]["digest"], evidence["device"], evidence["variants"]
        _, _ = digest_of_recorded(evidence["reference"]["model"]), evidence["machine"]["cores"]
    except (ValueError, KeyError, TypeError) as err:
        msg = f"{run.evidence_file} is damaged: {type(err).__name__}: {err}"
        raise InputFileError(msg, hint=again) from err
    if digest_of_files(Recording.load(run.reference).chunks) != reference:
        msg = f"the evidence of run {run.run_id} is about another reference than the one recorded in {run.reference}"
        raise ArtifactIntegrityError(msg, hint=again)
    return evidence


def _check_devices(evidence: Mapping[str, Any], devices: tuple[str, ...]) -> None:
    """Check that something ran on each device that was asked for: else a name was mistyped, or a run is missing."""
    seen = sorted({entry["device"] for entry in evidence["variants"] if entry.get("device")})
    for device in devices:
        if device not in seen:
            msg = f"nothing in this run was verified on {device!r} (verified on: {', '.join(seen) or 'no device'})"
            raise UsageError(msg, hint=f"validate on that device first, or name one of: {', '.join(seen) or 'none'}")


def read_benchmark(run: RunFolder) -> BenchmarkResult | None:
    """Return the benchmark of the run; None if none was made.

    Raises:
        InputFileError: It is damaged.
    """
    try:
        return run.benchmark()
    except (ValueError, KeyError, TypeError) as err:
        msg = f"{run.benchmark_file} is damaged: {type(err).__name__}: {err}"
        raise InputFileError(msg, hint=f"convert-and-validate benchmark --run {run.folder}") from err


def _sizes(run: RunFolder, evidence: Mapping[str, Any]) -> dict[str, int]:
    """Return the size of each artifact that is there, and of the source where that is files, and those recorded."""
    found = {}
    source = _size_of_recorded_source(run, evidence)
    if source is not None:
        found[SOURCE] = source
    for name in run.exported():
        artifact = Artifact.read_record(run.variant_folder(name))
        if all((artifact.folder / file).is_file() for file in artifact.files):
            found[name] = artifact.size_bytes
    return found


def _size_of_recorded_source(run: RunFolder, evidence: Mapping[str, Any]) -> int | None:
    try:
        source = run.resolved.source
        is_recorded = digest_of_model(source) == evidence["reference"]["model"]["digest"]
        return size_of_source(source) if is_recorded else None
    except InputFileError:
        # It was needed to make the variants; to choose among them it is not.
        return None
