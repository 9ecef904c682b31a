"""Validate: every exported variant against the recorded reference, and the evidence of it."""

from __future__ import annotations

import shlex
import shutil
from dataclasses import replace

from paritygate.artifact import Artifact
from paritygate.errors import ArtifactIntegrityError, MissingBackendError, ParitygateError
from paritygate.files import digest_of_files, make_marked_folder, remove_marked_folder, write_json_atomically
from paritygate.formats import why_not_run
from paritygate.machine import device_name
from paritygate.pipelines.calibrated_rows import calibrated_rows_file
from paritygate.pipelines.child import Progress
from paritygate.pipelines.comparison import ComparisonJob, Side, compare, failed_comparison
from paritygate.pipelines.emulated_rows import emulated_row
from paritygate.pipelines.evidence import EmulatedResult, Evidence, evidence_to_json
from paritygate.pipelines.other_machines import OTHERS, evidence_of_others
from paritygate.pipelines.result import ComparisonResult
from paritygate.pipelines.sides import side_of_artifact
from paritygate.pipelines.workspace import RunFolder, emulated_name
from paritygate.validate.recording import Recording

__all__ = ["another_source", "comparison_job", "validate_stage"]

_CPU = "cpu"
_RUN_ON_CPU = "validate it on the CPU too: --device cpu"
_RUN_ELSEWHERE = "validate it where it runs, or accept the emulated row: promote.accept"


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
    validator = _Validator(run, time_limit_s=time_limit_s, progress=progress)
    results: dict[str, ComparisonResult] = {}
    artifacts: dict[str, Artifact] = {}
    emulated: dict[str, EmulatedResult] = {}
    for name in run.exported():
        artifact = Artifact.read_record(run.variant_folder(name))
        job = comparison_job(run, artifact, device)
        # What is about to run is what was made: the digest is the one that the evidence will name.
        damage = _damage(artifact) or another_source(artifact, recording.model.get("digest"))
        results[name] = validator.result_of(name, artifact, job, damage or _not_run(artifact, device))
        run.save_result(name, results[name])
        if results[name].error is None or (damage is None and why_not_run(artifact.variant, device) is not None):
            artifacts[name] = artifact
        row = emulated_row(run, artifact, job)
        if row is not None:
            # How the file would answer elsewhere is a second row, and no verdict.
            again = validator.result_of(emulated_name(name), artifact, row.job, damage or row.damage)
            emulated[name] = EmulatedResult(
                result=row.described(again),
                artifact=None if damage is not None else artifact,
                emulated_from=row.emulated_from,
            )
            run.save_result(emulated_name(name), emulated[name].result)
    evidence = Evidence(recording=recording, artifacts=artifacts, results=results, emulated=emulated, device=where)
    others = evidence_of_others(run.evidence_file, device=where, reference=digest_of_files(recording.chunks))
    write_json_atomically(run.evidence_file, {**evidence_to_json(run, evidence), OTHERS: others})
    return results


def _not_run(artifact: Artifact, device: str) -> ParitygateError | None:
    """Return why the artifact is not run on the device, as far as that is known without trying; None if it is."""
    reason = why_not_run(artifact.variant, device)
    if reason is None:
        return None
    hint = _RUN_ELSEWHERE if device == _CPU else _RUN_ON_CPU
    return MissingBackendError(f"built, and not run here: {reason}", hint=hint)


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


class _Validator:
    """Makes the comparisons of a run, each in a job of its own."""

    def __init__(self, run: RunFolder, *, time_limit_s: float, progress: Progress) -> None:
        self._run = run
        self._time_limit_s = time_limit_s
        self._progress = progress

    def result_of(
        self, name: str, artifact: Artifact, job: ComparisonJob, unfit: ParitygateError | None
    ) -> ComparisonResult:
        """Return the result of the job; that it could not be made, if the artifact is unfit for it."""
        if unfit is not None:
            return failed_comparison(job, unfit)
        place = self._run.jobs(f"validate-{name}")
        failures = self._run.failed_batches(name)
        shutil.rmtree(failures, ignore_errors=True)
        again = f"convert-and-validate validate --run {shlex.quote(str(self._run.folder))}"
        job = replace(job, failures=failures, again=again)
        remove_marked_folder(place)
        make_marked_folder(place)

        def report(stage: str, done: int, total: int) -> None:
            self._progress(f"{name}: {stage}", done, total)

        result = compare(job, time_limit_s=self._time_limit_s, folder=place, progress=report)
        # What the converter had to say belongs to the variant as much as what the runtimes had.
        return replace(result, notes=[*artifact.made_by.get("notes", ()), *result.notes])


def comparison_job(run: RunFolder, artifact: Artifact, device: str) -> ComparisonJob:
    """Return the comparison of an artifact with the run's reference, as the spec asks for it."""
    resolved, variant = run.resolved, artifact.variant
    return ComparisonJob(
        reference=Side(name=resolved.name, outputs=run.reference),
        candidate=side_of_artifact(artifact, provider=resolved.provider(variant, device)),
        samples=resolved.samples(run.samples_path),
        precision=variant.precision,
        tolerance=resolved.tolerance(variant),
        decisions=resolved.decisions,
        argmax_of=dict(resolved.spec.argmax_of),
        gold=resolved.gold,
        matches=resolved.matches,
        ignored=resolved.ignored,
        axes=dict(resolved.spec.axes),
        passes=resolved.spec.repeat,
        min_rows=resolved.spec.min_rows,
        is_non_finite_declared=resolved.spec.non_finite == "match",
        strata=tuple(resolved.spec.samples.strata),
        may_be_the_source=True,
        calibrated_rows=calibrated_rows_file(artifact),
        device=device,
        seed=resolved.spec.seed,
        probes=resolved.probes,
    )
