"""Read external weights of ONNX models, and round weights to 16 bits as converters do."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from paritygate.errors import InputFileError
from paritygate.precision import Precision

if TYPE_CHECKING:
    import onnx

# onnx.TensorProto.DataType, written out so that onnx is not imported for three numbers.
FLOAT = 1
ELEMENT_TYPES: Mapping[Precision, int] = {Precision.FP16: 10, Precision.BF16: 16}
DTYPES: Mapping[Precision, np.dtype[Any]] = {
    Precision.FP16: np.dtype(np.float16),
    Precision.BF16: np.dtype(ml_dtypes.bfloat16),
}
_LONGEST = 300


def load_external(tensor: onnx.TensorProto, folder: Path | None) -> None:
    """Read the tensor's external data into it, if it has some; raise InputFileError if that fails."""
    import onnx

    if tensor.data_location != tensor.EXTERNAL:
        return
    if folder is None:
        msg = f"the data of tensor {tensor.name!r} is in another file, and its folder is not known"
        raise InputFileError(msg, hint="give the folder that the model file is in")
    try:
        onnx.external_data_helper.load_external_data_for_tensor(tensor, str(folder))
    except (ValueError, OSError, RuntimeError, onnx.checker.ValidationError) as err:
        msg = f"the data of tensor {tensor.name!r} cannot be read: {_line_of(err)}"
        raise InputFileError(msg, hint="copy the data file beside the model, under the name it refers to") from err
    tensor.ClearField("external_data")
    tensor.ClearField("data_location")


def load_tensor(tensor: onnx.TensorProto, folder: Path | None) -> NDArray[Any]:
    """Return the values of the tensor, read from `folder` if they are external.

    Raises:
        InputFileError: They do not fit its shape.
    """
    import onnx

    copy = tensor
    if tensor.data_location == tensor.EXTERNAL:
        copy = deepcopy(tensor)
        load_external(copy, folder)
    try:
        return onnx.numpy_helper.to_array(copy)
    except (ValueError, TypeError) as err:
        msg = f"the data of tensor {tensor.name!r} does not fit its shape {list(tensor.dims)}: {_line_of(err)}"
        raise InputFileError(msg, hint="export the model again; the file may be corrupt") from err


def _line_of(err: Exception) -> str:
    return (" ".join(str(err).split()) or type(err).__name__)[:_LONGEST]


def stored_in(
    precision: Precision, values: NDArray[np.float32]
) -> tuple[NDArray[Any], NDArray[np.bool_], NDArray[np.bool_]]:
    """Return weights as a converter stores them in FP16 or BF16, which ones it clamps, and which become zero.

    They are rounded. Finite ones beyond the range (65504, 3.39e38) become its largest number. A single value becomes
    the smallest number above zero instead of zero, because it may be a denominator. Infinity and NaN stay.
    """
    dtype = DTYPES[precision]
    info = ml_dtypes.finfo(dtype)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        rounded = np.asarray(values.astype(dtype))
    beyond = np.asarray(np.isinf(rounded) & np.isfinite(values))
    if beyond.any():
        rounded = np.where(beyond, np.copysign(np.float32(info.max), values).astype(dtype), rounded)
    zeroed = np.asarray((rounded == 0) & (values != 0))
    if values.size == 1 and zeroed.any():
        rounded = np.asarray(np.copysign(np.float32(info.smallest_subnormal), values).astype(dtype))
    return rounded, beyond, zeroed
