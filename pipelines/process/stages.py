"""Tells whoever shows the progress that a stage of the work begins, which variants it is about, and what came of it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, runtime_checkable

from paritygate.pipelines.process.child import Progress


@runtime_checkable
class StageProgress(Protocol):
    """A progress that is told of stages as well; a plain function is told what is done within them alone."""

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Take what is done now: in words, how much of it, and out of how much (0 where that is not known)."""

    def begin(self, doing: str, names: Sequence[str]) -> None:
        """Take that a stage begins, such as `exporting`, and what it does one after the other."""

    def end(self, did: str) -> None:
        """Take what the stage did, such as `exported 3 of 4 variants`; empty where it was broken off."""


@contextlib.contextmanager
def stage(progress: Progress, doing: str, names: Sequence[str] = ()) -> Iterator[Callable[[str], None]]:
    """Have a stage begin and end; what is yielded takes in words what it did."""
    did: list[str] = []
    shown = progress if isinstance(progress, StageProgress) else None
    if shown is not None:
        shown.begin(doing, names)
    try:
        yield did.append
    finally:
        if shown is not None:
            shown.end(did[-1] if did else "")
