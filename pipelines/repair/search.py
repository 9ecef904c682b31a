"""Search for the fewest nodes that have to stay in FP32, in a limited number of runs.

1. All nodes low. If that is within the limits, nothing has to stay.
2. Nodes that make or read a value beyond the range of the precision stay. If that suffices, those that can go are
   dropped again, because an overflow under a mask is harmless.
3. Otherwise rounding adds up. One run a node, or a group of nodes that do the same, measures how much it uses alone.
   Errors of different nodes are independent, so their squares add, and the loudest ones for their work stay. Then
   those that can go are dropped.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable, Collection, Mapping, Sequence

from msgspec import Struct, field

# Of the runs that are left, this share measures nodes one by one.
_SHARE_FOR_NODES = 0.6
# Overflows that use less of the tolerance alone are no reason to keep the nodes.
_QUIET = 0.1
# The share of a choice that is not finite, so that it can be squared.
_LOUDEST = 1e100
# Nodes are dropped in parts of this share at first.
_FIRST_PARTS = 8
# Up to so many nodes, runs that are left look for a smaller set.
_FEW_NODES = 16
_Kept = frozenset[str]


class Trial(Struct, frozen=True, kw_only=True):
    """The outcome of one choice of nodes, with the names of failed checks.

    `share` of the tolerance is what more rows are likely to use, and `measured` what these rows do.
    """

    share: float
    measured: float = 0.0
    failed: tuple[str, ...] = ()

    def is_within(self, aim: float) -> bool:
        """Return whether no check failed, and at most the share `aim` of the tolerance is used."""
        return not self.failed and self.share <= aim


class Choice(Struct, frozen=True, kw_only=True):
    """The chosen nodes.

    `reasons` has what each kept node was kept for: `overflow` or `rounding`. `ranking` has the other nodes, the next
    to keep first. `is_within` is False where no set was found in time; then `kept` is the best one tried.
    """

    kept: frozenset[str]
    is_within: bool
    share: float
    reasons: dict[str, str] = field(default_factory=dict)
    ranking: tuple[str, ...] = ()


class Nodes(Struct, frozen=True, kw_only=True):
    """The names of the nodes that can be low, in the order of the graph.

    `overflowing` are those whose values exceed the range. `work` has the shares of the multiply-adds, which count in a
    large model: a node that does much is kept only if that helps much. `groupings` have the group of each node by its
    name, the finest grouping first.
    """

    names: Sequence[str]
    overflowing: Collection[str] = ()
    work: Mapping[str, float] = field(default_factory=dict)
    groupings: Sequence[Mapping[str, str]] = ()

    def cost(self, name: str) -> float:
        """Return what keeping a node costs: its shares of the nodes and of the work."""
        return 1 / len(self.names) + (self.work.get(name, 0.0) if len(self.names) > _FEW_NODES else 0.0)


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

    def best(self, cost: Callable[[str], float]) -> tuple[_Kept, Trial] | None:
        """Return the choice of the least cost that was within the aim; None if none was."""
        within = [(kept, trial) for kept, trial in self._known.items() if trial.is_within(self.aim)]
        return min(within, key=lambda item: (sum(map(cost, item[0])), item[1].share), default=None)


def search(nodes: Nodes, runs: Runs) -> Choice:
    """Return the fewest nodes that have to stay in FP32."""
    ranking: dict[str, float] = {}
    with contextlib.suppress(BudgetSpentError):
        _search(nodes, runs, ranking)
    best = runs.best(nodes.cost)
    kept, trial = (frozenset(nodes.overflowing), Trial(share=math.inf)) if best is None else best
    rest = sorted(
        (name for name in nodes.names if name not in kept),
        key=lambda name: -(ranking.get(name, _LOUDEST if name in nodes.overflowing else 0.0) ** 2) / nodes.cost(name),
    )
    reasons = {name: "overflow" if name in nodes.overflowing else "rounding" for name in nodes.names if name in kept}
    return Choice(kept=kept, is_within=best is not None, share=trial.share, reasons=reasons, ranking=tuple(rest))


def _search(nodes: Nodes, runs: Runs, ranking: dict[str, float]) -> None:
    if runs.is_within(()):
        return
    beyond = [name for name in nodes.names if name in nodes.overflowing]
    if beyond and runs.is_within(beyond):
        _drop(beyond, runs)
        return
    if beyond and runs.trial(frozenset(nodes.names).difference(beyond)).is_within(_QUIET):
        # An overflow under a mask is harmless.
        beyond = []
    rest = [name for name in nodes.names if name not in beyond]
    for share, part in _loudness(rest, nodes, runs):
        ranking.update(dict.fromkeys(part, share / math.sqrt(len(part))))
    ordered = sorted(rest, key=lambda name: -(ranking[name] ** 2) / nodes.cost(name))
    count = _least_prefix(beyond, ordered, ranking, runs)
    kept = _drop([*beyond, *ordered[:count]][::-1], runs)
    if len(nodes.names) <= _FEW_NODES:
        _look_for_fewer(kept, ordered, runs)


def _loudness(rest: Sequence[str], nodes: Nodes, runs: Runs) -> list[tuple[float, list[str]]]:
    """Return parts of the nodes, each with the share of the tolerance that it uses if it alone is low.

    The coarsest groups are measured first. The loudest one is split into finer ones, and at last in the middle, until
    the runs for it are used.
    """
    everything = frozenset(nodes.names)

    def alone(part: Sequence[str]) -> float:
        trial = runs.trial(everything.difference(part))
        return min(trial.share if not trial.failed else max(trial.share, 1.0), _LOUDEST)

    left = max(1, int(runs.left * _SHARE_FOR_NODES))
    first = [[name] for name in rest] if len(rest) <= left else _split(rest, nodes.groupings[-1:])
    if len(first) > left:
        size = math.ceil(len(rest) / left)
        first = [list(rest[start : start + size]) for start in range(0, len(rest), size)]
    parts = [(alone(part), part) for part in first]
    left -= len(parts)
    while left > 0 and (loudest := max((item for item in parts if len(item[1]) > 1), default=None)) is not None:
        parts.remove(loudest)
        share, part = loudest
        *others, largest = sorted(_split(part, nodes.groupings), key=len)
        shares = [alone(other) for other in others[:left]]
        others, largest = others[: len(shares)], [*largest, *itertools.chain(*others[len(shares) :])]
        left -= len(shares)
        # Squares add, so the last one needs no run.
        parts += [
            *zip(shares, others, strict=True),
            (math.sqrt(max(0.0, share**2 - sum(a**2 for a in shares))), largest),
        ]
    return parts


def _split(part: Sequence[str], groupings: Sequence[Mapping[str, str]]) -> list[list[str]]:
    """Return the groups of the coarsest grouping that tells some nodes apart, else the first and the second half."""
    for grouping in reversed(groupings):
        groups: dict[str, list[str]] = {}
        for name in part:
            groups.setdefault(grouping.get(name, ""), []).append(name)
        if len(groups) > 1:
            return list(groups.values())
    half = len(part) // 2
    return [list(part[:half]), list(part[half:])]


def _least_prefix(beyond: Sequence[str], ordered: Sequence[str], ranking: dict[str, float], runs: Runs) -> int:
    """Return how many nodes of the ranking must stay, at least about."""
    squares = [ranking[name] ** 2 for name in ordered]
    tails = [math.sqrt(sum(squares[count:])) for count in range(len(ordered) + 1)]
    failing, passing, factor, step = 0, len(ordered), 1.0, 1
    while passing - failing > 1:
        guess = next(count for count, tail in enumerate(tails) if tail * factor <= runs.aim)
        if guess >= passing < len(ordered):
            break
        count = min(max(guess, failing + step), passing - 1)
        trial = runs.trial([*beyond, *ordered[:count]])
        if trial.is_within(runs.aim):
            passing, step = count, 1
        else:
            failing, step = count, step * 2
        if 0 < trial.share < _LOUDEST and tails[count]:
            # The next guess is by the sum that was measured, which correlated errors change.
            factor = trial.share / tails[count]
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
