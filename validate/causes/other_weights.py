"""Weights of the candidate's file that are none of the source's, as those of another checkpoint."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paritygate.errors import CacheMissError, ParitygateError
from paritygate.models.onnx.file import initializers_of
from paritygate.models.source import SourceKind
from paritygate.precision import Precision
from paritygate.validate.causes.cause import Case
from paritygate.validate.measure.check import NAMED, Cause
from paritygate.validate.words.sentence import say

Array = NDArray[np.generic]

# A vector, or a small table, is often computed: a bias takes in the normalisation behind it.
_LEAST_RANK, _LEAST_VALUES = 2, 4
# One other tensor is a fault in it. Another checkpoint differs in at least this share of them.
_LEAST_TENSORS, _LEAST_SHARE = 2, 0.25
# Values along each axis that are compared.
_GRID = 16
_TINY = 1e-300
# Weights of the same checkpoint may be rounded, quantized or pruned. Of another one, they differ by more than this part
# of their size where neither is zero. BF16 leaves 0.2 %, steps of INT8 leave about 1 %.
_SAME = 0.1


def find(case: Case) -> Iterator[Cause]:
    """Yield how many weights differ, if both sides' weights can be read and many differ.

    Exporters rename and transpose tensors, so values pair them. A factor for each channel is no difference, because a
    normalisation is often multiplied into the weights before it.
    """
    if case.model is None or case.model.kind is not SourceKind.ONNX or case.rules.precision is Precision.INT8:
        return
    of_source: dict[tuple[int, ...], list[NDArray[np.float64]]] = {}
    for _, shape, values in _weights(_of_reference(case)):
        of_source.setdefault(tuple(sorted(shape)), []).append(values)
    others, total = [], 0
    for name, shape, values in _weights(initializers_of(case.model.path)) if of_source else ():
        sources = of_source.get(tuple(sorted(shape)), [])
        total += bool(sources)
        if sources and not any(_is_same(values, source) for source in sources):
            others.append(name)
    if len(others) >= max(_LEAST_TENSORS, _LEAST_SHARE * total):
        words = say("cause.other_weights", count=len(others), total=total, name=others[0])
        yield Cause(kind="other_weights", outcome=NAMED, words=words)


def _of_reference(case: Case) -> Iterator[tuple[str, Any]]:
    if case.reference_file is not None:
        yield from initializers_of(case.reference_file)
        return
    try:
        runner = case.open_reference()
    except CacheMissError:
        raise
    except ParitygateError:
        # The comparison warns that it cannot be loaded.
        return
    model: Any = None if runner is None else runner.loaded.model
    if hasattr(model, "state_dict"):
        yield from ((name, tensor.detach().cpu().float().numpy()) for name, tensor in model.state_dict().items())
    elif hasattr(model, "weights"):
        yield from ((item.path, item.numpy()) for item in model.weights)


def _weights(tensors: Iterator[tuple[str, Any]]) -> Iterator[tuple[str, tuple[int, ...], NDArray[np.float64]]]:
    """Yield the name and the shape of each weight, and a grid of its values."""
    for name, array in tensors:
        if array.dtype.kind in "fV" and array.ndim >= _LEAST_RANK and array.size >= _LEAST_VALUES:
            grid = array[tuple(slice(None, None, -(-size // _GRID)) for size in array.shape)]
            yield name, array.shape, grid.astype(np.float64)


def _is_same(values: NDArray[np.float64], source: NDArray[np.float64]) -> bool:
    """Return whether one is the other with its axes in some order, except for rounding or a factor for each channel."""
    for order in itertools.permutations(range(source.ndim)):
        moved = source.transpose(order)
        if moved.shape == values.shape and (
            _is_near(values, moved)
            or any(_is_near(values, _scaled(moved, values, axis)) for axis in range(values.ndim))
        ):
            return True
    return False


def _is_near(values: NDArray[np.float64], source: NDArray[np.float64]) -> bool:
    """Return whether both differ by rounding alone. Pruned weights of the candidate do not count."""
    is_there = values != 0
    off = float(np.linalg.norm((values - source)[is_there]))
    return off <= _SAME * float(np.linalg.norm(source[is_there])) if is_there.any() else not source.any()


def _scaled(source: NDArray[np.float64], values: NDArray[np.float64], axis: int) -> NDArray[np.float64]:
    """Return the source with each channel of the axis scaled so that it comes nearest to these values."""
    if source.size < 2 * source.shape[axis]:
        # A factor for each value explains everything.
        return source
    others = tuple(other for other in range(source.ndim) if other != axis)
    squares = (source**2).sum(axis=others, keepdims=True)
    nearest: NDArray[np.float64] = (
        source * (source * values).sum(axis=others, keepdims=True) / np.maximum(squares, _TINY)
    )
    return nearest
