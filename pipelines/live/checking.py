"""Check the answers of a server, after a measurement as far as memory allows."""

from __future__ import annotations

import threading
from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from paritygate.pipelines.live.judge import Difference
from paritygate.pipelines.live.questions import Questions

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# The most bytes of unchecked answers, and the most answers known to be right.
_MOST_HELD, _MOST_KNOWN = 256 * 1024 * 1024, 2048


class _Reader(Protocol):
    """Reads an answer that was received."""

    def read(self, answer: Any) -> Mapping[str, NDArray[np.generic]]: ...  # noqa: ANN401 - of each server's own kind


class AnswerCheck:
    """Compares answers with those of the released file, equal ones once."""

    def __init__(self, server: _Reader, questions: Questions) -> None:
        """Prepare; nothing is compared."""
        self._server, self._questions = server, questions
        # By the digest of an answer, because many large ones would fill the memory.
        self._right: dict[tuple[int, Hashable], Difference] = {}
        self._held = 0
        self._lock = threading.Lock()

    def must_check_now(self, size: int) -> bool:
        """Return whether an answer of so many bytes is one too many to hold until the end of the measurement."""
        with self._lock:
            self._held += size
            return self._held > _MOST_HELD

    def begin(self) -> None:
        """Begin a measurement: no answer is held."""
        self._held = 0

    def difference(self, which: int, answer: Hashable) -> Difference:
        """Return how the answer to a request differs; raise BackendError where it cannot be read."""
        key = (which, getattr(answer, "digest", answer))
        known = self._right.get(key)
        if known is not None:
            return known
        found = self._questions.difference(which, self._server.read(answer))
        if found.is_right:
            with self._lock:
                if len(self._right) >= _MOST_KNOWN:
                    self._right.clear()
                self._right[key] = found
        return found
