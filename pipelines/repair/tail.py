"""Predict how much of the tolerance more rows use, from how much each of a few rows uses.

The largest difference grows with the number of rows, and a search chooses sets whose largest one is small by chance.
So a choice is measured by the root mean square over its rows, which is steadier. How far the largest row is above that
is learned from all choices tried: squares of rounding errors have an exponential tail.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

# The prediction is one that about 19 of 20 other sets of rows stay below.
_SETS = 20
# The rows above this quantile show how the largest ones grow.
_HIGH = 0.9


class Tail:
    """The tail of the shares of the tolerance that rows use, as multiples of the root mean square of their choice."""

    def __init__(self, rows: int) -> None:
        """Predict for a set of so many rows."""
        self._rows = rows
        self._squares: list[NDArray[np.float64]] = []

    def predict(self, shares: NDArray[np.float64], *, is_learned: bool = True) -> float:
        """Return what the largest of the other rows may use, given the shares of some rows for one choice.

        With `is_learned`, the tail of later choices is taken from this one too.
        """
        typical = math.sqrt(float(np.mean(shares**2)))
        if not 0 < typical < math.inf:
            return typical
        own = (shares / typical) ** 2
        if is_learned:
            self._squares.append(own)
        squares = np.concatenate(self._squares or [own])
        high = float(np.quantile(squares, _HIGH))
        excess = float(np.mean(squares[squares >= high])) - high
        # The root mean square of few rows is not exact: squares of theirs are this far apart.
        typical *= 1 + float(np.std(squares)) / math.sqrt(len(shares)) / 2
        beyond = max(1.0, self._rows * _SETS * (1 - _HIGH))
        return typical * math.sqrt(high + excess * math.log(beyond))
