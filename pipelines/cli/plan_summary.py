"""A plan in the terminal: a line a job, and why it would be done."""

from __future__ import annotations

from collections.abc import Iterator

from paritygate.pipelines.cli.screen import wrapped
from paritygate.pipelines.planning.plan import TAKEN_OVER, Plan
from paritygate.text import counted

__all__ = ["plan_lines"]


def plan_lines(plan: Plan, *, is_quiet: bool = False) -> Iterator[str]:
    """Yield what a run would do, job by job; where it is to be quiet, how many of them alone."""
    taken = sum(job.would_be == TAKEN_OVER for job in plan.jobs)
    yield from wrapped(f"{plan.model}: {taken} of {counted(len(plan.jobs), 'job')} would be taken over")
    for job in () if is_quiet else plan.jobs:
        whence = f" from run {job.taken_from} of {job.made_at}" if job.taken_from else ""
        why = f": {job.why}" if job.why else ""
        yield from wrapped(f"{job.job}: {job.would_be}{whence}{why}", indent="  ")
