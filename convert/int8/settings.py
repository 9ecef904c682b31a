"""How a model is to be quantized, as the calibration of a job says it."""

from __future__ import annotations

from dataclasses import dataclass

from paritygate.convert.conversion import Calibration, ConversionJob
from paritygate.errors import UsageError

DYNAMIC = "dynamic"
_METHODS = ("minmax", "entropy", "percentile", DYNAMIC)
_ACTIVATIONS = ("int8", "uint8")
_TOOLS = ("onnxruntime", "nncf")


@dataclass(frozen=True, kw_only=True, slots=True)
class Int8Settings:
    """How to quantize.

    Attributes:
        tool: `onnxruntime` or `nncf`.
        method: How the ranges of activations are chosen: `minmax`, `entropy` or `percentile` of the calibration
            rows; `dynamic` for ranges found at each call.
        activations: What ONNX Runtime makes of activations: `int8` with zero points of 0, which every runtime
            takes, or `uint8` with zero points of their own, which x86 processors compute fastest.
    """

    tool: str = "onnxruntime"
    method: str = "minmax"
    activations: str = "int8"

    def __post_init__(self) -> None:
        for name, value, allowed in (
            ("tool", self.tool, _TOOLS),
            ("method", self.method, _METHODS),
            ("activations", self.activations, _ACTIVATIONS),
        ):
            if value not in allowed:
                msg = f"calibration.{name} {value!r} is not known (allowed: {', '.join(allowed)})"
                raise UsageError(msg, hint=f"write calibration: {{{name}: {allowed[0]}}}")


def settings_of(job: ConversionJob) -> tuple[Int8Settings, Calibration]:
    """Return how to quantize, and by which inputs.

    Raises:
        UsageError: The job has no calibration, or one that asks for what is not known.
    """
    calibration = job.calibration
    if calibration is None:
        msg = "int8 is quantized by real inputs, and there is no calibration"
        raise UsageError(msg, hint="give calibration.source in the spec, or leave it to hold rows of samples out")
    settings = Int8Settings(tool=calibration.tool, method=calibration.method, activations=calibration.activations)
    return settings, calibration
