"""Waits for other processes in tests: what has to happen may take as long as a slow machine needs."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

__all__ = ["is_alive", "wait_until"]

# Only an event that never comes takes so long.
_LONGEST_S = 600
_LOOK_EVERY_S = 0.02


def is_alive(pid: int) -> bool:
    """Return whether a process runs. One that has ended does not, even if its parent has not asked for its end."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        # It ended before this look, or during it.
        return False
    # The state follows the name of the program, which may hold anything: see proc_pid_stat(5).
    return text.rpartition(")")[2].split()[0] not in {"Z", "X"}


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + _LONGEST_S
    while not condition():
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(_LOOK_EVERY_S)
