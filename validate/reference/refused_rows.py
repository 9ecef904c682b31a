"""Runs the reference on a batch, and names the row that it refuses while it accepts others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from paritygate.errors import BackendError, UsageError
from paritygate.text import row_name
from paritygate.validate.samples.row_digest import has_rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from paritygate.batch import Batch
    from paritygate.validate.runners.runner import Runner

    Arrays = Mapping[str, NDArray[np.generic]]


def answers_of(runner: Runner, batch: Batch, inputs: Arrays, *, rows_before: int) -> dict[str, NDArray[np.generic]]:
    """Return the reference's outputs of a batch.

    Where it fails, its rows run one by one, and the first that it refuses is at fault if it accepts others. A model
    that refuses every row is broken itself. One that accepts each row alone failed for another reason.

    Raises:
        UsageError: It refuses a row alone; the message names the row, and the input and value where one is at fault.
        BackendError: It did not run, and no single row is at fault.
    """
    try:
        return runner.run(inputs)
    except BackendError as err:
        refused = _refused_row(runner, batch, inputs, rows_before)
        if refused is None:
            raise
        raise refused from err


def _refused_row(runner: Runner, batch: Batch, inputs: Arrays, rows_before: int) -> UsageError | None:
    if not has_rows(batch):
        return None
    refusals: dict[int, BackendError] = {}
    has_answered = rows_before > 0
    for row in range(batch.rows):
        try:
            runner.run(_row(inputs, row))
        except BackendError as err:
            refusals[row] = err
        else:
            has_answered = True
        if refusals and has_answered:
            break
    if not refusals or not has_answered:
        return None
    row = min(refusals)
    culprit = _refused_value(runner, _row(inputs, row))
    what = f", for the {culprit[1]} in {culprit[0]!r}" if culprit is not None else ""
    msg = (
        f"the reference does not answer {row_name(batch.ids[row])} of the samples (index {rows_before + row}){what}, "
        f"while it answers others: {refusals[row]}"
    )
    hint = "correct the row, or remove it from the samples"
    if culprit is not None:
        hint = (
            f"correct {culprit[0]!r} in this row: {culprit[1]} is no value that the model takes, such as an unknown id"
        )
    return UsageError(msg, hint=hint)


def _row(inputs: Arrays, row: int) -> dict[str, NDArray[np.generic]]:
    return {name: array[row : row + 1] if array.ndim else array for name, array in inputs.items()}


def _refused_value(runner: Runner, inputs: Arrays) -> tuple[str, int] | None:
    """Return the input, and its value nearest to 0, without which and those beyond it a row is accepted.

    Only integers count, such as ids. None is returned where no single input is at fault.
    """
    for name, array in inputs.items():
        if array.dtype.kind not in "iu" or not array.size:
            continue
        # From 0 on, upwards and downwards.
        values = np.unique(np.append(array, 0))
        for bounds, limit in ((values[values >= 0], np.minimum), (values[values <= 0][::-1], np.maximum)):
            answered, refused = 0, len(bounds) - 1
            if not refused or not _answers(runner, {**inputs, name: limit(array, bounds[0]).astype(array.dtype)}):
                continue
            while refused - answered > 1:
                middle = (answered + refused) // 2
                if _answers(runner, {**inputs, name: limit(array, bounds[middle]).astype(array.dtype)}):
                    answered = middle
                else:
                    refused = middle
            return name, int(bounds[refused])
    return None


def _answers(runner: Runner, inputs: Arrays) -> bool:
    try:
        runner.run(inputs)
    except BackendError:
        return False
    return True
