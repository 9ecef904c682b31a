"""Choose the rows of a benchmark's calls, in a worker: the same for every variant, in the same order."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from paritygate.batch import Batch
from paritygate.errors import ZeroRowsError
from paritygate.validate.samples.feeding import fit_inputs

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from paritygate.signature import Signature

    Inputs = Mapping[str, NDArray[np.generic]]

_ROWS = 64
# Large inputs, such as pictures, would otherwise dominate the peak of memory.
_BYTES = 32 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class RowPool:
    """The first rows of the samples, in blocks of one shape; the digest covers names, dtypes, shapes and values."""

    blocks: tuple[Batch, ...]
    digest: str

    def fitted(self, signature: Signature) -> tuple[Inputs, ...]:
        """Return the blocks as the inputs of a model.

        Raises:
            UsageError: An input is missing, of another dtype, or has values that the model's dtype lacks.
        """
        return tuple(fit_inputs(block, signature) for block in self.blocks)


def take_rows(read: Callable[[], Iterator[Batch]], *, at_least: int) -> RowPool:
    """Return the first rows of the samples: 64, or `at_least` if that is more, or 32 MiB of them.

    Consecutive batches of one shape become one block, so that as few rows as possible repeat.

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
        msg = "the samples have no rows to call the models with"
        raise ZeroRowsError(msg, hint="check the samples of the spec")
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


def calls_of(blocks: Iterable[Inputs], batch_size: int) -> list[Inputs]:
    """Return the inputs of the calls, `batch_size` rows each, with every row of every block used.

    The last call of a block, or every call of a smaller block, repeats rows from the block's start.
    """
    found: list[Inputs] = []
    for block in blocks:
        rows = len(next(iter(block.values())))
        for start in range(0, rows, batch_size):
            end = start + batch_size
            if end <= rows:
                # A view saves a copy of the rows.
                found.append({name: array[start:end] for name, array in block.items()})
            else:
                chosen = np.arange(start, end) % rows
                found.append({name: array[chosen] for name, array in block.items()})
    return found
