"""Quantize ONNX with ONNX Runtime's own tools: statically, by calibration rows, or dynamically."""

from __future__ import annotations

import contextlib
import itertools
import logging
import sys
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paritygate.batch import Arrays
from paritygate.convert.int8.choice import nodes_to_quantize, nothing_to_quantize
from paritygate.convert.int8.settings import Int8Settings
from paritygate.convert.onnx.rewrite import is_too_large, save_onnx
from paritygate.errors import UsageError
from paritygate.models.onnx.graph import nodes_in

if TYPE_CHECKING:
    import numpy as np
    import onnx
    from numpy.typing import NDArray

    from paritygate.convert.conversion import Calibration

_PREPARED, _QUANTIZED = "prepared.onnx", "quantized.onnx"
_CONVOLUTIONS = frozenset({"Conv", "ConvTranspose"})
_PAIR = ("QuantizeLinear", "DequantizeLinear")


def quantize_statically(
    model: onnx.ModelProto, folder: Path, settings: Int8Settings, calibration: Calibration, kept: Collection[str] = ()
) -> onnx.ModelProto:
    """Return a prepared FP32 model with quantize and dequantize nodes where they pay, weights in int8 by channel.

    The nodes that are `kept` stay in float. One batch of calibration rows, and of values inside the model, is in memory
    at a time. The empty `folder` gets temporary files of the model's size.

    Raises:
        NotAvailableError: There is nothing to quantize.
    """
    import onnx
    from onnxruntime import quantization

    names = nodes_to_quantize(model.graph, kept)
    if not names:
        # An empty list means every node.
        raise nothing_to_quantize(model.graph)
    is_symmetric = settings.activations == "int8"
    is_large = is_too_large(model)
    save_onnx(model, folder / _PREPARED)
    with _quiet():
        quantization.quantize_static(
            folder / _PREPARED,
            folder / _QUANTIZED,
            _reader(calibration),
            quant_format=quantization.QuantFormat.QDQ,
            nodes_to_quantize=list(names),
            per_channel=True,
            activation_type=quantization.QuantType.QInt8 if is_symmetric else quantization.QuantType.QUInt8,
            weight_type=quantization.QuantType.QInt8,
            calibrate_method=_method(settings.method),
            use_external_data_format=is_large,
            extra_options={
                "ActivationSymmetric": is_symmetric,
                "WeightSymmetric": True,
                # Otherwise histograms need the values of all batches in memory.
                "CalibStridedMinMax": 1,
                # Rounding a result that is used in float only loses digits.
                "OpTypesToExcludeOutputQuantization": ["MatMul", "Gemm"],
            },
        )
    quantized = onnx.load(str(folder / _QUANTIZED))
    _read_unrounded(quantized.graph, frozenset(names))
    return quantized


def quantize_dynamically(model: onnx.ModelProto, folder: Path) -> onnx.ModelProto:
    """Return a prepared FP32 model with weights of matrix products in int8 by channel, and ranges found at each call.

    The empty `folder` gets temporary files of the model's size.

    Raises:
        UsageError: The model has convolutions.
        NotAvailableError: There is nothing to quantize.
    """
    import onnx
    from onnxruntime import quantization

    convolutions = sum(node.op_type in _CONVOLUTIONS for node in nodes_in(model.graph))
    if convolutions:
        msg = (
            f"dynamic quantization is for models of matrix products, but this one has {convolutions} convolutions: "
            "ResNet50 became about 5 times slower than in FP32"
        )
        raise UsageError(msg, hint="write calibration: {method: minmax}; benchmarks/int8_tools.py has the figures")
    is_large = is_too_large(model)
    save_onnx(model, folder / _PREPARED)
    with _quiet():
        quantization.quantize_dynamic(
            folder / _PREPARED,
            folder / _QUANTIZED,
            op_types_to_quantize=["MatMul"],
            per_channel=True,
            weight_type=quantization.QuantType.QInt8,
            use_external_data_format=is_large,
            extra_options={"MatMulConstBOnly": True, "WeightSymmetric": True},
        )
    quantized = onnx.load(str(folder / _QUANTIZED))
    if not any(node.op_type == "MatMulInteger" for node in quantized.graph.node):
        raise nothing_to_quantize(model.graph)
    return quantized


def _method(name: str) -> Any:  # noqa: ANN401 - a CalibrationMethod
    from onnxruntime.quantization import CalibrationMethod

    methods = {
        "minmax": CalibrationMethod.MinMax,
        "entropy": CalibrationMethod.Entropy,
        "percentile": CalibrationMethod.Percentile,
    }
    return methods[name]


def _reader(calibration: Calibration) -> Any:  # noqa: ANN401 - a CalibrationDataReader
    """Return the batches for ONNX Runtime's tool, which needs their number, and then some at a time, in order."""
    from onnxruntime.quantization import CalibrationDataReader

    class Reader(CalibrationDataReader):  # type: ignore[misc] # ONNX Runtime has no types
        def __init__(self) -> None:
            self._batches = sum(1 for _ in calibration.read())
            self._rest = calibration.read()
            self._asked: Iterator[Arrays] = iter(())

        def __len__(self) -> int:
            return self._batches

        def set_range(self, start_index: int, end_index: int) -> None:
            self._asked = itertools.islice(self._rest, end_index - start_index)

        def get_next(self) -> dict[str, NDArray[np.generic]] | None:
            batch = next(self._asked, None)
            return None if batch is None else dict(batch)

    return Reader()


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Send the tool's output to the log, without its advice to run another tool first."""
    root = logging.getLogger()
    level = root.level
    root.setLevel(logging.ERROR)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        root.setLevel(level)


def _read_unrounded(graph: onnx.GraphProto, quantized: Collection[str]) -> None:
    """Let nodes in float read unrounded values where only other readers need them rounded, in place.

    ONNX Runtime's tool rounds a value for all its readers, which changes an ArgMax beside a quantized product for no
    gain. Outputs of quantized nodes stay rounded, because another reader before the QuantizeLinear makes ONNX Runtime
    compute that node in float.
    """
    maker = {name: node for node in graph.node for name in node.output}
    for node in graph.node:
        if node.op_type in _PAIR or node.name in quantized:
            continue
        for index, name in enumerate(node.input):
            unrounded = _before_the_pair(name, maker)
            if unrounded is not None and (unrounded not in maker or maker[unrounded].name not in quantized):
                node.input[index] = unrounded


def _before_the_pair(name: str, maker: dict[str, onnx.NodeProto]) -> str | None:
    """Return the value that was quantized and dequantized into `name`; None if it was not."""
    dequantize = maker.get(name)
    if dequantize is None or dequantize.op_type != _PAIR[1]:
        return None
    quantize = maker.get(dequantize.input[0])
    return quantize.input[0] if quantize is not None and quantize.op_type == _PAIR[0] else None
