"""Repeat one row in batches of growing size: each row of an answer has to be right."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from paritygate.errors import BackendError, MeasurementError
from paritygate.pipelines.live.traffic import Traffic

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    Arrays = Mapping[str, NDArray[np.generic]]

# How many different rows are repeated.
_ROWS = 4


class Repeats(Struct, frozen=True, kw_only=True):
    """The answers to a batch of one row repeated, of several rows one after the other."""

    size: int
    rows: int  # answered
    wrong: int  # beyond the limits
    same_bytes: int  # answered with the bytes of a batch of one
    refused: str = ""  # why the server answered none
    first_wrong: str = ""


def repeated(traffic: Traffic, sizes: Sequence[int]) -> tuple[Repeats, ...]:
    """Return the outcome for each size up to the first refused one; they are no part of the load.

    Less than the rows of a request may be refused, because some servers take batches of one size.
    """
    return tuple(_until_refused(traffic, sizes))


def _until_refused(traffic: Traffic, sizes: Sequence[int]) -> Iterator[Repeats]:
    alone: dict[int, Arrays] = {}
    for size in sizes:
        found = _of_size(traffic, size, alone)
        yield found
        if found.refused and size >= traffic.questions.rows_each:
            return


def _of_size(traffic: Traffic, size: int, alone: dict[int, Arrays]) -> Repeats:
    questions, server = traffic.questions, traffic.server
    rows = wrong = same = 0
    first_wrong = ""
    for which in range(min(_ROWS, len(questions.inputs))):
        feed = {name: np.repeat(array[:1], size, axis=0) for name, array in questions.inputs[which].items()}
        try:
            answer = server.send(server.asked(feed, traffic.outputs), f"{traffic.run}-batch-{size}-{which}")
            outputs = server.read(answer)
        except (BackendError, MeasurementError) as err:
            why = "no answer that can be read" if err.status is None else f"HTTP {err.status}"
            return Repeats(size=size, rows=rows, wrong=wrong, same_bytes=same, refused=why, first_wrong=first_wrong)
        for row in range(size):
            rows += 1
            own = _row(outputs, row, size)
            difference = questions.row_difference(which, own)
            wrong += not difference.is_right
            if not difference.is_right and not first_wrong:
                first_wrong = f"{questions.rows[which]}, place {row + 1} of {size}: {difference}"
            same += _is_same(own, alone.setdefault(which, own))
    return Repeats(size=size, rows=rows, wrong=wrong, same_bytes=same, first_wrong=first_wrong)


def _row(outputs: Arrays, row: int, size: int) -> Arrays:
    """Return one row of each output; an output without so many rows stays whole, and is wrong."""
    return {
        name: array[row : row + 1] if array.ndim and len(array) == size else array for name, array in outputs.items()
    }


def _is_same(own: Arrays, alone: Arrays) -> bool:
    return own.keys() == alone.keys() and all(
        array.dtype == alone[name].dtype
        and array.shape == alone[name].shape
        and array.tobytes() == alone[name].tobytes()
        for name, array in own.items()
    )
