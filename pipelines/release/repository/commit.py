"""Guard the moment at which a release or an alias changes, for callers that prepare before it and act after it."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Generic, TypeVar

from msgspec import Struct

_T = TypeVar("_T")
_STOPPING = (signal.SIGINT, signal.SIGTERM)


class Commit(Struct, Generic[_T], kw_only=True):
    """Hold what is recorded, whatever happens afterwards.

    `prepare` gets what is about to be recorded, and runs again if another process records first. Its error leaves
    everything as it was.
    """

    prepare: Callable[[_T], None] | None = None
    done: _T | None = None  # None until it is recorded, and where nothing had to be
    _pending: _T | None = None

    def begin(self, pending: _T) -> None:
        """Prepare what is about to be recorded."""
        if self.prepare is not None:
            self.prepare(pending)
        self._pending = pending

    @contextlib.contextmanager
    def recording(self) -> Iterator[Callable[[], None]]:
        """Yield a function to call once the record is there; Ctrl-C and SIGTERM wait meanwhile."""

        def finish() -> None:
            self.done = self._pending

        with _uninterrupted():
            yield finish


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Delay the signals that would end the process."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    caught: list[tuple[int, FrameType | None]] = []
    # Other handlers than Python's, such as those of an embedding program, are left alone.
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
