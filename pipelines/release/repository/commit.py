"""The one moment at which a release or an alias changes: what is prepared before it, and whether it has come."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Generic, TypeVar

_T = TypeVar("_T")
_STOPPING = (signal.SIGINT, signal.SIGTERM)


@dataclass(kw_only=True, slots=True)
class Commit(Generic[_T]):
    """What is recorded, for whoever has to know of it whatever happens afterwards.

    Attributes:
        prepare: Called with what is about to be recorded, again where another process records something first. An error
            leaves everything as it was.
        done: What was recorded; None until then, and where nothing had to be.
    """

    prepare: Callable[[_T], None] | None = None
    done: _T | None = None
    _pending: _T | None = None

    def begin(self, pending: _T) -> None:
        """Prepare what is about to be recorded."""
        if self.prepare is not None:
            self.prepare(pending)
        self._pending = pending

    @contextlib.contextmanager
    def recording(self) -> Iterator[Callable[[], None]]:
        """Yield what is called once the record is there; Ctrl-C and SIGTERM wait meanwhile."""

        def finish() -> None:
            self.done = self._pending

        with _uninterrupted():
            yield finish


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Hold signals back that would end the process, and take them afterwards."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    caught: list[tuple[int, FrameType | None]] = []
    # What is no handler of Python's, such as that of a program that this one is a part of, is left alone.
    handlers = {number: handler for number in _STOPPING if callable(handler := signal.getsignal(number))}
    for number in handlers:
        signal.signal(number, lambda number, frame: caught.append((number, frame)))
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        if caught:
            handlers[signal.Signals(caught[0][0])](*caught[0])
