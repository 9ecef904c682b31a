"""Compares a candidate with the reference, batch by batch: it measures everything, and judges nothing."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from paritygate.batch import Arrays, Batch
from paritygate.distance import distance
from paritygate.errors import UsageError
from paritygate.signature import dtype_name
from paritygate.validate.measure import plot_data, row_pattern, statistics
from paritygate.validate.measure.blocks import by_block
from paritygate.validate.measure.decisions import Decision, Rule, check_classes, check_rank
from paritygate.validate.measure.figures import DecisionStatistics, Drawing
from paritygate.validate.measure.flips import (
    DecisionState,
    Flips,
    decide,
    decide_label,
    finish_decisions,
    fold_passes,
    is_largest,
    label_axes,
    merge_decisions,
    update_decisions,
)
from paritygate.validate.measure.limits import Limits
from paritygate.validate.measure.plot_data import Sketch, drawn
from paritygate.validate.measure.profile import OutputProfile
from paritygate.validate.measure.row_pattern import RowPattern, SeenBatch
from paritygate.validate.measure.row_traits import RowTraits
from paritygate.validate.measure.statistics import COUNTS, DiffState, DiffStatistics, RowFigures
from paritygate.validate.measure.valid_positions import blanked, left_out_of, not_a_number
from paritygate.validate.words.sentence import Words, say

_VIOLATIONS_KEPT = 5
_NO_ARGMAX = (
    "leave the declaration out: argmax_of, or --argmax-of, is for labels that are the place of the largest score, or "
    "the ids of the best scores, in order"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class ComparisonPlan:
    """The outputs to compare, with the reference's profiles and limits.

    `decisions` are by the output they read. `argmax_of` maps integer outputs to the scores of which they are declared
    the argmax.
    """

    profiles: Mapping[str, OutputProfile]
    limits: Mapping[str, Limits]
    decisions: Mapping[str, Decision] = field(default_factory=dict)
    argmax_of: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Violation:
    """A breach of contract, with its count and the sentences of the first few times."""

    check: str
    output: str | None
    count: int
    details: tuple[Words, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Refusal:
    """A batch that the candidate refused, by its first and last row: the reason, and quoted lines below it."""

    first: str
    last: str
    reason: str
    below: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Measurement:
    """All figures of one comparison.

    `rows` are distinct, `batches` are those of one pass. `statistics` are over all passes, with counts of the worst
    pass. `decisions` include labels declared as argmax. `refused` are the first of `refused_count` refused batches.
    `repeat_ratio` is the largest difference between two passes as a multiple of its repeat limit, empty for one pass;
    `repeat_max_abs_diff` is in the unit of the output. `patterns` are of outputs with an axis of rows, `drawings` of
    float outputs. `mismatches` counts rows with a decision, integer or text that differs, each once; of an output with
    several of them in a row, each. None if nothing is decided.
    """

    rows: int
    batches: int
    passes: int
    statistics: Mapping[str, DiffStatistics]
    decisions: Mapping[str, DecisionStatistics]
    violations: tuple[Violation, ...]
    refused: tuple[Refusal, ...]
    refused_count: int
    repeat_ratio: Mapping[str, float]
    repeat_max_abs_diff: Mapping[str, float]
    mismatches: int | None
    patterns: Mapping[str, RowPattern] = field(default_factory=dict)
    drawings: Mapping[str, Drawing] = field(default_factory=dict)


class ExactFigures(Protocol):
    """A comparison of one ended pass whose figures are JSON data, such as an `ExactComparison`."""

    def to_data(self) -> dict[str, Any]:
        """Return the figures as JSON data."""

    def read(self, data: Mapping[str, Any]) -> None:
        """Become the comparison whose `to_data` these are; raise ValueError or KeyError for anything else."""


class OutputComparison:
    """Compares both sides' outputs batch by batch; memory does not grow with the number of rows.

    Without `names_rows` there are no `patterns` and no `worst_rows`, which only the reports of samples show.
    """

    def __init__(self, plan: ComparisonPlan, *, is_drawn: bool = False, names_rows: bool = True) -> None:
        self._plan = plan
        self._names_rows = names_rows
        self._is_of_samples = is_drawn
        self._octaves: dict[str, NDArray[np.int64]] = {}
        self._sketches = {
            name: plot_data.empty_sketch(profile, plan.decisions.get(name))
            for name, profile in plan.profiles.items()
            if is_drawn and not plan.limits[name].is_exact
        }
        self.states: dict[str, DiffState] = {
            name: statistics.empty(profile, plan.limits[name], names_rows=names_rows)
            for name, profile in plan.profiles.items()
        }
        # By output, the counts of each ended pass.
        self.by_pass: dict[str, list[dict[str, int]]] = {}
        self._folded: dict[str, DecisionState] = {}
        self._current: dict[str, DecisionState] = {}
        self._violations: dict[tuple[str, str | None], list[Words]] = {}
        self._violation_counts: dict[tuple[str, str | None], int] = {}
        self._refused: list[Refusal] = []
        self._refused_count = 0
        self.first_row = 0
        self._rows = self._batches = self._pass_rows = self._pass_batches = self.passes = 0
        self._passes_elsewhere = 0
        # The largest differences between passes: in limits, and in the unit of the output.
        self._repeats: dict[str, tuple[float, float]] = {}
        self.patterns: dict[str, RowPattern] = {}
        # The rows that differ, of outputs that are not floats and have one value a row.
        self._other_rows: dict[str, NDArray[np.int64]] = {}
        # Further rows with any mismatch, which a file of a part does not name.
        self.mismatched_elsewhere = 0
        # The length of the lists of ids, by the outputs that hold such.
        self._lists: dict[str, int] = {}

    def add(self, batch: Batch, actual: Arrays, expected: Arrays) -> None:
        """Add one batch: all outputs of the candidate, and those of the reference that are compared."""
        comparable = {
            name: array for name, array in expected.items() if self._is_comparable(name, actual, array, batch.ids)
        }
        actual, comparable = _texts_as_marks(actual, comparable)
        self._add_differences(batch, actual, {n: a for n, a in comparable.items() if n not in self._plan.argmax_of})
        for name, decision in self._plan.decisions.items():
            # Nothing is chosen along an axis without entries.
            if name in comparable and expected[name].size:
                check_rank(decision, expected[name].ndim)
                check_classes(decision, expected[name].shape)
                flips = decide(decision, actual[name], expected[name], self._plan.limits[name])
                self._add_flips(name, flips, batch)
                if name in self._sketches and not self.passes:
                    self._sketches[name].add_flips(decision, flips, actual[name], expected[name])
        for label, scores in self._plan.argmax_of.items():
            if label in comparable and scores in expected and expected[scores].size:
                self._add_labels(label, scores, actual, expected, batch)
        self._pass_rows += batch.rows
        self._pass_batches += 1

    def _add_differences(self, batch: Batch, actual: Arrays, expected: Arrays) -> None:
        traits = RowTraits(batch)
        for name, array in expected.items():
            has_rows = array.ndim > 0 and len(array) == batch.rows and array.size > 0
            if has_rows and array.size == batch.rows and self._plan.limits[name].is_exact:
                at = np.flatnonzero((actual[name] != array).reshape(-1)) + self._pass_rows
                self._other_rows[name] = np.union1d(self._other_rows.get(name, at), at)
            # Later passes repeat the same rows.
            figures = RowFigures() if has_rows and self._names_rows and self.passes == 0 else None
            state = self.states[name]
            self.states[name] = statistics.update(state, actual[name], array, batch.ids, figures)
            if name in self._sketches and not self.passes:
                self._add_to_sketch(self._sketches[name], (actual[name], array), figures, traits)
            if figures is not None:
                left_out = left_out_of(array)
                seen = SeenBatch(
                    output=name,
                    actual=blanked(actual[name], left_out),
                    expected=blanked(array, left_out),
                    figures=figures,
                    traits=traits,
                    peers=expected,
                    limits=self._plan.limits,
                )
                row_pattern.update(self.patterns.setdefault(name, RowPattern()), seen)

    def _add_to_sketch(
        self,
        sketched: Sketch,
        sides: tuple[NDArray[np.generic], NDArray[np.generic]],
        figures: RowFigures | None,
        traits: RowTraits,
    ) -> None:
        sketched.add_values(*sides, traits.rows)
        if figures is not None:
            sketched.add_rows(
                figures.in_limits, first_row=self.first_row + self._pass_rows, lengths=traits.token_lengths
            )

    def _add_labels(self, label: str, scores: str, actual: Arrays, expected: Arrays, batch: Batch) -> None:
        rule = self._plan.decisions.get(scores)
        axes = label_axes(expected[scores].shape, expected[label].shape)
        if rule is not None and rule.axis is not None:
            axes = tuple(axis for axis in axes if axis == rule.axis % expected[scores].ndim)
        shapes = f"{list(expected[label].shape)} beside {list(expected[scores].shape)}"
        if not axes:
            msg = f"{label!r} is declared the argmax of {scores!r}, but its shape fits no axis of the scores: {shapes}"
            raise UsageError(msg, hint=_NO_ARGMAX)
        if len(axes) > 1:
            msg = f"{label!r} is declared the argmax of {scores!r}, but their shapes leave the axis open: {shapes}"
            raise UsageError(
                msg,
                hint=f"declare the axis with a decision: {scores}: {{argmax: true, axis: N}}, "
                f"or --decision {scores}:argmax,axis=N",
            )
        if self._is_of_samples and not self.passes:
            self._check_is_argmax(label, scores, expected, axes[0], batch)
        if expected[label].ndim == expected[scores].ndim and expected[label].shape[axes[0]] > 1:
            self._lists[label] = expected[label].shape[axes[0]]
        flips = decide_label((actual[label], expected[label]), expected[scores], self._plan.limits[scores], axes[0])
        self._add_flips(label, flips, batch)

    def _check_is_argmax(self, label: str, scores: str, expected: Arrays, axis: int, batch: Batch) -> None:
        """Check that a label of the reference is what it is declared to be, or any other one would pass for it."""
        is_best = is_largest(expected[label], expected[scores], self._plan.limits[scores], axis)
        if is_best.all():
            return
        where = np.argwhere(~is_best)[0]
        row = batch.ids[where[0]] if is_best.ndim and len(is_best) == batch.rows else batch.ids[0]
        count = int(np.count_nonzero(~is_best))
        msg = (
            f"{label!r} is declared the argmax of {scores!r}, but the reference's own argmax differs: "
            f"{count} of {is_best.size} in one batch, the first at row {row!r}"
        )
        raise UsageError(msg, hint=_NO_ARGMAX)

    def _add_flips(self, name: str, flips: Flips, batch: Batch) -> None:
        state = self._current.setdefault(name, DecisionState())
        is_by_row = flips.flipped.ndim > 0 and len(flips.flipped) == batch.rows
        flips = flips if is_by_row else flips.as_one_row()
        ids: Sequence[str] = batch.ids if is_by_row else [f"{batch.ids[0]}..{batch.ids[-1]}"]
        self._current[name] = update_decisions(state, flips, first_row=self._pass_rows, ids=list(ids))

    def _is_comparable(self, name: str, actual: Arrays, expected: NDArray[np.generic], ids: Sequence[str]) -> bool:
        if name not in actual:
            # The missing name is reported once, by the check of names.
            return False
        actual_array = actual[name]
        dtype, wanted = dtype_name(actual_array.dtype), dtype_name(expected.dtype)
        if dtype != wanted:
            self.violate("dtype", name, say("contract.dtype", actual_dtype=dtype, expected_dtype=wanted))
        if actual_array.shape != expected.shape:
            shapes = {"actual_shape": actual_array.shape, "expected_shape": expected.shape}
            self.violate("shape", name, say("contract.shape", **shapes, first_row=ids[0], last_row=ids[-1]))
            return False
        is_text = actual_array.dtype.kind == "U"
        return is_text == (expected.dtype.kind == "U") and all(
            array.dtype.kind in "fiubVU" for array in (actual_array, expected)
        )

    def violate(self, check: str, output: str | None, words: Words) -> None:
        """Record a breach of contract; those not seen in arrays, such as a missing name, come from outside."""
        key = (check, output)
        self._violation_counts[key] = self._violation_counts.get(key, 0) + 1
        details = self._violations.setdefault(key, [])
        if words not in details and len(details) < _VIOLATIONS_KEPT:
            details.append(words)

    def refuse(self, batch: Batch, reason: str) -> None:
        """Record that the candidate refused a batch that the reference accepted."""
        self._refused_count += 1
        if len(self._refused) < _VIOLATIONS_KEPT:
            line, _, below = reason.partition("\n")
            self._refused.append(Refusal(first=batch.ids[0], last=batch.ids[-1], reason=line, below=below))
        self._pass_rows += batch.rows
        self._pass_batches += 1

    def add_repeat(self, first: Arrays, again: Arrays) -> None:
        """Add the candidate's outputs of one batch in the first and in a later pass."""
        for name in self._plan.profiles.keys() & first.keys() & again.keys():
            self._add_repeat(name, *repeat_difference(again[name], first[name], self._plan.limits[name]))

    def _add_repeat(self, name: str, ratio: float, largest: float) -> None:
        before = self._repeats.get(name, (0.0, 0.0))
        self._repeats[name] = max(before[0], ratio), max(before[1], largest)

    def end_pass(self) -> None:
        """Mark the end of a pass; later batches repeat the same rows."""
        for name, state in self._current.items():
            folded = self._folded.get(name)
            self._folded[name] = state if folded is None else fold_passes(folded, state)
        self._current = {}
        self._end_counts()
        for name in self._sketches.keys() - self._octaves.keys() if not self.passes else ():
            self._octaves[name] = self.states[name].histogram.octaves()
        self._rows = max(self._rows, self._pass_rows)
        self._batches = max(self._batches, self._pass_batches)
        self._pass_rows = self._pass_batches = 0
        self.passes += 1

    def take_in(self, other: OutputComparison) -> None:
        """Add the figures of the rows that come next, by the same plan, from ended passes."""
        for name, state in other.states.items():
            self.states[name] = statistics.merge(self.states[name], state)
        for name, passes in other.by_pass.items():
            self.by_pass[name] = [
                {key: one.get(key, 0) + more.get(key, 0) for key in COUNTS}
                for one, more in zip_longest(self.by_pass.get(name, ()), passes, fillvalue=dict[str, int]())
            ]
        for name, (ratio, largest) in other._repeats.items():
            self._add_repeat(name, ratio, largest)
        self._passes_elsewhere = max(self._passes_elsewhere, other.passes)
        for name, flips in other._folded.items():
            shifted = flips.after(self._pass_rows)
            mine = self._current.get(name)
            self._current[name] = shifted if mine is None else merge_decisions(mine, shifted)
        for key, count in other._violation_counts.items():
            self._violation_counts[key] = self._violation_counts.get(key, 0) + count
            details = [*self._violations.get(key, ())]
            details += [words for words in other._violations[key] if words not in details]
            self._violations[key] = details[:_VIOLATIONS_KEPT]
        for name, pattern in other.patterns.items():
            self.patterns[name] = row_pattern.merge(self.patterns[name], pattern) if name in self.patterns else pattern
        for name, sketch in other._sketches.items():
            self._sketches[name].take_in(sketch)
        for name, octaves in other._octaves.items():
            self._octaves[name] = self._octaves.get(name, 0) + octaves
        self._refused = [*self._refused, *other._refused][:_VIOLATIONS_KEPT]
        self._refused_count += other._refused_count
        self.mismatched_elsewhere += other.mismatched_elsewhere
        for name, rows in other._other_rows.items():
            at = rows + self._pass_rows
            self._other_rows[name] = np.union1d(self._other_rows.get(name, at), at)
        self._lists |= other._lists
        self._pass_rows += other._rows
        self._pass_batches += other._batches

    def _end_counts(self) -> None:
        # A row that comes in every pass is one row, and its mismatch is one mismatch.
        for name, state in self.states.items():
            passes, now = self.by_pass.setdefault(name, []), statistics.counts(state)
            passes.append({key: count - sum(one[key] for one in passes) for key, count in now.items()})

    def _worst_counts(self, name: str) -> dict[str, int] | None:
        passes = self.by_pass.get(name)
        return {key: max(one[key] for one in passes) for key in COUNTS} if passes else None

    def finish(self) -> Measurement:
        """Return all figures."""
        rules: dict[str, Decision] = dict(self._plan.decisions)
        for label, scores in self._plan.argmax_of.items():
            rule = Rule.TOP_K if label in self._lists else Rule.ARGMAX
            about = "ids of the best" if label in self._lists else "argmax of"
            rules[label] = Decision(output=f"{label} ({about} {scores})", rule=rule, k=self._lists.get(label, 0))
        results = {
            name: statistics.finish(self._state(name), self._worst_counts(name))
            for name in self.states
            if name not in self._plan.argmax_of
        }
        decided = {name: finish_decisions(state, rules[name]) for name, state in sorted(self._folded.items())}
        return Measurement(
            rows=self._rows,
            batches=self._batches,
            passes=max(self.passes, self._passes_elsewhere),
            statistics=results,
            decisions=decided,
            mismatches=self._mismatches(decided, results),
            violations=tuple(
                Violation(
                    check=check, output=output, count=self._violation_counts[check, output], details=tuple(details)
                )
                for (check, output), details in self._violations.items()
            ),
            refused=tuple(self._refused),
            refused_count=self._refused_count,
            repeat_ratio={name: ratio for name, (ratio, _) in self._repeats.items()},
            repeat_max_abs_diff={name: largest for name, (_, largest) in self._repeats.items()},
            patterns={name: self._pattern(name) for name in self.patterns},
            drawings={
                name: drawn(sketched, self._octaves[name], results[name].beyond)
                for name, sketched in self._sketches.items()
                if name in self._octaves and name in results
            },
        )

    # A comparison in parts has exact sums in place of those of these two.
    def _state(self, name: str) -> DiffState:
        return self.states[name]

    def _pattern(self, name: str) -> RowPattern:
        return self.patterns[name]

    def _mismatches(
        self, decided: Mapping[str, DecisionStatistics], results: Mapping[str, DiffStatistics]
    ) -> int | None:
        others = self._others()
        if not decided and not others:
            return None
        by_row = self._by_row()
        several = [item.mismatches for name, item in decided.items() if name not in by_row]
        several += [results[name].mismatches for name in others if name not in by_row]
        return self.rows_mismatched() + sum(several)

    def rows_mismatched(self) -> int:
        """Return the number of rows in which an output of one value a row has a mismatch, each once."""
        rows = functools.reduce(np.union1d, self._by_row().values(), np.zeros(0, dtype=np.int64))
        return len(rows) + self.mismatched_elsewhere

    def _by_row(self) -> dict[str, NDArray[np.int64]]:
        rows = {name: state.flipped_rows for name, state in self._folded.items() if state.is_per_row}
        return rows | {name: self._other_rows[name] for name in self._others() if name in self._other_rows}

    def _others(self) -> list[str]:
        is_known = {*self._plan.argmax_of, *self._folded}
        return [name for name, limits in self._plan.limits.items() if limits.is_exact and name not in is_known]


def _texts_as_marks(actual: Arrays, expected: Arrays) -> tuple[Arrays, dict[str, NDArray[np.generic]]]:
    """Return both sides with numbers in place of text: 0 for the reference's own, 1 for any other."""
    marked, plain = dict(actual), dict(expected)
    for name, texts in expected.items():
        if texts.dtype.kind == "U":
            marked[name] = (np.asarray(actual[name]) != np.asarray(texts)).astype(np.uint8)
            zeros = np.zeros(texts.shape, np.uint8)
            left_out = left_out_of(texts)
            plain[name] = zeros if left_out is None else np.ma.MaskedArray(zeros, mask=left_out)
    return marked, plain


def repeat_difference(
    actual: NDArray[np.generic], expected: NDArray[np.generic], limits: Limits
) -> tuple[float, float]:
    """Return the largest difference of two runs on the same input, in limits of its value and in its own unit.

    It is infinite for labels or shapes that differ, and values that are finite in one run only.
    """
    if actual.shape != expected.shape or dtype_name(actual.dtype) != dtype_name(expected.dtype):
        return float("inf"), float("inf")
    if actual.size == 0:
        return 0.0, 0.0
    left_out = left_out_of(expected)
    if limits.is_exact:
        is_same = bool((blanked(actual, left_out) == blanked(expected, left_out)).all())
        return (0.0, 0.0) if is_same else (float("inf"), float("inf"))
    if expected.ndim == 0:
        return _block_difference(actual, expected, limits)
    differences = by_block(lambda rows: _block_difference(actual[rows], expected[rows], limits), expected.shape)
    return max(ratio for ratio, _ in differences), max(difference for _, difference in differences)


def _block_difference(
    actual: NDArray[np.generic], expected: NDArray[np.generic], limits: Limits
) -> tuple[float, float]:
    left_out = left_out_of(expected)
    wide = not_a_number(expected, left_out)
    difference = distance(blanked(actual, left_out), blanked(expected, left_out))
    if limits.fits(difference.shape):
        limit = limits.of_values("repeat_max_abs_diff", wide)
    else:
        # Another shape than the reference's has no such channels, and has failed already.
        limit = limits.repeat_max_abs_diff.min()
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(difference == 0, 0.0, difference / limit)
    return float(ratio.max()), float(difference.max())
