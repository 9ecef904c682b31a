"""Progress of copying bytes: said in tenths, so that a log stays short."""

from __future__ import annotations

from collections.abc import Callable

from paritygate.pipelines.process.child import Progress

__all__ = ["amount_done"]

# Less is done before anybody has read a line.
_LEAST_BYTES = 64 << 20


def amount_done(what: str, total: int, progress: Progress) -> Callable[[int], None]:
    """Return a function that is told of every bytes done, and tells the progress of it."""
    progress(what, 0, 0)
    done, told = 0, 0

    def add(size: int) -> None:
        nonlocal done, told
        done += size
        tenths = 10 * done // max(1, total)
        if total >= _LEAST_BYTES and tenths > told:
            told = tenths
            progress(f"{what}: {10 * tenths} % of {total / 1e6:,.0f} MB", 0, 0)

    return add
