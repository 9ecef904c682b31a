"""Find nodes that pass on the values of their input, and the constants that make others do so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from paritygate.validate.divergence.sketch import Sketch, error_between
from paritygate.validate.divergence.weights import constants_of
from paritygate.validate.tensors.tensor_graph import TensorGraph
from paritygate.validate.words.sentence import Words, joined, say

if TYPE_CHECKING:
    import onnx

# With this constant, the operator passes on its other input; all but the first two read it as their second input.
_NEUTRAL = {"Add": 0.0, "Mul": 1.0, "Sub": 0.0, "Div": 1.0, "Pow": 1.0}
_COMMUTATIVE = ("Add", "Mul")
# These pass on values whatever they are.
MOVING = frozenset({"Identity", "Cast", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Dropout"})
_EQUAL = 1e-7
_STEPS = 4


def passed_on(node: onnx.NodeProto, graph: TensorGraph, sketches: Mapping[str, Sketch]) -> str | None:
    """Return the input whose values the node's output has, such as that of a Cast or an addition of 0."""
    inputs = graph.data_inputs(node)
    if len(inputs) != 1 or len(node.output) != 1 or inputs[0] not in sketches or node.output[0] not in sketches:
        return None
    return inputs[0] if error_between(sketches[node.output[0]], sketches[inputs[0]]) <= _EQUAL else None


def passing_before(
    node: onnx.NodeProto, graph: TensorGraph, sketches: Mapping[str, Sketch]
) -> Sequence[onnx.NodeProto]:
    """Return the nodes that pass on values to this one, nearest first."""
    found: dict[str, onnx.NodeProto] = {}
    front = list(graph.data_inputs(node))
    for _ in range(_STEPS):
        makers = [graph.producers[name] for name in front if name in graph.producers]
        before = {maker.name: passed_on(maker, graph, sketches) for maker in makers}
        found.update({maker.name: maker for maker in makers if before[maker.name] is not None})
        front = [name for name in before.values() if name is not None]
    return list(found.values())


def constant_words(nodes: Sequence[onnx.NodeProto], graph: TensorGraph, *, is_candidate: bool) -> Words:
    """Return by which constants one side differs that alone has these nodes; empty unless constants explain all.

    The other side computes as if it had each node with the constant that passes on its input: an optimizer folds an
    addition of 0.
    """
    words = []
    for node in nodes:
        value = _scalar(node, graph)
        if value is None:
            return ()
        neutral = _NEUTRAL[node.op_type]
        words.append(
            say("divergence.constant_here", operator=node.op_type, candidate=value, reference=neutral)
            if is_candidate
            else say("divergence.constant_there", operator=node.op_type, candidate=neutral, reference=value)
        )
    return joined(words, "; ") if words else ()


def _scalar(node: onnx.NodeProto, graph: TensorGraph) -> float | None:
    """Return the one value of the constant operand; None for an operator that no constant makes neutral."""
    if node.op_type not in _NEUTRAL or node.domain:
        return None
    constants = constants_of(graph, node)
    if len(constants) != 1 or (node.op_type not in _COMMUTATIVE and 1 not in constants):
        return None
    (values,) = constants.values()
    flat = values.reshape(-1).astype(np.float64)
    return float(flat[0]) if flat.size and (flat == flat[0]).all() else None
