"""What the runners of Keras models and SavedModels share: the device, TF32, and TensorFlow's errors."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paritygate.errors import BackendError
from paritygate.machine import device_name
from paritygate.models.tensorflow.importing import import_tensorflow
from paritygate.models.weights import WeightTally
from paritygate.precision import Precision
from paritygate.validate.runners.runner import FIXED_BY_TENSORFLOW, ON_THE_GPU, Runner

__all__ = [
    "TensorflowRunner",
    "add_variables",
    "is_tf32_allowed",
    "own_array",
    "precision_of_operations",
    "prepare_device",
    "tensorflow_reason",
]

# Where in TensorFlow an error was raised, which tells a user nothing.
_PLACES = re.compile(r"\{\{function_node [^}]*\}\}\s*|\s*\[Op:\w+\]")
_LOWER = {"float16": Precision.FP16, "bfloat16": Precision.BF16}


def prepare_device(device: str) -> Any:  # noqa: ANN401 - the module, which has no types
    """Return the module `tensorflow`, set to compute on `device` and float32 in float32.

    Args:
        device: `cpu` or `cuda`.

    Raises:
        MissingBackendError: TensorFlow is not installed.
        BackendError: There is no GPU for `cuda`, or TensorFlow is already using one and shall not.
    """
    tf = import_tensorflow()
    device_name(device)
    # TensorFlow allows TF32 unless told otherwise.
    tf.config.experimental.enable_tensor_float_32_execution(enabled=False)
    if device == "cuda":
        if not tf.config.list_physical_devices("GPU"):
            msg = f"this build of tensorflow ({tf.__version__}) finds no GPU"
            raise BackendError(msg, hint="pip install 'tensorflow[and-cuda]', or use device cpu")
    elif tf.config.get_visible_devices("GPU"):
        # TensorFlow would take the GPU unasked.
        try:
            tf.config.set_visible_devices([], "GPU")
        except RuntimeError as err:
            msg = f"tensorflow is to run on the CPU, and has taken the GPU already: {err}"
            raise BackendError(msg, hint="export CUDA_VISIBLE_DEVICES=-1, or use device cuda") from err
    return tf


def is_tf32_allowed(device: str) -> bool | None:
    """Return whether TF32 may be used; None on the CPU, which has none."""
    tf = import_tensorflow()
    return bool(tf.config.experimental.tensor_float_32_execution_enabled()) if device == "cuda" else None


def add_variables(tally: WeightTally, variables: Iterable[Any]) -> None:
    """Count the variables of a model in `tally`; those of float32 are read, one at a time."""
    for variable in variables:
        dtype = variable.dtype if isinstance(variable.dtype, str) else variable.dtype.name
        if dtype == "float32":
            tally.add(np.asarray(variable.numpy()))
        else:
            tally.add_stored(dtype, int(np.prod(variable.shape)))


def precision_of_operations(weights: Precision | None, dtypes: Iterable[str]) -> Precision | None:
    """Return the precision of a model whose operations compute in `dtypes`, whatever its weights are stored in.

    Mixed policies store weights in float32 and cast them before each operation.
    """
    found = {_LOWER.get(dtype, Precision.FP32) for dtype in dtypes}
    if weights not in {Precision.FP32, None} or not found & {Precision.FP16, Precision.BF16}:
        return weights
    return found.pop() if len(found) == 1 else Precision.MIXED


def own_array(tensor: Any, device: str) -> NDArray[np.generic]:  # noqa: ANN401 - a tensor of TensorFlow's
    """Return a copy of an output, which belongs to the caller.

    Raises:
        BackendError: It was computed on another device than was asked for.
    """
    if device == "cuda" and "GPU" not in tensor.device:
        msg = f"tensorflow was to run on the GPU, and an output was computed on {tensor.device}"
        raise BackendError(msg, hint="use device cpu, or a build of tensorflow that supports this GPU")
    # TensorFlow copies here, so that nobody changes a tensor by its array.
    return np.asarray(tensor.numpy())


def tensorflow_reason(err: BaseException) -> str:
    """Return in one line what an error of TensorFlow says.

    An error inside a graph puts what went wrong between the operator's place and its name.
    """
    text = _PLACES.sub("", str(err))
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for before, line in itertools.pairwise(lines):
        if line.startswith("[[{{node"):
            return f"{type(err).__name__}: {before}"
    return f"{type(err).__name__}: {lines[0]}" if lines else type(err).__name__


class TensorflowRunner(Runner):
    """A runner of what TensorFlow computes."""

    _hint = "check that the samples are within what the model takes"

    @property
    def _device(self) -> str:
        return self._facts.device.partition(":")[0]

    def on_one_thread(self) -> str:
        """Return why it does not answer on one thread."""
        return FIXED_BY_TENSORFLOW if self._device == "cpu" else ON_THE_GPU

    def _reason(self, err: Exception) -> str:
        return tensorflow_reason(err)
