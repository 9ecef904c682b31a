"""Taking in the samples for a survey, batch by batch, while the reference runs over them: they are read no more often.

Memory does not grow with the number of rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from paritygate.signature import Signature
from paritygate.validate.probes.survey import InputSurvey, Rows, Survey

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from paritygate.batch import Batch

    Inputs = Mapping[str, NDArray[np.generic]]

__all__ = ["Surveyor"]

# Distinct values that are remembered of an input: enough to tell a mask or a class from ids.
_DISTINCT_KEPT = 64
_SHAPES_KEPT = 64
# Rows that are kept to derive others from: so many of one shape, and so many shapes.
_ROWS_KEPT = 24
_GROUPS_KEPT = 8


class Surveyor:
    """Takes in batch after batch of inputs, as the reference takes them."""

    def __init__(self, signature: Signature, *, seed: int) -> None:
        self._inputs = {spec.name: _InputState(dtype=spec.dtype) for spec in signature.inputs}
        self._groups: dict[tuple[tuple[int, ...], ...], _GroupState] = {}
        self._random = np.random.default_rng([seed, len(self._inputs)])
        self._rows = 0
        self._batch_sizes: tuple[int, int] | None = None

    def add(self, batch: Batch, inputs: Inputs) -> None:
        """Take in one batch.

        Args:
            batch: For its rows and their ids.
            inputs: Its inputs, fitted to the signature.
        """
        least, largest = self._batch_sizes or (batch.rows, batch.rows)
        self._batch_sizes = (min(least, batch.rows), max(largest, batch.rows))
        self._rows += batch.rows
        for name, array in inputs.items():
            self._inputs[name].add(array, batch.rows)
        key = tuple(array.shape[1:] if _has_rows(array, batch.rows) else array.shape for array in inputs.values())
        if key not in self._groups and len(self._groups) < _GROUPS_KEPT:
            self._groups[key] = _GroupState()
        if key in self._groups:
            self._groups[key].add(batch, inputs, self._random)

    def finish(self) -> Survey:
        """Return what was seen."""
        with_rows = frozenset(name for name, state in self._inputs.items() if state.has_rows)
        groups = sorted(self._groups.values(), key=lambda group: -group.seen)
        return Survey(
            rows=self._rows,
            batch_sizes=self._batch_sizes or (0, 0),
            inputs={name: state.finish() for name, state in self._inputs.items()},
            groups=tuple(group.finish(with_rows) for group in groups),
        )


def _has_rows(array: NDArray[np.generic], rows: int) -> bool:
    return array.ndim > 0 and array.shape[0] == rows


@dataclass(kw_only=True, slots=True)
class _InputState:
    dtype: str
    has_rows: bool = True
    low: float | None = None
    high: float | None = None
    has_nan: bool = False
    has_infinity: bool = False
    distinct: set[float] | None = field(default_factory=set)
    shapes: list[tuple[int, ...]] = field(default_factory=list)

    def add(self, array: NDArray[np.generic], rows: int) -> None:
        self.has_rows = self.has_rows and _has_rows(array, rows)
        if array.shape not in self.shapes and len(self.shapes) < _SHAPES_KEPT:
            self.shapes.append(array.shape)
        if array.dtype.kind not in "fiubV" or not array.size:
            self.distinct = None if array.size else self.distinct
            return
        wide = array.astype(np.float32) if array.dtype.kind == "V" else array
        finite = wide
        if array.dtype.kind in "fV":
            self.has_nan = self.has_nan or bool(np.isnan(wide).any())
            self.has_infinity = self.has_infinity or bool(np.isinf(wide).any())
            finite = wide[np.isfinite(wide)]
        if finite.size:
            low, high = float(finite.min()), float(finite.max())
            self.low = low if self.low is None else min(self.low, low)
            self.high = high if self.high is None else max(self.high, high)
        if self.distinct is not None:
            self.distinct.update(np.unique(finite).tolist())
            if len(self.distinct) > _DISTINCT_KEPT:
                self.distinct = None

    def finish(self) -> InputSurvey:
        return InputSurvey(
            dtype=self.dtype,
            has_rows=self.has_rows,
            low=self.low,
            high=self.high,
            has_nan=self.has_nan,
            has_infinity=self.has_infinity,
            distinct=None if self.distinct is None else tuple(sorted(self.distinct)),
            shapes=tuple(self.shapes),
        )


class _GroupState:
    """Some of the rows of one shape: every one has the same chance to stay."""

    def __init__(self) -> None:
        self.seen = 0
        self._kept: list[tuple[str, Inputs]] = []

    def add(self, batch: Batch, inputs: Inputs, random: np.random.Generator) -> None:
        for row in range(batch.rows):
            self.seen += 1
            at = len(self._kept) if len(self._kept) < _ROWS_KEPT else int(random.integers(self.seen))
            if at >= _ROWS_KEPT:
                continue
            # Copies: a view would keep the whole batch.
            parts = {
                name: array[row : row + 1].copy() if _has_rows(array, batch.rows) else array
                for name, array in inputs.items()
            }
            self._kept[at : at + 1] = [(batch.ids[row], parts)]

    def finish(self, with_rows: frozenset[str]) -> Rows:
        _, first = self._kept[0]
        return Rows(
            inputs={
                name: np.concatenate([parts[name] for _, parts in self._kept]) if name in with_rows else array
                for name, array in first.items()
            },
            ids=tuple(row_id for row_id, _ in self._kept),
            with_rows=with_rows,
        )
