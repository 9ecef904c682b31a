"""Run a process that ends with its block, whatever ends the block."""

from __future__ import annotations

import contextlib
import signal
import subprocess
from collections.abc import Iterator, Sequence
from typing import Any

__all__ = ["running"]

_STOP_S = 20.0


@contextlib.contextmanager
def running(words: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[bytes]]:  # noqa: ANN401 - those of Popen
    """Yield the process of a command; afterwards it is ended by its process id: as by Ctrl-C, and then for good."""
    process = subprocess.Popen(words, **options)
    try:
        yield process
    finally:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
            if process.poll() is None:
                process.send_signal(number)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(_STOP_S)
