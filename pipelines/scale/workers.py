"""Make many calls by several workers at a time, and repeat a call whose worker dies."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Protocol, TypeVar

from paritygate.errors import LostWorkerError
from paritygate.machine import THREADS, available_processors, threads_allowed
from paritygate.pipelines.process.child_memory import family_of

_Result = TypeVar("_Result")
_TRIES = 3
# Runs clean up after Ctrl-C.
PATIENCE_S = 30.0
# OpenMP is that of PyTorch.
_THREADS_OF_RUNTIMES = (THREADS, "OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")


class Workers(Protocol):
    """Workers of one kind; `call` is called from as many threads as there are workers."""

    @property
    def place(self) -> str:
        """The number of workers, their threads, and where they are, for a message."""

    def call(self, function: Callable[..., _Result], *args: object) -> _Result:
        """Return the result of a call by a free worker; raise LostWorkerError if the worker dies."""

    def stop(self) -> None:
        """End all calls; called again until they have ended."""


class Processes:
    """Workers in processes that the called function starts from a thread of this process."""

    def __init__(self, workers: int, *, are_threads_limited: bool) -> None:
        """Limit the threads of all processes that are started from now on, or not."""
        threads = threads_allowed() or max(1, available_processors() // workers)
        self.place = f"{workers} at a time on this machine"
        if are_threads_limited:
            limit_threads(threads)
            self.place += f", threads of each: {threads}"
        self._stopped_at: dict[int, float] = {}

    def call(self, function: Callable[..., _Result], *args: object) -> _Result:
        """Call the function in this thread."""
        return function(*args)

    def stop(self) -> None:
        """End the processes that lead a session; by force those that have not tidied up in time."""
        own = os.getpid()
        for pid, member in family_of(own).items():
            if pid != member.session or pid == own:
                continue
            is_late = time.monotonic() - self._stopped_at.get(pid, math.inf) > PATIENCE_S
            with contextlib.suppress(ProcessLookupError, PermissionError):
                if is_late:
                    os.killpg(pid, signal.SIGKILL)
                elif pid not in self._stopped_at:
                    self._stopped_at[pid] = time.monotonic()
                    # SIGINT may be ignored, as in the background of a shell.
                    os.kill(pid, signal.SIGTERM)


def limit_threads(threads: int) -> None:
    """Limit the threads of each model in the processes that this one starts; a limit of the user stays."""
    for name in _THREADS_OF_RUNTIMES:
        os.environ.setdefault(name, str(threads))


def call_all(
    calls: Sequence[Callable[[], _Result]],
    workers: int,
    *,
    done: Callable[[int, Future[_Result]], None],
    stop: Callable[[], None],
) -> None:
    """Make all calls, `workers` at a time, and pass the index and outcome of each to `done` in this thread.

    A call whose worker dies is made three times at most. After an error or Ctrl-C, `stop` ends the calls.
    """
    is_over = threading.Event()

    def call_again(call: Callable[[], _Result], tries: int = _TRIES) -> _Result:
        try:
            return call()
        except LostWorkerError:
            if is_over.is_set() or tries == 1:
                raise
        return call_again(call, tries - 1)

    with ThreadPoolExecutor(workers) as pool:
        numbers = {pool.submit(call_again, call): at for at, call in enumerate(calls)}
        left = set(numbers)
        try:
            while left:
                # A wait without a limit does not hear Ctrl-C everywhere.
                ended, left = wait(left, timeout=1.0, return_when=FIRST_COMPLETED)
                for each in ended:
                    done(numbers[each], each)
        finally:
            is_over.set()
            while left:
                for each in left:
                    each.cancel()
                stop()
                left = wait(left, timeout=0.2).not_done
