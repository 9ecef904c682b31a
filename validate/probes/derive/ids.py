"""Ids: all regions of the vocabulary, the first and the last, one id everywhere, and values that are not ids.

Where the table is small enough for the allowed rows, every id runs once, in rows lengthened for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paritygate.validate.probes.derive.keys import of_keys
from paritygate.validate.probes.derive.shapes import resized
from paritygate.validate.probes.derive.sizes import OpenDim, batch_sizes, open_dims
from paritygate.validate.probes.inputs.probe import LARGEST_OF_FP16, ROWS_FACTOR, ProbeBatch, ProbeContext
from paritygate.validate.probes.inputs.roles import InputRole, Role
from paritygate.validate.probes.inputs.survey import Rows

_NAME = "ids"
# Values that float32 cannot hold, and those that int32 and uint32 cannot.
_BEYOND_FLOAT32 = 2**24 + 1
_BEYOND_INT32 = 2**31 + 1
_BEYOND_UINT32 = 2**32 + 1
# Rows are lengthened to this size at most, because one wrong id is lost among more.
_POSITIONS = 128
# Number of ids that the graph compares with, per input.
_COMPARED = 8
# Number of ids of other columns' parts, on each side of a column's own part.
_OF_OTHERS = 4

# Number of real rows that an unseen id is put into.
_PLACES = 4

_Ends = tuple[int, int]


def derive(context: ProbeContext) -> Iterator[ProbeBatch]:
    """Yield real rows with other ids: special ones of every input, then as many others as rows allow, last keys."""
    rows = context.survey.groups[0]
    askers = [
        (_Asker(context, rows, name), role)
        for name, role in context.roles.items()
        if role.role is Role.ID and name in rows.with_rows and rows.inputs[name].size
    ]
    has_keys = any(role.keys for role in context.roles.values())
    allowed = context.max_rows // (2 if has_keys else 1)
    used = 0
    for asker, role in askers:
        for batch in _special(context, asker, role):
            used += batch.rows
            yield batch
    for asker, role in askers:
        yield from _among_real(context, asker, role, rows=max(1, allowed // len(askers)))
        yield from _regions(context, asker, role, rows=max(1, (allowed - used // ROWS_FACTOR) // len(askers)))
    yield from of_keys(context, rows=(allowed if askers else context.max_rows) * ROWS_FACTOR)


class _Asker:
    """Puts ids into real rows, lengthened to as many positions as the model surely takes."""

    def __init__(self, context: ProbeContext, rows: Rows, name: str) -> None:
        self._context = context
        self._rows = rows
        self._dim, self._size = _drawn_out(context, rows, name)
        self.name = name
        self.dtype = context.survey.inputs[name].dtype
        # All ids in the sampled rows.
        self.real = np.concatenate([group.inputs[name].reshape(-1) for group in context.survey.groups])
        self.positions = int(np.prod(self._base(1)[name].shape[1:]))

    def _base(self, count: int) -> dict[str, NDArray[np.generic]]:
        at = [int(row) for row in np.resize(np.arange(len(self._rows.ids)), count)]
        sizes = {} if self._dim is None else {self._dim: self._size}
        return resized(self._context, self._rows, at, sizes)

    def takes(self, columns: Sequence[_Ends | None]) -> bool:
        """Return whether the rows have these columns; without any, all ids are of one kind."""
        return bool(columns) and self.positions == len(columns)

    def of_columns(
        self,
        wanted: Sequence[NDArray[Any] | int | None],
        count: int,
        about: str,
        *,
        is_beyond: bool = False,
        is_unlike: bool = False,
    ) -> ProbeBatch:
        """Return rows with these ids in their columns; None leaves a column as it is."""
        ids = self._base(count)[self.name].reshape(count, len(wanted)).copy()
        for column, values in enumerate(wanted):
            if values is not None:
                ids[:, column] = values
        return self.batch(ids.reshape(-1), about, is_beyond=is_beyond, is_unlike=is_unlike)

    def batch(self, ids: NDArray[Any], about: str, *, is_beyond: bool = False, is_unlike: bool = False) -> ProbeBatch:
        """Return as many rows as these ids fill, with all masks set."""
        count = len(ids) // self.positions
        inputs = self._base(count)
        shape, dtype = inputs[self.name].shape, inputs[self.name].dtype
        inputs[self.name] = ids.reshape(shape).astype(dtype)
        for other, role in self._context.roles.items():
            if role.role is Role.MASK and role.of == self.name:
                inputs[other] = np.ones_like(inputs[other])
        return ProbeBatch(
            inputs=inputs, rows=count, about=about, is_beyond_seen=is_beyond, is_unlike_seen=is_unlike or is_beyond
        )

    def among_real(self, ids: NDArray[Any], about: str) -> ProbeBatch:
        """Return one real row per id, with the id at a random real position."""
        random = self._context.random(f"{_NAME}/{self.name}/{about}")
        inputs = self._rows.take([int(at) for at in random.integers(len(self._rows.ids), size=len(ids))])
        real = inputs[self.name]
        is_real = np.ones(real.shape, dtype=bool)
        for other, role in self._context.roles.items():
            if role.role is Role.MASK and role.of == self.name and inputs[other].shape == real.shape:
                is_real = inputs[other] != 0
        # A fully padded row may take the id anywhere.
        may_hold = is_real.reshape(len(ids), -1)
        may_hold = may_hold | ~may_hold.any(axis=1, keepdims=True)
        changed = real.reshape(len(ids), -1).copy()
        for row, value in enumerate(ids):
            changed[row, random.choice(np.flatnonzero(may_hold[row]))] = value
        inputs[self.name] = changed.reshape(real.shape)
        return ProbeBatch(inputs=inputs, rows=len(ids), about=about)


def _drawn_out(context: ProbeContext, rows: Rows, name: str) -> tuple[OpenDim | None, int]:
    """Return the dim of the positions and a larger size that the model surely takes; None if there is none."""
    dim = next((dim for dim in open_dims(context, rows) if (name, 1) in dim.places), None)
    if dim is None:
        return None, 0
    seen = [shape[1] for shape in context.survey.inputs[name].shapes if len(shape) > 1]
    declared = context.dims.get(dim.name)
    # Sizes from the graph's tables are another probe's: a refusal here would leave no ids at all.
    most = declared.max if declared else max(seen)
    size = max(dim.size, min(most, _POSITIONS))
    return (dim, size) if size != dim.size else (None, 0)


def _among_real(context: ProbeContext, asker: _Asker, role: InputRole, *, rows: int) -> Iterator[ProbeBatch]:
    """Yield real rows with an unseen id of the table, each at several positions because one may make no difference.

    Rows made of unseen ids alone would show each of them in one context only.
    """
    if role.low is None or role.high is None or not role.is_table or role.columns or asker.positions == 1:
        return
    unseen = np.setdiff1d(np.arange(role.low, role.high + 1), asker.real)
    if not len(unseen):
        return
    ids = unseen[np.unique(np.linspace(0, len(unseen) - 1, max(1, rows // _PLACES)).astype(np.int64))]
    least, size = min(batch_sizes(context)), max(batch_sizes(context))
    placed = np.repeat(ids, _PLACES)
    for start in range(0, len(placed), size):
        part = placed[start : start + size]
        about = f"ids {part[0]} to {part[-1]} of {asker.name}, one in a real row"
        yield asker.among_real(np.resize(part, max(least, len(part))), about)


def _regions(context: ProbeContext, asker: _Asker, role: InputRole, *, rows: int) -> Iterator[ProbeBatch]:
    if asker.takes(role.columns):
        yield from _regions_of_columns(context, asker, role.columns, rows=rows)
        return
    if role.low is None or role.high is None or role.high < role.low:
        return
    positions, name = asker.positions, asker.name
    allowed = rows * (ROWS_FACTOR if positions == 1 else 1) * positions
    count = role.high - role.low + 1
    if count <= (allowed if positions == 1 else rows):
        yield from _one_by_one(context, asker, range(role.low, role.high + 1), min(_PLACES, allowed // count))
        return
    note = ""
    if count > allowed:
        # Evenly spread regions with both ends; the ids between them do not run.
        ids = np.unique(np.linspace(role.low, role.high, allowed).astype(np.int64))
        note = f"{len(ids)} of {count} ids of {name} asked"
    else:
        ids = np.arange(role.low, role.high + 1)
    least, size = min(batch_sizes(context)), max(batch_sizes(context))
    for start in range(0, len(ids), positions * size):
        part = ids[start : start + positions * size]
        fitting = max(least, -(-len(part) // positions))
        # Neighbours go into different rows, because two ids swapped within a row may give the same sum.
        filled = np.resize(part, fitting * positions).reshape(positions, fitting).T.reshape(-1)
        yield replace(asker.batch(filled, f"ids {part[0]} to {part[-1]} of {name}"), note=note)


def _regions_of_columns(
    context: ProbeContext, asker: _Asker, columns: Sequence[_Ends | None], *, rows: int
) -> Iterator[ProbeBatch]:
    """Yield rows in which every column runs through its own range, all columns at once."""
    alike: dict[_Ends, list[int]] = {}
    for column, ends in enumerate(columns):
        if ends is not None:
            alike.setdefault(ends, []).append(column)
    by_group: dict[tuple[int, ...], NDArray[Any]] = {}
    notes = []
    for (first, last), columns_alike in alike.items():
        group = tuple(columns_alike)
        allowed = rows * (ROWS_FACTOR if len(group) == 1 else len(group))
        count = last - first + 1
        ids = np.unique(np.linspace(first, last, min(count, allowed)).astype(np.int64))
        by_group[group] = ids
        if len(ids) < count:
            notes.append(f"{len(ids)} of {count} ids of {asker.name} in columns {', '.join(map(str, group))} asked")
    needed = max(-(-len(ids) // len(group)) for group, ids in by_group.items())
    least, size = min(batch_sizes(context)), max(batch_sizes(context))
    for start in range(0, needed, size):
        count = max(least, min(size, needed - start))
        wanted: list[NDArray[Any] | None] = [None] * len(columns)
        for group, ids in by_group.items():
            # Columns of one range share its ids; shorter ones start again.
            filled = np.resize(ids, needed * len(group)).reshape(len(group), needed)
            for place, column in enumerate(group):
                wanted[column] = filled[place, (start + np.arange(count)) % needed]
        about = f"ids of every column of {asker.name}, part {start // size + 1}"
        yield replace(asker.of_columns(wanted, count, about), note="; ".join(notes))


def _one_by_one(context: ProbeContext, asker: _Asker, ids: range, places: int) -> Iterator[ProbeBatch]:
    """Yield rows of one id each; a row of a single position shows an id only if its other inputs let it."""
    least, size = min(batch_sizes(context)), max(batch_sizes(context))
    placed = np.repeat(ids, places if asker.positions == 1 else 1)
    for start in range(0, len(placed), size):
        part = placed[start : start + size]
        whole = np.resize(part, max(least, len(part)))
        about = f"ids {part[0]} to {part[-1]} of {asker.name}, one a row"
        yield asker.batch(np.repeat(whole, asker.positions), about, is_unlike=asker.positions > 1)


def _special(context: ProbeContext, asker: _Asker, role: InputRole) -> Iterator[ProbeBatch]:
    low, name = min(batch_sizes(context)), asker.name
    positions = low * asker.positions
    if asker.takes(role.columns):
        for about, end in (("the first", 0), ("the last", 1)):
            wanted = [None if ends is None else ends[end] for ends in role.columns]
            yield asker.of_columns(wanted, low, f"{about} id of every column of {name}", is_unlike=True)
    elif role.low is not None and role.high is not None:
        for about, value in (("the first", role.low), ("the last", role.high)):
            yield asker.batch(np.full(positions, value), f"{about} id of {name} everywhere", is_unlike=True)
        ends = np.resize([role.low, role.high], positions)
        yield asker.batch(ends, f"the first and the last id of {name} in turn", is_unlike=True)
    yield from _compared(asker, role, positions)
    yield from _guarded(asker, role, low)
    yield from _of_other_columns(asker, role, low)
    yield from _outside(context, asker, role, low)


def _compared(asker: _Asker, role: InputRole, positions: int) -> Iterator[ProbeBatch]:
    """Yield the ids that the graph compares with: within its table, or any where the id has no table."""
    for item in role.thresholds[:_COMPARED]:
        is_inside = role.low is not None and role.high is not None and role.low <= item.value <= role.high
        is_end = item.value in {role.low, role.high}
        if item.value.is_integer() and not is_end and (is_inside or (item.is_equality and not role.is_table)):
            value = int(item.value)
            about = f"the id {value} of {asker.name}, which the model looks for"
            yield asker.batch(np.full(positions, value), about, is_unlike=True)


def _guarded(asker: _Asker, role: InputRole, rows: int) -> Iterator[ProbeBatch]:
    """Yield ids outside a table whose end the graph compares with, because it then defines their result.

    A comparison with the first row alone does not count: it implements counting from the end, as Gather does.
    """
    if not role.is_table or role.low is None or role.high is None:
        return
    by_column = asker.takes(role.columns)
    for column, ends in enumerate(role.columns if by_column else [(role.low, role.high)]):
        if ends is None:
            continue
        compared = {
            item.value
            for item in role.thresholds
            if not (item.is_limit or item.is_equality)
            and (item.columns is None or not by_column or column in item.columns)
        }
        low, high = ends
        if not compared & {high, high + 1}:
            continue
        for value in (high + 1, 2 * high + 3, *([low - 1] if compared & {low, low - 1} else [])):
            about = f"the value {value} in {asker.name}, which the model looks for"
            wanted = [value if at == column or not by_column else None for at in range(asker.positions)]
            if np.iinfo(asker.dtype).min <= value <= np.iinfo(asker.dtype).max:
                yield asker.of_columns(wanted, rows, about, is_beyond=True)


def _of_other_columns(asker: _Asker, role: InputRole, least: int) -> Iterator[ProbeBatch]:
    """Yield ids beyond a column's own part of a shared table, where rows of other columns answer."""
    if not asker.takes(role.reach) or role.low is None or role.high is None:
        return
    own = role.columns if asker.takes(role.columns) else ((role.low, role.high),) * len(role.reach)
    wanted: list[NDArray[Any] | None] = []
    for part, whole in zip(own, role.reach, strict=True):
        sides = [] if part is None or whole is None else [(part[1] + 1, whole[1]), (whole[0], part[0] - 1)]
        ids = [np.linspace(start, end, _OF_OTHERS).astype(np.int64) for start, end in sides if start <= end]
        wanted.append(np.unique(np.concatenate(ids)) if ids else None)
    count = max([least, *(len(ids) for ids in wanted if ids is not None)])
    if any(ids is not None for ids in wanted):
        filled = [None if ids is None else np.resize(ids, count) for ids in wanted]
        about = f"ids of {asker.name} that lie in the part of another column"
        yield asker.of_columns(filled, count, about, is_beyond=True)


def _outside(context: ProbeContext, asker: _Asker, role: InputRole, rows: int) -> Iterator[ProbeBatch]:
    """Yield values outside all known tables that may be ids all the same, because a conversion may have cut a table."""
    name, dtype = asker.name, context.survey.inputs[asker.name].dtype
    if not dtype.startswith(("int", "uint")):
        return
    limits = np.iinfo(dtype)
    # An offset before the table makes far values meaningless; the one beside it may be an unknown id.
    wanted = [(role.low or 0) - 1] if role.is_shifted else [-1, _BEYOND_FLOAT32, _BEYOND_INT32, _BEYOND_UINT32]
    guard = None
    lasts = [ends[1] for ends in role.columns if ends is not None]
    last = max(lasts) if asker.takes(role.columns) else role.high

    def filled(value: int, about: str) -> ProbeBatch:
        if not asker.takes(role.columns):
            return asker.batch(np.full(rows * asker.positions, value), about, is_beyond=True)
        return asker.of_columns([None if ends is None else value for ends in role.columns], rows, about, is_beyond=True)

    if last is not None:
        wanted.append(last + 1)
        if role.is_table and not role.is_shifted:
            wanted += [2 * last + 1, 4 * last + 3]
        if role.is_table:
            guard = filled(int(limits.max), "").inputs
    for value in wanted:
        is_asked = role.low is not None and role.high is not None and role.low <= value <= role.high
        if limits.min <= value < limits.max and not is_asked:
            batch = filled(value, f"the value {value} in {name}")
            yield replace(batch, must_refuse=guard, is_far_from_seen=value > LARGEST_OF_FP16)
