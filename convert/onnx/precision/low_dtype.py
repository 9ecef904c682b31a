"""The two dtypes that a model is rewritten to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paritygate.errors import UsageError
from paritygate.precision import Precision

__all__ = ["FLOAT", "LowDtype", "low_dtype"]

# onnx.TensorProto.FLOAT, which cannot be read without importing onnx.
FLOAT = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class LowDtype:
    """A floating-point dtype of 16 bits.

    Attributes:
        precision: FP16 or BF16.
        element: Its `onnx.TensorProto.DataType`.
        tensor_type: How the schemas of operators write it.
        numpy: Its numpy dtype.
        largest: The largest finite value.
        smallest: The smallest value above zero.
    """

    precision: Precision
    element: int
    tensor_type: str
    numpy: np.dtype[Any]
    largest: float
    smallest: float

    def round(self, values: NDArray[np.float32]) -> NDArray[Any]:
        """Return the nearest values of this dtype, infinite where they are beyond its range."""
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            return values.astype(self.numpy)


def low_dtype(precision: Precision) -> LowDtype:
    """Return the dtype of FP16 or BF16.

    Raises:
        UsageError: It is another precision.
    """
    import ml_dtypes
    import onnx

    if precision is Precision.FP16:
        info: Any = np.finfo(np.float16)
        element, name, dtype = int(onnx.TensorProto.FLOAT16), "float16", np.dtype(np.float16)
    elif precision is Precision.BF16:
        info = ml_dtypes.finfo(ml_dtypes.bfloat16)
        element, name, dtype = int(onnx.TensorProto.BFLOAT16), "bfloat16", np.dtype(ml_dtypes.bfloat16)
    else:
        msg = f"an ONNX model cannot be rewritten to {precision} (allowed: fp16, bf16)"
        raise UsageError(msg, hint="name fp16 or bf16")
    return LowDtype(
        precision=precision,
        element=element,
        tensor_type=f"tensor({name})",
        numpy=dtype,
        largest=float(info.max),
        smallest=float(info.smallest_subnormal),
    )
