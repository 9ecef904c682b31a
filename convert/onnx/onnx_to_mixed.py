"""Convert ONNX in FP32 to FP16 or INT8, except the nodes that were chosen to stay in FP32."""

from __future__ import annotations

from paritygate.convert.conversion import Conversion, ConversionJob
from paritygate.convert.onnx import onnx_to_int8, onnx_to_low_precision
from paritygate.errors import UsageError
from paritygate.precision import Precision

# What a model can be lowered to.
LOWER = (Precision.FP16, Precision.INT8)


def convert(job: ConversionJob) -> Conversion:
    """Write the FP32 ONNX artifact as `model.onnx`, in `job.lower` except the nodes of `job.kept`.

    Raises:
        NotAvailableError: No node would compute in the precision.
    """
    if job.lower not in LOWER:
        msg = f"a mixed model is lowered to {job.lower} (allowed: {', '.join(LOWER)})"
        raise UsageError(msg, hint="write {name: onnx-mixed, lower: fp16}")
    return onnx_to_int8.convert(job) if job.lower is Precision.INT8 else onnx_to_low_precision.convert(job)
