"""Measure the load of other work on the machine during a benchmark."""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path

from msgspec import Struct

from paritygate.machine import available_processors

_STAT = Path("/proc/stat")
# Columns of /proc/stat's first line: user, nice, system, irq, softirq, steal; without idle and iowait.
_BUSY_COLUMNS = (0, 1, 2, 5, 6, 7)
# Share of the cores from which other work is reported.
_NOISE_SHARE = 0.1


class LoadMark(Struct, frozen=True, kw_only=True):
    """The counters at one time, in seconds: wall clock, all busy processors, and this process's part."""

    wall_s: float
    busy_s: float
    own_s: float


def mark_load() -> LoadMark | None:
    """Return the counters; None where the system lacks them, or counts cores that this process may not use."""
    if not _STAT.is_file() or available_processors() != os.cpu_count():
        return None
    columns = _STAT.read_text(encoding="utf-8").split("\n", 1)[0].split()[1:]
    ticks = sum(int(columns[number]) for number in _BUSY_COLUMNS if number < len(columns))
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return LoadMark(
        wall_s=time.monotonic(),
        busy_s=ticks / os.sysconf("SC_CLK_TCK"),
        own_s=time.process_time() + children.ru_utime + children.ru_stime,
    )


def others_cores(begin: LoadMark | None, end: LoadMark | None) -> float | None:
    """Return how many cores other work kept busy; this process's children must have ended before `end`."""
    if begin is None or end is None:
        return None
    others_s = (end.busy_s - begin.busy_s) - (end.own_s - begin.own_s)
    return max(0.0, others_s / (end.wall_s - begin.wall_s))


def is_noisy(others: float | None, of_cores: int) -> bool:
    """Return whether other work took a notable share of the cores."""
    return others is not None and others >= _NOISE_SHARE * of_cores


def load_note(others: float | None, of_cores: int) -> tuple[str, ...]:
    """Return a note on other work, if it was notable."""
    if others is None or not is_noisy(others, of_cores):
        return ()
    seen = f"other work kept {others:.1f} of {of_cores} cores busy meanwhile"
    return (f"{seen}: latencies are longer and intervals wider than on an idle machine",)
