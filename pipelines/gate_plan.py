"""What a comparison asks of the gate: the same for everything that is compared, planted faults included."""

from __future__ import annotations

from pathlib import Path

from paritygate.pipelines.comparison import ComparisonJob
from paritygate.validate.gate import GatePlan
from paritygate.validate.sample_split import RowsLeftOut

__all__ = ["gate_plan"]


def gate_plan(job: ComparisonJob, workspace: Path, *, held_out: RowsLeftOut | None = None) -> GatePlan:
    """Return what is asked of a candidate.

    Args:
        job: The comparison.
        workspace: An empty folder for what passes are compared by.
        held_out: Counts the rows of the samples that are not compared, while they are read.
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
        held_out=RowsLeftOut() if held_out is None else held_out,
        seed=job.seed,
    )
