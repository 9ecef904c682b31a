"""A batch cut into the rows that are like the samples and those that are not, each with the answers of both sides."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from paritygate.batch import Batch
from paritygate.validate.probes.edges import rows_at_edge
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
        is_edge: Whether every row is unlike the samples.
    """

    batch: Batch
    stored: StoredProbeBatch
    actual: Arrays
    is_edge: bool = False


def parts_of(whole: Part) -> Iterator[Part]:
    """Yield the rows of a batch that are like the samples, then those that are not.

    An output without a row of its own per input hangs on all rows, and so on those at the edge. Where the candidate
    answers with another number of rows, the batch stays whole: its contract is broken.
    """
    count, edge = whole.stored.record.rows, rows_at_edge(whole.stored.record.edges)
    outputs, actual = whole.stored.outputs, whole.actual
    by_row = {name for name, array in outputs.items() if name in actual and array.ndim and len(array) == count}
    if not edge or any(actual[name].shape[:1] != (count,) for name in by_row):
        yield whole
        return
    inside = [row for row in range(count) if row not in edge]
    if inside:
        yield _rows_of(whole, inside, by_row)
    yield replace(_rows_of(whole, list(edge), by_row, others=set(outputs) - by_row), is_edge=True)


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
            record=replace(stored.record, rows=len(rows)), inputs=inputs, outputs=taken(stored.outputs)
        ),
        actual=taken(whole.actual),
    )
