"""Survey the samples batch by batch while the reference runs on them, so that they are read only once.

Memory does not grow with the number of rows, and the result does not depend on the batches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from paritygate.batch import Arrays, Batch
from paritygate.codec import with_fields_of
from paritygate.signature import Signature, TensorSpec
from paritygate.validate.probes.inputs.orders import OrderState
from paritygate.validate.probes.inputs.padding import Padding, PaddingSeen, kinds_by_row, real_positions
from paritygate.validate.probes.inputs.survey import InputSurvey, Rows, Survey

if TYPE_CHECKING:
    from numpy.typing import NDArray


# Distinct values stored per input: enough to tell a mask or a class from ids.
_DISTINCT_KEPT = 64
# A prefix of this size shows that there are more, without sorting a large batch.
_DISTINCT_PEEK = 4096
_SHAPES_KEPT = 64
# Rows stored to derive probes from: this many per shape, fewer of large ones, of a few shapes.
_ROWS_KEPT = 24
_LEAST_ROWS_KEPT = 2
_BYTES_KEPT = 4 << 20
_GROUPS_KEPT = 8
_FEATURES_KEPT = 4096
_SHARES_SLACK = 2e-3
# The last axis holds features up to this rank; beyond it, places in a picture.
_FEATURE_RANK = 3


class Surveyor:
    """Collects batch after batch of inputs."""

    def __init__(self, signature: Signature, *, seed: int, pads: Mapping[str, int] | None = None) -> None:
        """Start; `pads` are padding values by input, where they are not 0."""
        self._inputs = {
            spec.name: _InputState(dtype=spec.dtype, has_rows=may, pad=(pads or {}).get(spec.name, 0))
            for spec, may in _may_have_rows(signature)
        }
        self._groups: dict[tuple[tuple[int, ...], ...], _GroupState] = {}
        self._random = np.random.default_rng([seed, len(self._inputs)])
        self._orders = OrderState()
        self._rows = 0
        self._batch_sizes: tuple[int, int] | None = None

    def add(self, batch: Batch, inputs: Arrays) -> None:
        """Add one batch."""
        least, largest = self._batch_sizes or (batch.rows, batch.rows)
        self._batch_sizes = (min(least, batch.rows), max(largest, batch.rows))
        self._rows += batch.rows
        with_rows = self._with_rows()
        for name, array in inputs.items():
            self._inputs[name].add(array, batch.rows, batch.lengths.get(name, ()))
        self._orders.add(inputs)
        if self._with_rows() != with_rows:
            # The axis holds no rows after all, so the rows cut out of it are useless.
            with_rows = self._with_rows()
            self._groups.clear()
        key = tuple(array.shape[1:] if name in with_rows else array.shape for name, array in inputs.items())
        if key not in self._groups and len(self._groups) < _GROUPS_KEPT:
            self._groups[key] = _GroupState(with_rows)
        if key in self._groups:
            self._groups[key].add(batch, inputs, self._random, first=self._rows - batch.rows)

    def _with_rows(self) -> frozenset[str]:
        return frozenset(name for name, state in self._inputs.items() if state.has_rows)

    def finish(self) -> Survey:
        """Return the survey."""
        groups = sorted(self._groups.values(), key=lambda group: -group.seen)
        return Survey(
            rows=self._rows,
            batch_sizes=self._batch_sizes or (0, 0),
            inputs={name: state.finish() for name, state in self._inputs.items()},
            groups=tuple(group.finish() for group in groups),
            orders=self._orders.finish(),
        )


def _may_have_rows(signature: Signature) -> list[tuple[TensorSpec, bool]]:
    """Return each input with whether its first axis may hold rows: a fixed size next to open ones may not."""
    is_open = any(spec.shape and not isinstance(spec.shape[0], int) for spec in signature.inputs)
    return [
        (spec, spec.shape is None or bool(spec.shape and not (is_open and isinstance(spec.shape[0], int))))
        for spec in signature.inputs
    ]


@dataclass(kw_only=True, slots=True)
class _InputState:
    dtype: str
    has_rows: bool
    pad: int
    low: float | None = None
    high: float | None = None
    has_nan: bool = False
    has_infinity: bool = False
    nan_rows: int = 0
    padding: set[Padding] = field(default_factory=set)
    shortest: int | None = None
    longest: int = 0
    distinct: set[float] | None = field(default_factory=set)
    shapes: list[tuple[int, ...]] = field(default_factory=list)
    sizes: tuple[tuple[int, ...], tuple[int, ...]] | None = None
    features: tuple[NDArray[np.float64], NDArray[np.float64]] | None = None
    has_features: bool = True
    values: int = 0
    is_whole: bool = True
    is_shares: bool = True

    def add(self, array: NDArray[np.generic], rows: int, lengths: Sequence[int]) -> None:
        self.has_rows = self.has_rows and array.ndim > 0 and array.shape[0] == rows
        if array.shape not in self.shapes and len(self.shapes) < _SHAPES_KEPT:
            self.shapes.append(array.shape)
        self._add_sizes(array.shape)
        if lengths and self.sizes and len(self.sizes[0]) > 1:
            # A row of these sizes is in the samples, though a batch pads it.
            least, largest = self.sizes
            self.sizes = ((least[0], min(least[1], max(1, min(lengths))), *least[2:]), largest)
        self.values += array.size
        if array.dtype.kind not in "fiubV" or not array.size:
            self.distinct = None if array.size else self.distinct
            return
        wide = array.astype(np.float32) if array.dtype.kind == "V" else array
        low, high = float(wide.min()), float(wide.max())
        is_finite = bool(np.isfinite(low) and np.isfinite(high))
        finite = wide
        if not is_finite:
            self._add_nan(wide, rows)
            self.has_infinity = self.has_infinity or bool(np.isinf(wide).any())
            finite = wide[np.isfinite(wide)]
        if finite.size:
            low, high = float(finite.min()), float(finite.max())
            self.low = low if self.low is None else min(self.low, low)
            self.high = high if self.high is None else max(self.high, high)
        self._add_padding(array)
        self._add_features(wide, is_finite=is_finite)
        self._add_form(wide, finite)
        self._add_distinct(finite.ravel())

    def _add_nan(self, array: NDArray[np.generic], rows: int) -> None:
        is_nan = np.isnan(array)
        self.has_nan = self.has_nan or bool(is_nan.any())
        self.nan_rows += int(is_nan.reshape(rows, -1).any(axis=1).sum()) if self.has_rows else 0

    def _add_sizes(self, shape: tuple[int, ...]) -> None:
        least, largest = self.sizes or (shape, shape)
        if len(least) != len(shape):
            # Sizes of inputs with different ranks cannot be compared.
            shape = least = largest = ()
        self.sizes = (tuple(map(min, least, shape)), tuple(map(max, largest, shape)))

    def _add_padding(self, array: NDArray[np.generic]) -> None:
        """Add the padding of a mask or ids; other numbers have none."""
        is_binary = self.low is not None and self.low >= 0 and self.high is not None and self.high <= 1
        real = real_positions(array, self.pad) if array.dtype.kind in "iub" or is_binary else None
        if real is None or not self.has_rows:
            return
        self.padding.update(kind for kind, rows in kinds_by_row(real).items() if rows.any())
        counts = real.sum(axis=1)
        if counts.any():
            fewest = int(counts[counts > 0].min())
            self.shortest = fewest if self.shortest is None else min(self.shortest, fewest)
            self.longest = max(self.longest, int(counts.max()))

    def _add_features(self, array: NDArray[np.generic], *, is_finite: bool) -> None:
        is_table = 1 < array.ndim <= _FEATURE_RANK and array.shape[-1] <= _FEATURES_KEPT
        if not is_table or (self.features is not None and self.features[0].size != array.shape[-1]):
            self.has_features = False
        if not self.has_features:
            return
        flat = array.reshape(-1, array.shape[-1])
        if is_finite:
            lows, highs = flat.min(axis=0).astype(np.float64), flat.max(axis=0).astype(np.float64)
        else:
            are_finite = np.isfinite(flat)
            lows = np.where(are_finite, flat, np.inf).min(axis=0).astype(np.float64)
            highs = np.where(are_finite, flat, -np.inf).max(axis=0).astype(np.float64)
        before = self.features or (lows, highs)
        self.features = (np.minimum(before[0], lows), np.maximum(before[1], highs))

    def _add_form(self, array: NDArray[np.generic], finite: NDArray[np.generic]) -> None:
        if self.is_whole and finite.dtype.kind == "f":
            self.is_whole = bool((finite == np.rint(finite)).all())
        if self.is_shares:
            self.is_shares = array.ndim > 1 and array.shape[-1] > 1 and _are_shares(array)

    def _add_distinct(self, finite: NDArray[np.generic]) -> None:
        for part in (finite[:_DISTINCT_PEEK], finite[_DISTINCT_PEEK:]):
            if self.distinct is not None and part.size:
                self.distinct.update(np.unique(part).tolist())
                if len(self.distinct) > _DISTINCT_KEPT:
                    self.distinct = None

    def finish(self) -> InputSurvey:
        features = self.features if self.has_features else None
        return with_fields_of(
            InputSurvey,
            self,
            padding=PaddingSeen(
                kinds=tuple(kind for kind in Padding if kind in self.padding),
                shortest=self.shortest,
                longest=self.longest or None,
            ),
            distinct=None if self.distinct is None else tuple(sorted(self.distinct)),
            shapes=tuple(self.shapes),
            least_sizes=(self.sizes or ((), ()))[0],
            largest_sizes=(self.sizes or ((), ()))[1],
            feature_lows=None if features is None else tuple(features[0].tolist()),
            feature_highs=None if features is None else tuple(features[1].tolist()),
            is_whole=self.is_whole and self.low is not None,
            is_shares=self.is_shares and self.low is not None,
        )


def _are_shares(array: NDArray[np.generic]) -> bool:
    wide = array.astype(np.float64)
    sums = wide.sum(axis=-1)
    # Wide enough for sums in float16.
    return bool((wide >= 0).all() and (np.abs(sums - 1) <= _SHARES_SLACK).all())


class _GroupState:
    """A random part of the rows of one shape, each with the same chance."""

    def __init__(self, with_rows: frozenset[str]) -> None:
        self.seen = 0
        self._with_rows = with_rows
        self._whole: Arrays = {}
        self._kept: list[tuple[str, Arrays]] = []

    def add(self, batch: Batch, inputs: Arrays, random: np.random.Generator, *, first: int) -> None:
        if not self._whole:
            self._whole = {name: array for name, array in inputs.items() if name not in self._with_rows}
        row_bytes = sum(inputs[name].nbytes // batch.rows for name in self._with_rows)
        most = max(_LEAST_ROWS_KEPT, min(_ROWS_KEPT, _BYTES_KEPT // max(1, row_bytes)))
        for row in range(batch.rows):
            self.seen += 1
            at = len(self._kept) if len(self._kept) < most else int(random.integers(self.seen))
            if at >= most:
                continue
            # Copies: a view would keep the whole batch.
            parts = {name: array[row : row + 1].copy() for name, array in inputs.items() if name in self._with_rows}
            self._kept[at : at + 1] = [(str(first + row), parts)]

    def finish(self) -> Rows:
        _, first = self._kept[0]
        together = {name: np.concatenate([parts[name] for _, parts in self._kept]) for name in first}
        return Rows(
            inputs={**together, **self._whole}, ids=tuple(row_id for row_id, _ in self._kept), with_rows=self._with_rows
        )
