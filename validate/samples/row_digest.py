"""Digests of single rows of input: equal rows have equal ones in any batch and padding."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from paritygate.batch import Arrays, Batch

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    import numpy as np
    from numpy.typing import NDArray


DIGEST_BYTES = 16
_ZERO = (0.0,)


def has_rows(batch: Batch) -> bool:
    """Return whether axis 0 of every input except scalars holds the batch's rows; else the batch is one unit."""
    return all(array.shape[0] == batch.rows for array in batch.inputs.values() if array.ndim)


def digests_of_rows(batch: Batch, *, seed: int = 0, fill: Mapping[str, Collection[float]] | None = None) -> list[bytes]:
    """Return a digest of each row's inputs, `DIGEST_BYTES` long; it depends on the seed.

    Row ids, other rows, the width of integers, the sign of zero and padding at the end of an input do not change it.
    Rows of a batch that cannot be taken apart share the digest of the whole. `fill` holds the padding of each input, by
    default zeros.
    """
    values = fill or {}
    if not has_rows(batch):
        return [_digest(batch.inputs, seed, values)] * batch.rows
    return [
        _digest({name: array[row] if array.ndim else array for name, array in batch.inputs.items()}, seed, values)
        for row in range(batch.rows)
    ]


def _digest(inputs: Arrays, seed: int, fill: Mapping[str, Collection[float]]) -> bytes:
    import numpy as np

    state = hashlib.blake2b(digest_size=DIGEST_BYTES, salt=(seed % 2**128).to_bytes(16, "little"))
    for name in sorted(inputs):
        content = _content(np.asarray(inputs[name]), fill.get(name, _ZERO))
        state.update(f"{name}:{len(content)}:".encode())
        state.update(content)
    return state.digest()


def _content(array: NDArray[np.generic], fill: Collection[float]) -> bytes:
    flat = array.reshape(-1)
    if flat.dtype.kind in "iub":
        flat = flat.astype("int64")
    elif flat.dtype.kind == "f":
        # Minus zero becomes zero.
        flat = flat + flat.dtype.type(0)
    elif flat.dtype.kind in "US":
        # Text is padded to the longest of its batch.
        return b"\0".join(str(text).encode() for text in flat.tolist())
    return _without_fill_at_the_end(flat, fill).tobytes()


def _without_fill_at_the_end(flat: NDArray[np.generic], fill: Collection[float]) -> NDArray[np.generic]:
    if flat.dtype.kind == "f":
        # The array's dtype decides: 0.1 is another number in float32.
        fill = [float(flat.dtype.type(value)) for value in fill]
    if not flat.size or not any(flat[-1] == value for value in fill):
        return flat
    import numpy as np

    is_content = np.logical_and.reduce([flat != value for value in fill])
    return flat[: flat.size - int(is_content[::-1].argmax())] if is_content.any() else flat[:0]
