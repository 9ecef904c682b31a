"""The rows in which an output is not finite, and where the samples are not, for refusing a reference."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from paritygate.batch import Arrays
from paritygate.signature import is_float_dtype
from paritygate.text import row_name

_ROWS_NAMED = 3


class BrokenRows:
    """The first rows of each output in which it is not finite."""

    def __init__(self) -> None:
        self._rows: dict[str, list[str]] = {}
        # By output, where the samples are not finite in the first batch in which it is not.
        self._in_samples: dict[str, str] = {}

    def add(self, ids: Sequence[str], outputs: Arrays, inputs: Arrays) -> None:
        """Add the inputs and outputs of one batch."""
        for name, array in outputs.items():
            first_rows = self._rows.setdefault(name, [])
            if len(first_rows) < _ROWS_NAMED and (rows := _broken_rows(array, ids)):
                if not first_rows:
                    self._in_samples[name] = _found_in_samples(inputs, ids)
                first_rows += rows[: _ROWS_NAMED - len(first_rows)]

    def of(self, name: str) -> tuple[str, ...]:
        """Return the ids of the first rows of an output, at most three."""
        return tuple(self._rows.get(name, ()))

    def in_samples(self, name: str) -> str:
        """Return where the samples are not finite in the first batch in which an output is not; else empty."""
        return self._in_samples.get(name, "")


def _found_in_samples(inputs: Arrays, ids: Sequence[str]) -> str:
    for name, array in inputs.items():
        if rows := _broken_rows(array, ids):
            what = "NaN" if np.isnan(array).any() else "infinity"
            return f"the samples themselves hold {what} in input {name!r}, first at {row_name(rows[0])}"
    return ""


def _broken_rows(array: NDArray[np.generic], ids: Sequence[str]) -> list[str]:
    """Return the ids of the rows that are not finite; of an array without an axis of rows, the first and last id."""
    if not is_float_dtype(array.dtype.name):
        return []
    broken = np.ma.filled(~np.isfinite(array), fill_value=False)
    if not broken.any():
        return []
    if broken.ndim == 0 or len(broken) != len(ids):
        return [f"{ids[0]}..{ids[-1]}"]
    return [ids[int(row)] for row in np.flatnonzero(broken.reshape(len(ids), -1).any(axis=1))]
