"""Compare rows in larger batches than they come in, because measuring a few rows takes as long as measuring many."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paritygate.batch import Arrays, Batch
from paritygate.validate.measure.measurement import Measurement, OutputComparison

# Rows wait until they hold so many numbers.
_VALUES_TOGETHER = 1 << 14


class RowsTogether:
    """A comparison whose rows are added in larger batches than they come in, or `is_each_alone`."""

    def __init__(self, comparison: OutputComparison, *, is_each_alone: bool = False) -> None:
        self.comparison = comparison
        self._most = 0 if is_each_alone else _VALUES_TOGETHER
        self._ids: list[str] = []
        self._sides: list[tuple[Arrays, Arrays]] = []
        self._values = 0

    def add(self, ids: Sequence[str], actual: Arrays, expected: Arrays) -> None:
        """Add rows: all outputs of the candidate, and those of the reference that are compared."""
        if self._sides and _kinds(self._sides[0]) != _kinds((actual, expected)):
            self._flush()
        self._ids += ids
        self._sides.append((actual, expected))
        self._values += sum(array.size for array in expected.values())
        if self._values >= self._most:
            self._flush()

    def end_pass(self) -> None:
        """Mark the end of a pass."""
        self._flush()
        self.comparison.end_pass()

    def finish(self) -> Measurement:
        """Return all figures."""
        return self.comparison.finish()

    def _flush(self) -> None:
        if self._sides:
            actual, expected = (_joined(side) for side in zip(*self._sides, strict=True))
            self.comparison.add(Batch(inputs={}, ids=self._ids), actual, expected)
        self._ids, self._sides, self._values = [], [], 0


def _kinds(sides: tuple[Arrays, Arrays]) -> list[list[tuple[str, Any, tuple[int, ...]]]]:
    """Return what the outputs of both sides must have in common to be one batch."""
    return [[(name, array.dtype, array.shape[1:]) for name, array in side.items()] for side in sides]


def _joined(parts: Sequence[Arrays]) -> Arrays:
    if len(parts) == 1:
        return parts[0]
    together: dict[str, NDArray[np.generic]] = {}
    for name in parts[0]:
        arrays = [part[name] for part in parts]
        is_masked = any(type(array) is not np.ndarray for array in arrays)
        # Masked arrays are imported only where there are some.
        together[name] = (
            np.ma.concatenate(arrays) if is_masked else np.concatenate(arrays)  # type: ignore[no-untyped-call]
        )
    return together
