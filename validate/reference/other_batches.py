"""Asks the reference for some rows again, in batches of other sizes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from paritygate.errors import BackendError, UsageError
from paritygate.validate.samples.row_digest import has_rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from paritygate.batch import Batch

    Arrays = Mapping[str, NDArray[np.generic]]

__all__ = ["OtherBatches"]

# Rows that are answered one by one, in all and of one batch.
_ROWS_ALONE = 16
_ROWS_ALONE_OF_BATCH = 4


class _Asked(Protocol):
    """What answers."""

    def run(self, inputs: Arrays) -> Arrays:
        """Return all outputs."""
        ...


class OtherBatches:
    """Asks the reference for some rows again, in batches of other sizes."""

    def __init__(self, runner: _Asked, outputs: tuple[str, ...], *, is_batch_fixed: bool) -> None:
        self._runner = runner
        self._outputs = outputs
        self._rows_left = 0 if is_batch_fixed else _ROWS_ALONE
        self.why_not = "its batch size is fixed" if is_batch_fixed else "no batch held several rows"

    def answers(self, batch: Batch, inputs: Arrays, outputs: Arrays, head: Arrays | None) -> dict[str, Any]:
        """Return some rows as answered in their batch and otherwise, by keys that `measure_noise` knows.

        Args:
            batch: The batch, for its rows.
            inputs: Its inputs as the model takes them.
            outputs: What was answered.
            head: What the first rows alone were answered, where they were asked.
        """
        rows = min(self._rows_left, _ROWS_ALONE_OF_BATCH, batch.rows)
        if batch.rows == 1 or not rows or not has_rows(batch):
            return {}
        self._rows_left -= rows
        try:
            alone = [self._runner.run(_row(inputs, row, batch.rows)) for row in range(rows)]
        except (BackendError, UsageError) as err:
            self._rows_left = 0
            self.why_not = f"it does not answer a row alone ({err})"
            return {}
        self.why_not = ""
        found: dict[str, Any] = {}
        for name in self._outputs:
            whole = outputs[name]
            if not whole.ndim or len(whole) != batch.rows:
                continue
            if head is not None:
                found[f"head-whole/{name}"], found[f"head/{name}"] = whole[: len(head[name])], head[name]
            found[f"alone-whole/{name}"] = whole[:rows]
            found[f"alone/{name}"] = _stacked([answer[name] for answer in alone])
        return found


def _row(inputs: Arrays, row: int, of: int) -> dict[str, NDArray[np.generic]]:
    return {name: array[row : row + 1] if array.ndim and len(array) == of else array for name, array in inputs.items()}


def _stacked(rows: list[NDArray[np.generic]]) -> NDArray[np.generic]:
    # Rows of several shapes are not those of one batch: the first alone shows that the shape is another one.
    if len({row.shape for row in rows}) > 1 or not rows[0].ndim:
        return rows[0]
    return np.concatenate(rows)
