"""What all runners share: the check of a batch before it is run, and the words for what went wrong."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from paritygate.errors import BackendError
from paritygate.signature import Signature, TensorSpec

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["check_inputs", "describe_arrays", "first_line", "reason_of"]


def check_inputs(signature: Signature, inputs: Mapping[str, NDArray[np.generic]]) -> None:
    """Check that a batch has exactly the inputs of the model, in its dtypes, ranks and fixed sizes.

    Frameworks differ in what they let pass: some cast, some broadcast, some drop what they do not
    know. Here nothing is cast or dropped, whatever the framework.

    Raises:
        BackendError: An input is missing, unknown, or not of the dtype and shape of the signature.
    """
    if len(inputs) != len(signature.inputs) or any(spec.name not in inputs for spec in signature.inputs):
        given = ", ".join(inputs) or "nothing"
        wanted = ", ".join(spec.name for spec in signature.inputs)
        msg = f"the model takes the inputs {wanted}; given was {given}"
        raise BackendError(msg, hint="give every input under its name, and no other")
    for spec in signature.inputs:
        if not _fits(spec, inputs[spec.name]):
            msg = f"the model takes {spec}; given was {describe_arrays({spec.name: inputs[spec.name]})}"
            raise BackendError(msg, hint="give the samples in the dtype and shape that the model takes")


def _fits(spec: TensorSpec, array: NDArray[np.generic]) -> bool:
    is_of_dtype = array.dtype.kind in "UO" if spec.dtype == "string" else array.dtype.name == spec.dtype
    if spec.shape is None:
        return is_of_dtype
    return (
        is_of_dtype
        and array.ndim == len(spec.shape)
        and all(not isinstance(dim, int) or dim == size for dim, size in zip(spec.shape, array.shape, strict=True))
    )


def describe_arrays(arrays: Mapping[str, NDArray[np.generic]]) -> str:
    """Return names, dtypes and shapes in one line, such as `input_ids: int64[8, 64]`."""
    return "; ".join(f"{name}: {array.dtype}{list(array.shape)}" for name, array in arrays.items())


def first_line(err: BaseException) -> str:
    """Return the first line of what an exception says, or its class where it says nothing."""
    return (str(err).strip() or type(err).__name__).splitlines()[0].strip()


def reason_of(err: BaseException) -> str:
    """Return class and first line of an exception, such as `IndexError: index out of range in self`."""
    line = first_line(err)
    name = type(err).__name__
    return line if line == name else f"{name}: {line}"
