"""Jobs are done in the process of the tests, as in `tests/pipelines`, unless a test has the marker `children`."""

from __future__ import annotations

from tests.pipelines.conftest import _jobs_in_children, jobs_here

__all__ = ["_jobs_in_children", "jobs_here"]
