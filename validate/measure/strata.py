"""Statistics for each value of a stratum, such as a corpus: only its own rows bound a fault in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from paritygate.batch import Arrays, Batch
from paritygate.errors import UsageError
from paritygate.validate.measure.bounds import COVERED_ROWS, mismatch_rate_upper_95, upper_bound_text
from paritygate.validate.measure.check import Check, Kind, Status
from paritygate.validate.measure.measurement import ComparisonPlan, ExactFigures, Measurement, OutputComparison
from paritygate.validate.measure.rows_together import RowsTogether
from paritygate.validate.samples.split import RowsLeftOut
from paritygate.validate.words.sentence import Words, joined, say

# Each value keeps its own statistics; a stratum with more values than this is an id, not a stratum.
_MAX_VALUES = 100
# More values than this are counted in a sentence, not named.
NAMED_VALUES = 5


class StratifiedComparison:
    """One comparison for each value of each declared stratum."""

    def __init__(
        self, plan: ComparisonPlan, strata: Sequence[str], compare: Callable[..., OutputComparison] = OutputComparison
    ) -> None:
        self._plan = plan
        self._compare = compare
        self._comparisons: dict[str, dict[str, RowsTogether]] = {name: {} for name in strata}

    def add(self, batch: Batch, actual: Arrays, expected: Arrays) -> None:
        """Add one batch, without outputs that lack an axis of rows; raise UsageError for a missing or large stratum."""
        for name in self._comparisons:
            if name not in batch.strata:
                seen = ", ".join(batch.strata) or "none"
                msg = f"the samples have no stratum {name!r} (seen: {seen})"
                raise UsageError(msg, hint="declare strata that the sample function yields, or none")
            rows: dict[str, list[int]] = {}
            for row, value in enumerate(batch.strata[name]):
                rows.setdefault(str(value), []).append(row)
            for value, chosen in rows.items():
                self._of_value(name, value).add(
                    [batch.ids[row] for row in chosen],
                    _rows(actual, chosen, batch.rows),
                    _rows(expected, chosen, batch.rows),
                )

    def _of_value(self, name: str, value: str) -> RowsTogether:
        comparisons = self._comparisons[name]
        if value not in comparisons and len(comparisons) >= _MAX_VALUES:
            msg = f"stratum {name!r} has more than {_MAX_VALUES} values"
            raise UsageError(msg, hint="use a column that groups rows, not an id")
        if value not in comparisons:
            # Exact figures are those of each batch alone.
            is_exact = self._compare is not OutputComparison
            comparisons[value] = RowsTogether(self._compare(self._plan), is_each_alone=is_exact)
        return comparisons[value]

    def take_in(self, other: StratifiedComparison) -> None:
        """Add the figures of the rows that come next, from ended passes."""
        for name, comparisons in other._comparisons.items():
            for value, rows in comparisons.items():
                self._of_value(name, value).comparison.take_in(rows.comparison)

    def to_data(self) -> dict[str, Any]:
        """Return the exact figures of ended passes as JSON data."""
        return {
            name: {value: cast("ExactFigures", rows.comparison).to_data() for value, rows in comparisons.items()}
            for name, comparisons in self._comparisons.items()
        }

    def read(self, data: Mapping[str, Any]) -> None:
        """Become the comparison whose `to_data` these are; raise ValueError or KeyError for anything else."""
        for name in self._comparisons:
            for value, part in data[name].items():
                cast("ExactFigures", self._of_value(name, value).comparison).read(part)

    def end_pass(self) -> None:
        """Mark the end of a pass."""
        for comparisons in self._comparisons.values():
            for comparison in comparisons.values():
                comparison.end_pass()

    def finish(self) -> dict[str, dict[str, Measurement]]:
        """Return the measurement of each value of each stratum."""
        return {
            name: {value: comparison.finish() for value, comparison in sorted(comparisons.items())}
            for name, comparisons in self._comparisons.items()
        }


def _rows(outputs: Arrays, rows: list[int], of: int) -> Arrays:
    return {name: array[rows] for name, array in outputs.items() if array.ndim and array.shape[0] == of}


def strata_coverage(strata: Mapping[str, Mapping[str, Measurement]]) -> tuple[Check, ...]:
    """Return for each declared stratum whether each of its values has enough rows."""
    checks = []
    for name, values in strata.items():
        rows = {value: measured.rows for value, measured in values.items()}
        few = {value: count for value, count in sorted(rows.items(), key=lambda item: item[1]) if count < COVERED_ROWS}
        words = say("strata", count=len(rows), stratum=name, least=COVERED_ROWS)
        if few:
            bound = upper_bound_text(mismatch_rate_upper_95(0, COVERED_ROWS))
            words = say("strata.few", stratum=name, least=COVERED_ROWS, values=values_named(few))
            words += say("strata.bound", least=COVERED_ROWS, bound=bound)
        checks.append(
            Check(
                name="strata_coverage",
                status=Status.WARNING if few else Status.PASS,
                words=words,
                rows=sum(rows.values()),
                measured=min(rows.values(), default=0),
                limit=COVERED_ROWS,
            )
        )
    return tuple(checks)


def values_named(rows: Mapping[str, int]) -> Words:
    """Return the first values of a stratum, each with its number of rows, and how many others there are."""
    first = list(rows.items())[:NAMED_VALUES]
    named = joined(say("stratum_value", value=value, rows=count) for value, count in first)
    return named + say("other_values", count=len(rows) - NAMED_VALUES) if len(rows) > NAMED_VALUES else named


def strata_left_out(left_out: RowsLeftOut) -> list[Check]:
    """Return a warning for each stratum that has values without any compared row."""
    return [
        Check(
            name="strata_coverage",
            status=Status.WARNING,
            kind=Kind.NOT_MEASURED,
            words=say("strata.left_out", stratum=name, values=values_named(values)),
        )
        for name, values in left_out.values_left_out().items()
        if values
    ]
