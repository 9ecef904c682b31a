"""The comparisons of a run: each artifact with the run's reference, by the rules of the current spec.

An artifact may have an emulated row: the answers of its file at its real precision, or on a device that is missing.
An engine runs on NVIDIA GPUs only, so its emulated row runs the ONNX file that it was built from, with the engine's
limits. That predicts the engine, and is no evidence of a correct build.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from paritygate.artifact import ARTIFACT_FILE, Artifact
from paritygate.codec import digest_of
from paritygate.errors import ArtifactIntegrityError, InputFileError, ParitygateError
from paritygate.file_names import why_not_names
from paritygate.files import digest_of_file
from paritygate.formats import ENGINE_FORMATS
from paritygate.models.source import ModelRef
from paritygate.pipelines.calibration.rows import calibrated_rows_file
from paritygate.pipelines.compare.job import ComparisonJob
from paritygate.pipelines.compare.models import artifact_model, recorded_model
from paritygate.pipelines.compare.result import ComparisonResult
from paritygate.pipelines.run.evidence import Evidence, EvidenceEntry
from paritygate.pipelines.run.stage import RULES, Stage
from paritygate.pipelines.run.workspace import RunFolder
from paritygate.precision import Precision, Variant
from paritygate.validate.gate.rules import GateRules
from paritygate.validate.reference.recording import Recording

MADE_FROM = "source"
RAN = "ran"
_ARTIFACT = "artifact"
_REFERENCE = "reference"
_CALIBRATED_ROWS = "calibrated_rows"

_CPU = "cpu"
_ROUNDED = frozenset({Precision.FP16, Precision.BF16, Precision.MIXED})
_NOTES: Mapping[Precision, str] = {
    Precision.FP32: "fp32 has no rounding to emulate: the graph that the engine was built from ran in ONNX Runtime on "
    "the CPU",
    Precision.INT8: "int8 is in the graph itself: the quantized graph that the engine was built from ran in ONNX "
    "Runtime on the CPU",
}


class RunComparison(Struct, frozen=True, kw_only=True):
    """One comparison of a run."""

    job: ComparisonJob
    stage: Stage  # all inputs of the result; the artifact by the digest in its record
    damage: ParitygateError | None = None  # why the comparison cannot be made
    note: str = ""  # for readers of the result

    def described(self, result: ComparisonResult) -> ComparisonResult:
        """Return the result with the note, because another model ran than the one that the result is about."""
        if result.error is not None or not self.note:
            return result
        candidate = replace(result.candidate, device=f"emulated:{self.job.rules.precision}")
        return replace(result, candidate=candidate, notes=[self.note, *result.notes])


def comparison_job(run: RunFolder, artifact: Artifact, device: str) -> ComparisonJob:
    """Return the comparison of an artifact on a device, `cpu` or `cuda`, as a job."""
    resolved, variant = run.resolved, artifact.variant
    return ComparisonJob(
        reference=recorded_model(run.reference, name=resolved.name),
        candidate=artifact_model(artifact, provider=resolved.provider(variant, device)),
        samples=resolved.samples(run.samples_path),
        rules=resolved.rules(variant),
        may_be_the_source=True,
        calibrated_rows=calibrated_rows_file(artifact),
        source=_source_here(run),
        device=device,
    )


def _source_here(run: RunFolder) -> ModelRef | None:
    """Return the source, which runs again on rows that fail; None where it is not on this machine."""
    try:
        return run.resolved.source
    except InputFileError:
        return None


def comparison_of(run: RunFolder, artifact: Artifact, recording: Recording, device: str) -> RunComparison:
    """Return the comparison of an artifact with the run's reference on a device, `cpu` or `cuda`."""
    job = comparison_job(run, artifact, device)
    stage = _stage(f"compare {artifact.variant}", job, artifact, recording)
    return RunComparison(job=job, stage=stage, damage=_other_source(artifact, recording))


def has_emulated_row(variant: Variant, rules: GateRules) -> bool:
    """Return whether a variant has an emulated row, because it does not run on the CPU as on every device."""
    # Mixed precision with integers has the rules of INT8.
    return variant.format in ENGINE_FORMATS or (variant.format == "onnx" and rules.precision in _ROUNDED)


def emulated_comparison_of(run: RunFolder, artifact: Artifact, recording: Recording) -> RunComparison | None:
    """Return the emulated row of an artifact, always on the CPU; None for a variant without one."""
    own, variant = comparison_of(run, artifact, recording, _CPU), artifact.variant
    if not has_emulated_row(variant, own.job.rules):
        return None
    name = f"compare {variant}, emulated"
    if variant.format == "onnx":
        # Emulation is of ONNX Runtime's own provider, whatever the other comparison uses.
        job = replace(own.job, candidate=artifact_model(artifact), is_emulated=True)
        return replace(own, job=job, stage=_stage(name, job, artifact, recording, ran=artifact))
    try:
        base = built_from(run, artifact)
    except ParitygateError as err:
        stage = replace(own.stage, name=name, reads={**own.stage.reads, RAN: None})
        return replace(own, stage=stage, damage=own.damage or err)
    job = replace(
        own.job,
        candidate=replace(artifact_model(base), name=str(variant), engine=artifact.folder / artifact.main),
        is_emulated=variant.precision in _ROUNDED,
        calibrated_rows=calibrated_rows_file(base),
    )
    stage = _stage(name, job, artifact, recording, ran=base)
    return replace(own, job=job, stage=stage, note=_NOTES.get(variant.precision, ""))


def _stage(
    name: str, job: ComparisonJob, artifact: Artifact, recording: Recording, *, ran: Artifact | None = None
) -> Stage:
    candidate, samples = job.candidate, job.samples
    return Stage(
        name=name,
        reads={
            _ARTIFACT: artifact.digest,
            MADE_FROM: _source_of(artifact),
            _REFERENCE: recording.digest,
            _CALIBRATED_ROWS: _digest_of_rows(job.calibrated_rows),
            **({} if ran is None else {RAN: ran.digest}),
        },
        rules=digest_of(
            {
                "rules": job.rules,
                "may_be_the_source": job.may_be_the_source,
                "is_emulated": job.is_emulated,
                "signature": candidate.signature,
                "rename": candidate.rename,
                "provider": candidate.provider,
                "batch_size": samples.batch_size,
                "pad": samples.pad,
                "split": samples.split,
            }
        ),
    )


def _digest_of_rows(rows: Path | None) -> str | None:
    return None if rows is None else digest_of_file(rows) if rows.is_file() else "missing"


def _source_of(artifact: Artifact) -> str | None:
    digest: str | None = artifact.made_by.get("source", {}).get("digest")
    return digest


def _other_source(artifact: Artifact, recording: Recording) -> ArtifactIntegrityError | None:
    """Return an error if the artifact and the reference are of different sources, as far as both have digests."""
    converted, recorded = _source_of(artifact), recording.model.get("digest")
    if converted is None or recorded is None or converted == recorded:
        return None
    return ArtifactIntegrityError(
        f"{artifact.variant} was made from a different source than the reference: "
        f"from {converted}, but the reference is from {recorded}",
        hint="export and record again: convert-and-validate run SPEC; a module:callable has to return the same model "
        "every time, so seed it",
    )


def built_from(run: RunFolder, engine: Artifact) -> Artifact:
    """Return the artifact that the engine was built from, with verified files."""
    recorded = engine.made_by.get("base") or {}
    name, digest = recorded.get("variant"), recorded.get("digest")
    again = f"build the engine again: convert-and-validate build --run {shlex.quote(str(run.folder))}"
    if not name or not digest or why_not_names([name]) is not None:
        msg = f"the record of {engine.variant} does not name the file it was built from"
        raise ArtifactIntegrityError(msg, hint=again)
    seen = []
    for folder in (run.variant_folder(name), run.base_folder(name)):
        if (folder / ARTIFACT_FILE).is_file():
            base = Artifact.read_record(folder)
            if base.digest == digest:
                base.verify()
                return base
            seen.append(base.digest)
    present = f"the present file has {' and '.join(seen)}" if seen else "that file is missing"
    msg = f"{engine.variant} was built from {name} with digest {digest}, but {present}"
    raise ArtifactIntegrityError(msg, hint=again)


class StalenessCheck:
    """Compares evidence with the files and the spec that the run has now.

    Probes that the command line left out are no change: evidence and releases list them.
    """

    def __init__(self, run: RunFolder, recording: Recording) -> None:
        self._run = run
        self._recording = recording
        self._artifacts = run.artifacts()

    def changes(self, entry: EvidenceEntry, device: str, *, is_emulated: bool = False) -> tuple[str, ...]:
        """Return the changed inputs of an entry: names of inputs, and `RULES`.

        Nothing for an entry of another file, whose rules are unknown, or of no file, which cannot change.

        Args:
            entry: The entry.
            device: The device of its evidence.
            is_emulated: Whether it is an emulated row.

        Raises:
            ParitygateError: An input of the rules is missing or corrupt, such as the file an engine was built from.
        """
        artifact = self._artifacts.get(entry.variant)
        if artifact is None or entry.stage is None or entry.artifact is None or self.is_about_another_file(entry):
            return ()
        if is_emulated:
            now = emulated_comparison_of(self._run, artifact, self._recording)
            if now is None:
                return (RULES,)
            if now.damage is not None:
                raise now.damage
        else:
            now = comparison_of(self._run, artifact, self._recording, device.partition(":")[0])
        return entry.stage.changes(now.stage)

    def is_about_another_file(self, entry: EvidenceEntry) -> bool:
        """Return whether an entry is about a file that is not in the run (any more)."""
        artifact = self._artifacts.get(entry.variant)
        return entry.artifact is not None and (artifact is None or entry.artifact != artifact.digest)

    def kept(self, evidence: Evidence) -> Evidence:
        """Return evidence without the entries whose inputs changed or are unknown."""
        return replace(
            evidence,
            variants=tuple(entry for entry in evidence.variants if self._is_kept(entry, evidence.device)),
            emulated=tuple(
                entry for entry in evidence.emulated if self._is_kept(entry, evidence.device, is_emulated=True)
            ),
        )

    def _is_kept(self, entry: EvidenceEntry, device: str, *, is_emulated: bool = False) -> bool:
        try:
            return not self.changes(entry, device, is_emulated=is_emulated)
        except ParitygateError:
            # Unknown inputs count as changed.
            return False
