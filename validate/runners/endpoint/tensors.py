"""Tensors of the Open Inference Protocol: its names of dtypes, and values as bytes."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paritygate.errors import BackendError
from paritygate.signature import TensorSpec
from paritygate.utf8 import is_utf8
from paritygate.validate.runners.endpoint.json_values import shown

# Source: "Tensor Data Types" of the protocol's specification, version 2 (and BF16, which Triton added).
DATATYPES: Mapping[str, str] = {
    "bool": "BOOL",
    "uint8": "UINT8",
    "uint16": "UINT16",
    "uint32": "UINT32",
    "uint64": "UINT64",
    "int8": "INT8",
    "int16": "INT16",
    "int32": "INT32",
    "int64": "INT64",
    "float16": "FP16",
    "bfloat16": "BF16",
    "float32": "FP32",
    "float64": "FP64",
    "string": "BYTES",
}
_DTYPES = {datatype: dtype for dtype, datatype in DATATYPES.items()}
_LENGTH = struct.Struct("<I")


def spec_of(said: Mapping[str, Any]) -> TensorSpec:
    """Return an input or output as the server describes it; a dim of -1 is of any size."""
    name, dtype = name_and_dtype(said)
    shape = said.get("shape")
    return TensorSpec(name=name, dtype=dtype, shape=None if shape is None else tuple(map(dim_of, shape)))


def name_and_dtype(said: Mapping[str, Any]) -> tuple[str, str]:
    """Return a tensor's name and dtype; raise BackendError where it has no name, or an unknown datatype."""
    name, datatype = said.get("name"), said.get("datatype")
    if not isinstance(name, str) or not is_utf8(name) or not isinstance(datatype, str) or datatype not in _DTYPES:
        msg = f"the server describes a tensor as {shown(dict(said))} (allowed datatypes: {', '.join(_DTYPES)})"
        raise BackendError(msg, hint="correct the model's configuration on the server")
    return name, _DTYPES[datatype]


def dim_of(said: object) -> int | None:
    """Return a dim of a description, None for any size; raise TypeError unless it is an integer or the text of one.

    JSON made from Protocol Buffers has integers as text.
    """
    if type(said) is not int and not isinstance(said, str):
        raise TypeError(said)
    size = int(said)
    return None if size < 0 else size


def is_text(array: NDArray[np.generic]) -> bool:
    """Return whether an array holds text: of NumPy's own, as byte strings in UTF-8, or as Python objects."""
    return array.dtype.kind in "SUO"


def datatype_of(array: NDArray[np.generic]) -> str:
    """Return the protocol's name of an array's dtype."""
    return DATATYPES["string" if is_text(array) else array.dtype.name]


def as_json_values(array: NDArray[np.generic]) -> list[Any]:
    """Return the values in row-major order for JSON; byte strings become text."""
    values: list[Any] = array.ravel().tolist()
    return [value.decode() if isinstance(value, bytes) else value for value in values]


def as_bytes(array: NDArray[np.generic]) -> bytes:
    """Return the values in row-major order, little-endian; of text, each with its length before it."""
    if is_text(array):
        words = [value if isinstance(value, bytes) else str(value).encode() for value in array.ravel()]
        return b"".join(part for word in words for part in (_LENGTH.pack(len(word)), word))
    return np.ascontiguousarray(array).tobytes()


def from_bytes(raw: bytes, dtype: str, shape: tuple[int, ...]) -> NDArray[np.generic]:
    """Return an array of values that were sent as bytes.

    ValueError is raised for more or fewer values than the shape has, a size below 0, or bytes that are no bool.
    """
    count = math.prod(shape)
    if any(size < 0 for size in shape):
        raise ValueError(f"values of the shape {list(shape)}, which has a size below 0")
    if dtype == "string":
        words = _words(raw)
        _check_count(len(words), count, "texts")
        return words.reshape(shape)
    import ml_dtypes  # noqa: F401 - makes bfloat16 a dtype of NumPy

    kind = np.dtype(dtype)
    _check_count(len(raw), count * kind.itemsize, "bytes")
    array: NDArray[np.generic] = np.frombuffer(raw, dtype=kind).reshape(shape)
    if dtype == "bool" and array.size and int(array.view(np.uint8).max()) > 1:
        raise ValueError(f"{int(array.view(np.uint8).max())}, not a value of bool")
    return np.array(array)


def _check_count(count: int, wanted: int, what: str) -> None:
    if count != wanted:
        raise ValueError(f"{count} {what}, and {wanted} by its shape")


def _words(raw: bytes) -> NDArray[np.generic]:
    words, at = [], 0
    while at < len(raw):
        end = at + _LENGTH.size
        length = _LENGTH.unpack(raw[at:end])[0] if end <= len(raw) else len(raw)
        if end + length > len(raw):
            raise ValueError(f"text of {len(raw)} bytes, shorter than its declared length")
        words.append(raw[end : end + length])
        at = end + length
    texts = np.empty(len(words), dtype=object)
    texts[:] = words
    return texts


def check_answer(spec: TensorSpec, dtype: str, shape: tuple[int, ...]) -> None:
    """Raise BackendError where an output is not of the dtype and shape that the server describes.

    A server that is ready may still differ from its description, and no client would notice before it reads the values.
    """
    is_of_shape = spec.shape is None or (
        len(spec.shape) == len(shape)
        and all(not isinstance(dim, int) or dim == size for dim, size in zip(spec.shape, shape, strict=True))
    )
    if dtype != spec.dtype or not is_of_shape:
        msg = f"the server returned {spec.name} as {dtype}{list(shape)}, but describes it as {spec}"
        raise BackendError(msg, hint="correct the outputs in the model's configuration on the server")
