"""Limits below what a precision can hold at the size of the numbers: an honest conversion may not keep to them."""

from __future__ import annotations

from paritygate.precision import Precision
from paritygate.validate.gate.tolerance import LEAST_ULPS
from paritygate.validate.reference.profile import ulp_of

__all__ = ["below_steps", "step_of"]

_DTYPES = {
    Precision.FP32: "float32",
    Precision.TF32: "float32",
    Precision.FP16: "float16",
    Precision.MIXED: "float16",
    Precision.BF16: "bfloat16",
}
# TF32 has the exponent of float32 and 13 bits of mantissa less.
_TF32_LOST_BITS = 13


def step_of(precision: Precision, magnitude: float) -> float | None:
    """Return the distance between two neighbours of a precision at a magnitude; None for INT8, whose steps are chosen.

    Source:
        IEEE 754, as `ulp_of` has it; TF32 by NVIDIA's description of its 10 bits of mantissa.
    """
    dtype = _DTYPES.get(precision)
    if dtype is None:
        return None
    return ulp_of(magnitude, dtype) * (2**_TF32_LOST_BITS if precision is Precision.TF32 else 1)


def below_steps(precision: Precision, difference: float, magnitude: float, *, is_own_limit: bool) -> str:
    """Return what to say of a limit that a difference of no more than four steps is beyond; empty if it is larger.

    Limits keep to four steps of the output's dtype, and an output that was computed in FP16 is often float32. A
    difference of many steps is no rounding, however low the limit is.

    Args:
        precision: What the candidate is judged as.
        difference: What is beyond the limit.
        magnitude: The reference's largest magnitude there.
        is_own_limit: Whether the limit is one that the user declared.
    """
    step = step_of(precision, magnitude)
    if step is None or not difference <= LEAST_ULPS * step:
        return ""
    remark = (
        f"; limit and difference are below {LEAST_ULPS} steps of {precision} at {magnitude:.4g}, "
        f"{LEAST_ULPS * step:.3g}: rounding alone may be beyond such a limit"
    )
    return remark if is_own_limit else f"{remark}, and a tolerance of your own would say what is right"
