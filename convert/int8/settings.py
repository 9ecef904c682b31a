"""Read the settings of quantization from the calibration of a job."""

from __future__ import annotations

from msgspec import Struct

from paritygate.convert.conversion import Calibration, ConversionJob
from paritygate.errors import UsageError

DYNAMIC = "dynamic"
_METHODS = ("minmax", "entropy", "percentile", DYNAMIC)
_ACTIVATIONS = ("int8", "uint8")
_TOOLS = ("onnxruntime", "nncf")


class Int8Settings(Struct, frozen=True, kw_only=True):
    """The settings of quantization.

    Method `dynamic` finds ranges at each call, the others from calibration rows. Activations in `int8` have zero points
    of 0, which every runtime supports. In `uint8` they have their own, which x86 processors compute fastest.
    """

    tool: str = "onnxruntime"  # or nncf
    method: str = "minmax"  # or entropy, percentile, dynamic
    activations: str = "int8"  # or uint8

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
    """Return the settings of quantization, and the calibration; raise UsageError if it is missing or unknown."""
    calibration = job.calibration
    if calibration is None:
        msg = "int8 needs real inputs for calibration (got none)"
        raise UsageError(msg, hint="give calibration.source in the spec, or leave it out to hold out rows of samples")
    settings = Int8Settings(tool=calibration.tool, method=calibration.method, activations=calibration.activations)
    return settings, calibration
