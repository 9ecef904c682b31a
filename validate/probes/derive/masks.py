"""Masks and padding: on the right, on the left, inside, none, and an empty row."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paritygate.validate.probes.derive.sizes import batch_sizes
from paritygate.validate.probes.inputs.padding import Padding
from paritygate.validate.probes.inputs.probe import ProbeBatch, ProbeContext
from paritygate.validate.probes.inputs.roles import InputRole, Role
from paritygate.validate.probes.inputs.survey import Rows

Pattern = NDArray[np.bool_]

_NAME = "masks"
_GROUPS = 2
_ROWS = 4
# Rows and positions: an input without positions has no padding.
_MATRIX_RANK = 2


def derive(context: ProbeContext) -> Iterator[ProbeBatch]:
    """Yield real rows under other masks, with other padding, and with other lengths."""
    random = context.random(_NAME)
    masked = {role.of for role in context.roles.values() if role.role is Role.MASK}
    for rows in context.survey.groups[:_GROUPS]:
        for name, role in context.roles.items():
            if name not in rows.with_rows:
                continue
            if rows.inputs[name].ndim >= _MATRIX_RANK and (
                role.role is Role.MASK or (role.role is Role.ID and role.pad is not None and name not in masked)
            ):
                yield from _masked(context, rows, name, random)
            elif role.role is Role.LENGTH:
                yield from _of_lengths(context, rows, name, role)


def _patterns(positions: int, shortest: int) -> Iterator[tuple[str, Padding, Pattern]]:
    """Yield (name, kind of padding, mask over this many positions); no sample has fewer than `shortest`."""
    at = np.arange(positions)
    half = min(positions, max(1, positions // 2, shortest))
    third = max(1, positions // 3, -(-shortest // 2))
    yield "no padding", Padding.NONE, at >= 0
    yield "padding on the right", Padding.RIGHT, at < half
    yield "padding on the left", Padding.LEFT, at >= positions - half
    yield "padding inside", Padding.INSIDE, (at < third) | (at >= positions - third)
    yield "every other position masked", Padding.INSIDE, at % 2 == 0
    yield "as few positions as in any sample", Padding.RIGHT, at < max(1, shortest)
    yield "one position", Padding.RIGHT, at == 0
    yield "the last position alone", Padding.LEFT, at == positions - 1


def _may_occur(role: InputRole, kind: Padding) -> bool:
    """Return whether the declared roles allow this kind of padding."""
    declared = role.declared
    if kind is Padding.EMPTY:
        return declared.empty is not False
    return declared.padding is None or kind is Padding.NONE or kind in declared.padding


def _masked(context: ProbeContext, rows: Rows, name: str, random: np.random.Generator) -> Iterator[ProbeBatch]:
    masker = _Masker(context, rows, name)
    positions, role = rows.inputs[name].shape[1], context.roles[name]
    patterns = [
        (about, pattern)
        for about, kind, pattern in _patterns(positions, context.survey.inputs[name].padding.shortest or 1)
        if _may_occur(role, kind) and pattern.sum() >= (role.declared.shortest or 0)
    ]
    low, high = min(batch_sizes(context)), max(batch_sizes(context))
    order = [int(at) for at in random.permutation(len(rows.ids))]
    for number, (about, pattern) in enumerate(patterns):
        row = order[number % len(order)]
        yield masker.batch([row] * low, [pattern] * low, about, is_unlike=number > 0)
    count = max(low, min(high, _ROWS))
    yield from masker.moved([int(row) for row in np.resize(np.asarray(order), count)])
    # All in one batch, to find a mask of one row applied to another.
    count = max(low, min(high, len(patterns)))
    at = [int(row) for row in np.resize(np.asarray(order), count)]
    mixed = [patterns[number % len(patterns)][1] for number in range(count)]
    yield masker.batch(at, mixed, "rows with different padding in one batch", is_unlike=True)
    yield masker.batch(at, mixed[::-1], "the same with other rows padded", is_unlike=True)
    if masker.has_padding_id:
        yield masker.batch(at, mixed, "real ids where the mask is 0", is_unlike=True, is_filled=True)
    if not _may_occur(role, Padding.EMPTY):
        return
    nothing = np.zeros(positions, dtype=bool)
    yield masker.batch(order[:1] * low, [nothing] * low, "an empty row alone", is_unlike=True)
    if high > 1:
        full = np.ones(positions, dtype=bool)
        beside = max(2, low)
        at = [int(row) for row in np.resize(np.asarray(order), beside)]
        chosen = [full] * (beside - 1)
        yield masker.batch(at, [*chosen, nothing], "an empty row beside a full one", is_unlike=True)


class _Masker:
    """Puts real rows under other masks; the mask is an input, or every position without the padding id."""

    def __init__(self, context: ProbeContext, rows: Rows, name: str) -> None:
        role = context.roles[name]
        self._rows = rows
        self._name = name
        self._is_mask = role.role is Role.MASK
        self._of = role.of if self._is_mask else name
        other = context.roles.get(self._of) if self._of is not None else None
        is_beside = self._of in rows.with_rows and rows.inputs[name].shape[:2] == rows.inputs[self._of].shape[:2]
        self._pad = other.pad if other is not None and other.role is Role.ID and is_beside else None

    @property
    def has_padding_id(self) -> bool:
        return self._is_mask and self._pad is not None

    def batch(
        self, at: list[int], patterns: list[Pattern], about: str, *, is_unlike: bool = False, is_filled: bool = False
    ) -> ProbeBatch:
        """Return these rows, each under its pattern (True: real); `is_filled` puts real ids where the mask is 0."""
        inputs = self._rows.take(at)
        chosen = np.stack(patterns)
        if self._is_mask:
            mask = inputs[self._name]
            inputs[self._name] = np.broadcast_to(_spread(chosen, mask.ndim), mask.shape).astype(mask.dtype)
        if self._of is not None and self._pad is not None:
            ids = inputs[self._of]
            # Padding gets ids of real rows here, and real positions stay real.
            filled = np.where(ids == self._pad, _content(ids, self._pad), ids)
            is_id = np.ones_like(chosen) if is_filled else chosen
            inputs[self._of] = np.where(_spread(is_id, ids.ndim), filled, self._pad).astype(ids.dtype)
        return ProbeBatch(inputs=inputs, rows=len(at), about=f"{about} ({self._name})", is_unlike_seen=is_unlike)

    def moved(self, at: list[int]) -> Iterator[ProbeBatch]:
        """Yield the rows with their own padding moved to another place, and nothing else changed."""
        inputs = self._rows.take(at)
        mask = inputs[self._name] != (0 if self._is_mask else self._pad)
        real = mask.reshape(*mask.shape[:2], -1).any(axis=2)
        if real.all():
            return
        for about, is_real in (("on the left", _at_end(real)), ("inside", _at_both_ends(real))):
            # Move real positions, in their order, to the new real places, and padding to the others.
            to, of = (np.argsort(~where, axis=1, kind="stable") for where in (is_real, real))
            source = np.empty_like(to)
            np.put_along_axis(source, to, of, axis=1)
            changed = dict(inputs)
            for name in {self._name, self._of or self._name}:
                array = inputs[name]
                if array.shape[:2] == real.shape:
                    changed[name] = np.take_along_axis(array, _spread(source, array.ndim), axis=1)
            yield ProbeBatch(inputs=changed, rows=len(at), about=f"their own padding {about} ({self._name})")


def _at_end(real: Pattern) -> Pattern:
    pattern: Pattern = np.arange(real.shape[1]) >= real.shape[1] - real.sum(axis=1, keepdims=True)
    return pattern


def _at_both_ends(real: Pattern) -> Pattern:
    count = real.sum(axis=1, keepdims=True)
    before = -(-count // 2)
    at = np.arange(real.shape[1])
    pattern: Pattern = (at < before) | (at >= real.shape[1] - (count - before))
    return pattern


def _content(ids: NDArray[Any], pad: int) -> NDArray[Any]:
    """Return rows in which the real ids of each repeat to the end."""
    repeated: NDArray[Any] = ids.copy()
    for row, values in enumerate(ids):
        real = values[values != pad]
        if real.size:
            repeated[row] = np.resize(real, values.shape)
    return repeated


def _spread(mask: NDArray[Any], rank: int) -> NDArray[Any]:
    spread: NDArray[Any] = mask.reshape(mask.shape + (1,) * (rank - _MATRIX_RANK))
    return spread


def _of_lengths(context: ProbeContext, rows: Rows, name: str, role: InputRole) -> Iterator[ProbeBatch]:
    """Yield rows with the shortest and the longest lengths that their positions allow."""
    of = rows.inputs.get(role.of) if role.of is not None else None
    longest = of.shape[1] if of is not None and of.ndim > 1 else role.high
    if longest is None:
        return
    count = max(min(batch_sizes(context)), min(3, max(batch_sizes(context))))
    at = [int(row) for row in np.resize(np.arange(len(rows.ids)), count)]
    half = max(1, longest // 2)
    for about, value in (("of length 1", 1), ("of half the length", half), ("full", longest), ("of length 0", 0)):
        inputs = rows.take(at)
        inputs[name] = np.full_like(inputs[name], value)
        yield ProbeBatch(inputs=inputs, rows=count, about=f"rows {about} ({name})", is_unlike_seen=value <= 1)
    if count > 1:
        inputs = rows.take(at)
        lengths = np.resize(np.asarray([longest, 1, half]), count)
        inputs[name] = np.broadcast_to(
            lengths.reshape((count,) + (1,) * (inputs[name].ndim - 1)), inputs[name].shape
        ).astype(inputs[name].dtype)
        about = f"rows of different lengths in one batch ({name})"
        yield ProbeBatch(inputs=inputs, rows=count, about=about, is_unlike_seen=True)
