"""Facts that could tell the rows of one batch apart: their lengths, and special values of their inputs."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import numpy as np

from paritygate.batch import Arrays, Batch

if TYPE_CHECKING:
    from numpy.typing import NDArray


# The words of each trait, the special ones before those that they are a case of.
TRAITS = {
    "left_padded": "padding on the left",
    "padded": "padding",
    "non_finite": "NaN or infinity among their inputs",
    "large_integer": "integers beyond 2^24",
    "negative_integer": "negative integers",
    "constant": "one value all over an input",
}
_LARGE_INTEGER = 2**24
_MASK_RANK = 2


class RowTraits:
    """The traits of the rows of one batch; those only needed for batches that differ are computed on demand."""

    def __init__(self, batch: Batch) -> None:
        self.rows = batch.rows
        self._inputs: Arrays = {
            name: array
            for name, array in batch.inputs.items()
            if array.ndim and array.shape[0] == batch.rows and array.dtype.kind in "fiub"
        }

    @functools.cached_property
    def lengths(self) -> NDArray[np.float64] | None:
        """Return the length of each row: places that its mask shows, else integers that are not 0, else values."""
        if not self._inputs or not self.rows:
            return None
        masks = list(self._masks().values())
        if masks:
            return np.asarray(np.count_nonzero(masks[0], axis=1), dtype=np.float64)
        integers = [array for array in self._inputs.values() if array.dtype.kind in "iub" and array.ndim == _MASK_RANK]
        if integers:
            longest = np.max([np.count_nonzero(array, axis=1) for array in integers], axis=0)
            return np.asarray(longest, dtype=np.float64)
        return np.full(self.rows, float(sum(array.size for array in self._inputs.values()) // self.rows))

    @property
    def token_lengths(self) -> NDArray[np.float64] | None:
        """Return the lengths of rows that are sequences: with a mask, or of integers of rank 2 alone; else None."""
        is_sequence = all(array.dtype.kind in "iu" and array.ndim == _MASK_RANK for array in self._inputs.values())
        return self.lengths if is_sequence or self._masks() else None

    @functools.cached_property
    def width(self) -> int:
        """Return the number of places of a row, hidden ones included: of a mask or integers, else its values."""
        flat: list[int] = [
            array.shape[1]
            for name, array in self._inputs.items()
            if array.ndim == _MASK_RANK and (array.dtype.kind in "iub" or "mask" in name.lower())
        ]
        if flat:
            return max(flat)
        return sum(array.size for array in self._inputs.values()) // max(1, self.rows)

    def _masks(self) -> dict[str, NDArray[np.generic]]:
        return {
            name: array
            for name, array in self._inputs.items()
            if "mask" in name.lower() and array.ndim == _MASK_RANK and array.shape[1] > 1
        }

    def empty(self) -> dict[str, NDArray[np.bool_]]:
        """Return which rows have no position set, by mask."""
        return {name: np.asarray((mask == 0).all(axis=1)) for name, mask in self._masks().items()}

    @functools.cached_property
    def held(self) -> dict[str, NDArray[np.bool_]]:
        """Return which rows have each of the `TRAITS`."""
        traits = {name: np.zeros(self.rows, dtype=bool) for name in TRAITS}
        for mask in self._masks().values():
            seen = mask != 0
            traits["padded"] |= ~seen.all(axis=1)
            traits["left_padded"] |= ~seen[:, 0] & seen.any(axis=1)
        for array in self._inputs.values():
            flat = array.reshape(self.rows, -1)
            if not flat.shape[1]:
                continue
            if flat.dtype.kind in "iu":
                wide = flat.astype(np.float64)
                traits["large_integer"] |= (np.abs(wide) > _LARGE_INTEGER).any(axis=1)
                traits["negative_integer"] |= (wide < 0).any(axis=1)
            elif flat.dtype.kind == "f":
                traits["non_finite"] |= ~np.isfinite(flat).all(axis=1)
                if flat.shape[1] > 1:
                    traits["constant"] |= (flat == flat[:, :1]).all(axis=1)
        return traits

    @functools.cached_property
    def magnitudes(self) -> NDArray[np.float64] | None:
        """Return the largest finite magnitude among the float inputs of each row."""
        floats = [
            array.reshape(self.rows, -1) for array in self._inputs.values() if array.dtype.kind == "f" and array.size
        ]
        if not floats:
            return None
        largest = [np.where(np.isfinite(flat), np.abs(flat), 0).max(axis=1).astype(np.float64) for flat in floats]
        return np.asarray(np.max(largest, axis=0), dtype=np.float64)
