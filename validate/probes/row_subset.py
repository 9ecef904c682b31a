"""Split a batch into the rows that are like the samples and those that are not, with the outputs of both sides."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from paritygate.batch import Arrays, Batch
from paritygate.validate.probes.inputs.edge import Edge
from paritygate.validate.probes.recording import StoredProbeBatch

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class RowSubset(Struct, frozen=True, kw_only=True):
    """Some or all rows of a batch, with their ids in the whole one; `edges` is empty for rows like the samples."""

    batch: Batch
    stored: StoredProbeBatch
    actual: Arrays
    edges: tuple[Edge, ...] = ()


def parts_of(whole: RowSubset, batch_axes: Mapping[str, tuple[int, ...]]) -> Iterator[RowSubset]:
    """Yield the rows of a batch that are like the samples, then the others by the way in which they are unlike them.

    An output without its own row per input depends on all rows, also those unlike the samples. So does one entry per
    pair of rows, except between rows like the samples. `batch_axes` count rows, where the first axis is not the only
    one. A candidate that returns another number of rows breaks its contract, so the batch stays whole.
    """
    record = whole.stored.record
    outputs, actual = whole.stored.outputs, whole.actual
    axes = {name: batch_axes.get(name, (0,)) for name in outputs if name in actual}
    by_row = {name: axes[name] for name in axes if _counts_rows(outputs[name], axes[name], record.rows)}
    if not record.edges:
        yield whole
        return
    if any(not _counts_rows(actual[name], counting, record.rows) for name, counting in by_row.items()):
        yield replace(whole, edges=record.edges)
        return
    alike: dict[tuple[Edge, ...], list[int]] = {(): []}
    for row in range(record.rows):
        alike.setdefault(tuple(edge for edge in record.edges if row in edge.rows), []).append(row)
    for edges, rows in alike.items():
        if rows:
            yield replace(_rows_of(whole, rows, by_row), edges=edges)
    others = {name for name in outputs if len(by_row.get(name, ())) != 1}
    if others:
        yield replace(_rows_of(whole, list(range(record.rows)), {}, others=others), edges=record.edges)


def _counts_rows(array: NDArray[np.generic], axes: tuple[int, ...], rows: int) -> bool:
    return array.ndim > max(axes) and all(array.shape[axis] == rows for axis in axes)


def _among(array: NDArray[np.generic], rows: list[int], axes: tuple[int, ...]) -> NDArray[np.generic]:
    for axis in axes:
        array = array.take(rows, axis)
    return array


def _rows_of(
    whole: RowSubset, rows: list[int], by_row: Mapping[str, tuple[int, ...]], others: Collection[str] = ()
) -> RowSubset:
    def taken(arrays: Arrays) -> Arrays:
        chosen = {name: array for name, array in arrays.items() if name in by_row or name in others}
        return {name: _among(array, rows, by_row.get(name, ())) for name, array in chosen.items()}

    stored, batch = whole.stored, whole.batch
    # Inputs without rows are the same for each part.
    inputs = {
        name: array[rows] if array.ndim and len(array) == batch.rows else array for name, array in stored.inputs.items()
    }
    return RowSubset(
        batch=Batch(inputs=inputs, ids=[batch.ids[row] for row in rows]),
        stored=StoredProbeBatch(
            record=replace(
                stored.record,
                rows=len(rows),
                noise={
                    name: tuple(by_row_noise[row] for row in rows) for name, by_row_noise in stored.record.noise.items()
                },
            ),
            inputs=inputs,
            outputs=taken(stored.outputs),
        ),
        actual=taken(whole.actual),
    )
