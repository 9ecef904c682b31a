"""Search for the fewest nodes that have to stay in FP32, in a limited number of runs.

1. All nodes low. If that is within the limits, nothing has to stay.
2. Nodes that make or read a value beyond the range of the precision stay. If that suffices, those that can go are
   dropped again, because an overflow under a mask is harmless.
3. Otherwise rounding adds up. One run a node, or a segment of nodes, measures how much it contributes alone. Errors of
   different nodes are independent, so their squares add, and the loudest ones stay. Then those that can go are dropped.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field

# Of the runs that are left, this share measures nodes one by one.
_SHARE_FOR_NODES = 0.6
# Nodes are dropped in parts of this share at first.
_FIRST_PARTS = 8
# Up to so many nodes, runs that are left look for a smaller set.
_FEW_NODES = 16
_Kept = frozenset[str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Trial:
    """The outcome of one choice of nodes: the used share of the tolerance, and the names of failed checks."""

    share: float
    failed: tuple[str, ...] = ()

    def is_within(self, aim: float) -> bool:
        """Return whether no check failed, and at most the share `aim` of the tolerance is used."""
        return not self.failed and self.share <= aim


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """The chosen nodes.

    `reasons` has what each kept node was kept for: `overflow` or `rounding`. `ranking` has the other nodes, the next
    to keep first. `is_within` is False where no set was found in time; then `kept` is the best one tried.
    """

    kept: frozenset[str]
    is_within: bool
    share: float
    reasons: dict[str, str] = field(default_factory=dict)
    ranking: tuple[str, ...] = ()


class BudgetSpentError(Exception):
    """No run is left."""


class Runs:
    """Measures choices, each once, and counts the runs; the search leaves some in reserve."""

    def __init__(self, measure: Callable[[_Kept], Trial], *, most: int, aim: float, reserve: int = 0) -> None:
        self._measure = measure
        self._known: dict[_Kept, Trial] = {}
        self.most = most
        self.aim = aim
        self.reserve = reserve
        self.used = 0

    @property
    def left(self) -> int:
        """The runs that are left, without the reserve."""
        return self.most - self.reserve - self.used

    def trial(self, kept: Collection[str]) -> Trial:
        """Return the outcome with these nodes in FP32; raise BudgetSpentError if no run is left."""
        key = frozenset(kept)
        if key not in self._known:
            if self.left <= 0:
                raise BudgetSpentError
            self.used += 1
            self._known[key] = self._measure(key)
        return self._known[key]

    def is_within(self, kept: Collection[str]) -> bool:
        """Return whether the outcome with these nodes in FP32 is within the aim."""
        return self.trial(kept).is_within(self.aim)

    def best(self) -> tuple[_Kept, Trial] | None:
        """Return the smallest choice that was within the aim; None if none was."""
        within = [(kept, trial) for kept, trial in self._known.items() if trial.is_within(self.aim)]
        return min(within, key=lambda item: (len(item[0]), item[1].share), default=None)


def search(switches: Sequence[str], overflowing: Collection[str], runs: Runs, heavy: Collection[str] = ()) -> Choice:
    """Return the fewest nodes of `switches`, in the order of the graph, that have to stay in FP32.

    `overflowing` are those whose values exceed the range. In a large model, `heavy` ones, which do most of the work,
    stay low if the others suffice.
    """
    ranking: dict[str, float] = {}
    with contextlib.suppress(BudgetSpentError):
        _search(switches, overflowing, runs, ranking, heavy)
    best = runs.best()
    kept, trial = (frozenset(overflowing), Trial(share=math.inf)) if best is None else best
    rest = sorted(
        (name for name in switches if name not in kept),
        key=lambda name: (name not in overflowing, -ranking.get(name, 0.0)),
    )
    reasons = {name: "overflow" if name in overflowing else "rounding" for name in switches if name in kept}
    return Choice(kept=kept, is_within=best is not None, share=trial.share, reasons=reasons, ranking=tuple(rest))


def _search(
    switches: Sequence[str],
    overflowing: Collection[str],
    runs: Runs,
    ranking: dict[str, float],
    heavy: Collection[str],
) -> None:
    if runs.is_within(()):
        return
    beyond = [name for name in switches if name in overflowing]
    if beyond and runs.is_within(beyond):
        _drop(beyond, runs)
        return
    rest = [name for name in switches if name not in overflowing]
    light = [name for name in rest if name not in heavy]
    if len(switches) > _FEW_NODES and len(light) < len(rest) and runs.is_within([*beyond, *light]):
        rest = light
    for part, share in _loudness(rest, switches, runs):
        ranking.update(dict.fromkeys(part, share / math.sqrt(len(part))))
    ordered = sorted(rest, key=lambda name: -ranking[name])
    count = _least_prefix(beyond, ordered, ranking, runs)
    kept = _drop([*beyond, *ordered[:count]][::-1], runs)
    if len(switches) <= _FEW_NODES:
        _look_for_fewer(kept, ordered, runs)


def _loudness(rest: Sequence[str], switches: Sequence[str], runs: Runs) -> Iterator[tuple[list[str], float]]:
    """Yield parts of the nodes with the share of the tolerance that each uses if it alone is low."""
    size = max(1, math.ceil(len(rest) / max(1, int(runs.left * _SHARE_FOR_NODES))))
    everything = frozenset(switches)
    for start in range(0, len(rest), size):
        part = list(rest[start : start + size])
        trial = runs.trial(everything.difference(part))
        share = trial.share if not trial.failed else max(trial.share, 1.0)
        yield part, share


def _least_prefix(beyond: Sequence[str], ordered: Sequence[str], ranking: dict[str, float], runs: Runs) -> int:
    """Return how many nodes of the ranking must stay, at least about."""
    squares = [min(ranking[name], 1e100) ** 2 for name in ordered]
    tails = [math.sqrt(sum(squares[count:])) for count in range(len(ordered) + 1)]
    failing, passing = 0, len(ordered)
    guess = next(count for count, tail in enumerate(tails) if tail <= runs.aim)
    while passing - failing > 1:
        count = guess if failing < guess < passing else (failing + passing) // 2
        if runs.is_within([*beyond, *ordered[:count]]):
            passing, guess = count, count - max(1, (count - failing) // 4)
        else:
            failing, guess = count, count + max(1, (passing - count) // 4)
    return passing


def _drop(kept: Sequence[str], runs: Runs) -> list[str]:
    """Return the nodes without those that can go, tried in their order, large parts first."""
    left = list(kept)
    size = max(1, len(left) // _FIRST_PARTS)
    while True:
        at = 0
        while at < len(left):
            fewer = left[:at] + left[at + size :]
            if runs.is_within(fewer):
                left = fewer
            else:
                at += size
        if size == 1:
            return left
        size //= 2


def _look_for_fewer(kept: Sequence[str], ordered: Sequence[str], runs: Runs) -> None:
    """Try smaller sets, those of the loudest nodes first."""
    places = {name: at for at, name in enumerate(ordered)}
    names = sorted({*kept, *ordered}, key=lambda name: places.get(name, -1))
    for size in range(len(kept) - 1, 0, -1):
        for fewer in itertools.combinations(names, size):
            if runs.is_within(fewer):
                break
        else:
            return
