"""Whole numbers at the boundaries of divisions, and those that float32 cannot hold, within the range seen.

Samples hardly ever lie there. A conversion that divides in floats, or rounds negative quotients the other way, is
correct everywhere else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paritygate.validate.probes.derive.sizes import batch_sizes
from paritygate.validate.probes.inputs.edge import where_rounded
from paritygate.validate.probes.inputs.probe import ROWS_FACTOR, ProbeBatch, ProbeContext
from paritygate.validate.probes.inputs.roles import Form, Role
from paritygate.validate.probes.inputs.survey import Rows
from paritygate.validate.probes.inputs.thresholds import Division

_NAME = "divisions"
# Each boundary, with the numbers below and above it.
THREE = 3
_DIVISIONS = 8
_ROWS = 63
# For divisors that are only guessed.
_BOUNDARIES_GUESSED = 3
# The part of a probe's rows that goes to divisions.
_SHARE = 8
# From here on float32 skips whole numbers; int32 and uint32 end at the other two.
_FLOAT32, _INT32, _UINT32 = 1 << 24, 1 << 31, 1 << 32
_LARGE = 8
_FEATURE_RANK = 3
_COLUMNS = 16
# Common divisors of large whole numbers, used without a graph: weeks and days in seconds, thousands, bits.
_GUESSED = tuple(Division(step=step) for step in (604_800, 86_400, 1000, 1024))


def at_divisions(context: ProbeContext) -> Iterator[ProbeBatch]:
    """Yield real rows with whole numbers of one input at the boundaries of the model's divisions."""
    rows = context.survey.groups[0]
    places = [_Place(context, rows, name) for name in context.roles if _is_of_whole_numbers(context, rows, name)]
    pairs = [(place, division) for place in places for division in place.divisions()]
    allowed = max(THREE, min(_ROWS, context.max_rows * ROWS_FACTOR // _SHARE // max(1, len(pairs))))
    for place, division in pairs:
        is_guessed = not context.roles[place.name].divisions
        yield from place.at(division, min(_BOUNDARIES_GUESSED, allowed // THREE) if is_guessed else allowed // THREE)
    for place in places:
        yield from place.large()


def _is_of_whole_numbers(context: ProbeContext, rows: Rows, name: str) -> bool:
    role, seen, array = context.roles[name], context.survey.inputs[name], rows.inputs[name]
    is_whole = array.dtype.kind in "iu" or (array.dtype.kind == "f" and seen.is_whole)
    is_free = role.role not in {Role.MASK, Role.TEXT, Role.IMAGE} and role.form in {None, Form.WHOLE}
    return is_whole and is_free and not role.is_size and name in rows.with_rows and bool(array.size)


class _Place:
    """Real rows, in which one input gets other whole numbers."""

    def __init__(self, context: ProbeContext, rows: Rows, name: str) -> None:
        self._context = context
        self._rows = rows
        self.name = name
        self._real: NDArray[Any] = rows.inputs[name]
        self._order = context.random(f"{_NAME}/{name}").permutation(len(rows.ids))
        self._sizes = batch_sizes(context)

    def divisions(self) -> tuple[Division, ...]:
        """Return the divisions of the graph; without any, common divisors where the numbers are large."""
        own = self._context.roles[self.name].divisions[:_DIVISIONS]
        low, high = self._ends(None)
        is_large = self._real.dtype.kind in "iu" and max(-low, high) > _FLOAT32
        return own or tuple(item for item in _GUESSED if is_large and high - low >= THREE * item.step)

    def _ends(self, column: int | None) -> tuple[int, int]:
        """Return the smallest and the largest number seen in all features that change."""
        lows, highs = self._context.survey.inputs[self.name].bounds()
        if column is None or not lows.ndim:
            return int(np.ceil(lows.max())), int(np.floor(highs.min()))
        return int(np.ceil(lows[column])), int(np.floor(highs[column]))

    def _columns(self, division: Division) -> Sequence[int | None]:
        """Return the features to change, each in its own rows; [None] changes all of them at once."""
        rank, width = self._real.ndim, self._real.shape[-1] if self._real.ndim > 1 else 0
        if not 1 < rank <= _FEATURE_RANK or (division.columns is None and _boundaries(division, self._ends(None), 1)):
            return [None]
        columns = range(width) if division.columns is None else division.columns
        return [at for at in columns if 0 <= at < width][:_COLUMNS]

    def at(self, division: Division, count: int) -> Iterator[ProbeBatch]:
        """Yield this many boundaries of a division, each with the numbers on both sides of it in the same real row."""
        columns = self._columns(division)
        each = max(1, count // max(1, len(columns)))
        boundaries = [
            (value, column) for column in columns[:count] for value in _boundaries(division, self._ends(column), each)
        ]
        size = max(self._sizes) // THREE
        is_together = size > 0
        # A batch below three rows gets one number per call.
        for start in range(0, len(boundaries), max(1, size)):
            part = boundaries[start : start + max(1, size)]
            numbers = [(value + side, column) for value, column in part for side in (-1, 0, 1)]
            for group in [numbers] if is_together else [[number] for number in numbers]:
                batch = self._batch(group, f"where it is divided by {division.step}", division, is_together=is_together)
                if batch is not None:
                    yield batch

    def large(self) -> Iterator[ProbeBatch]:
        """Yield numbers within the range seen that float32 cannot hold, and those at the ends of int32 and uint32."""
        low, high = self._ends(None)
        exact = np.dtype(self._real.dtype)
        if max(-low, high) <= _FLOAT32 or (exact.kind == "f" and exact.itemsize < 8):  # noqa: PLR2004 - bytes of float64
            return
        spread = [low + (high - low) * (2 * at + 1) // (2 * _LARGE) | 1 for at in range(_LARGE)]
        ends = [end + side for end in (-_INT32, _INT32, _UINT32) for side in (-1, 0, 1)]
        wanted = [value for value in (*spread, *ends) if low <= value <= high and abs(value) > _FLOAT32]
        for start in range(0, len(wanted), max(self._sizes)):
            part = [(value, None) for value in wanted[start : start + max(self._sizes)]]
            batch = self._batch(part, "what float32 does not hold", Division(step=1), is_together=False)
            if batch is not None:
                yield batch

    def _batch(
        self, numbers: Sequence[tuple[int, int | None]], about: str, division: Division, *, is_together: bool
    ) -> ProbeBatch | None:
        """Return real rows with these numbers, or None where no real row stays like the samples with them."""
        step = THREE if is_together else 1
        groups = []
        for start in range(0, len(numbers), step):
            group = numbers[start : start + step]
            turned = np.roll(self._order, -(start // step))
            parts = (self._rows_with(group, int(row)) for row in turned)
            chosen = next((part for part in parts if self._is_sensible(part)), None)
            groups += [] if chosen is None else [(chosen, group)]
        if not groups:
            return None
        # Whole groups are repeated up to the smallest batch.
        count = -(-min(self._sizes) // step)
        groups = [groups[at % len(groups)] for at in range(max(len(groups), count))]
        rows = [part for part, _ in groups]
        with_rows = self._rows.with_rows
        inputs = {
            name: np.concatenate([part[name] for part in rows]) if name in with_rows else array
            for name, array in rows[0].items()
        }
        total = step * len(groups)
        shown = ", ".join(dict.fromkeys(str(value) for _, group in groups[:2] for value, _ in group))
        is_alone = self._real[0].size == 1
        return ProbeBatch(
            inputs=inputs,
            rows=total,
            about=f"{self.name}: {about} ({shown}{' and more' if len(groups) > 2 else ''})",  # noqa: PLR2004 - shown above
            is_unlike_seen=not is_alone and any(column is None for _, group in groups for _, column in group),
            # Half precision lacks the digits that decide on which side of a boundary a quotient lies.
            is_far_from_seen=division.is_float or self._real.dtype.kind == "f",
            edges=(where_rounded(self.name, range(total)),) if division.is_computed else (),
            divided=self.name if is_together and not division.is_computed else "",
        )

    def _rows_with(self, group: Sequence[tuple[int, int | None]], row: int) -> dict[str, NDArray[np.generic]]:
        inputs = self._rows.take([row] * len(group))
        changed = np.array(inputs[self.name])
        for at, (value, column) in enumerate(group):
            changed[at if column is None else (at, ..., column)] = np.asarray(value).astype(changed.dtype)
        inputs[self.name] = changed
        return inputs

    def _is_sensible(self, inputs: dict[str, NDArray[np.generic]]) -> bool:
        return all(order.is_kept_by(inputs) for order in self._context.survey.orders)


def _boundaries(division: Division, ends: tuple[int, int], count: int) -> list[int]:
    """Return this many evenly spread numbers at which a quotient changes; both neighbours are within the range seen."""
    low, high = ends[0] + 1, ends[1] - 1
    scale, offset = division.scale, division.offset
    if scale < 0:
        scale, offset = -scale, -offset
    first = -((offset - scale * low) // division.step)
    last = (scale * high - offset) // division.step
    if low > high or first > last:
        return []
    chosen = {first + (last - first) * at // max(1, count - 1) for at in range(min(count, last - first + 1))}
    # Evenly spread boundaries may all be even numbers, so every other one is moved by one.
    chosen = {min(last, number + at % 2) for at, number in enumerate(sorted(chosen))}
    values = (-((-(number * division.step + offset)) // scale) for number in sorted(chosen))
    return list(dict.fromkeys(value for value in values if low <= value <= high))
