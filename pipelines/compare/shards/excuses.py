"""Excuse failing rows of all parts together, by the reference's own noise or because both models jump there.

A shard runs the reference again on its rows beyond the limits, and its part has the figures without those excused. They
count where all parts together have few such rows, so the number of parts changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from paritygate.errors import BackendError, UsageError
from paritygate.pipelines.compare.excused.jumping_rows import (
    JUMP_CHECKS,
    JUMPS_NAMED,
    WithoutJumps,
    jumps_check,
    may_be_jumps,
    most_jumps,
)
from paritygate.pipelines.compare.excused.reference_noise import (
    NOISE_CHECKS,
    NoisyRow,
    noisy_row,
    row_alone,
    rows_to_rerun,
)
from paritygate.pipelines.compare.excused.replaced_answers import RowsExcused, with_excused
from paritygate.validate.gate.candidate import Candidate
from paritygate.validate.gate.measures import GateResult, Measures
from paritygate.validate.measure.check import Check
from paritygate.validate.reference.recorded import ExpectedOutputs
from paritygate.validate.samples.feeding import fit_inputs

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from paritygate.batch import Batch
    from paritygate.validate.runners.runner import Runner

    Arrays = Mapping[str, NDArray[np.generic]]

# The most rows beyond the limits, of each output, that are looked at for noise.
_MOST_NOISY = 10


@dataclass(frozen=True, kw_only=True, slots=True)
class Excuse:
    """The rows of one part beyond the limits, and its figures with the reference's outputs in excused ones.

    `ids` are some of the excused `rows`. `measures` are None if no row is excused.
    """

    beyond: int
    rows: int = 0
    ids: list[str] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    measures: dict[str, Any] | None = None


class _WithinNoise(RowsExcused):
    """The candidate, with the reference's outputs in rows where it is within the reference's own noise."""

    def accepted(self, places: NDArray[np.intp], batch: Batch, answers: Arrays, compared: Arrays) -> NDArray[np.intp]:
        """Return which rows are within the noise of the reference, run on each alone and in its batch."""
        inputs = fit_inputs(batch, self.runner.signature)
        try:
            whole = self.runner.run(inputs)
            alone = {row: self.runner.run(row_alone(inputs, row, batch)) for row in places.tolist()}
        except (BackendError, UsageError):
            # A reference that fails on the row alone shows no noise.
            return places[:0]
        limits = {name: self.limits[name] for name in compared}
        rows = (noisy_row(row, batch, compared, (whole, answer), limits) for row, answer in alone.items())
        is_noise = [self._is_noise(row, noisy, answers, compared) for row, noisy in zip(alone, rows, strict=True)]
        return places[np.array(is_noise, dtype=bool)]

    def _is_noise(self, row: int, noisy: NoisyRow, answers: Arrays, compared: Arrays) -> bool:
        pairs = {name: (answers[name][row : row + 1], array[row : row + 1]) for name, array in compared.items()}
        beyond = {name: pair for name, pair in pairs.items() if not self.is_within(name, *pair).all()}
        if noisy.warning is not None:
            checks = [noisy.warning]
        elif beyond.keys() <= noisy.noise.keys() and all(
            self.is_within(name, *pair, noisy.noise[name]) for name, pair in beyond.items()
        ):
            checks = [noisy.excused(name, actual) for name, (actual, _) in beyond.items()]
        else:
            return False
        # Later passes repeat the same rows.
        self.checks += [check for check in checks if check not in self.checks]
        return noisy.warning is None


@dataclass(frozen=True, kw_only=True, slots=True)
class ShardRerun:
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
    return {"noise": _MOST_NOISY * len(measures.limits), "jumps": most_jumps(measures.rules, rows)}


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
        may_be = rows_to_rerun(result) if kind == "noise" else may_be_jumps(result, cap)
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


_KINDS: Mapping[str, type[RowsExcused]] = {"noise": _WithinNoise, "jumps": WithoutJumps}
