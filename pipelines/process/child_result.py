"""Read a child's result, which code of the model or of the samples may have written in its place."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Protocol

from paritygate.errors import ParitygateError

HINT_OF_GARBAGE = "code of the model or of the samples writes to files that it did not open: correct it"
# Errors of reading anything in another format than ours.
NOT_OURS = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)


class _Job(Protocol):
    @property
    def what(self) -> str:
        """Its description."""

    @property
    def crash_error(self) -> type[ParitygateError]:
        """The error of its failure."""


@contextlib.contextmanager
def reading_result(job: _Job) -> Iterator[None]:
    """Read the result of a job inside, and raise `job.crash_error` if the job did not write it."""
    try:
        yield
    except ParitygateError:
        raise
    except NOT_OURS as err:
        msg = f"{job.what} left a result that paritygate did not write: {type(err).__name__}: {err}"
        raise job.crash_error(msg, hint=HINT_OF_GARBAGE) from err
