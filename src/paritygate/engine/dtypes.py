"""The names that the libraries behind engines have for dtypes, and what they are called elsewhere."""

from __future__ import annotations

from collections.abc import Mapping

from paritygate.precision import Precision

__all__ = ["DTYPE_OF_PRECISION", "NUMPY_DTYPES"]

# NumPy's names, by the library's; the libraries have others, of weights alone.
NUMPY_DTYPES: Mapping[str, str] = {
    "FLOAT": "float32",
    "HALF": "float16",
    "BF16": "bfloat16",
    "INT8": "int8",
    "INT32": "int32",
    "INT64": "int64",
    "UINT8": "uint8",
    "BOOL": "bool",
}
# What an engine of a precision computes in, in the library's words; no engine has another one.
DTYPE_OF_PRECISION: Mapping[Precision, str] = {
    Precision.FP32: "FLOAT",
    Precision.TF32: "FLOAT",
    Precision.FP16: "HALF",
    Precision.BF16: "BF16",
    Precision.INT8: "INT8",
}
