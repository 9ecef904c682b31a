"""What a runner may offer besides its answers: to answer on one thread, for the reference's own noise."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from paritygate.validate.runners.runner import Runner

__all__ = [
    "ALL_THERE_IS",
    "FIXED_BY_TENSORFLOW",
    "NOT_KNOWN",
    "ON_THE_GPU",
    "OneThread",
    "on_one_thread",
    "threads_of_process",
]

# Why a runner does not, in words that end a sentence.
ALL_THERE_IS = "one thread is all there is"
FIXED_BY_TENSORFLOW = "TensorFlow fixes its threads when it starts"
NOT_KNOWN = "on how many threads it ran is not known here"
ON_THE_GPU = "it is computed on the GPU"
_NOT_OFFERED = "its runner does not choose them"
_TASKS = Path("/proc/self/task")


@runtime_checkable
class OneThread(Protocol):
    """A runner that says whether it can answer on one thread."""

    def on_one_thread(self) -> AbstractContextManager[Runner] | str:
        """Return what opens a runner of the same model that computes on one thread, or why there is none.

        What is opened is given back when it is left; the runner itself answers afterwards as before.

        Raises:
            ParitygateError: On opening, the model cannot be loaded once more.
        """
        ...


def on_one_thread(runner: Runner) -> AbstractContextManager[Runner] | str:
    """Return what opens a runner of the same model that computes on one thread, or why there is none."""
    return runner.on_one_thread() if isinstance(runner, OneThread) else _NOT_OFFERED


def threads_of_process() -> frozenset[str] | None:
    """Return the ids of the threads that this process has; None where the system does not show them."""
    return frozenset(task.name for task in _TASKS.iterdir()) if _TASKS.is_dir() else None
