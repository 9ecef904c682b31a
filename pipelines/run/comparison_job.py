"""The comparison of an artifact of a run with the run's reference, as the spec asks for it."""

from __future__ import annotations

from paritygate.artifact import Artifact
from paritygate.errors import InputFileError
from paritygate.pipelines.calibration.rows import calibrated_rows_file
from paritygate.pipelines.compare.job import ComparisonJob, Side
from paritygate.pipelines.compare.sides import side_of_artifact
from paritygate.pipelines.run.workspace import RunFolder

__all__ = ["comparison_job"]


def comparison_job(run: RunFolder, artifact: Artifact, device: str) -> ComparisonJob:
    """Return the comparison of an artifact with the run's reference, as the spec asks for it."""
    resolved, variant = run.resolved, artifact.variant
    return ComparisonJob(
        reference=Side(name=resolved.name, outputs=run.reference),
        candidate=side_of_artifact(artifact, provider=resolved.provider(variant, device)),
        samples=resolved.samples(run.samples_path),
        rules=resolved.rules(variant),
        may_be_the_source=True,
        calibrated_rows=calibrated_rows_file(artifact),
        source=_source(run),
        device=device,
    )


def _source(run: RunFolder) -> Side | None:
    """Return the source, to be asked again about rows that fail; None where it is not on this machine."""
    resolved = run.resolved
    try:
        return Side(name=resolved.name, model=resolved.source, signature=resolved.signature, rename=resolved.rename)
    except InputFileError:
        return None
