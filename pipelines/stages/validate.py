"""Validate: every exported variant against the recorded reference, and the evidence of it."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from paritygate import __version__
from paritygate.artifact import Artifact
from paritygate.errors import ParitygateError
from paritygate.files import digest_of_files, make_marked_folder, remove_marked_folder, write_json_atomically
from paritygate.machine import device_name
from paritygate.pipelines.child import Progress
from paritygate.pipelines.comparison import ComparisonJob, Side, compare, failed_comparison
from paritygate.pipelines.result import ComparisonResult
from paritygate.pipelines.workspace import FailedVariant, RunFolder
from paritygate.source import Source, SourceKind
from paritygate.validate.recording import Recording

__all__ = ["artifact_source", "validate_stage"]


def artifact_source(artifact: Artifact) -> Source:
    """Return the artifact as something a runner can open."""
    return Source(text=artifact.main, folder=artifact.folder, kind=SourceKind(artifact.variant.format))


def validate_stage(
    run: RunFolder, *, time_limit_s: float, progress: Progress, device: str = "cpu"
) -> dict[str, ComparisonResult]:
    """Compare every exported variant with the reference and write `evidence.json`.

    Returns:
        The result of each variant that was exported, in the spec's order.

    Raises:
        InputFileError: No reference was recorded.
        BackendError: The device is not there.
        StorageError: The disk is full.
    """
    recording = Recording.load(run.reference)
    where = device_name(device)
    results: dict[str, ComparisonResult] = {}
    artifacts: dict[str, Artifact] = {}
    for name in run.exported():
        artifact = Artifact.read_record(run.variant_folder(name))
        results[name] = _validate(run, artifact, device=device, time_limit_s=time_limit_s, progress=progress)
        run.save_result(name, results[name])
        if results[name].error is None:
            artifacts[name] = artifact
    write_json_atomically(run.evidence_file, _evidence(run, recording, artifacts, results, device=where))
    return results


def _validate(
    run: RunFolder, artifact: Artifact, *, device: str, time_limit_s: float, progress: Progress
) -> ComparisonResult:
    name = str(artifact.variant)
    job = _job(run, artifact, device)
    place = run.jobs(f"validate-{name}")
    remove_marked_folder(place)
    make_marked_folder(place)

    def report(stage: str, done: int, total: int) -> None:
        progress(f"{name}: {stage}", done, total)

    try:
        # What is about to run is what was made: the digest is the one that the evidence will name.
        artifact.verify()
    except ParitygateError as err:
        return failed_comparison(job, err)
    result = compare(job, time_limit_s=time_limit_s, folder=place, progress=report)
    # What the converter had to say belongs to the variant as much as what the runtimes had.
    return replace(result, notes=[*artifact.made_by.get("notes", ()), *result.notes])


def _job(run: RunFolder, artifact: Artifact, device: str) -> ComparisonJob:
    resolved, variant = run.resolved, artifact.variant
    return ComparisonJob(
        reference=Side(name=resolved.name, outputs=run.reference),
        candidate=Side(name=str(variant), model=artifact_source(artifact)),
        samples=resolved.samples(run.samples_path),
        precision=variant.precision,
        tolerance=resolved.tolerance(variant),
        decisions=resolved.decisions,
        argmax_of=dict(resolved.spec.argmax_of),
        axes=dict(resolved.spec.axes),
        passes=resolved.spec.repeat,
        min_rows=resolved.spec.min_rows,
        is_non_finite_declared=resolved.spec.non_finite == "match",
        strata=tuple(resolved.spec.samples.strata),
        may_be_the_source=True,
        device=device,
        seed=resolved.spec.seed,
    )


def _evidence(
    run: RunFolder,
    recording: Recording,
    artifacts: dict[str, Artifact],
    results: dict[str, ComparisonResult],
    *,
    device: str,
) -> dict[str, Any]:
    failures = run.failures()
    entries = []
    for name in run.resolved.spec.targets:
        if name in results:
            entries.append(_entry(name, artifacts.get(name), results[name]))
        elif name in failures:
            entries.append(_failure_entry(failures[name]))
        else:
            entries.append(
                {
                    "variant": name,
                    "artifact": None,
                    "evidence": "none",
                    "verdict": "error",
                    "exit_code": 5,
                    "reason": "not exported",
                }
            )
    return {
        "schema_version": 1,
        "paritygate": __version__,
        "model": run.resolved.name,
        "run": run.run_id,
        "device": device,
        "samples": {"digest": recording.samples_digest, "rows": recording.rows},
        "reference": {
            "model": dict(recording.model),
            "digest": digest_of_files(recording.chunks),
            "runtime": dict(recording.runtime),
            "health": [list(item) for item in recording.health],
        },
        "variants": entries,
    }


def _entry(name: str, artifact: Artifact | None, result: ComparisonResult) -> dict[str, Any]:
    is_run = result.error is None
    return {
        "variant": name,
        "artifact": artifact.digest if artifact is not None else None,
        # Only bytes that ran are verified; what could not be run has no evidence.
        "evidence": "verified" if is_run else "none",
        "device": result.candidate.device,
        "runtime": result.candidate.runtime,
        "version": result.candidate.version,
        "precision_found": result.candidate.precision_found,
        "verdict": result.verdict,
        "exit_code": result.exit_code,
        "rows": result.rows,
        "tolerance": result.tolerance,
        "looser_than_default": result.looser_than_default,
        "outputs": {output: asdict(item) for output, item in result.outputs.items()},
        "decisions": {output: asdict(item) for output, item in result.decisions.items()},
        "strata": {
            name: {value: asdict(item) for value, item in values.items()} for name, values in result.strata.items()
        },
        "checks": [asdict(check) for check in result.checks],
        "notes": result.notes,
        "reason": result.error.message if result.error is not None else "",
    }


def _failure_entry(failure: FailedVariant) -> dict[str, Any]:
    return {
        "variant": failure.variant,
        "artifact": None,
        "evidence": "none",
        "verdict": "error",
        "exit_code": failure.exit_code,
        "reason": failure.message,
    }
