"""Decide in which ways a generated row is unlike every sample, so that a correct conversion may differ on it.

No sample shows that such a row occurs, and some have no correct result: where a row attends to nothing, one runtime
returns zero and another the mean. Such a difference is reported as an out-of-sample finding and fails nothing by
itself. The other rows of the call still have to agree, so a leak between rows fails. `roles` in the spec outrank the
samples: declared values must hold, and rows declared not to occur do not run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from paritygate.codec import to_data, with_fields_of
from paritygate.signature import is_float_dtype
from paritygate.text import in_full
from paritygate.validate.probes.inputs.edge import Edge, OutOfSampleKind
from paritygate.validate.probes.inputs.padding import Padding, kinds_by_row, real_positions
from paritygate.validate.probes.inputs.roles import InputRole, Role

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from paritygate.validate.probes.derive.sizes import OpenDim
    from paritygate.validate.probes.inputs.probe import ProbeBatch, ProbeContext
    from paritygate.validate.probes.inputs.survey import InputSurvey

    Flags = NDArray[np.bool_]

_PADDING_WORDS: Mapping[Padding, str] = {
    Padding.RIGHT: "padding on the right in {input}",
    Padding.LEFT: "padding on the left in {input}",
    Padding.BOTH: "padding on both sides in {input}",
    Padding.INSIDE: "padding inside {input}",
}

# A single range may be declared only where each feature covers this share of it.
_LEAST_SHARE_OF_RANGE = 0.5


@dataclass(frozen=True, kw_only=True, slots=True)
class _Found:
    """Something that no sample holds; `at` flags rows, or has one flag for all rows."""

    input: str
    kind: OutOfSampleKind
    words: str
    at: Flags
    if_it_occurs: str
    if_it_never_occurs: str
    is_declared_not_to_occur: bool = False


def edges_of(context: ProbeContext, batch: ProbeBatch) -> tuple[Edge, ...]:
    """Return the ways in which rows of a batch are unlike every sample and not declared to occur."""
    edges = list(batch.edges)
    for unlike in _unlike(context, batch):
        # An input without rows affects every row of the batch.
        places = np.flatnonzero(unlike.at) if len(unlike.at) == batch.rows else np.arange(batch.rows)
        edges.append(with_fields_of(Edge, unlike, rows=tuple(int(row) for row in places)))
    return tuple(edges)


def why_declared_not_to_occur(context: ProbeContext, batch: ProbeBatch) -> str:
    """Return the part of a batch that `roles` exclude, or an empty text."""
    return next((unlike.words for unlike in _unlike(context, batch) if unlike.is_declared_not_to_occur), "")


def _unlike(context: ProbeContext, batch: ProbeBatch) -> Iterator[_Found]:
    """Yield what no sample holds and some row of the batch does."""
    masked = {role.of for role in context.roles.values() if role.role is Role.MASK}
    for name, array in batch.inputs.items():
        role, seen = context.roles[name], context.survey.inputs[name]
        of = _OfInput(name=name, role=role, seen=seen)
        items: Iterable[_Found] = ()
        if role.role is Role.MASK or (role.role is Role.ID and role.pad is not None and name not in masked):
            items = of.padding(array)
        if role.role is Role.ID:
            items = [*items, *of.ids(array, is_known=batch.must_refuse is not None)]
        elif role.role is Role.LENGTH:
            counted = batch.inputs.get(role.of) if role.of is not None else None
            items = of.lengths(array, None if counted is None or counted.ndim < 2 else counted.shape[1])  # noqa: PLR2004 - positions
        elif role.role in {Role.NUMBER, Role.IMAGE}:
            items = [*of.not_finite(array), *of.values(array)]
        yield from (item for item in items if item.at.any())
    from paritygate.validate.probes.derive.sizes import open_dims

    for dim in open_dims(context, context.survey.groups[0]):
        yield from _sizes(context, dim, batch)


@dataclass(frozen=True, kw_only=True, slots=True)
class _OfInput:
    name: str
    role: InputRole
    seen: InputSurvey

    def _roles(self, **said: str) -> str:
        """Return the whole entry of the input, so that what is declared of it already stays."""
        declared = {key: _written(value) for key, value in to_data(self.role.declared).items() if value is not None}
        entry = ", ".join(f"{key}: {value}" for key, value in {**declared, **said}.items())
        return f"roles: {{{self.name}: {{{entry}}}}}"

    def _by_row(self, flags: Flags) -> Flags:
        if not self.seen.has_rows or not flags.ndim:
            return np.atleast_1d(np.asarray(flags.any()))
        by_row: Flags = np.logical_or.reduce(flags, axis=tuple(range(1, flags.ndim)))
        return by_row

    def padding(self, array: NDArray[np.generic]) -> Iterator[_Found]:
        """Yield kinds of padding that no sample has, and rows with fewer real positions than any."""
        real = real_positions(array, 0 if self.role.role is Role.MASK else self.role.pad or 0)
        if real is None or not self.seen.has_rows:
            return
        kinds, declared, shortest = self.seen.padding.kinds, self.role.declared, self.seen.padding.shortest
        by_kind = kinds_by_row(real)
        seen = [kind for kind in kinds if kind not in {Padding.NONE, Padding.EMPTY}]
        if Padding.EMPTY not in kinds:
            yield _Found(
                input=self.name,
                kind=OutOfSampleKind.EMPTY_MASK,
                words=f"an empty row of {self.name}",
                at=by_kind[Padding.EMPTY],
                if_it_occurs=self._roles(empty="true"),
                if_it_never_occurs=self._roles(empty="false"),
                is_declared_not_to_occur=declared.empty is False,
            )
        for kind, words in _PADDING_WORDS.items():
            if kind not in kinds:
                yield _Found(
                    input=self.name,
                    kind=OutOfSampleKind.PADDING,
                    words=words.format(input=self.name),
                    at=by_kind[kind],
                    if_it_occurs=self._roles(padding=_listed([*seen, kind])),
                    if_it_never_occurs=self._roles(padding=_listed(seen or [Padding.NONE])),
                    is_declared_not_to_occur=declared.padding is not None,
                )
        # A row without padding is judged by its size.
        is_short = ~(by_kind[Padding.EMPTY] | by_kind[Padding.NONE]) & (real.sum(axis=1) < (shortest or 0))
        yield _Found(
            input=self.name,
            kind=OutOfSampleKind.SHORT,
            words=f"fewer real positions in {self.name}",
            at=is_short,
            if_it_occurs=self._roles(shortest="1"),
            if_it_never_occurs=self._roles(shortest=str(shortest)),
            is_declared_not_to_occur=declared.shortest is not None,
        )

    def ids(self, array: NDArray[np.generic], *, is_known: bool) -> Iterator[_Found]:
        """Yield ids outside the table or the declared range; not where the reference refuses ids outside its table."""
        ends = self._ends_of_ids(array)
        if ends is None:
            return
        (lows, highs), declared = ends, self.role.declared
        wide = array.astype(np.float64)
        low, high = int(lows.min()), int(highs.max())
        for words, flags, is_declared in (
            ("below", wide < lows, declared.low is not None),
            ("above", (wide > highs) & (not is_known), declared.high is not None),
        ):
            yield _Found(
                input=self.name,
                kind=OutOfSampleKind.IDS,
                words=f"ids of {self.name} {words} {low if words == 'below' else high}",
                at=self._by_row(flags),
                if_it_occurs=self._roles(low=str(min(low, int(wide.min()))), high=str(max(high, int(wide.max())))),
                if_it_never_occurs=self._roles(low=str(low), high=str(high)),
                is_declared_not_to_occur=is_declared,
            )

    def _ends_of_ids(self, array: NDArray[np.generic]) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
        """Return the first and the last id, by column where columns have their own tables."""
        columns = self.role.columns
        if columns and array.ndim > 1 and array.shape[-1] == len(columns):
            lows, highs = self.seen.bounds()
            lows, highs = (np.broadcast_to(bound, (len(columns),)).copy() for bound in (lows, highs))
            for at, column in enumerate(columns):
                if column is not None:
                    lows[at], highs[at] = column
            return lows, highs
        low = self.seen.low if self.role.low is None else self.role.low
        high = self.seen.high if self.role.high is None else self.role.high
        return None if low is None or high is None else (np.asarray(float(low)), np.asarray(float(high)))

    def lengths(self, array: NDArray[np.generic], positions: int | None) -> Iterator[_Found]:
        """Yield lengths that no sample has; a full row is no such length."""
        is_full = np.zeros(array.shape, dtype=bool) if positions is None else np.asarray(array == positions)
        is_between = array.astype(np.float64) <= max(self.seen.high or 0, positions or 0)
        is_above_least = array.astype(np.float64) >= (self.seen.low or 0)
        yield from self._values(array, ~(is_full | (is_between & is_above_least)), words="lengths in")

    def values(self, array: NDArray[np.generic]) -> Iterator[_Found]:
        """Yield numbers beyond those seen."""
        if array.dtype.kind in "fiubV" and array.size and self.seen.low is not None:
            yield from self._values(array, self.seen.outside(array) & ~self._is_key(array), words="values of")

    def _is_key(self, array: NDArray[np.generic]) -> Flags:
        """Return which values are keys of a lookup table, because the table shows that they occur."""
        is_key = np.zeros(array.shape, dtype=bool)
        for keys in self.role.keys:
            numbers = [key for key in keys.values if not isinstance(key, str)]
            if not numbers:
                continue
            flags = np.isin(array.astype(np.float64), np.asarray(numbers, dtype=np.float64))
            if keys.columns is None or array.ndim < 2:  # noqa: PLR2004 - rows and features
                is_key |= flags
            else:
                columns = [at for at in keys.columns if -array.shape[-1] <= at < array.shape[-1]]
                is_key[..., columns] |= flags[..., columns]
        return is_key

    def _values(self, array: NDArray[np.generic], flags: Flags, *, words: str) -> Iterator[_Found]:
        wide = array.astype(np.float64)
        low, high = self.seen.low or 0.0, self.seen.high or 0.0
        finite = wide[np.isfinite(wide)]
        if not finite.size:
            return
        declared, middle = self.role.declared, (low + high) / 2
        # One range for all features would misdescribe features with a much narrower one.
        lows, highs = self.seen.bounds()
        with np.errstate(over="ignore", invalid="ignore"):
            is_one = bool((highs - lows >= _LEAST_SHARE_OF_RANGE * (high - low)).all())
        are_excluded = [declared.low is not None and bool((finite < low).any()),
                declared.high is not None and bool((finite > high).any())]  # fmt: skip
        yield _Found(
            input=self.name,
            kind=OutOfSampleKind.VALUES,
            words=f"{words} {self.name} beyond those seen",
            at=self._by_row(flags),
            if_it_occurs=self._roles(
                low=in_full(min(low, float(finite.min()))), high=in_full(max(high, float(finite.max())))
            ),
            if_it_never_occurs=self._roles(low=in_full(low), high=in_full(high))
            if np.isfinite(middle) and is_one and bool((finite < low).any() or (finite > high).any())
            else "",
            is_declared_not_to_occur=any(are_excluded),
        )

    def not_finite(self, array: NDArray[np.generic]) -> Iterator[_Found]:
        if not is_float_dtype(array.dtype.name):
            return
        wide, declared = array.astype(np.float64), self.role.declared
        for kind, flags, is_seen, may_occur in (
            (OutOfSampleKind.NAN, np.isnan(wide), self.seen.has_nan, declared.nan),
            (OutOfSampleKind.INFINITY, np.isinf(wide), self.seen.has_infinity, declared.infinity),
        ):
            if not is_seen:
                yield _Found(
                    input=self.name,
                    kind=kind,
                    words=f"{'NaN' if kind is OutOfSampleKind.NAN else 'infinity'} in {self.name}",
                    at=self._by_row(flags),
                    if_it_occurs=self._roles(**{str(kind): "true"}),
                    if_it_never_occurs=self._roles(**{str(kind): "false"}),
                    is_declared_not_to_occur=may_occur is False,
                )


def _sizes(context: ProbeContext, dim: OpenDim, batch: ProbeBatch) -> Iterator[_Found]:
    """Yield a size that is neither declared nor suggested by the samples."""
    name, axis = dim.places[0]
    seen = context.survey.inputs[name]
    # A sum of other dims follows their sizes.
    if dim.sum is not None or dim.name in context.dims or axis >= len(seen.least_sizes):
        return
    least = min(context.survey.inputs[other].least_sizes[at] for other, at in dim.places)
    largest = max(context.survey.inputs[other].largest_sizes[at] for other, at in dim.places)
    size = batch.inputs[name].shape[axis]
    # A named dim is meant to be open: from 2 (exporters specialise a size of 1) to twice the largest seen.
    low, high = (min(least, 2), 2 * largest) if dim.is_named else (least, largest)
    if low <= size <= high:
        return
    named = dim.name if dim.is_named else f"NAME of {name}, axis {axis},"
    dims = "model.dims: {{{name}: {{min: {low}, max: {high}}}}}"
    shown = dim.name if dim.is_named else "NAME"
    before = "" if dim.is_named else f"{named.rstrip(',')} in model.inputs, and "
    yield _Found(
        input=name,
        kind=OutOfSampleKind.SIZE,
        words=f"a {'smaller' if size < low else 'larger'} size of {dim.name} ({name}, axis {axis})",
        at=np.ones(1, dtype=bool),
        if_it_occurs=before + dims.format(name=shown, low=min(least, size), high=max(largest, size)),
        if_it_never_occurs=before + dims.format(name=shown, low=least, high=largest),
    )


def _listed(kinds: Sequence[Padding]) -> str:
    return str(kinds[0]) if len(kinds) == 1 else f"[{', '.join(map(str, kinds))}]"


def _written(value: Any) -> str:  # noqa: ANN401 - JSON data of a declared role
    if isinstance(value, list):
        return value[0] if len(value) == 1 else f"[{', '.join(value)}]"
    return str(value).lower() if isinstance(value, bool) else in_full(value) if isinstance(value, float) else str(value)
