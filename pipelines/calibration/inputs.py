"""Whether rows can be calibrated on: said before a converter sees them, whose words would be about itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from paritygate.errors import UsageError
from paritygate.signature import Signature
from paritygate.validate.samples.feeding import check_shapes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from paritygate.batch import Batch

__all__ = ["check_inputs"]


def check_inputs(batch: Batch, signature: Signature) -> None:
    """Do nothing if the batch has the shapes that the model takes, and finite values.

    Args:
        batch: Fitted to the model: it has every input, in its dtype.
        signature: What the model takes.

    Raises:
        UsageError: It has not; the message names row and input.
    """
    if not batch.rows:
        return
    check_shapes(batch, batch.inputs, signature)
    for spec in signature.inputs:
        _check_finite(batch, spec.name)


def _check_finite(batch: Batch, name: str) -> None:
    array = batch.inputs[name]
    if array.dtype.kind != "f":
        return
    is_finite = np.isfinite(array)
    if not is_finite.all():
        msg = f"row {_first_row(batch, ~is_finite)!r} holds NaN or infinity in {name!r}: no range comes of it"
        raise UsageError(msg, hint="correct the row, or leave it out")


def _first_row(batch: Batch, is_bad: NDArray[np.bool_]) -> str:
    """Return the id of the first row with a bad value; of inputs that are no rows, that of the first row."""
    if is_bad.shape[:1] != (batch.rows,):
        return batch.ids[0]
    return batch.ids[int(is_bad.reshape(batch.rows, -1).any(axis=1).argmax())]
