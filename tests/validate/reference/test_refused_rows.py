"""Which row, input and value of the samples the reference does not answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np
import pytest

from paritygate.batch import Batch
from paritygate.errors import BackendError, UsageError
from paritygate.validate.reference.refused_rows import answers_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from paritygate.validate.runners.runner import Runner

    Arrays = Mapping[str, NDArray[np.generic]]


class _Table:
    """Answers ids from `low` up to below `size`, at most `most` rows at once."""

    def __init__(self, *, size: int = 10, low: int = 0, most: int = 100) -> None:
        self._size, self._low, self._most = size, low, most

    def run(self, inputs: Arrays) -> dict[str, NDArray[np.generic]]:
        ids = np.asarray(inputs["ids"])
        if ids.min() < self._low or ids.max() >= self._size:
            msg = "an id is out of the table"
            raise BackendError(msg)
        if len(ids) > self._most:
            msg = "too many rows"
            raise BackendError(msg)
        return {"y": ids}


def _answer(table: _Table, ids: Sequence[Sequence[int]], *, rows_before: int = 0) -> Arrays:
    inputs = {"mask": np.ones((len(ids), len(ids[0])), np.int64), "ids": np.array(ids)}
    batch = Batch(inputs=inputs, ids=[f"r{row}" for row in range(len(ids))])
    return answers_of(cast("Runner", table), batch, inputs, rows_before=rows_before)


@pytest.mark.parametrize(
    ("ids", "rows_before", "row", "value", "allowed"),
    [
        ([[1, 2], [3, 10], [4, 99]], 16, "row 'r1' of the samples (index 17)", 10, "at most 9"),
        ([[1, 2], [98, 99]], 0, "row 'r1' of the samples (index 1)", 98, "at most 9"),
        ([[1, 2], [-5, 3], [1, 2]], 0, "row 'r1' of the samples (index 1)", -5, "at least 0"),
        ([[12, 3]], 4, "row 'r0' of the samples (index 4)", 12, "at most 9"),
    ],
)
def test_the_first_row_that_is_refused_is_named_with_the_value_nearest_to_zero(
    ids: list[list[int]], rows_before: int, row: str, value: int, allowed: str
) -> None:
    with pytest.raises(UsageError) as caught:
        _answer(_Table(), ids, rows_before=rows_before)
    assert str(caught.value) == (
        f"the reference refuses {row}, for the {value} in 'ids' (allowed: {allowed}), but accepts others: "
        "an id is out of the table"
    )
    assert caught.value.hint == "correct 'ids' in this row, or remove the row from the samples"


def test_a_row_that_no_single_value_spoils_is_named_without_one() -> None:
    with pytest.raises(UsageError) as caught:
        _answer(_Table(low=0), [[1, 2], [-1, 99]])
    assert str(caught.value) == (
        "the reference refuses row 'r1' of the samples (index 1), but accepts others: an id is out of the table"
    )
    assert caught.value.hint == "correct the row, or remove it from the samples"


@pytest.mark.parametrize(
    ("table", "ids", "message"),
    [
        (_Table(size=1), [[1, 2], [3, 4]], "an id is out of the table"),
        (_Table(most=1), [[1, 2], [3, 4]], "too many rows"),
    ],
)
def test_a_model_that_answers_no_row_or_each_of_them_alone_has_failed_itself(
    table: _Table, ids: list[list[int]], message: str
) -> None:
    with pytest.raises(BackendError, match=message):
        _answer(table, ids)
