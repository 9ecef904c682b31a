"""Flips: decisions of the candidate that differ from the reference's.

A flip is inside the band if the reference is so near the boundary that a difference within the limit can flip it, else
outside.
"""

from __future__ import annotations

import math
from itertools import zip_longest
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from paritygate.validate.measure.bounds import mismatch_rate_upper_95
from paritygate.validate.measure.decisions import RANK_NEEDING_AXIS, Decision, Rule
from paritygate.validate.measure.figures import DecisionStatistics
from paritygate.validate.measure.valid_positions import left_out_of, not_a_number

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from paritygate.validate.measure.limits import Limits

_CLASSES_COUNTED = 10_000


class Flips(Struct, frozen=True, kw_only=True):
    """The decisions of one batch, one entry a decision, shape (rows, ...).

    `flipped` is where the sides differ, `outside` where they do though the reference is not near the boundary.
    `classes` are the reference's decisions: 0 or 1, the index of the class, or of TOP_K the whole set. `is_per_row` is
    true up to rank 2 of the output, where a row is one decision. `decided` marks decisions that exist at all; None for
    all of them.
    """

    flipped: NDArray[np.bool_]
    outside: NDArray[np.bool_]
    classes: NDArray[np.int64]
    is_per_row: bool
    decided: NDArray[np.bool_] | None = None

    def as_one_row(self) -> Flips:
        """Return the decisions as those of one row, for an output without an axis of rows."""
        return replace(
            self,
            flipped=self.flipped[None],
            outside=self.outside[None],
            classes=self.classes[None],
            decided=None if self.decided is None else self.decided[None],
        )

    def only(self, decided: NDArray[np.bool_]) -> Flips:
        """Return the decisions of positions that count alone."""
        return replace(self, flipped=self.flipped & decided, outside=self.outside & decided, decided=decided)


def decide(decision: Decision, actual: NDArray[np.generic], expected: NDArray[np.generic], limits: Limits) -> Flips:
    """Return which decisions of one batch flip, and which of the flips the limits cannot explain.

    Threshold: a flip is inside the band if |expected - threshold| <= limit. Argmax: if the reference's winner leads the
    class that the candidate chose by no more than both limits together. Top-k: the same for the last entry of the
    reference's set and those that the candidate added. Both outputs are floats of one shape (rows, ...); masked values
    of `expected` are never chosen.
    """
    left_out = left_out_of(expected)
    flips = _decide(decision, not_a_number(actual, left_out), not_a_number(expected, left_out), limits)
    if left_out is None:
        return flips
    if decision.has_threshold:
        return flips.only(~left_out)
    return flips.only(~np.logical_and.reduce(left_out, axis=-1 if decision.axis is None else decision.axis))


def _decide(
    decision: Decision, wide_actual: NDArray[np.float64], wide_expected: NDArray[np.float64], limits: Limits
) -> Flips:
    allowed = limits.band(wide_expected)
    if decision.has_threshold:
        return _decide_threshold(decision, wide_actual, wide_expected, allowed)
    axis = -1 if decision.axis is None else decision.axis
    moved = tuple(np.moveaxis(array, axis, -1) for array in (wide_actual, wide_expected, allowed))
    # NaN is never chosen: where the candidate is not finite, finiteness has failed it already.
    ranked_actual, ranked_expected = (np.where(np.isnan(array), -np.inf, array) for array in moved[:2])
    if decision.rule is Rule.ARGMAX:
        return _decide_argmax(ranked_actual, ranked_expected, moved[2])
    return _decide_top_k(decision.k, ranked_actual, ranked_expected, moved[2])


def _decide_threshold(
    decision: Decision, actual: NDArray[np.float64], expected: NDArray[np.float64], allowed: NDArray[np.float64]
) -> Flips:
    above = np.greater_equal if decision.is_inclusive else np.greater
    answers = above(expected, decision.threshold)
    flipped = above(actual, decision.threshold) != answers
    outside = flipped & ~(np.abs(expected - decision.threshold) <= allowed)
    return Flips(flipped=flipped, outside=outside, classes=answers.astype(np.int64), is_per_row=_is_per_row(expected))


def _is_per_row(expected: NDArray[np.float64]) -> bool:
    return expected.ndim < RANK_NEEDING_AXIS


def _take(array: NDArray[np.float64], index: NDArray[np.int64]) -> NDArray[np.float64]:
    taken: NDArray[np.float64] = np.take_along_axis(array, index[..., np.newaxis], axis=-1)[..., 0]
    return taken


def _decide_argmax(actual: NDArray[np.float64], expected: NDArray[np.float64], allowed: NDArray[np.float64]) -> Flips:
    winner = expected.argmax(axis=-1)
    chosen = actual.argmax(axis=-1)
    flipped = winner != chosen
    with np.errstate(invalid="ignore"):
        lead = _take(expected, winner) - _take(expected, chosen)
    band = _take(allowed, winner) + _take(allowed, chosen)
    return Flips(flipped=flipped, outside=flipped & ~(lead <= band), classes=winner, is_per_row=_is_per_row(expected))


def _decide_top_k(
    k: int, actual: NDArray[np.float64], expected: NDArray[np.float64], allowed: NDArray[np.float64]
) -> Flips:
    size = min(k, expected.shape[-1])
    # A stable sort puts the first of equal entries first on both sides.
    order_expected = np.argsort(-expected, axis=-1, kind="stable")[..., :size]
    order_actual = np.argsort(-actual, axis=-1, kind="stable")[..., :size]
    is_in_expected = np.zeros(expected.shape, dtype=bool)
    np.put_along_axis(is_in_expected, order_expected, values=True, axis=-1)
    is_intruder = ~np.take_along_axis(is_in_expected, order_actual, axis=-1)
    last = order_expected[..., -1]
    with np.errstate(invalid="ignore"):
        lead = _take(expected, last)[..., np.newaxis] - np.take_along_axis(expected, order_actual, axis=-1)
    band = _take(allowed, last)[..., np.newaxis] + np.take_along_axis(allowed, order_actual, axis=-1)
    flipped = np.logical_or.reduce(is_intruder, axis=-1)
    outside = np.logical_or.reduce(is_intruder & ~(lead <= band), axis=-1)
    return Flips(flipped=flipped, outside=outside, classes=order_expected, is_per_row=_is_per_row(expected))


class DecisionState(Struct, kw_only=True):
    """The state of the decisions seen.

    Above rank 2 there are more `decisions` than `rows`. `flips` and `flips_outside` count decisions. `flipped_rows` and
    `outside_rows` are sorted positions of rows with any such flip. `classes` count the reference's decisions.
    `is_per_row` is true for rank 1 and 2. `examples` are ids of the first rows that flipped. `flipped_elsewhere` and
    `outside_elsewhere` count further such rows, which a file of a part does not name. `earlier` has `flips_outside` and
    `flips` of each earlier pass.
    """

    decisions: int = 0
    flips: int = 0
    flips_outside: int = 0
    rows: int = 0
    flipped_rows: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    outside_rows: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    classes: dict[int, int] = field(default_factory=dict)
    is_per_row: bool = True
    examples: tuple[str, ...] = ()
    flipped_elsewhere: int = 0
    outside_elsewhere: int = 0
    earlier: tuple[tuple[int, int], ...] = ()

    @property
    def rows_flipped(self) -> int:
        """The number of rows with a flip."""
        return len(self.flipped_rows) + self.flipped_elsewhere

    @property
    def rows_outside(self) -> int:
        """The number of rows with a flip outside the band."""
        return len(self.outside_rows) + self.outside_elsewhere

    def after(self, rows: int) -> DecisionState:
        """Return the state for rows that come after so many others."""
        return replace(self, flipped_rows=self.flipped_rows + rows, outside_rows=self.outside_rows + rows)


_EXAMPLES = 10


def update_decisions(
    state: DecisionState, flips: Flips, *, first_row: int, ids: tuple[str, ...] | list[str]
) -> DecisionState:
    """Add the decisions of one batch, from position `first_row` of all samples on; the state is changed in place."""
    rows = len(flips.flipped)
    state.is_per_row = flips.is_per_row
    by_row = flips.flipped.reshape(rows, -1).any(axis=1)
    outside_by_row = flips.outside.reshape(rows, -1).any(axis=1)
    decided = flips.decided
    state.rows += rows if decided is None else int(np.count_nonzero(decided.reshape(rows, -1).any(axis=1)))
    state.decisions += flips.flipped.size if decided is None else int(np.count_nonzero(decided))
    classes = flips.classes if decided is None else flips.classes[decided]
    for value, count in zip(*np.unique(classes, return_counts=True), strict=True):
        if len(state.classes) < _CLASSES_COUNTED or int(value) in state.classes:
            state.classes[int(value)] = state.classes.get(int(value), 0) + int(count)
    if by_row.any():
        at = np.flatnonzero(by_row)
        state.flips += int(np.count_nonzero(flips.flipped))
        state.flips_outside += int(np.count_nonzero(flips.outside))
        state.flipped_rows = np.union1d(state.flipped_rows, first_row + at)
        state.outside_rows = np.union1d(state.outside_rows, first_row + np.flatnonzero(outside_by_row))
        state.examples = _first_examples(state.examples, tuple(ids[i] for i in at))
    return state


def _first_examples(a: tuple[str, ...], b: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*a, *b)))[:_EXAMPLES]


def merge_decisions(a: DecisionState, b: DecisionState) -> DecisionState:
    """Return the state of two sets of different rows together; associative."""
    classes = dict(a.classes)
    for value, count in b.classes.items():
        classes[value] = classes.get(value, 0) + count
    return DecisionState(
        decisions=a.decisions + b.decisions,
        flips=a.flips + b.flips,
        flips_outside=a.flips_outside + b.flips_outside,
        rows=a.rows + b.rows,
        flipped_rows=np.union1d(a.flipped_rows, b.flipped_rows),
        outside_rows=np.union1d(a.outside_rows, b.outside_rows),
        classes=classes,
        is_per_row=a.is_per_row and b.is_per_row,
        examples=_first_examples(a.examples, b.examples),
        flipped_elsewhere=a.flipped_elsewhere + b.flipped_elsewhere,
        outside_elsewhere=a.outside_elsewhere + b.outside_elsewhere,
        earlier=tuple(
            (one[0] + more[0], one[1] + more[1]) for one, more in zip_longest(a.earlier, b.earlier, fillvalue=(0, 0))
        ),
    )


def fold_passes(a: DecisionState, b: DecisionState) -> DecisionState:
    """Return the state of two passes over the same rows: flips of either pass."""
    return replace(
        a,
        flips=b.flips,
        flips_outside=b.flips_outside,
        earlier=(*a.earlier, (a.flips_outside, a.flips)),
        flipped_rows=np.union1d(a.flipped_rows, b.flipped_rows),
        outside_rows=np.union1d(a.outside_rows, b.outside_rows),
        examples=_first_examples(a.examples, b.examples),
    )


def finish_decisions(state: DecisionState, decision: Decision) -> DecisionStatistics:
    """Return the counts of all decisions added, those of flips from the worst pass."""
    rows_mismatched = state.rows_flipped
    outside, mismatches = max((*state.earlier, (state.flips_outside, state.flips)))
    if state.is_per_row:
        outside, mismatches = state.rows_outside, rows_mismatched
    return DecisionStatistics(
        rule=str(decision),
        rows=state.rows,
        decisions=state.rows if state.is_per_row else state.decisions,
        mismatches=mismatches,
        inside_band=mismatches - outside,
        outside_band=outside,
        rows_mismatched=rows_mismatched,
        mismatch_rate_upper_95=mismatch_rate_upper_95(rows_mismatched, state.rows),
        classes={str(name): count for name, count in sorted(list(state.classes.items())[:_CLASSES_COUNTED])},
        examples=state.examples,
        is_constant=0 < len(state.classes) <= decision.k,
        constant=decision.constant,
    )


def label_axes(scores: tuple[int, ...], label: tuple[int, ...]) -> tuple[int, ...]:
    """Return the axes of the scores that labels can be chosen along.

    Labels have the shape of the scores without such an axis, with one place along it, or with the k best entries. Where
    both shapes are equal, the scores are those of the k best entries alone.
    """
    if label == scores:
        return tuple(range(1, len(scores)))
    return tuple(
        axis
        for axis in range(1, len(scores))
        if label == scores[:axis] + scores[axis + 1 :]
        or (
            len(label) == len(scores)
            and scores[:axis] + scores[axis + 1 :] == label[:axis] + label[axis + 1 :]
            and label[axis] < scores[axis]
        )
    )


def _is_list(label: NDArray[np.generic], scores: NDArray[np.generic], axis: int) -> bool:
    """Return whether the labels are the ids of the best entries, and not the place of the best one."""
    return label.ndim == scores.ndim and (label.shape[axis] != 1 or scores.shape[axis] == 1)


def _decide_ids(
    ids: tuple[NDArray[np.generic], NDArray[np.generic]],
    expected_scores: NDArray[np.generic],
    limits: Limits,
    axis: int,
) -> Flips:
    """Return where the ids of the k best entries differ: a flip is a place with an id that may not be there.

    Two ids may swap places, without a flip, where the reference's scores of both are equal within their limits. A new
    id is inside the band where its score is that near to the score of the last place.
    """
    left_out = left_out_of(ids[1])
    actual, expected = (np.moveaxis(np.asarray(side).astype(np.int64), axis, -1) for side in ids)
    wide = not_a_number(expected_scores, left_out_of(expected_scores))
    scores, allowed = (np.moveaxis(array, axis, -1) for array in (wide, limits.band(wide)))
    is_of_places = scores.shape == expected.shape and _is_in_order(scores)
    flipped, outside = np.zeros(actual.shape, dtype=bool), np.zeros(actual.shape, dtype=bool)
    # Most lists are the same, in the same order.
    for at in zip(*np.nonzero((actual != expected).any(axis=-1)), strict=True):
        ranking = _Ranking(expected[at], scores[at], allowed[at], is_of_places=is_of_places)
        flipped[at], outside[at] = ranking.differ(actual[at])
    flips = Flips(
        flipped=np.moveaxis(flipped, -1, axis),
        outside=np.moveaxis(outside, -1, axis),
        classes=np.moveaxis(expected, -1, axis),
        is_per_row=False,
    )
    return flips if left_out is None else flips.only(~left_out)


def _is_in_order(scores: NDArray[np.float64]) -> bool:
    """Return whether scores fall along the last axis in each row, or rise in each."""
    steps = np.diff(scores, axis=-1)
    # NaN is in no order, and does not count.
    return bool((~(steps > 0)).all() or (~(steps < 0)).all())


class _Ranking:
    """The reference's list of one row: the ids, and the score and the limit of each place."""

    def __init__(
        self, ids: NDArray[np.int64], scores: NDArray[np.float64], allowed: NDArray[np.float64], *, is_of_places: bool
    ) -> None:
        self._ids = ids.tolist()
        self._entries = None if is_of_places else (scores, allowed)
        self._places = [(float(scores[at]), float(allowed[at])) for at in range(len(ids))] if is_of_places else []
        self._places = self._places or [self._of(chosen) for chosen in self._ids]
        is_cut = _is_in_order(np.array([[score for score, _ in self._places]]))
        # Where the list is cut off, entries with equal scores compete for the last place.
        self._last = self._places[-1] if is_cut else (math.nan, math.nan)

    def _of(self, chosen: int) -> tuple[float, float]:
        """Return the score and the limit of an entry; NaN where unknown."""
        if self._entries is None or not 0 <= chosen < len(self._entries[0]):
            return math.nan, math.nan
        return float(self._entries[0][chosen]), float(self._entries[1][chosen])

    def differ(self, actual: NDArray[np.int64]) -> tuple[list[bool], list[bool]]:
        """Return at which places an id may not be, and where no limit explains it."""
        free = [[place for place, own in enumerate(self._ids) if own == chosen] for chosen in actual.tolist()]
        taken: set[int] = set()
        flipped, outside = [], []
        for place, chosen in enumerate(actual.tolist()):
            own = next((at for at in sorted(free[place], key=lambda at: at != place) if at not in taken), None)
            if own is not None:
                taken.add(own)
                is_near = own == place or _is_tie(self._places[own], self._places[place])
                flipped.append(not is_near)
            else:
                # An id that is there twice replaces another one.
                is_known = bool(free[place]) or chosen in actual[:place]
                score = self._places[place] if self._entries is None else self._of(chosen)
                is_near = not is_known and _is_tie(score, self._places[place]) and _is_tie(score, self._last)
                flipped.append(True)
            outside.append(not is_near)
        return flipped, outside


def _is_tie(one: tuple[float, float], other: tuple[float, float]) -> bool:
    """Return whether two scores are no further apart than both limits; NaN is near to nothing."""
    return abs(one[0] - other[0]) <= one[1] + other[1]


def decide_label(
    labels: tuple[NDArray[np.generic], NDArray[np.generic]],
    expected_scores: NDArray[np.generic],
    limits: Limits,
    axis: int,
) -> Flips:
    """Return where an integer output differs that is declared the argmax of another one, or the ids of its best.

    The `labels` of candidate and reference have the shape of the scores without the class axis, or with one place or
    the places of a top-k along it.
    """
    if _is_list(labels[1], expected_scores, axis):
        return _decide_ids(labels, expected_scores, limits, axis)
    actual, expected = (_without_axis(array, expected_scores, axis) for array in labels)
    left_out, without_scores = left_out_of(expected), left_out_of(expected_scores)
    actual, expected = (np.asarray(array).astype(np.int64) for array in (actual, expected))
    wide = not_a_number(expected_scores, without_scores)
    flipped = actual != expected
    # Of two classes that the reference cannot tell apart, either may be chosen; no other one, however high its score.
    outside = flipped & ~_is_near(actual, expected, wide, limits, axis)
    flips = Flips(flipped=flipped, outside=outside, classes=expected, is_per_row=_is_per_row(wide))
    flips = flips if left_out is None else flips.only(~left_out)
    if without_scores is None:
        return flips
    # Where no score counts, no label does.
    decided = ~np.logical_and.reduce(without_scores, axis=axis)
    return flips.only(decided if flips.decided is None else decided & flips.decided)


def is_largest(label: NDArray[np.generic], scores: NDArray[np.generic], limits: Limits, axis: int) -> NDArray[np.bool_]:
    """Return where a label is the place of its own side's largest score, within the limits, or nothing counts."""
    if _is_list(label, scores, axis):
        return _is_best(label, scores, limits, axis)
    label = _without_axis(label, scores, axis)
    left_out = left_out_of(label)
    wide = not_a_number(scores, left_out_of(scores))
    counts = ~np.isnan(wide).any(axis=axis)
    if left_out is not None:
        counts &= ~left_out
    chosen = np.asarray(label).astype(np.int64)
    largest = np.where(np.isnan(wide), -np.inf, wide).argmax(axis=axis)
    is_best: NDArray[np.bool_] = ~counts | (chosen == largest) | _is_near(chosen, largest, wide, limits, axis)
    return is_best


def _is_best(ids: NDArray[np.generic], scores: NDArray[np.generic], limits: Limits, axis: int) -> NDArray[np.bool_]:
    """Return in which lists every id is one of the best entries: of the largest scores, or of the smallest."""
    wide = np.moveaxis(not_a_number(scores, left_out_of(scores)), axis, -1)
    chosen = np.moveaxis(np.asarray(ids).astype(np.int64), axis, -1)
    ordered = np.sort(chosen, axis=-1)
    # A shorter list is padded with one negative id.
    is_once = ~((np.diff(ordered, axis=-1) == 0) & (ordered[..., 1:] >= 0)).any(axis=-1)
    if wide.shape == chosen.shape and _is_in_order(wide):
        # Nothing shows that entries that are not there are worse.
        return np.asarray(is_once)
    is_there = (chosen >= 0) & (chosen < wide.shape[-1])
    places = np.where(is_there, chosen, 0)
    is_chosen = np.zeros(wide.shape, dtype=bool)
    np.put_along_axis(is_chosen, places, values=True, axis=-1)
    room = 2 * np.moveaxis(limits.band(np.moveaxis(wide, -1, axis)), axis, -1).max(axis=-1)
    with np.errstate(invalid="ignore"):
        is_above = np.where(is_chosen, wide, np.inf).min(axis=-1) + room >= np.where(is_chosen, -np.inf, wide).max(
            axis=-1
        )
        is_below = np.where(is_chosen, wide, -np.inf).max(axis=-1) - room <= np.where(is_chosen, np.inf, wide).min(
            axis=-1
        )
    left_out = left_out_of(ids)
    counts = ~np.isnan(wide).any(axis=-1)
    if left_out is not None:
        counts &= ~np.moveaxis(left_out, axis, -1).any(axis=-1)
    is_best: NDArray[np.bool_] = ~counts | (is_once & is_there.all(axis=-1) & (is_above | is_below))
    return is_best


def _without_axis(label: NDArray[np.generic], scores: NDArray[np.generic], axis: int) -> NDArray[np.generic]:
    return label.squeeze(axis) if label.ndim == scores.ndim else label


def _is_near(
    one: NDArray[np.int64], other: NDArray[np.int64], scores: NDArray[np.float64], limits: Limits, axis: int
) -> NDArray[np.bool_]:
    """Return where the scores of two classes are no further apart than both limits; nowhere for an unknown class."""
    allowed, by_class = np.moveaxis(limits.band(scores), axis, -1), np.moveaxis(scores, axis, -1)
    size = by_class.shape[-1]
    is_known = (one >= 0) & (one < size) & (other >= 0) & (other < size)
    first, second = (np.where(is_known, places, 0) for places in (one, other))
    with np.errstate(invalid="ignore"):
        apart = np.abs(_take(by_class, second) - _take(by_class, first))
    near: NDArray[np.bool_] = is_known & (apart <= _take(allowed, second) + _take(allowed, first))
    return near
