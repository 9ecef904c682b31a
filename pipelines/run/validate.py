"""Validate: every exported variant against the recorded reference, and the evidence of it."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Collection
from dataclasses import replace

from paritygate.artifact import Artifact
from paritygate.errors import ExitCode, InputFileError, ParitygateError
from paritygate.files import make_marked_folder, remove_marked_folder
from paritygate.formats import why_not_run
from paritygate.machine import device_name
from paritygate.pipelines.compare.hidden_inputs import hidden
from paritygate.pipelines.compare.job import compare, comparison_not_run, failed_comparison
from paritygate.pipelines.compare.result import ComparisonResult
from paritygate.pipelines.process.child import Progress
from paritygate.pipelines.process.stages import stage
from paritygate.pipelines.run.comparisons import Binding, RunComparison, comparison_of, emulated_comparison_of
from paritygate.pipelines.run.earlier_failures import check_reason, earlier_failures
from paritygate.pipelines.run.evidence import Evidence, EvidenceEntry
from paritygate.pipelines.run.record import check_recording_rules
from paritygate.pipelines.run.workspace import FailedVariant, RunFolder
from paritygate.pipelines.spec.output_limits import check_limits_of_profiles
from paritygate.text import counted
from paritygate.validate.probes.catalogue import in_order
from paritygate.validate.reference.recording import Recording

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
        UsageError: The spec asks less than a failed run of the same source did, and does not say why; or its limits
            of one output do not fit what the reference answers.
        StorageError: The disk is full.
    """
    made = run.exported()
    with stage(progress, "comparing", [each for name in made for each in (name, f"{name}.emulated")]) as did:
        results = _validate(run, time_limit_s=time_limit_s, progress=progress, device=device, probes=probes)
        did(f"compared {sum(result.is_measured for result in results.values())} of {counted(len(made), 'variant')}")
    return results


def _validate(
    run: RunFolder, *, time_limit_s: float, progress: Progress, device: str, probes: Collection[str] | None
) -> dict[str, ComparisonResult]:
    recording = Recording.load(run.reference)
    check_recording_rules(run, recording)
    check_limits_of_profiles(run.resolved, recording.profiles)
    where = device_name(device)
    validator = _Validator(run, time_limit_s=time_limit_s, progress=progress, probes=probes)
    made = {name: Artifact.read_record(run.variant_folder(name)) for name in run.exported()}
    comparisons = {name: comparison_of(run, artifact, recording, device) for name, artifact in made.items()}
    rules = {name: comparison.job.rules for name, comparison in comparisons.items()}
    earlier = [] if run.is_scratch else earlier_failures(run, recording.model.get("digest"), rules)
    check_reason(run, earlier)
    if run.cache is not None and any(comparison.damage is not None for comparison in comparisons.values()):
        # A source that is another at every call: to do it again is of use only if it is done.
        run.cache.forget()
    entries: dict[str, EvidenceEntry] = {}
    emulated: list[EvidenceEntry] = []
    for name, artifact in made.items():
        own, row = comparisons[name], emulated_comparison_of(run, artifact, recording)
        # What is about to run is what was made: the digest is the one that the evidence will name.
        damage = _damage(artifact)
        not_run = "" if damage or own.damage else _why_not_run(artifact, device)
        result = comparison_not_run(own.job, not_run) if not_run else validator.result_of(name, artifact, own, damage)
        measured = artifact if result.error is None else None
        entries[name] = EvidenceEntry.of(name, result, own.stage, measured, is_emulated=False)
        if row is not None:
            # How the file would answer elsewhere is a second row, and no verdict.
            result = row.described(validator.result_of(f"{name}.emulated", artifact, row, damage))
            about = artifact if damage is None and own.damage is None else None
            emulated.append(EvidenceEntry.of(name, result, row.stage, about, is_emulated=True))
    failures = run.failures()
    evidence = Evidence.of(
        run.resolved.name,
        run.run_id,
        recording,
        where,
        variants=tuple(entries.get(name) or _not_made(name, failures.get(name)) for name in run.resolved.target_names),
        emulated=tuple(emulated),
        earlier_failures=tuple(earlier),
        others=evidence_of_others(run, recording, where),
        **run.made_here(),
    )
    is_hiding = run.resolved.hides_inputs(is_leaving=False)
    (hidden(evidence) if is_hiding else evidence).write(run.evidence_file)
    return {name: entry.result for name, entry in entries.items() if entry.result is not None}


def _not_made(name: str, failure: FailedVariant | None) -> EvidenceEntry:
    """Return the entry of a target that was not compared, since there is no artifact of it."""
    if failure is None:
        code = int(ExitCode.NOT_MEASURED)
        return EvidenceEntry(variant=name, evidence="none", verdict="error", exit_code=code, reason="not exported")
    return EvidenceEntry(
        variant=name, evidence="none", verdict=failure.verdict, exit_code=failure.exit_code, reason=failure.message
    )


def evidence_of_others(run: RunFolder, recording: Recording, device: str) -> tuple[Evidence, ...]:
    """Return the evidence of other devices that is to be kept with new evidence, the newest first, one a device.

    It stays evidence as long as it is about the reference that is there, and for each variant as long as it follows
    from what is there. The document itself stays: that there is such a device is still so, and nothing stands in for
    it. Of evidence that is corrupt nothing is kept.

    Args:
        run: The run, where the evidence lies that is about to be replaced; there may be none.
        recording: The reference that is there.
        device: The device of the new evidence.
    """
    try:
        last = run.evidence()
    except InputFileError:
        last = None
    documents = () if last is None else last.documents()
    binding = Binding(run, recording)
    return tuple(
        binding.kept(document)
        for document in documents
        if document.device != device and document.reference.digest == recording.digest
    )


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


def _reused(run: RunFolder) -> tuple[str, ...]:
    """Return that the last job of the run was reused, if it was."""
    last = run.cache.done[-1] if run.cache is not None and run.cache.done else None
    if last is None or not last.taken_from:
        return ()
    if last.is_judged_anew:
        return (
            f"judged anew: the models answered at {last.made_at}, in run {last.taken_from}, and were not asked again",
        )
    return (f"compared at {last.made_at}, in run {last.taken_from}: nothing that was read then has changed since",)


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
        self, name: str, artifact: Artifact, comparison: RunComparison, damage: ParitygateError | None
    ) -> ComparisonResult:
        """Return the result of a comparison; that it could not be made, if the artifact is corrupt or unfit for it."""
        job, unfit = comparison.job, damage or comparison.damage
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

        result = compare(job, time_limit_s=self._time_limit_s, folder=place, progress=report, do=self._run.do)
        # What the converter had to say belongs to the variant as much as what the runtimes had.
        reused = _reused(self._run) if result.is_measured else ()
        result = replace(result, notes=[*artifact.made_by.get("notes", ()), *result.notes, *reused])
        is_hiding = self._run.resolved.hides_inputs(is_leaving=False)
        return hidden(result) if is_hiding else result
