"""Rank the releasable variants by speed: the fastest, its ties, and whether the timings decide."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from paritygate.pipelines.benchmark.result import Speedup
from paritygate.pipelines.benchmark.statistics import speedup_of
from paritygate.pipelines.benchmark.trust import disagree
from paritygate.pipelines.choice.options import ReleaseOption, in_order_of

_LEAST_ROUNDS = 2


class SpeedRanking(Struct, frozen=True, kw_only=True):
    """The releasable variants by speed.

    - `fastest`: by median latency. `ties`: those as fast by the timings, the fastest first.
    - `undecided`: ties that may also be far from the fastest, because the timings are untrusted.
    - `speeds`: by name, the ratio to the fastest round by round; None without two shared rounds.
    - `chosen`: the most accurate of the fastest and its ties, then the spec's first.
    """

    fastest: ReleaseOption
    ties: tuple[ReleaseOption, ...]
    undecided: tuple[ReleaseOption, ...]
    speeds: Mapping[str, Speedup | None]
    chosen: ReleaseOption

    def to_json(self) -> dict[str, Any]:
        """Return the ranking as JSON data."""
        return {
            "fastest": self.fastest.name,
            "ties": [item.name for item in self.ties],
            "undecided": [item.name for item in self.undecided],
            "ratios": {name: None if speed is None else asdict(speed) for name, speed in self.speeds.items()},
        }


def rank_by_speed(fit: Sequence[ReleaseOption]) -> SpeedRanking | None:
    """Return the ranking of the releasable variants, given in the spec's order; None where none was measured."""
    ordered = in_order_of(fit, "fastest")
    if not ordered:
        return None
    fastest, *others = ordered
    speeds = {item.name: _speed_beside(fastest, item) for item in others}
    undecided = tuple(item for item in others if _is_undecided(fastest, item, speeds[item.name]))
    equal = {name for name, speed in speeds.items() if speed is not None and speed.is_tie}
    ties = tuple(item for item in others if item.name in equal or item in undecided)
    tied = {item.name for item in (fastest, *ties)}
    return SpeedRanking(
        fastest=fastest,
        ties=ties,
        undecided=undecided,
        speeds=speeds,
        chosen=min((item for item in fit if item.name in tied), key=lambda item: item.accuracy),
    )


def _is_undecided(fastest: ReleaseOption, other: ReleaseOption, speed: Speedup | None) -> bool:
    if speed is None or speed.is_undecided or fastest.figures.distrust or other.figures.distrust:
        return True
    rows, most = other.figures.by_name["rows_per_s"], fastest.figures.by_name["rows_per_s"]
    is_noisy = fastest.figures.is_beside_other_work
    return is_noisy and rows is not None and most is not None and disagree(speed.ratio, rows / most)


def _speed_beside(fastest: ReleaseOption, other: ReleaseOption) -> Speedup | None:
    ours, theirs = fastest.figures.rounds_ms, other.figures.rounds_ms
    if len(ours) != len(theirs) or len(ours) < _LEAST_ROUNDS:
        return None
    return speedup_of(ours, theirs)
