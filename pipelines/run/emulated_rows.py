"""The emulated row of a variant: how its file would answer where its precision is real, or where it runs at all.

An engine runs on NVIDIA GPUs only. What stands for it is the ONNX file that it was built from, held to the engine's own
limits: that predicts the engine, and is no evidence that the engine was built right.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from paritygate.artifact import ARTIFACT_FILE, Artifact
from paritygate.errors import ArtifactIntegrityError, ParitygateError
from paritygate.file_names import why_not_names
from paritygate.formats import ENGINE_FORMATS
from paritygate.pipelines.calibration.rows import calibrated_rows_file
from paritygate.pipelines.compare.job import ComparisonJob
from paritygate.pipelines.compare.models import artifact_model
from paritygate.precision import Precision

if TYPE_CHECKING:
    from paritygate.pipelines.compare.result import ComparisonResult
    from paritygate.pipelines.run.workspace import RunFolder

__all__ = ["EmulatedRow", "emulated_row"]

_ROUNDED = frozenset({Precision.FP16, Precision.BF16})
_NOTES: Mapping[Precision, str] = {
    Precision.FP32: "fp32 has no rounding to emulate: the graph that the engine was built from ran in ONNX Runtime on "
    "the CPU",
    Precision.INT8: "int8 is in the graph itself: the quantized graph that the engine was built from ran in ONNX "
    "Runtime on the CPU",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class EmulatedRow:
    """A comparison that stands for a device which is absent.

    Attributes:
        job: The comparison, always on the CPU.
        emulated_from: Digest of the artifact that runs; None where it is not there.
        damage: Why the comparison cannot be made; None if it can.
        note: What a reader should know of it; empty for nothing.
    """

    job: ComparisonJob
    emulated_from: str | None
    damage: ParitygateError | None = None
    note: str = ""

    def described(self, result: ComparisonResult) -> ComparisonResult:
        """Return the result of the job as that of an emulated row: what ran is not what it is about."""
        if result.error is not None or not self.note:
            return result
        candidate = replace(result.candidate, device=f"emulated:{self.job.rules.precision}")
        return replace(result, candidate=candidate, notes=[self.note, *result.notes])


def emulated_row(run: RunFolder, artifact: Artifact, job: ComparisonJob) -> EmulatedRow | None:
    """Return the emulated row of an artifact; None for what runs on the CPU as it would anywhere.

    Args:
        run: The run, where the file lies that an engine was built from.
        artifact: The artifact, its files checked.
        job: Its own comparison.
    """
    variant = artifact.variant
    if variant.format in ENGINE_FORMATS:
        return _row_of_engine(run, artifact, replace(job, device="cpu"))
    if variant.format == "onnx" and variant.precision in _ROUNDED:
        # What is emulated runs on the CPU, whatever the device and provider of its own comparison.
        emulated = replace(job, candidate=artifact_model(artifact), device="cpu", is_emulated=True)
        return EmulatedRow(job=emulated, emulated_from=artifact.digest)
    return None


def _row_of_engine(run: RunFolder, engine: Artifact, job: ComparisonJob) -> EmulatedRow:
    precision = engine.variant.precision
    try:
        base = _built_from(run, engine)
    except ParitygateError as err:
        return EmulatedRow(job=job, emulated_from=None, damage=err)
    return EmulatedRow(
        job=replace(
            job,
            candidate=replace(artifact_model(base), name=str(engine.variant), engine=engine.folder / engine.main),
            is_emulated=precision in _ROUNDED,
            calibrated_rows=calibrated_rows_file(base),
        ),
        emulated_from=base.digest,
        note=_NOTES.get(precision, ""),
    )


def _built_from(run: RunFolder, engine: Artifact) -> Artifact:
    """Return the artifact that the engine was built from, its files checked."""
    recorded = engine.made_by.get("base") or {}
    name, digest = recorded.get("variant"), recorded.get("digest")
    again = f"build the engine again: convert-and-validate build --run {run.folder}"
    if not name or not digest or why_not_names([name]) is not None:
        msg = f"the record of {engine.variant} does not say which file it was built from"
        raise ArtifactIntegrityError(msg, hint=again)
    seen = []
    for folder in (run.variant_folder(name), run.base_folder(name)):
        if (folder / ARTIFACT_FILE).is_file():
            base = Artifact.read_record(folder)
            if base.digest == digest:
                base.verify()
                return base
            seen.append(base.digest)
    found = f"what is there is {' and '.join(seen)}" if seen else "it is not there"
    msg = f"{engine.variant} was built from {name} with digest {digest}, and {found}"
    raise ArtifactIntegrityError(msg, hint=again)
