"""Fitting a batch of samples to the inputs that a model takes: by name, and by dtype only where nothing is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from paritygate.errors import UsageError
from paritygate.signature import TensorSpec, is_integer_dtype

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from paritygate.batch import Batch
    from paritygate.signature import Signature

__all__ = ["check_shapes", "fit_inputs"]


def fit_inputs(batch: Batch, signature: Signature, *, rename: str = "") -> dict[str, NDArray[np.generic]]:
    """Return the inputs of the signature out of a batch.

    Integers are cast to the integer dtype that the model takes, after a check of the range; no other
    dtype is cast. Inputs of the batch that the model does not take are left out.

    Args:
        batch: The batch.
        signature: Of the model.
        rename: How the model's input MODEL may be served as the samples' KEY, where these inputs come from; for hints.

    Raises:
        UsageError: An input is missing, of another dtype, or has values that the model's dtype lacks.
    """
    fitted: dict[str, NDArray[np.generic]] = {}
    for spec in signature.inputs:
        if spec.name not in batch.inputs:
            seen = ", ".join(batch.inputs) or "none"
            msg = f"the samples have no input {spec.name!r}, which the model takes (seen: {seen})"
            raise UsageError(msg, hint=_how_to_name(spec.name, batch, signature, rename))
        fitted[spec.name] = _fit(spec, batch.inputs[spec.name])
    return fitted


def check_shapes(batch: Batch, inputs: Mapping[str, NDArray[np.generic]], signature: Signature) -> None:
    """Check that the inputs have the ranks and the fixed sizes that a model takes.

    Args:
        batch: Where they come from.
        inputs: What `fit_inputs` returned of it.
        signature: Of the model.

    Raises:
        UsageError: One has not; the message names input and row.
    """
    for spec in signature.inputs:
        found = inputs[spec.name].shape
        if spec.shape is None:
            continue
        axes = [
            axis
            for axis, (size, dim) in enumerate(zip(found, spec.shape, strict=False))
            if isinstance(dim, int) and size != dim
        ]
        if len(found) == len(spec.shape) and not axes:
            continue
        msg = f"from row {batch.ids[0]!r} on, {spec.name!r} has the shape {list(found)}, and the model takes {spec}"
        hint = "give rows of the shape that the model takes"
        if len(found) == len(spec.shape) and axes == [0]:
            rows = spec.shape[0]
            hint = f"give {rows} rows a call: samples: {{batch_size: {rows}}} in the spec, or --batch-size {rows}"
        raise UsageError(msg, hint=hint)


def _how_to_name(name: str, batch: Batch, signature: Signature, rename: str) -> str:
    hint = "name the samples' keys like the model's inputs"
    if not rename:
        return hint
    known = {spec.name for spec in signature.inputs}
    unused = [key for key in batch.inputs if key not in known]
    # Where one key is left over, it is the one that is meant.
    key = unused[0] if len(unused) == 1 else "KEY"
    return f"{hint}, or rename these: {rename.replace('MODEL', name).replace('KEY', key)}"


def _fit(spec: TensorSpec, array: NDArray[np.generic]) -> NDArray[np.generic]:
    found = array.dtype.name if array.dtype.kind not in "US" else "string"
    if found == spec.dtype:
        return array
    if is_integer_dtype(spec.dtype) and array.dtype.kind in "iub":
        return _cast_integers(spec, array)
    msg = f"the samples hold {spec.name!r} as {found}, and the model takes {spec.dtype}"
    raise UsageError(
        msg, hint="only integers are cast, where their range allows: save the samples in the model's dtype"
    )


def _cast_integers(spec: TensorSpec, array: NDArray[np.generic]) -> NDArray[np.generic]:
    target = np.dtype(spec.dtype)
    low, high = (0, 1) if target.kind == "b" else (int(np.iinfo(target).min), int(np.iinfo(target).max))
    if array.size:
        least, largest = int(array.min()), int(array.max())
        if least < low or largest > high:
            msg = (
                f"the samples hold {spec.name!r} from {least} to {largest}, "
                f"and the model takes {spec.dtype}, which holds {low} to {high}"
            )
            raise UsageError(msg, hint="export the model with int64 inputs, or correct the samples")
    return array.astype(target)
