"""Tensors of the Open Inference Protocol: its names of dtypes, and values as bytes."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import numpy as np

from paritygate.errors import BackendError
from paritygate.signature import TensorSpec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

__all__ = ["DATATYPES", "as_bytes", "as_json_values", "check_answer", "datatype_of", "from_bytes", "is_text", "spec_of"]

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
    """Return an input or output as the server describes it; a dim of -1 is of any size.

    Raises:
        BackendError: It has no name, or a datatype that is not known.
    """
    name, datatype = said.get("name"), said.get("datatype")
    if not isinstance(name, str) or datatype not in _DTYPES:
        msg = f"the server describes a tensor as {dict(said)!r} (allowed datatypes: {', '.join(_DTYPES)})"
        raise BackendError(msg, hint="correct the model's configuration on the server")
    shape = said.get("shape")
    dims = None if shape is None else tuple(None if int(dim) < 0 else int(dim) for dim in shape)
    return TensorSpec(name=name, dtype=_DTYPES[datatype], shape=dims)


def is_text(array: NDArray[np.generic]) -> bool:
    """Return whether an array holds text: of NumPy's own, as byte strings in UTF-8, or as Python objects."""
    return array.dtype.kind in "SUO"


def datatype_of(array: NDArray[np.generic]) -> str:
    """Return the protocol's name of an array's dtype."""
    return DATATYPES["string" if is_text(array) else array.dtype.name]


def as_json_values(array: NDArray[np.generic]) -> list[Any]:
    """Return the values in row-major order, as JSON has them; byte strings become the text that they are.

    Raises:
        UnicodeDecodeError: A byte string is no text in UTF-8.
    """
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

    Raises:
        ValueError: There are more or fewer values than the shape has.
    """
    if dtype != "string":
        import ml_dtypes  # noqa: F401 - makes bfloat16 a dtype of NumPy

        found: NDArray[np.generic] = np.frombuffer(raw, dtype=np.dtype(dtype)).reshape(shape)
        return np.array(found)
    words, at = [], 0
    while at < len(raw):
        (length,) = _LENGTH.unpack_from(raw, at)
        at += _LENGTH.size
        words.append(raw[at : at + length])
        at += length
    texts = np.empty(len(words), dtype=object)
    texts[:] = words
    return texts.reshape(shape)


def check_answer(spec: TensorSpec, dtype: str, shape: tuple[int, ...]) -> None:
    """Check that an output is of the dtype and shape that the server itself says of it.

    A server that is ready may still answer otherwise than it says: no client would notice before it reads the values.

    Raises:
        BackendError: It is not.
    """
    is_of_shape = spec.shape is None or (
        len(spec.shape) == len(shape)
        and all(not isinstance(dim, int) or dim == size for dim, size in zip(spec.shape, shape, strict=True))
    )
    if dtype != spec.dtype or not is_of_shape:
        msg = f"the server answers {spec.name} as {dtype}{list(shape)}, and says of itself that it is {spec}"
        raise BackendError(msg, hint="correct the outputs in the model's configuration on the server")
