"""What probes may cost: four times what the samples cost, and five seconds of CPU.

What is asked is to be the same on every machine and at every hour. So work is counted in rows of the samples, and
three times the samples are asked whatever the clock says. What is more than that is asked as long as the seconds last,
which of a model that is fast they do for all there is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_TIMES = 4.0
_BESIDES_S = 5.0
# A few rows take longer each than many at once, so that the same work takes more seconds.
_TIMES_COUNTED = 3.0
# Of the candidate's, these are for what is asked again in other ways, beside as many rows as the samples have.
_AGAIN_S = 3.0
# Fewer samples allow as much as so many.
_LEAST_ROWS = 16


@dataclass(frozen=True, kw_only=True, slots=True)
class SamplesCost:
    """What a model's pass over the samples was.

    Attributes:
        rows: How many rows there were.
        values: How many values all inputs had in all of them.
        seconds: Seconds of CPU that the answers took, of all threads.
    """

    rows: int
    values: int
    seconds: float


class Allowance:
    """Says of each batch whether it may still be asked; each probe has a share of the rows and of the seconds.

    What a probe leaves of its share is for those after it. So no batch, such as one of a thousand positions where
    samples have twenty, takes what the others need.
    """

    def __init__(self, samples: SamplesCost, *, clock: Callable[[], float] = time.process_time) -> None:
        """Begin to count."""
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
        """Begin a probe, which may take one of so many parts of what is left: of the rows, whatever the clock says."""
        now = self._clock()
        self._share = self._rows_left / parts
        self._share_ends = now + max(self._ends - now, 0.0) / parts

    def takes(self, inputs: Mapping[str, NDArray[np.generic]], *, times: int, calls: int) -> bool:
        """Return whether a batch may be asked, which is then taken for asked.

        Args:
            inputs: Its inputs.
            times: How many times every row is asked.
            calls: In how many calls; one costs as much as one more row.
        """
        rows = times * sum(array.size for array in inputs.values()) / self._values_of_row + calls
        if rows > self._share and self._clock() + rows * self._seconds_expected() > self._share_ends:
            return False
        self._rows_taken += rows
        # What is more than the share takes seconds, and no rows of the others.
        self._rows_left -= min(rows, self._share)
        self._share = max(0.0, self._share - rows)
        return True

    def _seconds_expected(self) -> float:
        """Return the seconds of a row: as in the samples, or as so far where that is more.

        What is made of an answer may take much longer than the answer: of a language model's, which holds a number for
        every word that it knows.
        """
        so_far = (self._clock() - self._began) / self._rows_taken if self._rows_taken else 0.0
        return max(self._seconds_of_row, so_far)


def rows_asked_again(samples: SamplesCost) -> int:
    """Return how many rows a candidate may be asked again in other ways, each counted as often as it is asked."""
    rows = max(samples.rows, 1)
    return max(rows, _LEAST_ROWS, int(_AGAIN_S / max(samples.seconds / rows, 1e-6)))
