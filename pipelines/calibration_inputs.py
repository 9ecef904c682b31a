"""Whether rows can be calibrated on: said before a converter sees them, whose words would be about itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from paritygate.errors import UsageError
from paritygate.signature import Signature, TensorSpec

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
    for spec in signature.inputs:
        _check_shape(batch, spec)
        _check_finite(batch, spec.name)


def _check_shape(batch: Batch, spec: TensorSpec) -> None:
    found = batch.inputs[spec.name].shape
    if spec.shape is None:
        return
    sizes = zip(found, spec.shape, strict=False)
    if len(found) != len(spec.shape) or any(isinstance(dim, int) and size != dim for size, dim in sizes):
        msg = f"from row {batch.ids[0]!r} on, {spec.name!r} has the shape {list(found)}, and the model takes {spec}"
        raise UsageError(msg, hint="give rows of the shape that the model takes")


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
