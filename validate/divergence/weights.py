"""Describe how the constants that two nodes read differ."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from paritygate.validate.tensors.tensor_graph import TensorGraph
from paritygate.validate.words.sentence import Words, say

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

ROUNDED_TO = {"FP16": np.float16, "BF16": ml_dtypes.bfloat16}
# Weights of one checkpoint differ by rounding alone; two random tensors of equal size differ by about 1.4.
_OTHER = 0.5
_CLOSE = 1e-6
_NEAR = 0.05
_MOST_INDICES = 3
# The key of the sentence on a rounded weight.
ROUNDED = "weight.rounded"


def constants_of(graph: TensorGraph, node: onnx.NodeProto) -> dict[int, NDArray[Any]]:
    """Return the constants that the node reads, by the number of the input. Computed ones are left out."""
    found = {at: _constant(graph, name) for at, name in enumerate(node.input) if name in graph.constants}
    return {at: values for at, values in found.items() if values is not None}


def _constant(graph: TensorGraph, name: str) -> NDArray[Any] | None:
    from onnx.helper import get_attribute_value

    if name in graph.weights:
        return graph.weights[name].load()
    made = graph.producers.get(name)
    if made is None or made.domain:
        return None
    if made.op_type in {"Identity", "Cast"}:
        values = _constant(graph, made.input[0])
        return values if values is None or made.op_type == "Identity" else values.astype(_cast_to(made))
    if made.op_type != "Constant" or not made.attribute[0].name.startswith(("value_float", "value_int")):
        return None
    return np.asarray(get_attribute_value(made.attribute[0]))


def _cast_to(node: onnx.NodeProto) -> np.dtype[Any]:
    from onnx.helper import tensor_dtype_to_np_dtype

    return tensor_dtype_to_np_dtype(next(item.i for item in node.attribute if item.name == "to"))


def difference(actual: NDArray[Any], expected: NDArray[Any]) -> Words:
    """Describe how a constant differs from the reference's, such as `is zero in row 777`; empty if it does not."""
    if actual.shape != expected.shape:
        return _other_shape(actual, expected)
    if actual.dtype.kind not in "fiuV" or expected.dtype.kind not in "fiuV":
        return () if np.array_equal(actual, expected) else say("weight.other")
    one, other = actual.astype(np.float64), expected.astype(np.float64)
    return () if np.array_equal(one, other, equal_nan=True) else _of_numbers(one, other, expected)


def _of_numbers(one: NDArray[np.float64], other: NDArray[np.float64], expected: NDArray[Any]) -> Words:
    if not one.shape:
        return say("weight.scalar", candidate=float(one), reference=float(other))
    rounded = next((name for name, dtype in ROUNDED_TO.items() if _is_rounded(one, expected, dtype)), "")
    if rounded:
        return say(ROUNDED, precision=rounded)
    if one.ndim == 2 and one.shape[0] == one.shape[1] and _is_close(one, other.T):  # noqa: PLR2004 - a matrix
        return say("weight.transposed")
    return _in_some_places(one, other)


def _is_rounded(values: NDArray[np.float64], expected: NDArray[Any], dtype: Any) -> bool:  # noqa: ANN401 - a NumPy type
    with np.errstate(over="ignore"):
        return np.array_equal(values, expected.astype(dtype).astype(np.float64))


def _other_shape(actual: NDArray[Any], expected: NDArray[Any]) -> Words:
    if actual.ndim == 2 and actual.shape == expected.T.shape and _is_close(actual, expected.T):  # noqa: PLR2004 - a matrix
        return ()
    if actual.size == expected.size and _is_close(actual.reshape(-1), expected.reshape(-1)):
        return ()
    return say("weight.shape", candidate=str(list(actual.shape)), reference=str(list(expected.shape)))


def is_near(actual: NDArray[Any], expected: NDArray[Any]) -> bool:
    """Return whether two constants of one shape differ by no more than rounding to a few bits does."""
    one, other = actual.astype(np.float64), expected.astype(np.float64)
    return bool(np.linalg.norm(one - other) <= _NEAR * np.linalg.norm(other))


def _is_close(actual: NDArray[Any], expected: NDArray[Any]) -> bool:
    one, other = actual.astype(np.float64), expected.astype(np.float64)
    return bool(np.linalg.norm(one - other) <= _CLOSE * np.linalg.norm(other))


def _in_some_places(actual: NDArray[np.float64], expected: NDArray[np.float64]) -> Words:
    norm = float(np.linalg.norm(expected)) or 1.0
    off = float(np.linalg.norm(actual - expected)) / norm
    for axis, axis_name in ((0, "row"), (actual.ndim - 1, "column")):
        others = tuple(other for other in range(actual.ndim) if other != axis)
        at = np.flatnonzero((actual != expected).any(axis=others)) if others else np.flatnonzero(actual != expected)
        if 0 < at.size <= _MOST_INDICES and at.size < actual.shape[axis]:
            key = "weight.part_other" if np.take(actual, at, axis=axis).any() else "weight.part_zero"
            part = axis_name if others else "value"
            return say(key, part=part if at.size == 1 else part + "s", numbers=at.tolist())
    if not actual.any():
        return say("weight.zero")
    factor = float((actual * expected).sum() / max(float((expected**2).sum()), 1e-300))
    if factor and np.linalg.norm(actual - factor * expected) <= _CLOSE * norm:
        return say("weight.factor", factor=factor)
    return say("weight.other_checkpoint") if off > _OTHER else say("weight.close", difference=off)
