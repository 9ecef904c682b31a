"""The steps of a precision: what rounding alone moves a value by, and what is said of limits below that."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from paritygate.precision import Precision
from paritygate.validate.words.sentence import Words, say

if TYPE_CHECKING:
    from numpy.typing import NDArray

# No default limit of a single value is below this many steps of what the value was computed in, or is held in.
LEAST_STEPS = 4
_DTYPES = {
    Precision.FP32: "float32",
    Precision.TF32: "float32",
    Precision.FP16: "float16",
    Precision.MIXED: "float16",
    Precision.BF16: "bfloat16",
}
# What a rounding to nearest moves a value by at the most, as a part of it.
# Source: IEEE 754, 2 ** -(bits of mantissa + 1).
# INT8 chooses its own steps: there the arithmetic around it counts.
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


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """The distance between two neighbours, of a precision or of the dtype of an output, whichever is coarser.

    An output that was computed in FP16 is often float32. The steps of INT8 are chosen by the converter: there the dtype
    counts alone.
    """

    precision: Precision
    dtype: str

    def at(self, magnitudes: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the step at each of these magnitudes.

        Source:
            IEEE 754: 2 ** (floor(log2 |x|) - mantissa bits), not below the smallest subnormal; TF32 by NVIDIA's
            description of its 10 bits of mantissa.
        """
        steps = _steps_of(self.dtype, magnitudes)
        dtype = _DTYPES.get(self.precision)
        if dtype is None:
            return steps
        lost = 2.0**_TF32_LOST_BITS if self.precision is Precision.TF32 else 1.0
        return np.maximum(steps, lost * _steps_of(dtype, magnitudes))


def _steps_of(dtype: str, magnitudes: NDArray[np.float64]) -> NDArray[np.float64]:
    import ml_dtypes

    info = ml_dtypes.finfo(dtype)
    steps = np.ldexp(float(info.eps), np.frexp(magnitudes)[1] - 1)
    return np.where(magnitudes < float(info.smallest_normal), float(info.smallest_subnormal), steps)


def below_steps(step: Step, difference: float, magnitude: float, *, is_own_limit: bool) -> Words:
    """Return what to say of a limit that a difference of no more than four steps is beyond; nothing if it is larger.

    A difference of many steps is no rounding, however low the limit is.

    Args:
        step: The steps of what the candidate is judged as, and of the output.
        difference: What is beyond the limit.
        magnitude: The reference's largest magnitude there.
        is_own_limit: Whether the limit is one that the user declared.
    """
    if step.precision is Precision.INT8:
        return ()
    size = float(step.at(np.array(magnitude)))
    if not difference <= LEAST_STEPS * size:
        return ()
    words = say("steps", magnitude=magnitude, precision=step.precision, steps=size, most=LEAST_STEPS)
    return words if is_own_limit else words + say("steps.own_tolerance")
