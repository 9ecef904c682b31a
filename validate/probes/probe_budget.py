"""Limit the cost of probes: four times the cost of the samples, and five seconds of CPU.

Every machine is to run the same probes. So work is counted in rows of the samples, and three times the samples run
whatever the clock shows. More than that runs as long as the seconds last; for a fast model that is everything.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from msgspec import Struct

from paritygate.batch import Arrays

_TIMES = 4.0
_BESIDES_S = 5.0
# Small batches take more seconds a row, so the count allows less than the clock.
_TIMES_COUNTED = 3.0
# Seconds for the candidate's repeats in other sessions, beyond as many rows as the samples have.
_AGAIN_S = 3.0
# With fewer samples than this, probes get the allowance of this many.
_LEAST_ROWS = 16


class SamplesCost(Struct, frozen=True, kw_only=True):
    """The cost of one pass over the samples: rows, values of all inputs over all rows, CPU seconds of all threads."""

    rows: int
    values: int
    seconds: float


class Allowance:
    """Decide for each batch whether it may still run; each probe has a share of the rows and of the seconds.

    A probe leaves the rest of its share to those after it. So one large batch, such as a thousand positions where
    samples have twenty, cannot use up the share of the others.
    """

    def __init__(self, samples: SamplesCost, *, clock: Callable[[], float] = time.process_time) -> None:
        self._clock = clock
        rows = max(samples.rows, 1)
        self._values_of_row = max(samples.values / rows, 1.0)
        self._seconds_of_row = samples.seconds / rows
        self._rows_left = _TIMES_COUNTED * max(rows, _LEAST_ROWS)
        self._rows_taken = 0.0
        self._began = clock()
        self._ends = self._began + _TIMES * self._seconds_of_row * max(rows, _LEAST_ROWS) + _BESIDES_S
        self._share = self._rows_left
        self._share_ends = self._ends

    def begin(self, parts: int) -> None:
        """Begin a probe that may use the given part (1/parts) of the rows and seconds that are left."""
        now = self._clock()
        self._share = self._rows_left / parts
        self._share_ends = now + max(self._ends - now, 0.0) / parts

    def takes(self, inputs: Arrays, *, times: int, calls: int) -> bool:
        """Return whether a batch may run, and count it: each row counts `times` times, and a call as one more row."""
        rows = times * sum(array.size for array in inputs.values()) / self._values_of_row + calls
        if rows > self._share and self._clock() + rows * self._seconds_expected() > self._share_ends:
            return False
        self._rows_taken += rows
        # Beyond its share a probe uses up seconds, but no rows of the other probes.
        self._rows_left -= min(rows, self._share)
        self._share = max(0.0, self._share - rows)
        return True

    def _seconds_expected(self) -> float:
        """Return the seconds per row: of the samples, or of the probes so far where they are slower (large outputs)."""
        so_far = (self._clock() - self._began) / self._rows_taken if self._rows_taken else 0.0
        return max(self._seconds_of_row, so_far)


def rows_asked_again(samples: SamplesCost) -> int:
    """Return how many rows may run again in the candidate's other sessions; a row counts each time that it runs."""
    rows = max(samples.rows, 1)
    return max(rows, _LEAST_ROWS, int(_AGAIN_S / max(samples.seconds / rows, 1e-6)))
