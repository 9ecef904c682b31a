"""Find divisions, roots and logarithms that a tiny constant guards against zero, which stay in FP32.

Before a division, a value is raised to such a guard or has it added: 1e-10 for the scale of a time series, 1e-12 for a
norm. FP16 has no such number, or one of a few bits, and the quotient exceeds FP16's largest. So a row of zeros, which
FP32 handles well, becomes infinity and NaN. In FP32 stay

- the guard and its followers, up to the division, root or logarithm;
- the guarded value, back to a layer's output, because a sum of squares that is nearly zero is zero in FP16;
- nodes that carry an unbounded quotient to a normalisation, a Softmax or an output of the model. A quotient is bounded
  if its guarded divisor is computed from the dividend, as a norm is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from paritygate.convert.onnx.precision.normalisations import normalising_nodes
from paritygate.models.onnx.graph import graphs_in, makers_of, readers_of, stored_tensors

if TYPE_CHECKING:
    from collections.abc import Iterator

    import onnx

_REASON = "a constant that is tiny for the lower precision guards a division, root or logarithm here against zero"
_GUARDING = frozenset({"Add", "Clip", "Max", "Where"})
_INVERTING = frozenset({"Pow", "Reciprocal"})
_NEEDING_A_GUARD = frozenset({"Log", "Sqrt"}) | _INVERTING
_MOVING = frozenset(
    {"Concat", "Expand", "Flatten", "Gather", "Identity", "Reshape", "Slice", "Split", "Squeeze", "Tile", "Transpose",
     "Unsqueeze"}
)  # fmt: skip
_REDUCING = frozenset({"ReduceL1", "ReduceL2", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceSum", "ReduceSumSquare"})
_BY_VALUE = frozenset({"Abs", "Div", "Max", "Min", "Mul", "Neg", "Pow", "Sqrt", "Sub", "Where"})
_GUARDED = _MOVING | _REDUCING | _BY_VALUE
_SOFTMAX = frozenset({"LogSoftmax", "Softmax"})
_PROBABILITIES = _SOFTMAX | {"Sigmoid"}
_LINEAR = frozenset({"Add", "Conv", "Gemm", "MatMul", "Mul", "Neg", "Sub", "Where"}) | _MOVING


def guarding_nodes(graph: onnx.GraphProto, smallest_normal: float) -> dict[str, str]:
    """Return the names of the nodes to keep in FP32, also inside nodes, each with the reason.

    Nodes need names, and small tensors must be loaded. `smallest_normal` is the lower precision's smallest positive
    number with all bits.
    """
    taming = set(normalising_nodes(graph))
    return {name: _REASON for each in graphs_in(graph) for name in _Flow(each, taming).kept(smallest_normal)}


class _Flow:
    """Makers and readers of the values of one graph, and `taming` nodes, which accept numbers of any size."""

    def __init__(self, graph: onnx.GraphProto, taming: set[str]) -> None:
        self._graph = graph
        self._taming = taming
        self._makers = makers_of(graph)
        self._readers = readers_of(graph)
        self._constants = stored_tensors(graph)

    def kept(self, smallest_normal: float) -> Iterator[str]:
        """Yield the names of the nodes to keep, some of them more than once."""
        tiny = {name for name, tensor in self._constants.items() if _is_tiny(tensor, smallest_normal)}
        for guard in self._graph.node:
            if guard.op_type not in _GUARDING or not tiny.intersection(guard.input):
                continue
            after, divided = self._after(guard)
            if not after:
                continue
            before, sources = self._before(guard)
            yield from {guard.name} | after | before
            unbounded = {quotient for dividend, quotient in divided if not self._follows(dividend, sources)}
            yield from self._carrying(unbounded)

    def _after(self, guard: onnx.NodeProto) -> tuple[set[str], set[tuple[str, str]]]:
        """Return the names of the nodes up to all that need the guard, and each dividend with its quotient."""
        names: set[str] = set()
        divided: set[tuple[str, str]] = set()
        waiting: list[tuple[str, frozenset[str], bool]] = [(guard.output[0], frozenset(), False)]
        while waiting:
            value, way, is_inverse = waiting.pop()
            for node in self._readers.get(value, []):
                here = way | {node.name}
                if node.op_type == "Div" and value == node.input[1]:
                    names |= here
                    divided.add((node.input[0], node.output[0]))
                elif node.op_type == "Mul" and is_inverse:
                    names |= here
                    divided.add((node.input[1 if value == node.input[0] else 0], node.output[0]))
                elif node.op_type in _NEEDING_A_GUARD | _MOVING:
                    names |= here if node.op_type in _NEEDING_A_GUARD else frozenset()
                    waiting.append((node.output[0], here, is_inverse or node.op_type in _INVERTING))
        return names, divided

    def _before(self, guard: onnx.NodeProto) -> tuple[set[str], set[str]]:
        """Return the names of the nodes between the layers' outputs and a guard, and all values on the way."""
        names: set[str] = set()
        sources: set[str] = set()
        waiting = self._read(guard)
        while waiting:
            name = waiting.pop()
            if name in sources:
                continue
            sources.add(name)
            node = self._makers.get(name)
            if node is not None and node.op_type in _GUARDED | _PROBABILITIES:
                names.add(node.name)
                if node.op_type in _GUARDED:
                    waiting += self._read(node)
        return names, sources

    def _follows(self, dividend: str, sources: set[str]) -> bool:
        """Return whether a dividend vanishes with the values that a guarded divisor is computed from."""
        waiting = [dividend]
        while waiting:
            name = waiting.pop()
            node = self._makers.get(name)
            if name in sources:
                continue
            if node is None or node.op_type not in _GUARDED | {"Add"}:
                return False
            factors = sources.intersection(node.input) if node.op_type == "Mul" else set()
            if not factors:
                waiting += self._read(node)
        return True

    def _read(self, node: onnx.NodeProto) -> list[str]:
        """Return the inputs that a node computes with, without constants, shapes, indices and conditions."""
        inputs = list(node.input)
        if node.op_type == "Where":
            inputs = inputs[1:]
        elif node.op_type in _MOVING - {"Concat"}:
            inputs = inputs[:1]
        return [name for name in inputs if name and name not in self._constants]

    def _carrying(self, values: set[str]) -> Iterator[str]:
        """Yield the names of the nodes that carry values linearly to nodes for numbers of any size."""
        carried = set(values)
        carriers = []
        for node in self._graph.node:
            if node.op_type in _LINEAR and carried.intersection(node.input):
                carried.update(node.output)
                carriers.append(node)
        arriving = {item.name for item in self._graph.output}
        for node in self._graph.node:
            if carried.intersection(node.input) and (node.name in self._taming or node.op_type in _SOFTMAX):
                yield node.name
                arriving.update(node.input)
        for node in reversed(carriers):
            if arriving.intersection(node.output):
                yield node.name
                arriving.update(node.input)


def _is_tiny(tensor: onnx.TensorProto, smallest_normal: float) -> bool:
    import onnx

    if tensor.data_type != onnx.TensorProto.FLOAT or any(size != 1 for size in tensor.dims):
        return False
    return 0 < abs(float(onnx.numpy_helper.to_array(tensor).item())) < smallest_normal
