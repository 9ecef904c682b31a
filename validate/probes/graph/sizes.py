"""Find the inputs whose values decide how large an ONNX graph's tensors are or how often its loops run.

Twice the value takes twice the memory or time there, and a generated value may be many times those seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from paritygate.models.onnx.graph import attribute_of, subgraphs_of

if TYPE_CHECKING:
    import onnx

# The inputs at which a node takes a size, a count or a shape.
_SIZES: Mapping[str, frozenset[int]] = {
    "AffineGrid": frozenset({1}),
    "BlackmanWindow": frozenset({0}),
    "CenterCropPad": frozenset({1}),
    "Col2Im": frozenset({1}),
    "ConstantOfShape": frozenset({0}),
    "DFT": frozenset({1}),
    "Expand": frozenset({1}),
    "HammingWindow": frozenset({0}),
    "HannWindow": frozenset({0}),
    "MaxUnpool": frozenset({2}),
    "MelWeightMatrix": frozenset({0, 1}),
    "OneHot": frozenset({1}),
    "Pad": frozenset({1}),
    "Range": frozenset({0, 1, 2}),
    "Reshape": frozenset({1}),
    "Resize": frozenset({2, 3}),
    "STFT": frozenset({3}),
    "Tile": frozenset({1, 2}),
    "Upsample": frozenset({1}),
}
# Outputs that depend on the shape of the first input, not on its values.
_OF_SHAPES = frozenset({"EyeLike", "RandomNormalLike", "RandomUniformLike", "Shape", "Size"})
# Outputs that do not grow with the values: booleans, shares, places, entries of a table.
_BOUNDED = frozenset(
    {"And", "ArgMax", "ArgMin", "CategoryMapper", "Equal", "Greater", "GreaterOrEqual", "Hardmax", "IsInf", "IsNaN",
     "LabelEncoder", "Less", "LessOrEqual", "NonZero", "Not", "OneHotEncoder", "Or", "Sigmoid", "Softmax", "Tanh",
     "Xor"}
)  # fmt: skip
# The input that only chooses among values of the others.
_CHOOSING = {"Gather": 1, "GatherElements": 1, "GatherND": 1, "Where": 0}

# The inputs that a tensor's values depend on, each with whether the dependence is bounded.
_Origins = frozenset[tuple[str, bool]]
_NOTHING: _Origins = frozenset()


def inputs_of_sizes(model: onnx.ModelProto) -> frozenset[str]:
    """Return the inputs whose values reach a shape, a loop's count, or a loop's condition."""
    walk = _Walk(model)
    weights = {tensor.name for tensor in model.graph.initializer}
    inputs = [value.name for value in model.graph.input if value.name not in weights]
    walk.graph(model.graph, {name: frozenset({(name, False)}) for name in inputs})
    return frozenset(walk.found)


class _Walk:
    """Follows the inputs through a graph, its inner graphs and local functions."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.found: set[str] = set()
        self._functions = {(item.domain, item.name): item for item in model.functions}
        self._calls: list[tuple[str, str]] = []

    def graph(self, graph: onnx.GraphProto, known: Mapping[str, _Origins]) -> list[_Origins]:
        return self._through(graph.node, [value.name for value in graph.output], known)

    def _through(
        self, nodes: Iterable[onnx.NodeProto], outputs: Iterable[str], known: Mapping[str, _Origins]
    ) -> list[_Origins]:
        origins = dict(known)
        for node in nodes:
            inputs = [origins.get(name, _NOTHING) for name in node.input]
            for at in _SIZES.get(node.op_type, ()):
                self._take(inputs[at : at + 1])
            origins.update(zip(node.output, self._outputs(node, inputs, origins), strict=False))
        return [origins.get(name, _NOTHING) for name in outputs]

    def _take(self, sizes: Iterable[_Origins], *, even_bounded: bool = False) -> None:
        self.found |= {name for size in sizes for name, is_bounded in size if even_bounded or not is_bounded}

    def _outputs(
        self, node: onnx.NodeProto, inputs: list[_Origins], outer: Mapping[str, _Origins]
    ) -> Sequence[_Origins]:
        key = (node.domain, node.op_type)
        if key in self._functions and key not in self._calls:
            function = self._functions[key]
            self._calls.append(key)
            results = self._through(function.node, function.output, dict(zip(function.input, inputs, strict=False)))
            self._calls.pop()
            return results
        if node.op_type == "Loop":
            return self._loop(node, inputs, outer)
        if node.op_type == "Scan":
            return self._scan(node, inputs, outer)
        bodies = [self.graph(graph, outer) for graph in subgraphs_of(node)]
        if node.op_type == "If":
            return [_joined(*parts, _bounded(inputs[0])) for parts in zip(*bodies, strict=False)]
        if node.op_type in _OF_SHAPES:
            return []
        at = _CHOOSING.get(node.op_type)
        parts = [_bounded(origins) if place == at else origins for place, origins in enumerate(inputs)]
        whole = _joined(*parts, *(origins for body in bodies for origins in body))
        return [_bounded(whole) if node.op_type in _BOUNDED else whole] * len(node.output)

    def _loop(self, node: onnx.NodeProto, inputs: list[_Origins], outer: Mapping[str, _Origins]) -> Sequence[_Origins]:
        self._take(inputs[:1])
        self._take(inputs[1:2], even_bounded=True)
        # The body takes the round number, the condition, and the carried values.
        begin = [_NOTHING, *inputs[1:]]
        results = self._rounds(attribute_of(node, "body"), begin, outer, back=range(1, len(begin)))
        # The new condition decides on another round.
        self._take(results[:1], even_bounded=True)
        return results[1:]

    def _scan(self, node: onnx.NodeProto, inputs: list[_Origins], outer: Mapping[str, _Origins]) -> Sequence[_Origins]:
        # The scanned inputs follow the carried values.
        carried = len(inputs) - int(attribute_of(node, "num_scan_inputs", 0))
        return self._rounds(attribute_of(node, "body"), inputs, outer, back=range(carried))

    def _rounds(
        self, body: onnx.GraphProto, begin: list[_Origins], outer: Mapping[str, _Origins], *, back: range
    ) -> list[_Origins]:
        """Return the origins of a body's outputs after any number of rounds; the first re-enter at places `back`."""
        names = [value.name for value in body.input]
        while True:
            results = self.graph(body, {**outer, **dict(zip(names, begin, strict=False))})
            after = list(begin)
            for at, result in zip(back, results, strict=False):
                after[at] = _joined(begin[at], result)
            if after == begin:
                return results
            begin = after


def _joined(*parts: _Origins) -> _Origins:
    return _NOTHING.union(*parts)


def _bounded(origins: _Origins) -> _Origins:
    return frozenset((name, True) for name, _ in origins)
