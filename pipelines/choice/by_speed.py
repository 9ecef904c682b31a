"""Which of the variants that may be released is the fastest, which tie with it, and whether that can be told."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from paritygate.pipelines.benchmark.result import Speedup
from paritygate.pipelines.benchmark.statistics import speedup_of
from paritygate.pipelines.choice.options import ReleaseOption, in_order_of

__all__ = ["SpeedRanking", "rank_by_speed"]

_LEAST_ROUNDS = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class SpeedRanking:
    """The variants that may be released, by their speed.

    Attributes:
        fastest: The one with the lowest median latency.
        others: The others, the fastest first.
        speeds: By name, how many times as fast as the fastest each of the others is, round by round; None where they
            were not timed in the same rounds, and in two at least.
    """

    fastest: ReleaseOption
    others: tuple[ReleaseOption, ...]
    speeds: Mapping[str, Speedup | None]

    @property
    def undecided(self) -> tuple[ReleaseOption, ...]:
        """Those that may be the fastest as well or far from it, as far as the rounds tell."""
        return tuple(item for item in self.others if (speed := self.speeds[item.name]) is None or speed.is_undecided)

    @property
    def ties(self) -> tuple[ReleaseOption, ...]:
        """Those as fast as the fastest, as far as the rounds tell; none where that cannot be told."""
        if self.undecided:
            return ()
        return tuple(item for item in self.others if (speed := self.speeds[item.name]) is not None and speed.is_tie)

    @property
    def chosen(self) -> ReleaseOption | None:
        """The one that differs least of the fastest and those that tie with it; None where that cannot be told."""
        if self.undecided:
            return None
        return min((self.fastest, *self.ties), key=_difference)

    def to_json(self) -> dict[str, Any]:
        """Return the ranking as JSON data."""
        return {
            "fastest": self.fastest.name,
            "ties": [item.name for item in self.ties],
            "undecided": [item.name for item in self.undecided],
            "ratios": {name: None if speed is None else asdict(speed) for name, speed in self.speeds.items()},
        }


def _difference(candidate: ReleaseOption) -> float:
    return math.inf if candidate.difference is None else candidate.difference


def rank_by_speed(fit: Sequence[ReleaseOption]) -> SpeedRanking | None:
    """Return how those that may be released compare in speed; None where none of them was measured."""
    ordered = in_order_of(fit, "fastest")
    if not ordered:
        return None
    fastest, *others = ordered
    return SpeedRanking(
        fastest=fastest, others=tuple(others), speeds={item.name: _speed_beside(fastest, item) for item in others}
    )


def _speed_beside(fastest: ReleaseOption, other: ReleaseOption) -> Speedup | None:
    ours, theirs = fastest.figures.rounds_ms, other.figures.rounds_ms
    if len(ours) != len(theirs) or len(ours) < _LEAST_ROUNDS:
        return None
    return speedup_of(ours, theirs)
