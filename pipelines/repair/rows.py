"""Divide the rows of a repair into those that the search measures on, and those that check what it found."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from paritygate.batch import Batch
from paritygate.pipelines.calibration.calibration import CalibrationRequest
from paritygate.validate.samples.source import SampleSource
from paritygate.validate.samples.split import SampleSplit, rows_kept

# Every third row only checks.
_PARTS = 3
_MOST_ROWS = 32
# Of the samples, this share searches, at most so many rows, and the others judge.
_SHARE, _MOST_SEARCHED = 0.4, 256


class DividedRows(Struct, frozen=True, kw_only=True):
    """The rows of a repair in batches; those with the ids of `checking` are not searched by."""

    batches: tuple[Batch, ...]
    checking: frozenset[str]

    def searching(self) -> frozenset[str]:
        """Return the ids of the other rows."""
        return frozenset(row_id for batch in self.batches for row_id in batch.ids) - self.checking


def rows_to_search(samples: SampleSource, seed: int) -> CalibrationRequest:
    """Return the share of the samples that a search uses; `seed` chooses them."""
    return CalibrationRequest(
        source=replace(samples, split=SampleSplit(share=_SHARE, seed=seed)),
        compared=samples,
        rows=_MOST_SEARCHED,
        tool="onnxruntime",
        method="minmax",
        activations="int8",
    )


def divided(batches: Iterable[Batch]) -> DividedRows:
    """Return the rows of batches without repeated rows."""
    joined = tuple(_joined(batches))
    ids = [row_id for batch in joined for row_id in batch.ids]
    return DividedRows(batches=joined, checking=frozenset(ids[_PARTS - 1 :: _PARTS]))


def halves(batches: Iterable[Batch]) -> tuple[list[Batch], list[Batch]]:
    """Return every second row, and the others: ranges that were chosen by a row hide how others leave them."""
    first, second = [], []
    seen = 0
    for batch in batches:
        is_first = [(seen + at) % 2 == 0 for at in range(batch.rows)]
        seen += batch.rows
        first.append(rows_kept(batch, is_first))
        second.append(rows_kept(batch, [not item for item in is_first]))
    return _joined(first), _joined(second)


def _joined(batches: Iterable[Batch]) -> list[Batch]:
    """Return batches of more rows, where those that follow each other have the same shapes."""
    joined: list[Batch] = []
    for batch in batches:
        if not batch.rows:
            continue
        last = joined[-1] if joined else None
        if last is not None and last.rows + batch.rows <= _MOST_ROWS and _fit(last, batch):
            joined[-1] = _both(last, batch)
        else:
            joined.append(replace(batch, case=None, gold=None))
    return joined


def _fit(one: Batch, other: Batch) -> bool:
    if one.lengths.keys() != other.lengths.keys() or one.strata.keys() != other.strata.keys():
        return False
    return all(
        array.ndim > 0
        and len(array) == one.rows
        and name in other.inputs
        and other.inputs[name].shape == (other.rows, *array.shape[1:])
        for name, array in one.inputs.items()
    )


def _both(one: Batch, other: Batch) -> Batch:
    return replace(
        one,
        inputs={name: np.concatenate([array, other.inputs[name]]) for name, array in one.inputs.items()},
        ids=[*one.ids, *other.ids],
        strata={name: [*values, *other.strata[name]] for name, values in one.strata.items()},
        lengths={name: [*values, *other.lengths[name]] for name, values in one.lengths.items()},
    )
