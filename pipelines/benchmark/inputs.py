"""Choose the rows of a benchmark's calls, in a worker: the same for every variant, in the same order."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from paritygate.batch import Arrays, Batch
from paritygate.errors import ZeroRowsError
from paritygate.validate.samples.feeding import fit_inputs

if TYPE_CHECKING:
    from paritygate.signature import Signature


_ROWS = 64
# Large inputs, such as pictures, would otherwise dominate the peak of memory.
_BYTES = 32 << 20


class RowPool(Struct, frozen=True, kw_only=True):
    """The first rows of the samples, in blocks of one shape; the digest covers names, dtypes, shapes and values."""

    blocks: tuple[Batch, ...]
    digest: str

    def fitted(self, signature: Signature) -> tuple[Arrays, ...]:
        """Return the blocks as a model's inputs; raise UsageError for missing inputs, or values beyond its dtypes."""
        return tuple(fit_inputs(block, signature) for block in self.blocks)


def take_rows(read: Callable[[], Iterator[Batch]], *, at_least: int) -> RowPool:
    """Return the samples' first rows, in blocks of one shape: 64, or `at_least`, or 32 MiB.

    Raises:
        ZeroRowsError: There are none.
    """
    taken: list[Batch] = []
    rows = size = 0
    wanted = max(_ROWS, at_least)
    for batch in read():
        if batch.rows == 0:
            continue
        part = _first(batch, wanted - rows)
        taken.append(part)
        rows += part.rows
        size += sum(array.nbytes for array in part.inputs.values())
        if rows >= wanted or (size >= _BYTES and rows >= at_least):
            break
    if not taken:
        raise ZeroRowsError("the samples have no rows to call the models with", hint="check the samples of the spec")
    blocks = tuple(_joined(list(group)) for _, group in groupby(taken, key=_shapes))
    return RowPool(blocks=blocks, digest=_digest(blocks))


def _first(batch: Batch, rows: int) -> Batch:
    inputs = {name: np.asarray(array)[:rows] for name, array in batch.inputs.items()}
    return Batch(inputs=inputs, ids=list(batch.ids)[:rows])


def _shapes(batch: Batch) -> tuple[tuple[str, str, tuple[int, ...]], ...]:
    return tuple((name, array.dtype.str, array.shape[1:]) for name, array in batch.inputs.items())


def _joined(batches: Sequence[Batch]) -> Batch:
    names = batches[0].inputs
    inputs = {name: np.concatenate([batch.inputs[name] for batch in batches]) for name in names}
    return Batch(inputs=inputs, ids=[row for batch in batches for row in batch.ids])


def _digest(blocks: Iterable[Batch]) -> str:
    state = hashlib.sha256()
    for block in blocks:
        for name in sorted(block.inputs):
            array = block.inputs[name]
            state.update(f"{name}:{array.dtype.str}:{array.shape}:".encode())
            state.update(np.ascontiguousarray(array).tobytes())
    return f"sha256:{state.hexdigest()}"


def calls_of(blocks: Iterable[Arrays], batch_size: int) -> list[Arrays]:
    """Return calls of `batch_size` rows that use every row; the last ones of a block repeat rows from its start."""
    calls: list[Arrays] = []
    for block in blocks:
        rows = len(next(iter(block.values())))
        for start in range(0, rows, batch_size):
            end = start + batch_size
            if end <= rows:
                # A view saves a copy of the rows.
                calls.append({name: array[start:end] for name, array in block.items()})
            else:
                chosen = np.arange(start, end) % rows
                calls.append({name: array[chosen] for name, array in block.items()})
    return calls
