"""Excuse failing rows of all parts together, by the reference's own noise or because both models jump there.

A shard runs the reference again on its rows beyond the limits, and its part has the figures without those excused. They
count where all parts together have few such rows, so the number of parts changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field
from msgspec.structs import replace

from paritygate.pipelines.compare.excused.jumping_rows import (
    JUMP_CHECKS,
    JUMPS_NAMED,
    WithoutJumps,
    jumps_check,
    most_jumps,
)
from paritygate.pipelines.compare.excused.reference_noise import NOISE_CHECKS, WithinNoise, may_be_noise, most_noisy
from paritygate.pipelines.compare.excused.replaced_answers import RowsExcused, may_be_excused, with_excused
from paritygate.validate.gate.candidate import Candidate
from paritygate.validate.gate.measures import GateResult, Measures
from paritygate.validate.measure.check import Check
from paritygate.validate.reference.recorded import ExpectedOutputs

if TYPE_CHECKING:
    from paritygate.validate.runners.runner import Runner


class Excuse(Struct, frozen=True, kw_only=True):
    """The rows of one part beyond the limits, and its figures with the reference's outputs in excused ones.

    `ids` are some of the excused `rows`. `measures` are None if no row is excused.
    """

    beyond: int
    rows: int = 0
    ids: list[str] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    measures: dict[str, Any] | None = None


class ShardRerun(Struct, frozen=True, kw_only=True):
    """All that repeats the comparison of a shard; `rows` are those of all shards."""

    candidate: Candidate
    expected: ExpectedOutputs
    open_reference: Callable[[], Runner]
    measure: Callable[[Candidate], Measures]
    rows: int


def excuses_of(measures: Measures, again: ShardRerun) -> dict[str, Excuse]:
    """Return the excuses of a shard by kind, for its rows beyond the limits, if it has any."""
    beyond, caps = measures.rows_beyond, caps_of(measures, again.rows)
    excuses: dict[str, Excuse] = {}
    for kind, make in _KINDS.items() if beyond else ():
        excuses[kind] = Excuse(beyond=beyond)
        if beyond > caps[kind]:
            continue
        other = make(again.candidate, again.expected, measures.limits, again.open_reference(), caps[kind])
        without = again.measure(other)
        excuses[kind] = Excuse(
            beyond=len(other.beyond),
            rows=len(other.excused),
            ids=list(other.excused)[:JUMPS_NAMED],
            checks=other.checks,
            measures=without.to_data() if other.excused else None,
        )
    return excuses


def caps_of(measures: Measures, rows: int) -> dict[str, int]:
    """Return by kind how many rows beyond the limits, of so many, may be excused."""
    return {"noise": most_noisy(measures.limits), "jumps": most_jumps(measures.rules, rows)}


def with_excuses(
    result: GateResult,
    excuses: Sequence[Mapping[str, Excuse]],
    caps: Mapping[str, int],
    measured: Callable[[Sequence[Mapping[str, Any] | None]], GateResult],
) -> GateResult:
    """Return the result of all parts, passing checks that fail by excused rows alone.

    `measured` returns that of other figures in place of those of some parts.
    """
    for kind, cap in caps.items():
        own = [part.get(kind, Excuse(beyond=0)) for part in excuses]
        may_be = may_be_noise(result) if kind == "noise" else may_be_excused(result, JUMP_CHECKS, cap)
        if not may_be or sum(excuse.beyond for excuse in own) > cap:
            continue
        rows = sum(excuse.rows for excuse in own)
        checks = [check for excuse in own for check in excuse.checks]
        if not rows:
            result = replace(result, checks=(*result.checks, *checks))
            continue
        without = measured([excuse.measures for excuse in own])
        if kind == "noise":
            result = with_excused(result, without, NOISE_CHECKS, "noise.excused_rows", *checks)
        else:
            check = jumps_check([name for excuse in own for name in excuse.ids], rows, cap)
            result = with_excused(result, without, JUMP_CHECKS, "jumps.excused", check)
    return result


_KINDS: Mapping[str, type[RowsExcused]] = {"noise": WithinNoise, "jumps": WithoutJumps}
