"""Build a TensorRT engine from ONNX, on the GPU that runs it."""

from __future__ import annotations

from paritygate.convert.conversion import Conversion, ConversionJob
from paritygate.convert.engine.build import build_engine
from paritygate.engine.library import TENSORRT


def convert(job: ConversionJob) -> Conversion:
    """Write the engine as `model.plan` and its record as `engine.json`; see `build_engine`."""
    return build_engine(job, TENSORRT)
