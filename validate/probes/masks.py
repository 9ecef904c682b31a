"""Masks and padding: on the right, on the left, inside, none at all, and a row without anything in it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from paritygate.validate.probes.probe import ProbeBatch, ProbeContext
from paritygate.validate.probes.roles import InputRole, Role
from paritygate.validate.probes.sizes import batch_sizes
from paritygate.validate.probes.survey import Rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Pattern = NDArray[np.bool_]

__all__ = ["derive"]

_NAME = "masks"
_GROUPS = 2


def derive(context: ProbeContext) -> Iterator[ProbeBatch]:
    """Yield real rows under other masks, and with other lengths."""
    random = context.random(_NAME)
    for rows in context.survey.groups[:_GROUPS]:
        for name, role in context.roles.items():
            if name not in rows.with_rows:
                continue
            if role.role is Role.MASK:
                yield from _masked(context, rows, name, random)
            elif role.role is Role.LENGTH:
                yield from _of_lengths(context, rows, name, role)


def _patterns(positions: int) -> Iterator[tuple[str, Pattern]]:
    """Yield masks over so many positions, by name."""
    at = np.arange(positions)
    half = max(1, positions // 2)
    yield "no padding", at >= 0
    yield "padding on the right", at < half
    yield "padding on the left", at >= positions - half
    yield "padding inside", (at < positions // 3) | (at >= positions - max(1, positions // 3))
    yield "every other position masked", at % 2 == 0
    yield "one position", at == 0
    yield "the last position alone", at == positions - 1


def _masked(context: ProbeContext, rows: Rows, name: str, random: np.random.Generator) -> Iterator[ProbeBatch]:
    mask = rows.inputs[name]
    if mask.ndim < 2:  # noqa: PLR2004 - rows and positions
        return
    masker = _Masker(context, rows, name)
    patterns = list(_patterns(mask.shape[1]))
    low, high = min(batch_sizes(context)), max(batch_sizes(context))
    order = [int(at) for at in random.permutation(len(rows.ids))]
    for number, (about, pattern) in enumerate(patterns):
        row = order[number % len(order)]
        yield masker.batch([row] * low, [pattern] * low, about)
    if high > 1:
        # All of them in one batch: a mask of one row must not be that of another.
        count = max(low, min(high, len(patterns)))
        at = [int(row) for row in np.resize(np.asarray(order), count)]
        mixed = [patterns[number % len(patterns)][1] for number in range(count)]
        yield masker.batch(at, mixed, "rows with different padding in one batch")
        yield masker.batch(at, mixed[::-1], "the same with other rows padded")
    nothing = np.zeros(mask.shape[1], dtype=bool)
    yield masker.batch(order[:1] * low, [nothing] * low, "an empty row alone")
    if high > 1 and low <= 2:  # noqa: PLR2004 - a row and another
        full = np.ones(mask.shape[1], dtype=bool)
        yield masker.batch([order[0], order[-1]], [full, nothing], "an empty row beside a full one")


class _Masker:
    """Puts real rows under other masks."""

    def __init__(self, context: ProbeContext, rows: Rows, name: str) -> None:
        self._rows = rows
        self._name = name
        self._of = context.roles[name].of
        other = context.roles.get(self._of) if self._of is not None else None
        self._pad = other.pad if other is not None and other.role is Role.ID else None

    def batch(self, at: list[int], patterns: list[Pattern], about: str) -> ProbeBatch:
        """Return the rows at these positions, each under its mask."""
        inputs = self._rows.take(at)
        chosen = np.stack(patterns)
        mask = inputs[self._name]
        inputs[self._name] = np.broadcast_to(_spread(chosen, mask.ndim), mask.shape).astype(mask.dtype)
        if self._of is not None and self._pad is not None:
            ids = inputs[self._of]
            # What is masked holds what real rows hold there, and what is not is real.
            filled = np.where(ids == self._pad, _content(ids, self._pad), ids)
            inputs[self._of] = np.where(_spread(chosen, ids.ndim), filled, self._pad).astype(ids.dtype)
        return ProbeBatch(inputs=inputs, rows=len(at), about=f"{about} ({self._name})")


def _content(ids: NDArray[Any], pad: int) -> NDArray[Any]:
    """Return rows in which the real ids of each go on to the end."""
    found: NDArray[Any] = ids.copy()
    for row, values in enumerate(ids):
        real = values[values != pad]
        if real.size:
            found[row] = np.resize(real, values.shape)
    return found


def _spread(mask: Pattern, rank: int) -> Pattern:
    spread: Pattern = mask.reshape(mask.shape + (1,) * (rank - 2))
    return spread


def _of_lengths(context: ProbeContext, rows: Rows, name: str, role: InputRole) -> Iterator[ProbeBatch]:
    """Yield rows with the shortest and the longest lengths that their positions allow."""
    longest = rows.inputs[role.of].shape[1] if role.of is not None and rows.inputs[role.of].ndim > 1 else role.high
    if longest is None:
        return
    count = max(min(batch_sizes(context)), min(3, max(batch_sizes(context))))
    at = [int(row) for row in np.resize(np.arange(len(rows.ids)), count)]
    for about, value in (("of length 1", 1), ("of half the length", max(1, longest // 2)), ("full", longest)):
        inputs = rows.take(at)
        inputs[name] = np.full_like(inputs[name], value)
        yield ProbeBatch(inputs=inputs, rows=count, about=f"rows {about} ({name})")
    if count > 1:
        inputs = rows.take(at)
        lengths = np.resize(np.asarray([longest, 1, max(1, longest // 2)]), count)
        inputs[name] = np.broadcast_to(
            lengths.reshape((count,) + (1,) * (inputs[name].ndim - 1)), inputs[name].shape
        ).astype(inputs[name].dtype)
        yield ProbeBatch(inputs=inputs, rows=count, about=f"rows of different lengths in one batch ({name})")
