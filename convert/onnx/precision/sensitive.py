"""Find few, cheap nodes whose rounding changes whole outputs, which stay in FP32.

- Normalisations: each of their few factors scales a feature of all rows, so its rounding does not average out.
  LayerNormalization in FP16 alone made 40 % of the error in the logits of an ALBERT of two layers. Its sums of squares
  are the first to exceed FP16's range.
- Values computed one by one from only inputs and constants, then used as an angle or compared with a bound. A timestep
  of 999 times a frequency has steps of 0.5 in FP16, half a radian, and an age of 34.99 is 35. Outputs of layers do not
  count, because rounding reaches them anyway.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from paritygate.convert.onnx.precision.normalisations import normalising_nodes
from paritygate.models.onnx.graph import element_types, graphs_in, makers_of, nodes_in
from paritygate.models.onnx.weights import FLOAT

if TYPE_CHECKING:
    from collections.abc import Iterator

    import onnx

_ANGLES = frozenset({"Cos", "Sin", "Tan"})
_STEPS = frozenset({"Ceil", "Floor", "Mod", "Round"})
_BOUNDS = frozenset({"Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"})
_BY_VALUE = frozenset(
    {"Abs", "Add", "Cast", "Clip", "Concat", "Div", "Exp", "Expand", "Flatten", "Gather", "Identity", "Log", "Max",
     "MatMul", "Min", "Mul", "Neg", "Pow", "Reciprocal", "Reshape", "Slice", "Split", "Sqrt", "Squeeze", "Sub", "Tile",
     "Transpose", "Unsqueeze", "Where"}
)  # fmt: skip
_NORMALISED = "a normalisation in the lower precision scales whole features wrongly"
_READ = "it is computed of inputs alone and read as an angle or against a bound, which the lower precision would move"


def sensitive_nodes(graph: onnx.GraphProto) -> dict[str, str]:
    """Return the names of the nodes to keep in FP32, also inside nodes, each with the reason."""
    reasons = dict.fromkeys(normalising_nodes(graph), _NORMALISED)
    values = _Values(graph)
    for node in nodes_in(graph):
        if _is_reader(node, values):
            reasons |= dict.fromkeys(values.computing(node), _READ)
    return reasons


def _is_reader(node: onnx.NodeProto, values: _Values) -> bool:
    if node.op_type == "Cast":
        return values.is_float(node.input[0]) and not values.is_float(node.output[0])
    return not node.domain and node.op_type in _ANGLES | _STEPS | _BOUNDS


class _Values:
    """Values that are computed from inputs and constants alone, and the nodes that make them."""

    def __init__(self, graph: onnx.GraphProto) -> None:
        self._types = {name: element for each in graphs_in(graph) for name, element in element_types(each).items()}
        self._makers = {name: node for each in graphs_in(graph) for name, node in makers_of(each).items()}
        self._weights = {tensor.name for each in graphs_in(graph) for tensor in each.initializer if _is_matrix(tensor)}
        self._exact = {tensor.name for each in graphs_in(graph) for tensor in each.initializer}
        self._exact |= {item.name for item in graph.input}
        self._is_exact: dict[str, bool] = {}
        # Nodes come after those that they read from, so chains of any length can be walked.
        for name in self._makers:
            self._is_exact[name] = self._follows(name)

    def is_float(self, name: str) -> bool:
        """Return whether a value is known to be FP32."""
        return self._types.get(name) == FLOAT

    def computing(self, reader: onnx.NodeProto) -> Iterator[str]:
        """Yield the names of a reader and of the nodes behind it, where all its inputs are exact."""
        if not any(map(self.is_float, reader.input)) or not all(map(self._is_known, reader.input)):
            return
        waiting, seen = [reader], set()
        while waiting:
            node = waiting.pop()
            if node.name in seen:
                continue
            seen.add(node.name)
            # A comparison and a Cast read any dtype.
            if node.op_type not in {"Constant", "Cast", *_BOUNDS}:
                yield node.name
            waiting += [self._makers[name] for name in node.input if name in self._makers and self.is_float(name)]

    def _is_known(self, name: str) -> bool:
        return not name or name in self._exact or self._is_exact.get(name, False)

    def _follows(self, name: str) -> bool:
        node = self._makers[name]
        if node.op_type == "Constant" or (name in self._types and not self.is_float(name)):
            if any(_is_matrix(attribute.t) for attribute in node.attribute if attribute.name == "value"):
                self._weights.add(name)
            return True
        if node.domain or node.op_type not in _BY_VALUE or (node.op_type == "MatMul" and self._weighs(node)):
            return False
        return all(map(self._is_known, node.input))

    def _weighs(self, node: onnx.NodeProto) -> bool:
        """Return whether the node multiplies by a learned matrix, not by a row of frequencies."""
        return any(name in self._weights for name in node.input)


def _is_matrix(tensor: onnx.TensorProto) -> bool:
    return len([size for size in tensor.dims if size > 1]) > 1
