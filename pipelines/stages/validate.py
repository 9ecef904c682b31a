"""Validate: every exported variant against the recorded reference, and the evidence of it."""

from __future__ import annotations

from dataclasses import replace

from paritygate.artifact import Artifact
from paritygate.errors import ArtifactIntegrityError, MissingBackendError, ParitygateError
from paritygate.files import make_marked_folder, remove_marked_folder, write_json_atomically
from paritygate.formats import why_not_run
from paritygate.machine import device_name
from paritygate.pipelines.calibrated_rows import calibrated_rows_file
from paritygate.pipelines.child import Progress
from paritygate.pipelines.comparison import ComparisonJob, Side, compare, failed_comparison
from paritygate.pipelines.evidence import Evidence, evidence_to_json
from paritygate.pipelines.result import ComparisonResult
from paritygate.pipelines.sides import side_of_artifact
from paritygate.pipelines.workspace import RunFolder, emulated_name
from paritygate.precision import Precision
from paritygate.validate.recording import Recording

__all__ = ["EMULATED_PRECISIONS", "another_source", "validate_stage"]

_RUN_ELSEWHERE = "validate it where it runs, or accept the emulated row: promote.accept"
EMULATED_PRECISIONS = frozenset({Precision.FP16, Precision.BF16})


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
    emulated: dict[str, ComparisonResult] = {}
    for name in run.exported():
        artifact = Artifact.read_record(run.variant_folder(name))
        job = _job(run, artifact, device)
        # What is about to run is what was made: the digest is the one that the evidence will name.
        damage = _damage(artifact) or another_source(artifact, recording.model.get("digest"))
        results[name] = (
            _validate(run, artifact, job, time_limit_s=time_limit_s, progress=progress)
            if damage is None
            else failed_comparison(job, damage)
        )
        run.save_result(name, results[name])
        if results[name].error is None or (damage is None and why_not_run(artifact.variant, device) is not None):
            artifacts[name] = artifact
        if artifact.variant.format == "onnx" and artifact.variant.precision in EMULATED_PRECISIONS:
            # The CPU computes such a file in float32: how it would answer elsewhere is a second row, and no verdict.
            again = replace(job, is_emulated=True)
            emulated[name] = (
                _validate(run, artifact, again, time_limit_s=time_limit_s, progress=progress)
                if damage is None
                else failed_comparison(again, damage)
            )
            run.save_result(emulated_name(name), emulated[name])
    evidence = Evidence(recording=recording, artifacts=artifacts, results=results, emulated=emulated, device=where)
    write_json_atomically(run.evidence_file, evidence_to_json(run, evidence))
    return results


def _damage(artifact: Artifact) -> ParitygateError | None:
    """Return why the artifact's files are not what was made; None if they are."""
    try:
        artifact.verify()
    except ParitygateError as err:
        return err
    return None


def another_source(artifact: Artifact, recorded: str | None) -> ArtifactIntegrityError | None:
    """Return that the artifact was made from another source than the one that was recorded; None if it was not.

    Where the one or the other has no digest, nothing can be said.
    """
    converted = artifact.made_by.get("source", {}).get("digest")
    if converted is None or recorded is None or converted == recorded:
        return None
    return ArtifactIntegrityError(
        f"{artifact.variant} was made from another source than the one that answered: "
        f"from {converted}, and the reference is of {recorded}",
        hint="export and record again: convert-and-validate run SPEC; a module:callable has to return the same model "
        "every time, so seed it",
    )


def _validate(
    run: RunFolder, artifact: Artifact, job: ComparisonJob, *, time_limit_s: float, progress: Progress
) -> ComparisonResult:
    reason = None if job.is_emulated else why_not_run(artifact.variant, job.device)
    if reason is not None:
        return failed_comparison(job, MissingBackendError(f"built, and not run here: {reason}", hint=_RUN_ELSEWHERE))
    name = emulated_name(str(artifact.variant)) if job.is_emulated else str(artifact.variant)
    place = run.jobs(f"validate-{name}")
    remove_marked_folder(place)
    make_marked_folder(place)

    def report(stage: str, done: int, total: int) -> None:
        progress(f"{name}: {stage}", done, total)

    result = compare(job, time_limit_s=time_limit_s, folder=place, progress=report)
    # What the converter had to say belongs to the variant as much as what the runtimes had.
    return replace(result, notes=[*artifact.made_by.get("notes", ()), *result.notes])


def _job(run: RunFolder, artifact: Artifact, device: str) -> ComparisonJob:
    resolved, variant = run.resolved, artifact.variant
    return ComparisonJob(
        reference=Side(name=resolved.name, outputs=run.reference),
        candidate=side_of_artifact(artifact),
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
        calibrated_rows=calibrated_rows_file(artifact),
        device=device,
        seed=resolved.spec.seed,
    )
