"""Convert ONNX in FP32 to an OpenVINO model in INT8, except the nodes that were chosen to stay in FP32.

OpenVINO reads the quantized ONNX file itself, so the two have the same nodes in INT8, with the same ranges.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from msgspec.structs import replace

from paritygate.convert.conversion import Conversion, ConversionJob
from paritygate.convert.onnx import onnx_to_int8
from paritygate.convert.openvino import onnx_to_openvino
from paritygate.models.source import ModelRef, SourceKind
from paritygate.precision import Precision


def convert(job: ConversionJob) -> Conversion:
    """Write the FP32 ONNX artifact as `model.xml` and `model.bin`, in INT8 except the nodes of `job.kept`.

    Raises:
        NotAvailableError: There is nothing to quantize.
    """
    with tempfile.TemporaryDirectory(dir=job.folder) as place:
        quantized = onnx_to_int8.convert(replace(job, folder=Path(place)))
        file = ModelRef(text=quantized.main, folder=Path(place), kind=SourceKind.ONNX)
        made = onnx_to_openvino.convert(replace(job, source=file, precision=Precision.INT8))
    return replace(made, notes=quantized.notes, facts={**quantized.facts, **made.facts})
