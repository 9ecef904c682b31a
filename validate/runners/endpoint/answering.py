"""The server's side of the Open Inference Protocol, version 2: arrays from a request, an answer from arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ml_dtypes  # noqa: F401 - makes bfloat16 a dtype of NumPy
import numpy as np
from numpy.typing import NDArray

from paritygate.batch import Arrays
from paritygate.errors import UsageError
from paritygate.signature import Signature, TensorSpec, is_float_dtype
from paritygate.validate.runners.endpoint.tensors import DATATYPES

_HINT = 'send {"inputs": [{"name": ..., "datatype": ..., "shape": [...], "data": [...]}]}'


def tensors_asked(request: object, signature: Signature) -> dict[str, NDArray[np.generic]]:
    """Return the inputs of a request by name, in the dtypes of the model; numbers only change by rounding.

    The runner checks that all inputs are there with their ranks. UsageError is raised for another form than the
    protocol's, unknown inputs, or values that have another datatype or shape than declared.
    """
    tensors = request.get("inputs") if isinstance(request, Mapping) else None
    if not isinstance(tensors, list) or not all(isinstance(item, Mapping) for item in tensors):
        raise UsageError("the request has no list of inputs", hint=_HINT)
    taken = {spec.name: spec for spec in signature.inputs}
    arrays = {}
    for item in tensors:
        name = item.get("name")
        if name not in taken or name in arrays:
            msg = f"the request has the input {name!r}{' twice' * (name in arrays)} (allowed: {', '.join(taken)}, once)"
            raise UsageError(msg, hint=_HINT)
        arrays[name] = _array(item, taken[name])
    return arrays


def _array(said: Mapping[str, Any], spec: TensorSpec) -> NDArray[np.generic]:
    datatype = DATATYPES[spec.dtype]
    if said.get("datatype") != datatype:
        msg = f"the request has {spec.name} in datatype {said.get('datatype')!r}, but the model expects {datatype}"
        raise UsageError(msg, hint=f"send it as {datatype}")
    try:
        with np.errstate(over="raise"):
            return _values(said["data"], spec.dtype).reshape([int(size) for size in said["shape"]])
    except (KeyError, TypeError, ValueError, ArithmeticError) as err:
        msg = f"{spec.name} of the request cannot be read as {datatype}: {type(err).__name__}: {err}"
        raise UsageError(msg, hint=_HINT) from err


def _values(data: object, dtype: str) -> NDArray[np.generic]:
    """Return the values of JSON data.

    ValueError is raised for another kind or uneven depth, OverflowError for a value beyond the dtype.
    """
    if dtype == "string":
        texts = np.array(data, dtype=object)
        for at, text in np.ndenumerate(texts):
            # Over gRPC, text is bytes.
            texts[at] = text.decode() if isinstance(text, bytes) else text
        if not all(isinstance(text, str) for text in texts.ravel()):
            raise ValueError("not every value is text")
        return texts
    # NumPy makes floats of integers of which some are beyond int64, so Python's own are needed.
    read: NDArray[Any] = np.asarray(data, dtype=object if dtype == "uint64" else None)
    if dtype == "uint64" and all(type(value) is int and 0 <= value < 1 << 64 for value in read.ravel()):
        return read.astype(np.uint64)
    allowed = "iuf" if is_float_dtype(dtype) else "b" if dtype == "bool" else "iu"
    if read.size and read.dtype.kind not in allowed:
        raise ValueError(f"the values are {read.dtype}")
    if allowed == "iu" and read.size:
        limits = np.iinfo(dtype)
        if int(read.min()) < limits.min or int(read.max()) > limits.max:
            msg = f"the values are {read.min()} to {read.max()}, but {dtype} holds {limits.min} to {limits.max}"
            raise OverflowError(msg)
    return read.astype(np.dtype(dtype))


def tensors_answered(outputs: Arrays, signature: Signature) -> list[dict[str, Any]]:
    """Return the outputs in the form of the protocol: values flat, in row-major order."""
    return [
        {
            "name": spec.name,
            "datatype": DATATYPES[spec.dtype],
            "shape": list(outputs[spec.name].shape),
            "data": outputs[spec.name].ravel().tolist(),
        }
        for spec in signature.outputs
    ]


def described_tensors(tensors: tuple[TensorSpec, ...]) -> list[dict[str, Any]]:
    """Return inputs or outputs as the protocol describes them: -1 is a dim of any size."""
    return [
        {
            "name": spec.name,
            "datatype": DATATYPES[spec.dtype],
            "shape": [dim if isinstance(dim, int) else -1 for dim in spec.shape or ()],
        }
        for spec in tensors
    ]
