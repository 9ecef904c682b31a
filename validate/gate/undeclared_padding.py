"""Compare the padding of an output whose mask nobody declared.

The other positions are judged as with `valid_where`. A difference at padding is a finding, because a correct conversion
can differ there. NaN, infinity and the model's own fill values still fail.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast

from msgspec.structs import replace

from paritygate.batch import Arrays, Batch
from paritygate.validate.gate.rules import EdgeRule, GateRules
from paritygate.validate.gate.verdict import JudgePlan, judge
from paritygate.validate.measure.check import UNDECLARED_PADDING, Check, Kind, Status
from paritygate.validate.measure.limits import limits_for
from paritygate.validate.measure.measurement import ComparisonPlan, ExactFigures, OutputComparison
from paritygate.validate.measure.valid_positions import left_out_of, only_left_out
from paritygate.validate.reference.padded_outputs import UndeclaredPadding
from paritygate.validate.words.sentence import say

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


# Checks that are never excused.
_HELD = frozenset({"finite", "fill_values"})


def is_excused(check: Check, padding: UndeclaredPadding, edge: EdgeRule) -> bool:
    """Return whether a failed check at padding is a finding and no failure."""
    if padding.mask.is_of_empty_rows:
        # The spec declares that such rows never occur.
        return True
    return check.name not in _HELD and not padding.is_fill and edge is not EdgeRule.FAIL


def left_out_alone(outputs: Arrays, padding: Mapping[str, UndeclaredPadding]) -> dict[str, NDArray[np.generic]]:
    """Return the outputs with undeclared padding, with all other positions masked."""
    return only_left_out(
        {name: array for name, array in outputs.items() if name in padding and left_out_of(array) is not None}
    )


class PaddingComparison:
    """Compares the positions that undeclared masks leave out."""

    def __init__(
        self,
        padding: Mapping[str, UndeclaredPadding],
        rules: GateRules,
        compare: Callable[..., OutputComparison] = OutputComparison,
    ) -> None:
        self._padding = padding
        self._rules = rules
        self._profiles = {name: item.profile for name, item in padding.items()}
        self._limits = {name: limits_for(rules.tolerance, profile) for name, profile in self._profiles.items()}
        labels = {label: scores for label, scores in rules.argmax_of.items() if {label, scores} <= set(padding)}
        self._comparison = compare(ComparisonPlan(profiles=self._profiles, limits=self._limits, argmax_of=labels))

    def add(self, batch: Batch, actual: Arrays, expected: Arrays) -> None:
        """Take in one batch; positions of the expected outputs that do not count are masked."""
        alone = left_out_alone(expected, self._padding)
        if alone:
            self._comparison.add(batch, actual, alone)

    def end_pass(self) -> None:
        """Mark the end of the sequence of batches."""
        self._comparison.end_pass()

    def take_in(self, other: PaddingComparison) -> None:
        """Add the figures of the rows that come next, from ended passes."""
        self._comparison.take_in(other._comparison)

    def to_data(self) -> dict[str, Any]:
        """Return the exact figures of ended passes as JSON data."""
        return cast("ExactFigures", self._comparison).to_data()

    def read(self, data: Mapping[str, Any]) -> None:
        """Become the comparison whose `to_data` these are; raise ValueError or KeyError for anything else."""
        cast("ExactFigures", self._comparison).read(data)

    def finish(self) -> Iterator[Check]:
        """Yield a check for each output with such positions: a finding where they differ."""
        measured = self._comparison.finish()
        plan = JudgePlan(rules=GateRules(tolerance=self._rules.tolerance), limits=self._limits, profiles=self._profiles)
        failed: dict[str, list[Check]] = {}
        for check in judge(measured, plan):
            if check.status is Status.FAIL and check.output is not None and not check.name.startswith("contract"):
                failed.setdefault(check.output, []).append(check)
        for name, item in self._padding.items():
            statistics = measured.statistics.get(name)
            left_out = 0 if statistics is None else statistics.values
            if not left_out and name not in failed:
                continue
            where = say("padding.empty" if item.mask.is_of_empty_rows else "padding.zero", input=item.mask.input)
            unexcused = next(
                (check for check in failed.get(name, ()) if not is_excused(check, item, self._rules.edge)), None
            )
            first = unexcused or next(iter(failed.get(name, ())), None)
            about = Check(
                name=UNDECLARED_PADDING,
                status=Status.PASS,
                words=say("padding", left_out=left_out, where=where),
                output=name,
                rows=None if statistics is None else statistics.rows,
                measured=None if statistics is None else statistics.max_abs_diff,
            )
            if first is None:
                yield about
                continue
            rows = measured.patterns[name].beyond if name in measured.patterns else 0
            facts = {"where": where, "output": name, "check": first.name}
            key = "padding.differs_rows" if rows else "padding.differs"
            if unexcused is None:
                # The advice comes before its reason, because a terminal shows the beginning.
                words = say(key, **facts, rows=rows, difference=first.words[:1])
                words += say("padding.excused", advice=item.advice(name), cause=item.mask.why, left_out=left_out)
                yield replace(about, status=Status.EDGE, kind=Kind.EDGE, words=words + first.words[1:])
                continue
            words = say(key, **facts, rows=rows, difference=first.words)
            words += say("padding.fill") if item.is_fill else ()
            yield replace(about, status=Status.FAIL, words=words)


def said_once(checks: Iterable[Check]) -> Iterator[Check]:
    """Yield checks, with only the first finding at padding of each output."""
    outputs: set[str | None] = set()
    for check in checks:
        if check.name == UNDECLARED_PADDING and check.status is not Status.PASS:
            if check.output in outputs:
                continue
            outputs.add(check.output)
        yield check
