"""Validate: every exported variant against the recorded reference, and the evidence of it."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Collection
from dataclasses import replace

from paritygate.artifact import Artifact
from paritygate.codec import to_data
from paritygate.errors import ArtifactIntegrityError, ParitygateError
from paritygate.files import make_marked_folder, remove_marked_folder, write_json_atomically
from paritygate.formats import why_not_run
from paritygate.machine import device_name
from paritygate.pipelines.compare.hidden_inputs import result_without_inputs, without_inputs
from paritygate.pipelines.compare.job import ComparisonJob, compare, comparison_not_run, failed_comparison
from paritygate.pipelines.compare.result import ComparisonResult
from paritygate.pipelines.process.child import Progress
from paritygate.pipelines.run.comparison_job import comparison_job
from paritygate.pipelines.run.earlier_failures import EARLIER_FAILURES, check_reason, earlier_failures
from paritygate.pipelines.run.emulated_rows import emulated_row
from paritygate.pipelines.run.evidence import EmulatedResult, Evidence, evidence_to_json
from paritygate.pipelines.run.judged_by import RunRules, judged_by
from paritygate.pipelines.run.other_machines import OTHERS, evidence_of_others
from paritygate.pipelines.run.record import check_recorded_by
from paritygate.pipelines.run.workspace import RunFolder, emulated_name
from paritygate.validate.probes.catalogue import in_order
from paritygate.validate.reference.recording import Recording

__all__ = ["another_source", "validate_stage"]

_CPU = "cpu"
_RUN_ON_CPU = "validate it on the CPU too: --device cpu"
_RUN_ELSEWHERE = "validate it where it runs, or accept the emulated row: promote.accept"


def validate_stage(
    run: RunFolder,
    *,
    time_limit_s: float,
    progress: Progress,
    device: str = "cpu",
    probes: Collection[str] | None = None,
) -> dict[str, ComparisonResult]:
    """Compare every exported variant with the reference and write `evidence.json`.

    Args:
        run: The run, exported and recorded.
        time_limit_s: Seconds that each comparison may take.
        progress: Told what is done.
        device: Where the variants run, `cpu` or `cuda`.
        probes: The probes to ask in place of those that the spec asks for; the evidence says what was left out.

    Returns:
        The result of each variant that was exported, in the spec's order.

    Raises:
        InputFileError: No reference was recorded.
        ArtifactIntegrityError: The reference was recorded by other rules than the spec's.
        BackendError: The device is not there.
        UsageError: The spec asks less than a failed run of the same source did, and does not say why.
        StorageError: The disk is full.
    """
    recording = Recording.load(run.reference)
    check_recorded_by(run, recording)
    where = device_name(device)
    validator = _Validator(run, time_limit_s=time_limit_s, progress=progress, probes=probes)
    results: dict[str, ComparisonResult] = {}
    artifacts: dict[str, Artifact] = {}
    emulated: dict[str, EmulatedResult] = {}
    rules: dict[str, str] = {}
    made = {name: Artifact.read_record(run.variant_folder(name)) for name in run.exported()}
    jobs = {name: comparison_job(run, artifact, device) for name, artifact in made.items()}
    earlier = [] if run.is_scratch else earlier_failures(run, recording.model.get("digest"), jobs)
    check_reason(run, earlier)
    for name, artifact in made.items():
        job = jobs[name]
        rules[name] = judged_by(job)
        # What is about to run is what was made: the digest is the one that the evidence will name.
        damage = _damage(artifact) or another_source(artifact, recording.model.get("digest"))
        not_run = "" if damage else _why_not_run(artifact, device)
        results[name] = (
            comparison_not_run(job, not_run) if not_run else validator.result_of(name, artifact, job, damage)
        )
        run.save_result(name, results[name])
        if results[name].error is None:
            artifacts[name] = artifact
        row = emulated_row(run, artifact, job)
        if row is not None:
            # How the file would answer elsewhere is a second row, and no verdict.
            again = validator.result_of(emulated_name(name), artifact, row.job, damage or row.damage)
            emulated[name] = EmulatedResult(
                result=row.described(again),
                artifact=None if damage is not None else artifact,
                emulated_from=row.emulated_from,
                judged_by=judged_by(row.job),
            )
            run.save_result(emulated_name(name), emulated[name].result)
    evidence = Evidence(
        recording=recording, artifacts=artifacts, results=results, emulated=emulated, judged_by=rules, device=where
    )
    others = evidence_of_others(run.evidence_file, device=where, reference=recording.digest, rules=RunRules(run))
    kept = {EARLIER_FAILURES: [to_data(item) for item in earlier], OTHERS: others}
    found = {**evidence_to_json(run, evidence), **run.made_here(), **kept}
    is_hiding = run.resolved.hides_inputs(is_leaving=False)
    write_json_atomically(run.evidence_file, without_inputs(found) if is_hiding else found)
    return results


def _why_not_run(artifact: Artifact, device: str) -> str:
    """Return why the artifact is not run on the device, as far as that is known without trying; empty if it is."""
    reason = why_not_run(artifact.variant, device)
    return "" if reason is None else f"{reason}: {_RUN_ELSEWHERE if device == _CPU else _RUN_ON_CPU}"


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

    def __init__(
        self, run: RunFolder, *, time_limit_s: float, progress: Progress, probes: Collection[str] | None
    ) -> None:
        self._run = run
        self._probes = probes
        self._time_limit_s = time_limit_s
        self._progress = progress

    def result_of(
        self, name: str, artifact: Artifact, job: ComparisonJob, unfit: ParitygateError | None
    ) -> ComparisonResult:
        """Return the result of the job; that it could not be made, if the artifact is unfit for it."""
        if self._probes is not None:
            job = replace(job, rules=replace(job.rules, probes=in_order(self._probes)))
        if unfit is not None:
            return failed_comparison(job, unfit)
        place = self._run.jobs(f"validate-{name}")
        failures = self._run.failed_batches(name)
        shutil.rmtree(failures, ignore_errors=True)
        # To look at one probe is no reason to lose the evidence of the others.
        again = f"convert-and-validate validate --run {shlex.quote(str(self._run.folder))} --scratch"
        if job.device != _CPU:
            again += f" --device {job.device}"
        job = replace(job, failures=failures, again=again)
        remove_marked_folder(place)
        make_marked_folder(place)

        def report(stage: str, done: int, total: int) -> None:
            self._progress(f"{name}: {stage}", done, total)

        result = compare(job, time_limit_s=self._time_limit_s, folder=place, progress=report)
        # What the converter had to say belongs to the variant as much as what the runtimes had.
        result = replace(result, notes=[*artifact.made_by.get("notes", ()), *result.notes])
        is_hiding = self._run.resolved.hides_inputs(is_leaving=False)
        return result_without_inputs(result) if is_hiding else result
