"""What an engine computes in: from the census of the network it was built from, and from the engine where it says.

An engine says the dtypes of its layers only if it was built to. The census of the network is then all there is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from paritygate.engine.library import DTYPE_OF_PRECISION, MOVING, QUANTIZE
from paritygate.precision import Precision

__all__ = ["describe_census", "precision_of_dtypes"]

# That the answers of QUANTIZE are INT8 is what tells a quantized network.
_NOT_COMPUTING = MOVING - {QUANTIZE}
# TF32 is how FLOAT is computed: no layer says it.
_PRECISIONS = {dtype: precision for precision, dtype in DTYPE_OF_PRECISION.items() if precision is not Precision.TF32}


def precision_of_dtypes(census: Mapping[str, Mapping[str, int]]) -> Precision | None:
    """Return the precision of the layers that compute: the lowest there is; None if none computes in floats.

    Args:
        census: How many outputs of layers there are, by dtype and type of layer, in the library's words.

    Returns:
        `mixed` where layers compute in FP16 and others in BF16.
    """
    found = {
        _PRECISIONS[dtype]
        for dtype, layers in census.items()
        if dtype in _PRECISIONS and any(count for layer, count in layers.items() if layer.upper() not in _NOT_COMPUTING)
    }
    if Precision.INT8 in found:
        return Precision.INT8
    if {Precision.FP16, Precision.BF16} <= found:
        return Precision.MIXED
    lower = found - {Precision.FP32}
    return lower.pop() if lower else next(iter(found), None)


def describe_census(census: Mapping[str, Mapping[str, int]]) -> str:
    """Return how many outputs of layers are of each dtype, such as `HALF 138, FLOAT 2`, the most first."""
    counts = Counter({dtype: sum(layers.values()) for dtype, layers in census.items()})
    return ", ".join(f"{dtype} {count}" for dtype, count in counts.most_common())
