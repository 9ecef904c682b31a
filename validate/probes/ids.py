"""Ids: every region of the vocabulary, the first and the last, the same one everywhere, and values that are no ids.

Where the table is small enough for the rows allowed, every id is asked for once.
"""

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

__all__ = ["derive"]

_NAME = "ids"
# What float32 does not hold any more, and what int32 does not.
_BEYOND_FLOAT32 = 2**24 + 1
_BEYOND_INT32 = 2**31 + 1
# An id a row costs little: more rows of them are allowed than of texts.
_ROWS_OF_SINGLE_IDS = 8


def derive(context: ProbeContext) -> Iterator[ProbeBatch]:
    """Yield real rows with other ids."""
    rows = context.survey.groups[0]
    for name, role in context.roles.items():
        if role.role is Role.ID and name in rows.with_rows:
            yield from _regions(context, rows, name, role)
            yield from _special(context, rows, name, role)


def _regions(context: ProbeContext, rows: Rows, name: str, role: InputRole) -> Iterator[ProbeBatch]:
    if role.low is None or role.high is None or role.high < role.low:
        return
    positions = int(np.prod(rows.inputs[name].shape[1:]))
    allowed = context.max_rows * (_ROWS_OF_SINGLE_IDS if positions == 1 else 1) * positions
    count = role.high - role.low + 1
    ids = np.arange(role.low, role.high + 1)
    if count > allowed:
        # Regions, evenly spread, with the ends: what lies between is not looked at.
        ids = np.unique(np.linspace(role.low, role.high, allowed).astype(np.int64))
    size = max(batch_sizes(context))
    for start in range(0, len(ids), positions * size):
        part = ids[start : start + positions * size]
        needed = -(-len(part) // positions)
        fitting = needed if needed in range(min(batch_sizes(context)), size + 1) else size
        filled = np.resize(part, fitting * positions)
        yield _with_ids(context, name, filled, f"ids {part[0]} to {part[-1]} of {name}")


def _special(context: ProbeContext, rows: Rows, name: str, role: InputRole) -> Iterator[ProbeBatch]:
    low = min(batch_sizes(context))
    positions = low * int(np.prod(rows.inputs[name].shape[1:]))
    if role.low is not None and role.high is not None:
        for about, value in (("the first", role.low), ("the last", role.high)):
            yield _with_ids(context, name, np.full(positions, value), f"{about} id of {name} everywhere")
        ends = np.resize([role.low, role.high], positions)
        yield _with_ids(context, name, ends, f"the first and the last id of {name} in turn")
    # A table of known size says what is an id; what is none, the reference refuses or answers in its own way.
    array: NDArray[Any] = rows.inputs[name]
    if array.dtype.kind not in "iu":
        return
    limits = np.iinfo(array.dtype)
    for value in (-1, _BEYOND_FLOAT32, _BEYOND_INT32):
        if limits.min <= value <= limits.max:
            about = f"the value {value} in {name}"
            yield _with_ids(context, name, np.full(positions, value), about, is_beyond_seen=True)


def _with_ids(
    context: ProbeContext, name: str, ids: NDArray[Any], about: str, *, is_beyond_seen: bool = False
) -> ProbeBatch:
    rows = context.survey.groups[0]
    positions = int(np.prod(rows.inputs[name].shape[1:]))
    count = len(ids) // positions
    inputs = rows.take([int(row) for row in np.resize(np.arange(len(rows.ids)), count)])
    inputs[name] = ids.reshape(inputs[name].shape).astype(inputs[name].dtype)
    for other, role in context.roles.items():
        if role.role is Role.MASK and role.of == name:
            inputs[other] = np.ones_like(inputs[other])
    return ProbeBatch(inputs=inputs, rows=count, about=about, is_beyond_seen=is_beyond_seen)
