"""What a comparison asks of the gate: the same for everything that is compared, planted faults included."""

from __future__ import annotations

from pathlib import Path

from paritygate.pipelines.compare.job import ComparisonJob
from paritygate.validate.gate.gate import GatePlan
from paritygate.validate.samples.split import RowsLeftOut

__all__ = ["gate_plan"]


def gate_plan(job: ComparisonJob, workspace: Path, *, left_out: RowsLeftOut | None = None) -> GatePlan:
    """Return what is asked of a candidate.

    Args:
        job: The comparison.
        workspace: An empty folder for what passes are compared by.
        left_out: The rows of the samples that the candidate is not judged by.
    """
    return GatePlan(
        tolerance=job.tolerance,
        decisions=job.decisions,
        outputs=job.outputs,
        argmax_of=job.argmax_of,
        gold=job.gold,
        matches=job.matches,
        ignored=job.ignored,
        passes=job.passes,
        min_rows=job.min_rows,
        is_non_finite_declared=job.is_non_finite_declared,
        strata=job.strata,
        workspace=workspace,
        precision=job.precision,
        left_out=RowsLeftOut() if left_out is None else left_out,
        seed=job.seed,
    )
