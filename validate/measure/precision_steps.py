"""The steps of a precision: how far rounding alone moves a value, and the sentence for limits below that."""

from __future__ import annotations

import functools

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from paritygate.precision import Precision
from paritygate.validate.words.sentence import Words, say

# No default limit of a single value is below this many steps of its computation or its dtype.
LEAST_STEPS = 4
_DTYPES = {
    Precision.FP32: "float32",
    Precision.TF32: "float32",
    Precision.FP16: "float16",
    Precision.MIXED: "float16",
    Precision.BF16: "bfloat16",
}
# The largest part of a value by which a rounding to nearest moves it. Source: IEEE 754, 2 ** -(bits of mantissa + 1).
# INT8 chooses its own steps, so the arithmetic around it counts.
UNIT_ROUNDOFF = {
    Precision.FP32: 2.0**-24,
    Precision.TF32: 2.0**-11,
    Precision.FP16: 2.0**-11,
    Precision.MIXED: 2.0**-11,
    Precision.BF16: 2.0**-8,
    Precision.INT8: 2.0**-24,
}
# TF32 has the exponent of float32 and 13 bits of mantissa less.
_TF32_LOST_BITS = 13


class Step(Struct, frozen=True, kw_only=True):
    """The distance between two neighbours, of a precision or of the dtype of an output, whichever is coarser.

    An output that was computed in FP16 is often float32. The converter chooses the steps of INT8, so only the dtype
    counts.
    """

    precision: Precision
    dtype: str

    def at(self, magnitudes: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the step at each of these magnitudes.

        Source: IEEE 754: 2 ** (floor(log2 |x|) - mantissa bits), not below the smallest subnormal; TF32 by NVIDIA's
        description of its 10 bits of mantissa.
        """
        steps = _steps_of(self.dtype, magnitudes)
        dtype = _DTYPES.get(self.precision)
        if dtype is None:
            return steps
        lost = 2.0**_TF32_LOST_BITS if self.precision is Precision.TF32 else 1.0
        return np.maximum(steps, lost * _steps_of(dtype, magnitudes))


def _steps_of(dtype: str, magnitudes: NDArray[np.float64]) -> NDArray[np.float64]:
    step, smallest_normal, smallest = _steps_of_dtype(dtype)
    steps = np.ldexp(step, np.frexp(magnitudes)[1] - 1)
    return np.where(magnitudes < smallest_normal, smallest, steps)


@functools.cache
def _steps_of_dtype(dtype: str) -> tuple[float, float, float]:
    """Return the step at 1, the smallest normal number, and the smallest number."""
    import ml_dtypes

    info = ml_dtypes.finfo(dtype)
    return float(info.eps), float(info.smallest_normal), float(info.smallest_subnormal)


def below_steps(step: Step, difference: float, magnitude: float, *, is_own_limit: bool) -> Words:
    """Return the sentence for a limit exceeded by at most four steps, which may be rounding; else nothing.

    The `magnitude` is the reference's largest there. `is_own_limit` is for a limit that the user declared.
    """
    if step.precision is Precision.INT8:
        return ()
    size = float(step.at(np.array(magnitude)))
    if not difference <= LEAST_STEPS * size:
        return ()
    words = say("steps", magnitude=magnitude, precision=step.precision, steps=size, most=LEAST_STEPS)
    return words if is_own_limit else words + say("steps.own_tolerance")
