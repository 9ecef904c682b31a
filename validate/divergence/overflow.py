"""Find where an FP16 candidate goes beyond the range of FP16, by a run of it with its own weights in FP32."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from paritygate.errors import ParitygateError
from paritygate.validate.divergence.frontier import frontier_of
from paritygate.validate.divergence.matching import Matching
from paritygate.validate.divergence.sketch import Sketch, sketch_of
from paritygate.validate.tensors.emulated_values import EmulatedValues
from paritygate.validate.tensors.inner_values import read_inner
from paritygate.validate.tensors.meter import BudgetSpentError
from paritygate.validate.tensors.tensor_graph import Feed, TensorGraph

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

# The largest number in FP16.
LARGEST = 65504.0
# So many tensors are looked at.
_MOST = 64
# Rounding to FP16 parts inner tensors up to this relative error.
_ROUNDING = 1e-2


class Overflow(Struct, frozen=True, kw_only=True):
    """The first node with values beyond the range of FP16.

    `largest` is the size of its largest value in FP32, `values` is the sketch of all. `others` counts later nodes that
    overflow by themselves.
    """

    node: onnx.NodeProto
    largest: float
    values: Sketch
    others: int


def first_overflow(
    graph: TensorGraph,
    matching: Matching,
    outputs: Sequence[str],
    feeds: Sequence[Feed],
    is_right: Callable[[Mapping[str, Sketch]], bool],
) -> Overflow | None:
    """Return the first node behind the wrong outputs that makes infinities of finite values; None for none.

    `is_right` judges all outputs in FP32: if these are wrong too, precision is not the cause.
    """
    sketches = matching.sketches
    behind = frontier_of(graph, matching, outputs, _ROUNDING).visited
    suspects = {
        name: node
        for node in graph.nodes
        for name in node.output
        if name in behind
        and not sketches[name].is_finite
        and all(sketches[each].is_finite for each in graph.data_inputs(node) if each in sketches)
    }
    names = list(suspects)[:_MOST]
    if not names:
        return None
    try:
        widened = replace(graph, values=EmulatedValues(graph.model, graph.path, is_rounding=False))
        if not is_right({name: sketch_of(arrays) for name, arrays in read_inner(widened, graph.outputs, feeds)}):
            return None
        beyond = {
            name: np.concatenate([_extremes(array) for array in arrays])
            for name, arrays in read_inner(widened, names, feeds)
        }
        are_finite = all(sketches[name].is_finite for name in outputs)
        found = [name for name in names if beyond[name].size and not (are_finite and _is_mask(beyond[name]))]
        if not found:
            return None
        ((_, values),) = read_inner(widened, found[:1], feeds)
    except (ParitygateError, BudgetSpentError):
        # The search goes on without this run.
        return None
    node = suspects[found[0]]
    return Overflow(
        node=node,
        largest=float(np.abs(beyond[found[0]]).max()),
        values=sketch_of(values),
        others=len({suspects[name].name for name in found} - {node.name}),
    )


def _is_mask(beyond: NDArray[np.float64]) -> bool:
    """Return whether the extremes are one negative number, which hides positions on purpose."""
    return bool(beyond[0] < 0 and (beyond == beyond[0]).all())


def _extremes(values: NDArray[Any]) -> NDArray[np.float64]:
    beyond = values[np.isfinite(values) & (np.abs(values) > LARGEST)].astype(np.float64)
    return np.array([beyond.min(), beyond.max()]) if beyond.size else beyond
