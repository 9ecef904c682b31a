"""A comparison of some of the batches, whose figures no cut of the batches into parts changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from paritygate.batch import Arrays, Batch
from paritygate.codec import to_data
from paritygate.validate.measure.measurement import ComparisonPlan, OutputComparison, Refusal
from paritygate.validate.measure.parts import states
from paritygate.validate.measure.parts.state_data import Counts, Number, dense, read, sparse, spelled
from paritygate.validate.measure.row_pattern import RowPattern
from paritygate.validate.measure.statistics import DiffState
from paritygate.validate.words.sentence import Words

# A breach of contract in JSON data: check, output, count and sentences.
_Violation = tuple[str, str | None, int, list[Words]]


class ExactComparison(OutputComparison):
    """Measures each batch alone and adds the sums exactly; `rows_before` counts the rows of the parts before."""

    def __init__(
        self, plan: ComparisonPlan, *, is_drawn: bool = False, names_rows: bool = True, rows_before: int = 0
    ) -> None:
        super().__init__(plan, is_drawn=is_drawn, names_rows=names_rows)
        self.first_row = rows_before
        self.sums = {name: states.empty_sums(limits) for name, limits in plan.limits.items()}

    def add(self, batch: Batch, actual: Arrays, expected: Arrays) -> None:
        """Add one batch: all outputs of the candidate, and those of the reference that are compared."""
        alone = OutputComparison(self._plan, is_drawn=self._is_of_samples, names_rows=self._names_rows)
        alone.first_row = self.first_row + self._pass_rows
        alone.passes = self.passes
        alone.add(batch, actual, expected)
        alone.end_pass()
        # They are those of a whole pass.
        alone.by_pass = {}
        for name, sums in self.sums.items():
            states.add_sums(sums, alone.states[name], alone.patterns.get(name, RowPattern()).growth)
        super().take_in(alone)

    def take_in(self, other: OutputComparison) -> None:
        """Add the figures of the rows that come next, by the same plan, from ended passes."""
        super().take_in(other)
        if isinstance(other, ExactComparison):
            for name, sums in other.sums.items():
                self.sums[name].take_in(sums)

    def to_data(self) -> dict[str, Any]:
        """Return the figures of ended passes as JSON data."""
        return {
            "rows": self._rows,
            "batches": self._batches,
            "passes": self.passes,
            "by_pass": self.by_pass,
            "repeats": {name: spelled(figures) for name, figures in self._repeats.items()},
            "differences": {name: states.differences_data(state) for name, state in self.states.items()},
            "sums": {name: sums.to_data() for name, sums in self.sums.items()},
            "patterns": {name: states.pattern_data(pattern) for name, pattern in self.patterns.items()},
            "octaves": {name: sparse(octaves) for name, octaves in self._octaves.items()},
            "sketches": {name: states.sketch_data(sketch) for name, sketch in self._sketches.items()},
            "decisions": {name: states.decisions_data(state) for name, state in self._folded.items()},
            "violations": [
                [*key, count, to_data(self._violations[key])] for key, count in self._violation_counts.items()
            ],
            "refused": to_data(self._refused),
            "refused_count": self._refused_count,
            "lists": dict(self._lists),
            "mismatched": self.rows_mismatched(),
            "by_row": list(self._other_rows),
        }

    def read(self, data: Mapping[str, Any]) -> None:
        """Become the comparison whose `to_data` these are; raise ValueError or KeyError for anything else."""
        for name, profile in self._plan.profiles.items():
            self.states[name] = states.differences_of(data["differences"][name], profile, self._plan.limits[name])
            self.sums[name].read(data["sums"][name])
        for name, sketch in self._sketches.items():
            states.read_sketch(sketch, data["sketches"][name])
            octaves = self.states[name].histogram.octaves()
            self._octaves[name] = dense(read(Counts, data["octaves"][name]), octaves.shape)
        self.patterns = {name: states.pattern_of(data["patterns"][name]) for name in self._known(data["patterns"])}
        self._folded = {name: states.decisions_of(data["decisions"][name]) for name in self._known(data["decisions"])}
        for check, output, count, details in read(list[_Violation], data["violations"]):
            self._violation_counts[check, output] = count
            self._violations[check, output] = details
        self._refused = read(list[Refusal], data["refused"])
        self._lists = read(dict[str, int], data["lists"])
        self._refused_count, self._rows, self._batches, self.passes, self.mismatched_elsewhere = (
            read(int, data[name]) for name in ("refused_count", "rows", "batches", "passes", "mismatched")
        )
        self.by_pass = read(dict[str, list[dict[str, int]]], data["by_pass"])
        self._repeats = read(dict[str, tuple[Number, Number]], data["repeats"])
        self._known({**self.by_pass, **self._repeats})
        self._other_rows = {name: np.zeros(0, dtype=np.int64) for name in read(list[str], data["by_row"])}

    def _known(self, data: Mapping[str, Any]) -> list[str]:
        """Return the names of outputs in JSON data; raise ValueError for one that is not compared."""
        for name in data:
            if name not in self._plan.profiles:
                raise ValueError(f"{name!r} is not an output that is compared")
        return list(data)

    def _state(self, name: str) -> DiffState:
        return states.with_sums(self.states[name], self.sums[name])

    def _pattern(self, name: str) -> RowPattern:
        pattern = self.patterns[name]
        return replace(pattern, growth=states.growth_of(self.sums[name], pattern.growth.count))
