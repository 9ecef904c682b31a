"""Find the precision that a model's weights really have: counted by elements, tensor by tensor.

A float32 weight whose low mantissa bits are all zero exists in a lower precision as well. In trained weights that is
chance (1 in 8192 for fp16, 1 in 65536 for bf16). Where nearly all are so, the weights were rounded before they were
stored as float32.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from paritygate.precision import Precision

# From this share of the elements on, weights have the lower precision, and from the next one on they are mixed.
_NEARLY_ALL = 0.9
_SUBSTANTIAL = 0.1
# Smaller tensors hold constants such as an epsilon, or biases, which show little.
_TENSOR_ELEMENTS = 16
# A model of only such small tensors is judged by all of them, from this many elements on.
_SMALL_ELEMENTS = 64
# A tensor of so few values is a mask or a scale, whatever its size.
_FEW_VALUES = 4
_SAMPLE_ELEMENTS = 4096
_CHUNK_ELEMENTS = 1 << 17
# Mantissa bits of float32 that are zero when a value also exists in the lower precision (23 - 10 and 23 - 7).
_FP16_SPARE_BITS = np.uint32((1 << 13) - 1)
_BF16_SPARE_BITS = np.uint32((1 << 16) - 1)
# A tensor of multiples of 1/8 is a table of positions, anchors or classes, and not trained.
_TABLE_STEPS = np.float32(8)


class _Counts(Struct):
    """Elements by the stored precision, and how many float32 ones fit into a lower one."""

    fp16: int = 0
    bf16: int = 0
    fp32: int = 0
    fits_fp16: int = 0
    fits_bf16: int = 0

    @property
    def total(self) -> int:
        return self.fp16 + self.bf16 + self.fp32

    def add_stored(self, dtype: str, elements: int) -> None:
        if dtype == "float16":
            self.fp16 += elements
        elif dtype == "bfloat16":
            self.bf16 += elements
        elif dtype == "float64":
            self.fp32 += elements

    def add_float32(self, flat: NDArray[np.float32]) -> None:
        sample = _sample(flat)
        if np.unique(sample).size <= _FEW_VALUES or (_is_round(sample) and all(map(_is_round, _chunks(flat)))):
            return
        elements = fp16 = bf16 = 0
        for chunk in _chunks(flat):
            bits = chunk.view(np.uint32)
            # A zero fits into everything, and a pruned model is not a rounded one.
            zeros = chunk.size - int(np.count_nonzero(chunk))
            elements += chunk.size - zeros
            fp16 += chunk.size - int(np.count_nonzero(bits & _FP16_SPARE_BITS)) - zeros
            bf16 += chunk.size - int(np.count_nonzero(bits & _BF16_SPARE_BITS)) - zeros
        self.fp32 += elements
        self.fits_fp16 += fp16
        self.fits_bf16 += bf16


class WeightTally:
    """Counts elements of weights by precision.

    Float32 zeros, constant tensors and tables of round numbers are left out, because they exist in every precision.
    """

    def __init__(self) -> None:
        self._counts = _Counts()
        self._small_counts = _Counts()
        self._small: list[NDArray[np.float32]] = []
        self._has_float32 = False

    def add_stored(self, dtype: str, elements: int) -> None:
        """Count a tensor by its dtype alone: `float16`, `bfloat16` or `float64`; others are left out."""
        counts = self._counts if elements >= _TENSOR_ELEMENTS else self._small_counts
        counts.add_stored(dtype, elements)

    def add(self, values: NDArray[Any]) -> None:
        """Count a tensor; one of float32 by its values, which are read in chunks."""
        if values.dtype.name != "float32":
            self.add_stored(values.dtype.name, values.size)
            return
        self._has_float32 = self._has_float32 or values.size > 0
        if values.size >= _TENSOR_ELEMENTS:
            self._counts.add_float32(values.reshape(-1))
        elif values.size:
            self._small.append(values.reshape(-1).astype(np.float32))

    def precision(self) -> Precision | None:
        """Return the precision of the weights counted so far; None where they do not show it.

        A lower one has at least 90 % of the elements, stored in it or fitting into it. `mixed` has at least 10 %, else
        it is fp32.
        """
        counts = self._counts if self._counts.total else self._count_small()
        if counts.total == 0:
            return None
        if counts.bf16 + counts.fits_bf16 >= _NEARLY_ALL * counts.total:
            return Precision.BF16
        if counts.fp16 + counts.fits_fp16 >= _NEARLY_ALL * counts.total:
            return Precision.FP16
        # What fits into bf16 fits the spare bits of fp16 too, so it is counted already.
        lower = counts.fp16 + counts.bf16 + counts.fits_fp16
        return Precision.MIXED if lower >= _SUBSTANTIAL * counts.total else Precision.FP32

    def precision_of_parameters(self) -> Precision | None:
        """Return the precision where everything counted is a parameter that computes as it is stored.

        Small layers are too few to show earlier rounding, so their dtype decides. None without float parameters.
        """
        return self.precision() or (Precision.FP32 if self._has_float32 else None)

    def _count_small(self) -> _Counts:
        # A model of a thousand scalars is a model too.
        counts = replace(self._small_counts)
        if sum(part.size for part in self._small) >= _SMALL_ELEMENTS:
            counts.add_float32(np.concatenate(self._small))
        return counts


def _chunks(flat: NDArray[np.float32]) -> Iterator[NDArray[np.float32]]:
    # A tensor of any size costs the memory of one chunk, which stays in the processor's cache.
    for start in range(0, flat.size, _CHUNK_ELEMENTS):
        yield np.ascontiguousarray(flat[start : start + _CHUNK_ELEMENTS], dtype=np.float32)


def _sample(flat: NDArray[np.float32]) -> NDArray[np.float32]:
    # An odd stride does not stay in one column of a tensor with rows of even size.
    return flat[:: (flat.size // _SAMPLE_ELEMENTS) | 1]


def _is_round(values: NDArray[np.float32]) -> bool:
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.all(np.rint(values * _TABLE_STEPS) == values * _TABLE_STEPS))
