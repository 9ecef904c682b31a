"""Which frameworks and runtimes have to be installed for a variant, besides that of its source."""

from __future__ import annotations

from paritygate.formats import ENGINE_FORMATS, FORMATS
from paritygate.pipelines.spec.schema import Spec
from paritygate.precision import Precision, Variant

__all__ = ["needed_backends"]


def needed_backends(variant: Variant, spec: Spec) -> tuple[str, ...]:
    """Return the backends that run a variant, and that quantize it.

    Args:
        variant: A target of the spec.
        spec: Says what quantizes ONNX.
    """
    needed = [FORMATS[variant.format].runtime]
    if variant.format in ENGINE_FORMATS:
        needed += ["polygraphy"]
    if _is_made_by_nncf(variant, spec):
        needed += ["nncf"]
    return tuple(needed)


def _is_made_by_nncf(variant: Variant, spec: Spec) -> bool:
    if variant.precision is not Precision.INT8:
        return False
    return variant.format == "openvino" or (
        variant.format in {"onnx", *ENGINE_FORMATS} and spec.calibration.tool == "nncf"
    )
