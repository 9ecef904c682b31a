"""The comparison of an artifact of a run with the run's reference, as the spec asks for it."""

from __future__ import annotations

from paritygate.artifact import Artifact
from paritygate.pipelines.calibration.rows import calibrated_rows_file
from paritygate.pipelines.compare.job import ComparisonJob
from paritygate.pipelines.compare.models import artifact_model, recorded_model
from paritygate.pipelines.run.workspace import RunFolder

__all__ = ["comparison_job"]


def comparison_job(run: RunFolder, artifact: Artifact, device: str) -> ComparisonJob:
    """Return the comparison of an artifact with the run's reference, as the spec asks for it."""
    resolved, variant = run.resolved, artifact.variant
    return ComparisonJob(
        reference=recorded_model(run.reference, name=resolved.name),
        candidate=artifact_model(artifact, provider=resolved.provider(variant, device)),
        samples=resolved.samples(run.samples_path),
        rules=resolved.rules(variant),
        may_be_the_source=True,
        calibrated_rows=calibrated_rows_file(artifact),
        device=device,
    )
