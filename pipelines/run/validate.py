"""Compare every exported variant with the recorded reference, and write the evidence."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Collection, Mapping

from msgspec.structs import replace

from paritygate.artifact import Artifact
from paritygate.errors import ExitCode, InputFileError, ParitygateError
from paritygate.files import make_marked_folder, remove_marked_folder
from paritygate.formats import why_not_run
from paritygate.machine import device_name
from paritygate.pipelines.compare.job import compare, comparison_not_run, failed_comparison
from paritygate.pipelines.compare.redaction import hidden
from paritygate.pipelines.compare.result import ComparisonResult
from paritygate.pipelines.process.child import Progress, progress_of
from paritygate.pipelines.process.stages import stage
from paritygate.pipelines.rules.strictness import record_of
from paritygate.pipelines.run.comparisons import (
    RunComparison,
    StalenessCheck,
    built_from,
    comparison_of,
    emulated_comparison_of,
)
from paritygate.pipelines.run.evidence import Evidence, EvidenceEntry
from paritygate.pipelines.run.fp16_range import with_fp16_range
from paritygate.pipelines.run.fp32_base import fp32_entry, with_fp32_base
from paritygate.pipelines.run.record import check_recording_rules
from paritygate.pipelines.run.relaxed_rules import check_reason, relaxed_rules
from paritygate.pipelines.run.workspace import FailedVariant, RunFolder
from paritygate.pipelines.spec.output_limits import check_limits_of_profiles
from paritygate.precision import Precision
from paritygate.text import counted
from paritygate.validate.gate.rules import GateRules
from paritygate.validate.measure.check import Verdict
from paritygate.validate.probes.catalogue import in_order
from paritygate.validate.reference.recording import Recording

_CPU = "cpu"
_RUN_ON_CPU = "validate it on the CPU too: --device cpu"
_RUN_ELSEWHERE = "validate it where it runs, or accept the emulated row: promote.accept"


def validate_stage(  # noqa: PLR0913 - one argument an option of the command
    run: RunFolder,
    *,
    time_limit_s: float,
    progress: Progress,
    device: str = "cpu",
    probes: Collection[str] | None = None,
    is_diagnosing: bool = False,
) -> dict[str, ComparisonResult]:
    """Compare every exported variant with the recorded reference, and write `evidence.json`.

    `probes` replaces those of the spec, and the evidence lists those left out. Results are in the spec's order.
    `is_diagnosing` names the operators of ONNX variants that fail, which changes no verdict.

    Raises:
        InputFileError: No reference was recorded.
        ArtifactIntegrityError: The reference was recorded by other rules than the spec's.
        BackendError: The device is missing.
        UsageError: The spec asks less than a failed run of the same source without a reason, or limits of one output
            do not fit the reference's outputs.
        StorageError: The disk is full.
    """
    made = run.exported()
    with stage(progress, "comparing", [each for name in made for each in (name, f"{name}.emulated")]) as did:
        validator = _Validator(run, time_limit_s=time_limit_s, progress=progress, probes=probes)
        results = _validate(run, validator, device=device, is_diagnosing=is_diagnosing)
        did(f"compared {sum(result.is_measured for result in results.values())} of {counted(len(made), 'variant')}")
    return results


def _validate(
    run: RunFolder, validator: _Validator, *, device: str, is_diagnosing: bool
) -> dict[str, ComparisonResult]:
    recording = Recording.load(run.reference)
    check_recording_rules(run, recording)
    check_limits_of_profiles(run.resolved, recording.profiles)
    where = device_name(device)
    made = run.artifacts()
    comparisons = {name: comparison_of(run, artifact, recording, device) for name, artifact in made.items()}
    rules = {name: comparison.job.rules for name, comparison in comparisons.items()}
    earlier = [] if run.is_scratch else relaxed_rules(run, recording.model.get("digest"), rules)
    check_reason(run, earlier)
    if run.cache is not None and any(comparison.damage is not None for comparison in comparisons.values()):
        # A source that changes with every call: repeating the run helps only if nothing is cached.
        run.cache.forget()
    entries: dict[str, EvidenceEntry] = {}
    emulated: list[EvidenceEntry] = []
    for name, artifact in made.items():
        own, row = comparisons[name], emulated_comparison_of(run, artifact, recording)
        # The digest of the files that run is the one in the evidence.
        damage = _damage(artifact)
        not_run = "" if damage or own.damage else _why_not_run(artifact, device)
        result = comparison_not_run(own.job, not_run) if not_run else validator.result_of(name, artifact, own, damage)
        measured = artifact if result.error is None else None
        entry = EvidenceEntry.of(name, result, own.stage, measured, is_emulated=False)
        entries[name] = replace(entry, asked=record_of(validator.rules_of(own)))
        if row is not None:
            # The emulated row is a second row, and no verdict.
            result = row.described(validator.result_of(f"{name}.emulated", artifact, row, damage))
            about = artifact if damage is None and own.damage is None else None
            emulated.append(EvidenceEntry.of(name, result, row.stage, about, is_emulated=True))
    entries = {name: validator.held_to_fp32(entry, made[name], entries, recording) for name, entry in entries.items()}
    entries |= {row.variant: validator.held_to_range(entries[row.variant], row) for row in emulated}
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
    _write(run, evidence)
    if is_diagnosing:
        # The evidence of the verdicts stays, whatever ends the diagnosis.
        diagnosed = validator.diagnosed(entries)
        predicted = tuple(
            entry if entries[entry.variant].verdict == Verdict.FAIL else validator.diagnosed_by(entry, entries)
            for entry in emulated
        )
        if diagnosed != entries or predicted != tuple(emulated):
            entries = diagnosed
            variants = tuple(entries.get(each.variant, each) for each in evidence.variants)
            _write(run, replace(evidence, variants=variants, emulated=predicted))
    return {name: entry.result for name, entry in entries.items() if entry.result is not None}


def _write(run: RunFolder, evidence: Evidence) -> None:
    is_hiding = run.resolved.hides_inputs(is_leaving=False)
    (hidden(evidence) if is_hiding else evidence).write(run.evidence_file)


def _not_made(name: str, failure: FailedVariant | None) -> EvidenceEntry:
    """Return the entry of a target without an artifact."""
    if failure is None:
        code = int(ExitCode.NOT_MEASURED)
        return EvidenceEntry(variant=name, evidence="none", verdict="error", exit_code=code, reason="not exported")
    return EvidenceEntry(
        variant=name, evidence="none", verdict=failure.verdict, exit_code=failure.exit_code, reason=failure.message
    )


def evidence_of_others(run: RunFolder, recording: Recording, device: str) -> tuple[Evidence, ...]:
    """Return the evidence of other devices that stays next to new evidence, the newest first, one a device.

    It must be about the same reference, and each entry about unchanged inputs. A document stays even without entries,
    because the device still counts. Corrupt evidence is dropped. `device` is that of the new evidence.
    """
    try:
        last = run.evidence()
    except InputFileError:
        last = None
    documents = () if last is None else last.documents()
    binding = StalenessCheck(run, recording)
    return tuple(
        binding.kept(document)
        for document in documents
        if document.device != device and document.reference.digest == recording.digest
    )


def _why_not_run(artifact: Artifact, device: str) -> str:
    """Return why the device cannot run the artifact, as far as that is known without trying; empty if it can."""
    reason = why_not_run(artifact.variant, device)
    return "" if reason is None else f"{reason}: {_RUN_ELSEWHERE if device == _CPU else _RUN_ON_CPU}"


def _damage(artifact: Artifact) -> ParitygateError | None:
    """Return why the artifact's files are corrupt; None if they are not."""
    try:
        artifact.verify()
    except ParitygateError as err:
        return err
    return None


def _reused(run: RunFolder) -> tuple[str, ...]:
    """Return a note if the last job of the run was reused."""
    last = run.cache.done[-1] if run.cache is not None and run.cache.done else None
    if last is None or not last.taken_from:
        return ()
    if last.is_judged_anew:
        return (f"judged again: the models ran at {last.made_at}, in run {last.taken_from}, and did not run again",)
    return (f"compared at {last.made_at}, in run {last.taken_from}: nothing that was read then has changed since",)


class _Validator:
    def __init__(
        self, run: RunFolder, *, time_limit_s: float, progress: Progress, probes: Collection[str] | None
    ) -> None:
        self._run = run
        self._probes = probes
        self._time_limit_s = time_limit_s
        self._progress = progress

    def rules_of(self, comparison: RunComparison) -> GateRules:
        """Return the rules of a comparison, with the probes of the command line where it names any."""
        rules = comparison.job.rules
        return rules if self._probes is None else replace(rules, probes=in_order(self._probes))

    def held_to_fp32(
        self, entry: EvidenceEntry, artifact: Artifact, entries: Mapping[str, EvidenceEntry], recording: Recording
    ) -> EvidenceEntry:
        """Return the entry of a mixed variant with a check of its FP32 base; any other entry as it is."""
        result = entry.result
        if artifact.variant.precision is not Precision.MIXED or result is None or not result.is_measured:
            return entry
        from paritygate.pipelines.run.diagnosis import FP32_EXPORT

        known = fp32_entry(artifact.variant, FP32_EXPORT, entries)
        verdict = known.verdict if known is not None else self._verdict_of_base(artifact, recording)
        return entry.with_result(with_fp32_base(result, FP32_EXPORT if known is None else known.variant, verdict))

    def _verdict_of_base(self, artifact: Artifact, recording: Recording) -> str:
        """Return the verdict of an FP32 base that is not a target, as its ONNX file runs on the CPU."""
        try:
            base = built_from(self._run, artifact)
            # An engine is built from the mixed file.
            base = built_from(self._run, base) if base.variant.precision is Precision.MIXED else base
        except ParitygateError:
            return str(Verdict.ERROR)
        from paritygate.pipelines.run.diagnosis import FP32_EXPORT

        return self.result_of(FP32_EXPORT, base, comparison_of(self._run, base, recording, _CPU), None).verdict

    def held_to_range(self, entry: EvidenceEntry, row: EvidenceEntry) -> EvidenceEntry:
        """Return the entry of an FP16 variant, not passed if its emulated `row` overflows."""
        return with_fp16_range(self._run, entry, row, time_limit_s=self._time_limit_s, progress=self._progress)

    def diagnosed(self, entries: Mapping[str, EvidenceEntry]) -> dict[str, EvidenceEntry]:
        """Return the entries, with the operators at which variants that failed part from the reference."""
        return {name: self.diagnosed_by(entry, entries) for name, entry in entries.items()}

    def diagnosed_by(self, entry: EvidenceEntry, entries: Mapping[str, EvidenceEntry]) -> EvidenceEntry:
        """Return one entry likewise; `entries` has that of the export."""
        result, run, name = entry.result, self._run, entry.variant
        if result is None or result.verdict != Verdict.FAIL:
            return entry
        from paritygate.pipelines.run.diagnosis import FP32_EXPORT, OVERFLOW, cause_of_failure

        export = entries.get(FP32_EXPORT)
        # An export that was not compared, or fails, is not a reference.
        is_right = export is not None and export.verdict == Verdict.PASS
        shown = progress_of(name, self._progress)
        cause = cause_of_failure(run, entry, is_export_right=is_right, time_limit_s=self._time_limit_s, progress=shown)
        if cause is None:
            return entry
        # A trial with smaller values avoids an overflow, and does not explain it.
        earlier = [each for each in result.causes if cause.kind != OVERFLOW or each.rows is None]
        return replace(entry, result=replace(result, causes=[*earlier, cause]))

    def result_of(
        self, name: str, artifact: Artifact, comparison: RunComparison, damage: ParitygateError | None
    ) -> ComparisonResult:
        """Return the result of a comparison, or of its failure if the artifact is corrupt or unfit."""
        job, unfit = replace(comparison.job, rules=self.rules_of(comparison)), damage or comparison.damage
        if unfit is not None:
            return failed_comparison(job, unfit)
        place = self._run.jobs(f"validate-{name}")
        failures = self._run.failed_batches(name)
        shutil.rmtree(failures, ignore_errors=True)
        # Repeating one probe must not replace the evidence of the others.
        again = f"convert-and-validate validate --run {shlex.quote(str(self._run.folder))} --scratch"
        if job.device != _CPU:
            again += f" --device {job.device}"
        job = replace(job, failures=failures, again=again)
        remove_marked_folder(place)
        make_marked_folder(place)
        shown = progress_of(name, self._progress)
        result = compare(job, time_limit_s=self._time_limit_s, folder=place, progress=shown, do=self._run.do)
        # Notes of the converter belong to the variant, as those of the runtimes do.
        reused = _reused(self._run) if result.is_measured else ()
        result = replace(result, notes=[*artifact.made_by.get("notes", ()), *result.notes, *reused])
        is_hiding = self._run.resolved.hides_inputs(is_leaving=False)
        return hidden(result) if is_hiding else result
