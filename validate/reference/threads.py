"""Work on large arrays by several threads: NumPy lets others run while it computes."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

# Each thread has about ten copies in float64 of what it works on: with so many values, 160 MB.
_MOST_VALUES = 1 << 21
_MOST_THREADS = 4

_Part = TypeVar("_Part")
_Found = TypeVar("_Found")


def by_threads(work: Callable[[_Part], _Found], parts: Sequence[_Part], *, values: int) -> list[_Found]:
    """Return what comes of each part, in their order, whichever is done first.

    There are as many threads at once as this process may use processors, four at the most; with one, or where a part
    takes much memory, the parts are done one by one.

    Args:
        work: What is done with a part. Its result does not depend on what the other threads do.
        parts: The parts.
        values: About how many values a part works on at once.

    Raises:
        Exception: Whatever `work` raises for the first part that it raises for.
    """
    threads = min(len(parts), _processors(), _MOST_THREADS) if values <= _MOST_VALUES else 1
    if threads < 2:  # noqa: PLR2004 - one thread is this one
        return [work(part) for part in parts]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(work, parts))


def _processors() -> int:
    # Not every system says which ones are this process's.
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
