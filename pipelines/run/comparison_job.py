"""The comparison of an artifact of a run with the run's reference, as the spec asks for it."""

from __future__ import annotations

from paritygate.artifact import Artifact
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
