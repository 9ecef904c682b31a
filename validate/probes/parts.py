"""A batch cut into the rows that are like the samples and those that are not, each with the answers of both sides."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from paritygate.batch import Batch
from paritygate.validate.probes.edges import Edge
from paritygate.validate.probes.recording import StoredProbeBatch

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Arrays = Mapping[str, NDArray[np.generic]]

__all__ = ["Part", "parts_of"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """Some rows of a batch, or all of them.

    Attributes:
        batch: The inputs, under the ids that the rows have in the whole batch.
        stored: The same with what the reference answered.
        actual: What the candidate answered.
        edges: In which ways all of these rows are unlike the samples; empty where they are like them.
    """

    batch: Batch
    stored: StoredProbeBatch
    actual: Arrays
    edges: tuple[Edge, ...] = ()


def parts_of(whole: Part) -> Iterator[Part]:
    """Yield the rows of a batch that are like the samples, then those that are not, by how they are unlike them.

    An output without a row of its own per input hangs on all rows, and so on those at the edge. Where the candidate
    answers with another number of rows, the batch stays whole: its contract is broken.
    """
    record = whole.stored.record
    outputs, actual = whole.stored.outputs, whole.actual
    by_row = {name for name, array in outputs.items() if name in actual and array.ndim and len(array) == record.rows}
    if not record.edges:
        yield whole
        return
    if any(actual[name].shape[:1] != (record.rows,) for name in by_row):
        yield replace(whole, edges=record.edges)
        return
    alike: dict[tuple[Edge, ...], list[int]] = {(): []}
    for row in range(record.rows):
        alike.setdefault(tuple(edge for edge in record.edges if row in edge.rows), []).append(row)
    for edges, rows in alike.items():
        if rows:
            yield replace(_rows_of(whole, rows, by_row), edges=edges)
    others = set(outputs) - by_row
    if others:
        yield replace(_rows_of(whole, list(range(record.rows)), (), others=others), edges=record.edges)


def _rows_of(whole: Part, rows: list[int], by_row: Collection[str], others: Collection[str] = ()) -> Part:
    def taken(arrays: Arrays) -> Arrays:
        own = {name: array[rows] for name, array in arrays.items() if name in by_row}
        return {**own, **{name: array for name, array in arrays.items() if name in others}}

    stored, batch = whole.stored, whole.batch
    # What has no rows, such as a number for the whole call, is the same for each part.
    inputs = {
        name: array[rows] if array.ndim and len(array) == batch.rows else array for name, array in stored.inputs.items()
    }
    return Part(
        batch=Batch(inputs=inputs, ids=[batch.ids[row] for row in rows]),
        stored=StoredProbeBatch(
            record=replace(
                stored.record,
                rows=len(rows),
                noise={name: tuple(found[row] for row in rows) for name, found in stored.record.noise.items()},
            ),
            inputs=inputs,
            outputs=taken(stored.outputs),
        ),
        actual=taken(whole.actual),
    )
