"""Weights of lower precision than their dtype says."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import numpy as np

from paritygate.convert.planted.kinds import NotApplicable, PlantContext, Planted
from paritygate.text import counted

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from paritygate.convert.planted.graph_edit import GraphEdit

    Weight = NDArray[np.float32]

__all__ = ["weights_bf16", "weights_fp16", "weights_int8", "weights_tf32"]

_PRODUCTS = ("MatMul", "Gemm", "Conv", "ConvTranspose")
_BF16_BITS, _TF32_BITS = 16, 13
_STEPS = 127
# The largest value of each precision; TF32 has the range of float32.
_LARGEST_FP16 = float(np.finfo(np.float16).max)
_LARGEST_BF16 = float(np.uint32(0x7F7F0000).view(np.float32))


def weights_bf16(edit: GraphEdit, context: PlantContext) -> Planted | NotApplicable:
    """Round every float32 weight to 8 bits of mantissa."""
    del context
    return _round(
        edit, edit.constants(), lambda array: _within(array, _cut(array, _BF16_BITS), _LARGEST_BF16), "bfloat16"
    )


def weights_fp16(edit: GraphEdit, context: PlantContext) -> Planted | NotApplicable:
    """Round every float32 weight to float16."""
    del context

    def rounded(array: Weight) -> Weight:
        clipped = np.clip(array, -_LARGEST_FP16, _LARGEST_FP16).astype(np.float16)
        return _within(array, clipped.astype(np.float32), _LARGEST_FP16)

    return _round(edit, edit.constants(), rounded, "float16")


def weights_tf32(edit: GraphEdit, context: PlantContext) -> Planted | NotApplicable:
    """Round the weights that products take to 10 bits of mantissa, as TF32 does; the other factor stays."""
    del context
    names = dict.fromkeys(name for node in edit.nodes(*_PRODUCTS) for name in node.input if edit.is_constant(name))
    return _round(edit, names, lambda array: _within(array, _cut(array, _TF32_BITS), np.inf), "TF32")


def weights_int8(edit: GraphEdit, context: PlantContext) -> Planted | NotApplicable:
    """Round the weights that products take to the steps of a symmetric int8 scale for each tensor."""
    del context
    names = dict.fromkeys(
        name
        for node in edit.nodes(*_PRODUCTS)
        for name in node.input[:2]
        if len(edit.shape(name) or ()) > 1 and _elements(edit, name) > 1
    )

    def rounded(array: Weight) -> Weight:
        scale = np.float32(np.abs(array).max(initial=0) / _STEPS)
        return np.round(array / scale) * scale if scale > 0 else array

    return _round(edit, names, rounded, "int8 steps")


def _within(array: Weight, rounded: Weight, largest: float) -> Weight:
    """Return rounded values, those beyond the precision's range as they were.

    What stands for minus infinity in a mask is no weight: a converter clamps it, or leaves it, and rounded it would
    drown what is planted here.
    """
    is_held = (np.abs(array) <= largest) & np.isfinite(rounded)
    return np.where(is_held, rounded, array)


def _elements(edit: GraphEdit, name: str) -> int:
    array = edit.array(name)
    return 0 if array is None else array.size


def _cut(array: Weight, bits: int) -> Weight:
    """Return float32 values rounded to the nearest, ties to even, with the last bits zero."""
    whole = array.view(np.uint32).astype(np.uint64)
    rounded = (whole + (1 << (bits - 1)) - 1 + ((whole >> bits) & 1)) >> bits << bits
    return np.where(np.isfinite(array), rounded.astype(np.uint32).view(np.float32), array)


def _round(
    edit: GraphEdit, names: Iterable[str], rounded: Callable[[Weight], Weight], to: str
) -> Planted | NotApplicable:
    changed, largest = 0, 0.0
    for name in names:
        array = edit.array(name)
        if array is None or array.dtype != np.float32 or not array.size:
            continue
        lower = rounded(np.ascontiguousarray(array).reshape(-1)).astype(np.float32).reshape(array.shape)
        if not np.array_equal(lower, array, equal_nan=True):
            changed += 1
            largest = max(largest, float(np.nanmax(np.abs(lower - array))))
            edit.set_array(name, lower)
    if not changed:
        return NotApplicable(f"no float32 weight changes when it is rounded to {to}")
    return Planted(what=f"{counted(changed, 'weight')} rounded to {to}, the largest change {largest:.3g}")
