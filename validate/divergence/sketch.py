"""A small summary of a tensor's values, by which tensors of two models are matched in little memory.

A tensor of at most `_MOST` values is kept whole. A larger one becomes `_MOST` sums of values with random signs: the
count sketch of Charikar, Chen and Farach-Colton (2002). It is linear, so the sketch of a difference is the difference
of the sketches. One wrong value changes one sum by its whole error.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MOST = 1024
_SEED = 20261127
# Values larger than this many typical ones are summed on their own.
_HUGE = 200.0
# Rounding errors in one sum add up like a random walk: this many standard deviations are expected of none.
_DEVIATIONS = 5.0


class Sketch(Struct, frozen=True, kw_only=True):
    """Summarize the values of a tensor over several batches.

    `kind` is `f` for floats, `i` for whole numbers, `b` for booleans, `t` for text and `x` for anything else. `sizes`
    is the number of values in each batch. `values` are the sums, or all values, of each batch one after the other,
    float64, shape `(n,)`. `scale` has the size that a relative error of 1 in every value has in each of them, float64,
    shape `(n,)`. `is_flat` means that all values are equal, so a match shows little. `is_finite` means that none is
    NaN or infinite. `labels` are the keys of a map.
    """

    kind: str
    sizes: tuple[int, ...]
    values: NDArray[np.float64]
    scale: NDArray[np.float64]
    is_flat: bool
    dtype: str
    is_finite: bool = True
    labels: tuple[str, ...] = ()

    @property
    def key(self) -> tuple[str, tuple[int, ...], tuple[str, ...]]:
        """What two tensors that match have in common."""
        return self.kind, self.sizes, self.labels


def sketch_of(arrays: Sequence[NDArray[Any]]) -> Sketch:
    """Return the sketch of one tensor; `arrays` has one array of any shape for each batch."""
    dtype, labels = arrays[0].dtype.name, arrays[0].dtype.names or ()
    if labels:
        arrays = [np.stack([array[label] for label in labels], axis=-1) for array in arrays]
    kind = kind_of(arrays[0])
    if kind == "x":
        empty, sizes = np.empty(0), tuple(array.size for array in arrays)
        return Sketch(kind=kind, sizes=sizes, values=empty, scale=empty, is_flat=True, dtype=dtype)
    parts = [_part(_numbers(array, kind)) for array in arrays]
    return Sketch(
        kind=kind,
        sizes=tuple(array.size for array in arrays),
        values=np.concatenate([values for values, _, _ in parts]),
        scale=np.concatenate([scale for _, scale, _ in parts]),
        is_flat=all(_is_flat(array) for array in arrays),
        dtype=dtype,
        is_finite=all(is_finite for _, _, is_finite in parts),
        labels=labels,
    )


def _is_flat(array: NDArray[np.generic]) -> bool:
    flat = array.reshape(-1)
    return bool((flat == flat[:1]).all())


def kind_of(array: NDArray[Any]) -> str:
    """Return the kind of the values, as `Sketch` has it; a map is of the kind of its values."""
    dtype = array.dtype if array.dtype.names is None else array.dtype[0]
    if dtype.kind == "f" or dtype.name == "bfloat16":
        return "f"
    return {"i": "i", "u": "i", "b": "b", "O": "t", "U": "t", "S": "t"}.get(dtype.kind, "x")


def _numbers(array: NDArray[np.generic], kind: str) -> NDArray[np.float64]:
    if kind == "t":
        return np.array([zlib.crc32(str(text).encode()) for text in array.reshape(-1).tolist()], dtype=np.float64)
    return array.reshape(-1).astype(np.float64)


def _part(values: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64], bool]:
    # NaN and infinities become large numbers of their own, so that they match only each other.
    is_finite = np.isfinite(values)
    are_finite = bool(is_finite.all())
    if not are_finite:
        largest = float(np.abs(values[is_finite]).max(initial=0.0)) or 1.0
        values = np.nan_to_num(values, nan=3e3 * largest, posinf=5e3 * largest, neginf=-7e3 * largest)
    size = _typical(values)
    if values.size <= _MOST:
        return values, size + np.abs(values), are_finite
    # Numbers such as the -10,000 of a mask are far larger than all others, and would hide these in a sum.
    is_huge = np.abs(values) > _HUGE * size
    rows = -(-values.size // _MOST)
    signed = values * _signs(values.size)
    huge = float(np.abs(values[is_huge]).max(initial=0.0))
    parts = [_sums(np.where(is_huge, 0.0, signed), rows), _sums(np.where(is_huge, signed, 0.0), rows)]
    spread = _DEVIATIONS * np.sqrt(rows)
    return np.concatenate(parts), np.repeat([spread * size, spread * (huge or size)], _MOST), are_finite


def _typical(values: NDArray[np.float64]) -> float:
    """Return the root mean square of the values, without those that are far larger than most."""
    sizes = np.abs(values[values != 0])
    if not sizes.size:
        return 0.0
    most = sizes[sizes <= _HUGE * float(np.median(sizes))]
    largest = float(most.max())
    return float(np.sqrt(np.square(most / largest).mean() * most.size / values.size)) * largest


def _sums(values: NDArray[np.float64], rows: int) -> NDArray[np.float64]:
    padded = np.zeros(rows * _MOST)
    padded[: values.size] = values
    sums: NDArray[np.float64] = padded.reshape(rows, _MOST).sum(axis=0)
    return sums


@functools.lru_cache(maxsize=64)
def _signs(size: int) -> NDArray[np.int8]:
    signs: NDArray[np.int8] = np.random.default_rng(_SEED).integers(0, 2, size, dtype=np.int8) * 2 - 1
    return signs


def error_between(actual: Sketch, expected: Sketch) -> float:
    """Return the largest relative error of `actual`; 0 or 1 without floats; infinity if sizes or kinds differ.

    It is relative to the size of a value plus the root mean square of the whole tensor.
    """
    if actual.key != expected.key or actual.kind == "x":
        return float("inf")
    off = np.abs(actual.values - expected.values)
    if actual.kind != "f":
        return float(off.any())
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(np.nan_to_num(off / expected.scale, nan=0.0, posinf=np.inf).max(initial=0.0))
