"""Quantize ONNX and OpenVINO models with NNCF, without its reports on its use."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from paritygate.backends import require_backend
from paritygate.convert.int8.settings import DYNAMIC, Int8Settings
from paritygate.errors import UsageError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from paritygate.convert.conversion import Calibration

_ONLY_METHOD = "minmax"
# NNCF's number for none.
_NO_SMOOTHING = -1


def check_nncf_settings(settings: Int8Settings) -> None:
    """Raise UsageError for settings that NNCF does not support."""
    if settings.method == DYNAMIC:
        msg = "dynamic quantization needs ONNX Runtime, but the tool is nncf"
        raise UsageError(msg, hint="write calibration: {tool: onnxruntime, method: dynamic}")
    if settings.method != _ONLY_METHOD or settings.activations != Int8Settings().activations:
        msg = f"calibration.method {settings.method} and activations {settings.activations} are for tool: onnxruntime"
        raise UsageError(msg, hint="leave both out, because nncf chooses ranges and types itself")


def quantize_with_nncf(model: Any, calibration: Calibration, *, is_transformer: bool) -> Any:  # noqa: ANN401 - models of two formats
    """Return the model quantized, an `onnx.ModelProto` or an `openvino.Model` as given, which it may change.

    Batches are read one at a time. Attention of a transformer needs more care than other operators.
    """
    nncf = _import_nncf()
    from nncf.quantization.range_estimator import RangeEstimatorParametersSet

    return nncf.quantize(
        model,
        nncf.Dataset(_Batches(calibration)),
        # It counts batches, not rows.
        subset_size=sum(1 for _ in calibration.read()),
        model_type=nncf.ModelType.TRANSFORMER if is_transformer else None,
        advanced_parameters=nncf.AdvancedQuantizationParameters(
            # Smoothing adds a multiplication before every product, and moves the loss from activations to
            # weights. That is less exact where activations have no outlying channels, as in encoders.
            smooth_quant_alphas=nncf.AdvancedSmoothQuantParameters(matmul=_NO_SMOOTHING, convolution=_NO_SMOOTHING),
            # By default the ranges are means over batches, so that the batching of rows would decide
            # which values are clipped.
            activations_range_estimator_params=RangeEstimatorParametersSet.MINMAX,
        ),
    )


class _Batches:
    """The calibration batches, which can be iterated many times."""

    def __init__(self, calibration: Calibration) -> None:
        self._calibration = calibration

    def __iter__(self) -> Iterator[dict[str, NDArray[np.generic]]]:
        return (dict(batch) for batch in self._calibration.read())


def _import_nncf() -> Any:  # noqa: ANN401 - NNCF has no types
    require_backend("nncf")
    # It reports every use through this package, unless this variable is set at its import.
    os.environ["NNCF_CI"] = "1"
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]  # None is how a module is barred
    import nncf

    nncf.set_log_level("ERROR")
    return nncf
