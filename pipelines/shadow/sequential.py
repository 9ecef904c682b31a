"""A sequential test of the rate at which answers change. It may be read after each request.

Each hypothesis has a wealth that starts at 1 and bets against it. While the hypothesis is true, the wealth ever exceeds
1 / a with a probability of at most a (Ville's inequality). So looking often costs nothing.
Source: Waudby-Smith and Ramdas, "Estimating means of bounded random variables by betting", JRSS B 86 (2024).
"""

from __future__ import annotations

from bisect import bisect_left

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from paritygate.text import StrEnum

# How often a verdict may be wrong.
ERROR_RATE = 0.01
# The rate that a release is promoted below is this many times the largest rate allowed.
PROMOTED_BELOW = 2.0
# A fault that begins late is found by bets that begin late.
_REQUESTS_BETWEEN_STARTS = 1000
_MOST_STARTS = 2000
_BETS = 32
# Bets on rates up to so many times the bound: then no rollback follows from one or two changed answers.
_HIGHEST_TIMES = 20.0
# A bet on a rate of 1 would lose all at the first equal answer.
_HIGHEST_RATE = 0.9


class Verdict(StrEnum):
    """The verdict on the traffic so far."""

    ROLLBACK = "rollback"  # more answers change than allowed
    PROMOTE = "promote"  # fewer than twice as many change
    HOLD = "hold"  # too little is known


class _Bets(Struct, kw_only=True):
    """Bets that a mean is not `bound`, each on one other mean; `wealth` holds logarithms, one row for each start."""

    bound: float
    rates: NDArray[np.float64]
    wealth: NDArray[np.float64]

    @classmethod
    def on(cls, bound: float, rates: NDArray[np.float64]) -> _Bets:
        return cls(bound=bound, rates=rates, wealth=np.zeros((1, rates.size)))

    def add(self, share: float, times: int = 1) -> None:
        """Take in `times` requests, each with this share of changed answers."""
        self.wealth = self.wealth + times * self.gain(share)

    def gain(self, share: float) -> NDArray[np.float64]:
        """Return what such a request adds to the wealth."""
        with np.errstate(divide="ignore"):
            odds = share * self.rates / self.bound + (1 - share) * (1 - self.rates) / (1 - self.bound)
            gain: NDArray[np.float64] = np.log(odds)
        return gain

    def start_again(self) -> None:
        self.wealth = np.vstack([self.wealth, np.zeros((1, self.rates.size))])

    def log_of_all(self) -> float:
        """Return the logarithm of the mixed wealth: equal parts on each rate, 1 / (k (k + 1)) on the k-th start."""
        starts = np.arange(1, len(self.wealth) + 1)
        parts = -np.log(starts * (starts + 1.0))[:, None] - np.log(self.rates.size) + self.wealth
        # What is not yet bet stays as it is.
        unspent = -np.log(starts[-1] + 1.0)
        return float(np.logaddexp(np.logaddexp.reduce(parts, axis=None), unspent))


class SequentialTest:
    """Whether at most `most` of all answers change, from the shares of requests in their order."""

    def __init__(self, most: float) -> None:
        """Begin without a request; `most` is a rate above 0 and below 0.4."""
        self.most = most
        below = PROMOTED_BELOW * most
        self._above = _Bets.on(most, np.geomspace(1.25 * most, min(_HIGHEST_TIMES * most, _HIGHEST_RATE), _BETS))
        self._below = _Bets.on(below, np.linspace(0, 0.9 * below, _BETS))
        self._since_start = 0
        self._is_rejected = False
        self.requests = 0

    def add(self, share: float) -> None:
        """Take in a request with this share of changed answers, from 0 to 1.

        A request is one observation, because the rows of one request may depend on each other.
        """
        self._take(share, 1)
        self._is_rejected = self._is_rejected or self._above.log_of_all() >= -np.log(ERROR_RATE)

    def add_equal(self, times: int) -> None:
        """Take in `times` requests without a changed answer; they never lead to a rollback."""
        while times > 0:
            step = min(times, _REQUESTS_BETWEEN_STARTS - self._since_start)
            self._take(0.0, step)
            times -= step

    def _take(self, share: float, times: int) -> None:
        self._above.add(share, times)
        self._below.add(share, times)
        self.requests += times
        self._since_start += times
        if self._since_start == _REQUESTS_BETWEEN_STARTS and len(self._above.wealth) < _MOST_STARTS:
            self._above.start_again()
            self._since_start = 0
        self._since_start %= _REQUESTS_BETWEEN_STARTS

    @property
    def verdict(self) -> Verdict:
        """The verdict on all requests so far. A rollback stays, whatever comes later."""
        if self._is_rejected:
            return Verdict.ROLLBACK
        return Verdict.PROMOTE if self._promotes_after(0) else Verdict.HOLD

    @property
    def until_promoted(self) -> int:
        """How many more requests without a changed answer would lead to PROMOTE, unless it is a rollback."""
        most = 1
        while not self._promotes_after(most):
            most *= 2
        # Each such request adds to the wealth.
        return bisect_left(range(most), x=True, key=self._promotes_after)

    def _promotes_after(self, equal: int) -> bool:
        # Without a second start, the unspent half would only weaken it.
        wealth = self._below.wealth[0] + equal * self._below.gain(0.0)
        return bool(np.logaddexp.reduce(wealth) - np.log(_BETS) >= -np.log(ERROR_RATE))
