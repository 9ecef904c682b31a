"""The cache is tested where the kernel tells what a process reads; elsewhere there is none, and the reason is said."""

from __future__ import annotations

import pytest
from tests.pipelines.cache.watched import watch


@pytest.fixture(scope="session", autouse=True)
def _kernel_tells() -> None:
    """Skip where a child of ours cannot be watched."""
    listener, _ = watch(["/bin/true"], [])
    reason = listener.close().why_unknown
    if reason:
        pytest.skip(reason)
