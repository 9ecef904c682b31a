"""Rounding float32 values to a lower precision, as the weights of an emulated model are, once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from paritygate.precision import Precision

__all__ = ["DTYPES", "ELEMENT_TYPES", "FLOAT", "convert_values", "precision_of_element", "round_values"]

# onnx.TensorProto.DataType, written out so that onnx is not imported for four numbers.
FLOAT = 1
ELEMENT_TYPES: Mapping[Precision, int] = {Precision.FP16: 10, Precision.BF16: 16}
DTYPES: Mapping[Precision, np.dtype[Any]] = {
    Precision.FP16: np.dtype(np.float16),
    Precision.BF16: np.dtype(ml_dtypes.bfloat16),
}


def precision_of_element(element: int) -> Precision | None:
    """Return the precision of an ONNX element type if it is float16 or bfloat16, else None."""
    return next((precision for precision, low in ELEMENT_TYPES.items() if low == element), None)


def round_values(values: NDArray[Any], precision: Precision) -> NDArray[np.float32]:
    """Return the values rounded to the precision, in float32.

    To nearest, ties to even; below the smallest normal number to the subnormal ones; beyond the largest
    number to infinity, as IEEE 754 has it. NaN and infinity stay.

    Args:
        values: float32 of any shape.
        precision: `fp16` or `bf16`.
    """
    with np.errstate(over="ignore"):
        rounded: NDArray[np.float32] = values.astype(DTYPES[precision]).astype(np.float32)
    return rounded


def convert_values(values: NDArray[Any], precision: Precision) -> tuple[NDArray[np.float32], int]:
    """Return float32 weights as a converter stores them in the precision, in float32, and how many it had to clamp.

    They are rounded. Finite ones beyond the range become its largest number, not infinity. A single value
    becomes zero only if it was zero: it is there to keep something from being zero, such as a denominator.

    Args:
        values: float32 of any shape; infinity and NaN stay as they are.
        precision: `fp16` (up to 65504) or `bf16` (up to 3.39e38).
    """
    rounded = round_values(values, precision)
    beyond = np.isinf(rounded) & np.isfinite(values)
    count = int(np.count_nonzero(beyond))
    info = ml_dtypes.finfo(DTYPES[precision])
    if count:
        rounded = np.where(beyond, np.copysign(np.float32(info.max), values), rounded)
    if values.size == 1 and np.all(rounded == 0) and np.any(values != 0):
        rounded = np.copysign(np.float32(info.smallest_subnormal), values)
    # Of a scalar NumPy makes no array.
    return np.asarray(rounded, dtype=np.float32), count
