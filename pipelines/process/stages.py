"""Report the begin and the end of a stage of the work to the progress."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, runtime_checkable

from paritygate.pipelines.process.child import Progress


@runtime_checkable
class StageProgress(Protocol):
    """A progress that also shows stages; a plain function only gets the steps within them."""

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Show a step: its description, the amount done, and the total (0 if unknown)."""

    def begin(self, doing: str, names: Sequence[str]) -> None:
        """Show that a stage begins, such as `exporting`, and the names of its parts in order."""

    def end(self, did: str) -> None:
        """Show the summary of the stage, such as `exported 3 of 4 variants`; empty after an error."""


@contextlib.contextmanager
def stage(progress: Progress, doing: str, names: Sequence[str] = ()) -> Iterator[Callable[[str], None]]:
    """Begin and end a stage; the yielded function takes its summary."""
    did: list[str] = []
    shown = progress if isinstance(progress, StageProgress) else None
    if shown is not None:
        shown.begin(doing, names)
    try:
        yield did.append
    finally:
        if shown is not None:
            shown.end(did[-1] if did else "")
