"""Runs the reference on a batch, and names the row that it refuses while it accepts others."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from paritygate.batch import Arrays, Batch
from paritygate.errors import BackendError, UsageError
from paritygate.text import row_name
from paritygate.validate.samples.row_digest import has_rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from paritygate.validate.runners.runner import Runner

    Run = Callable[[Arrays], object]


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
        refused = refused_row(runner.run, batch, inputs, rows_before=rows_before, has_answered=rows_before > 0)
        if refused is None:
            raise
        raise refused from err


def refused_row(  # noqa: PLR0913 - the batch, and what is known of the model
    run: Run, batch: Batch, inputs: Arrays, *, rows_before: int, has_answered: bool, is_trimmed: bool = False
) -> UsageError | None:
    """Return the error of the first row of a batch that `run` refuses alone; None if all are refused, or none.

    `run` raises BackendError. `has_answered` is set if it accepted earlier rows. `is_trimmed` runs each row without
    the padding of its batch.
    """
    if not has_rows(batch):
        return None
    lengths = batch.lengths if is_trimmed else {}
    refusals: dict[int, BackendError] = {}
    for row in range(batch.rows):
        try:
            run(_row(inputs, row, lengths))
        except BackendError as err:
            refusals[row] = err
        else:
            has_answered = True
        if refusals and has_answered:
            break
    if not refusals or not has_answered:
        return None
    row = min(refusals)
    culprit = _refused_value(run, _row(inputs, row, lengths))
    sizes = {name: of[row] for name, of in batch.lengths.items() if name in inputs}
    what = ""
    if is_trimmed and len(set(sizes.values())) > 1:
        what = f", whose lengths differ ({', '.join(f'{name}: {size}' for name, size in sizes.items())})"
    if culprit is not None:
        name, value, nearest = culprit
        what = f", for the {value} in {name!r} (allowed: at {'most' if value > nearest else 'least'} {nearest})"
    msg = (
        f"the reference refuses {row_name(batch.ids[row])} of the samples (index {rows_before + row}){what}, "
        f"but accepts others: {refusals[row]}"
    )
    hint = "correct the row, or remove it from the samples"
    if culprit is not None:
        hint = f"correct {name!r} in this row, or remove the row from the samples"
    return UsageError(msg, hint=hint)


def _row(inputs: Arrays, row: int, lengths: Mapping[str, Sequence[int]]) -> dict[str, NDArray[np.generic]]:
    rows = {name: array[row : row + 1] if array.ndim else array for name, array in inputs.items()}
    return {name: array[:, : lengths[name][row]] if name in lengths else array for name, array in rows.items()}


def _refused_value(run: Run, inputs: Arrays) -> tuple[str, int, int] | None:
    """Return the input, its value nearest to 0 that is refused, and the nearest number that is accepted.

    Without that value and those beyond it, the row is accepted. Only integers count, such as ids. None is returned
    where no single input is at fault.
    """
    for name, array in inputs.items():
        if array.dtype.kind not in "iu" or not array.size:
            continue
        values = [int(value) for value in np.unique(np.append(array, 0))]
        # From 0 on, upwards and downwards.
        upwards, downwards = [value for value in values if value >= 0], [value for value in values[::-1] if value <= 0]
        for ordered, limit in ((upwards, np.minimum), (downwards, np.maximum)):
            found = _edge(ordered, functools.partial(_answers_within, run, inputs, name, limit))
            if found is not None:
                return name, *found
    return None


def _edge(ordered: Sequence[int], is_accepted: Callable[[int], bool]) -> tuple[int, int] | None:
    """Return the first value that is refused, and the number before it that is accepted; None if the first is refused.

    The values go away from 0, and the last one is refused.
    """
    if len(ordered) == 1 or not is_accepted(ordered[0]):
        return None
    place = _first_refused(len(ordered) - 1, lambda at: is_accepted(ordered[at]))
    accepted, refused = ordered[place - 1], ordered[place]
    step = 1 if refused > 0 else -1
    away = _first_refused(abs(refused - accepted), lambda by: is_accepted(accepted + step * by))
    return refused, accepted + step * (away - 1)


def _first_refused(refused: int, is_accepted: Callable[[int], bool]) -> int:
    """Return the first number that is refused, where 0 is accepted and `refused` is not."""
    accepted = 0
    while refused - accepted > 1:
        middle = (accepted + refused) // 2
        if is_accepted(middle):
            accepted = middle
        else:
            refused = middle
    return refused


def _answers_within(run: Run, inputs: Arrays, name: str, limit: np.ufunc, value: int) -> bool:
    """Return whether the row is accepted with the values of an input limited to one."""
    array = inputs[name]
    try:
        run({**inputs, name: limit(array, value).astype(array.dtype)})
    except BackendError:
        return False
    return True
