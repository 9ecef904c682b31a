"""A plan in the terminal: the jobs by what a run would do with them, and why."""

from __future__ import annotations

from collections.abc import Iterator

from paritygate.pipelines.planning.plan import DONE, TAKEN_OVER, UNKNOWN, Plan, PlannedJob
from paritygate.pipelines.report.terminal.screen import wrapped
from paritygate.text import counted


def plan_lines(plan: Plan, *, is_quiet: bool = False) -> Iterator[str]:
    """Yield what a run would do, with the jobs; when quiet, only their number."""
    taken = sum(job.would_be == TAKEN_OVER for job in plan.jobs)
    yield from wrapped(f"{plan.model}: {taken} of {counted(len(plan.jobs), 'job')} would be reused")
    jobs: dict[str, list[str]] = {}
    for job in () if is_quiet else plan.jobs:
        jobs.setdefault(_what_becomes_of(job), []).append(job.job)
    for words, names in jobs.items():
        yield from wrapped(words)
        for name in names:
            yield from wrapped(name, indent="  ")


def _what_becomes_of(job: PlannedJob) -> str:
    if job.would_be == DONE:
        return f"would be done, because {job.why}"
    if job.would_be == UNKNOWN:
        return f"reused or done, as the run will show: {job.why}"
    # The name of the run holds the time.
    whence = f" from run {job.taken_from}" if job.taken_from else ""
    why = f": {job.why}" if job.why else ""
    return f"{'reused' if job.would_be == TAKEN_OVER else job.would_be}{whence}{why}"
