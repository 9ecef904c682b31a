"""Make many calls by several workers at a time, and repeat a call whose worker dies."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any, Protocol

from paritygate.errors import LostWorkerError
from paritygate.text import first_line_of

_TRIES = 3
# What ends after Ctrl-C cleans up first.
PATIENCE_S = 30.0


class Worker(Protocol):
    """Makes one call at a time, and keeps what it needs for the next one."""

    def call(self, *args: Any) -> Any:  # noqa: ANN401 - JSON data, bytes, or a dataclass
        """Return the result of a call; raise LostWorkerError if its process dies."""

    def stop(self) -> None:
        """End the call, from another thread; called again until it has ended."""

    def close(self) -> None:
        """End all that is left."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Workers:
    """The place of workers, for a message, and the processors of each."""

    place: str
    processors: int

    def start(self, kind: Callable[..., Worker], *args: Any) -> Worker:  # noqa: ANN401 - as `kind` takes them
        """Return a worker that `kind` makes of these arguments, in this process."""
        return kind(*args)


class SoftEnd:
    """Ends a process that leads a session, and by force where it has not tidied up in time; called again and again."""

    def __init__(self) -> None:
        self._begun: float | None = None

    def __call__(self, process: subprocess.Popen[bytes]) -> None:
        """Ask it to end; later, kill it."""
        if process.poll() is not None:
            return
        if self._begun is None:
            self._begun = time.monotonic()
            # SIGINT may be ignored, as in the background of a shell.
            process.terminate()
        elif time.monotonic() - self._begun > PATIENCE_S:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)


def replacement(err: LostWorkerError) -> str:
    """Return the line on a worker that died, and whose call another one makes."""
    return f"another worker repeats this job, because {first_line_of(str(err))}"


class _Started:
    """The workers that were started, and those among them that are free."""

    def __init__(self, start: Callable[[], Worker]) -> None:
        self._start = start
        self._free: list[Worker] = []
        self.all: list[Worker] = []
        self.replaced: queue.SimpleQueue[LostWorkerError] = queue.SimpleQueue()
        self.is_over = False

    def call(self, args: Sequence[object], tries: int = _TRIES) -> object:
        """Return the result of a call by a free worker, or by a new one."""
        try:
            worker = self._free.pop()
        except IndexError:
            worker = self._start()
            self.all.append(worker)
        try:
            result = worker.call(*args)
        except LostWorkerError as err:
            if self.is_over or tries == 1:
                raise
            self.replaced.put(err)
            worker.close()
            return self.call(args, tries - 1)
        self._free.append(worker)
        return result


def call_all(
    calls: Sequence[Sequence[object]],
    workers: int,
    start: Callable[[], Worker],
    done: Callable[[int, Future[Any]], None],
    replaced: Callable[[LostWorkerError], None],
) -> None:
    """Make calls with these arguments by so many workers, and pass the index and outcome of each to `done`.

    A call whose worker dies is made three times at most, and `replaced` gets the reason. After an error or Ctrl-C, all
    calls are ended.
    """
    started = _Started(start)
    # A process may end with the thread that started it, and those of the pool live as long as the pool.
    with ThreadPoolExecutor(workers) as pool:
        numbers = {pool.submit(started.call, args): at for at, args in enumerate(calls)}
        left = set(numbers)
        try:
            while left:
                # A wait without a limit does not hear Ctrl-C everywhere.
                ended, left = wait(left, timeout=1.0, return_when=FIRST_COMPLETED)
                while not started.replaced.empty():
                    replaced(started.replaced.get())
                for each in ended:
                    done(numbers[each], each)
        finally:
            started.is_over = True
            while left:
                for each in left:
                    each.cancel()
                for worker in started.all:
                    worker.stop()
                left = wait(left, timeout=0.2).not_done
            for worker in started.all:
                worker.close()
