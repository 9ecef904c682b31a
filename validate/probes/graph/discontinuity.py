"""Decide whether a graph's computation on an input may jump, so that the output depends on rounding."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from paritygate.validate.probes.graph.flow import InputFlow, is_to_whole

if TYPE_CHECKING:
    import onnx

# Other domains (trees, local functions) are unknown.
_KNOWN = frozenset({"", "ai.onnx", "com.microsoft"})
_COMPARING = frozenset({"Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"})
# These compare, round or take remainders of computed values; loop bodies are unknown.
_JUMPING = _COMPARING | {
    "DynamicQuantizeLinear", "If", "Loop", "Mod", "QuantizeLinear", "Scan", "Sign",
}  # fmt: skip
# A tie in an output is judged as a decision; a model that computes on with it jumps.
_CHOOSING = frozenset({"ArgMax", "ArgMin", "Hardmax", "NonMaxSuppression", "NonZero", "TopK", "Unique"})
_NORMALISING = frozenset(
    {"BatchNormalization", "GroupNormalization", "InstanceNormalization", "LayerNormalization", "LpNormalization",
     "MeanVarianceNormalization", "Reciprocal", "RMSNormalization", "SimplifiedLayerNormalization", "Sqrt"}
)  # fmt: skip
_PASSING = frozenset(
    {"Cast", "Clip", "Concat", "Dropout", "Expand", "Flatten", "Gather", "Identity", "Max", "Min", "Reshape", "Slice",
     "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze", "Where"}
)  # fmt: skip
_EXACT = frozenset({"And", "IsInf", "IsNaN", "Not", "Or", "OneHot", "Shape", "Size", "Xor"}) | _COMPARING


class Steadiness(Struct, frozen=True, kw_only=True):
    """A computation: exact if it rounds and compares nothing computed, level if it has no divisor or norm."""

    is_exact: bool
    is_level: bool


class _Step(Struct, frozen=True, kw_only=True):
    op_type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    is_to_whole: bool
    is_trees: bool
    is_known: bool


class Steps:
    """The nodes of a graph, read once because every set of features is analysed separately."""

    def __init__(self, graph: onnx.GraphProto) -> None:
        self.nodes = [
            _Step(
                op_type=node.op_type,
                inputs=tuple(node.input),
                outputs=tuple(node.output),
                is_to_whole=is_to_whole(node),
                is_trees=is_trees(node),
                is_known=node.domain in _KNOWN,
            )
            for node in graph.node
        ]
        self.used = {name for node in self.nodes for name in node.inputs}
        self.has_bodies = any(attribute.HasField("g") for node in graph.node for attribute in node.attribute)


def steadiness_of(steps: Steps, carried: Mapping[str, InputFlow], columns: tuple[int, ...] | None) -> Steadiness:
    """Return the steadiness of what is computed from features (None: all) of an input, in the tensors `carried`."""
    if steps.has_bodies:
        # Bodies of branches and loops are not analysed.
        return Steadiness(is_exact=False, is_level=False)
    raw = {name: flow for name, flow in carried.items() if flow.is_raw}
    own = {
        name
        for name, flow in raw.items()
        if columns is None or flow.columns is None or set(columns) & set(flow.columns)
    }
    # A tensor of other features alone is not these, though it came from a tensor of all.
    others = raw.keys() - own
    # Whole numbers of the input itself are exact; values computed from them are not.
    computed: set[str] = set()
    is_level = True
    for node in steps.nodes:
        is_own = not own.isdisjoint(node.inputs)
        if not computed.isdisjoint(node.inputs):
            is_chosen = node.op_type in _CHOOSING and not steps.used.isdisjoint(node.outputs)
            if node.op_type in _JUMPING or node.is_to_whole or is_chosen or not node.is_known:
                return Steadiness(is_exact=False, is_level=False)
            is_level = is_level and not _is_normalised(node, computed)
            if node.op_type not in {"Shape", "Size"}:
                computed.update(node.outputs)
        elif is_own and (node.is_to_whole or node.op_type in _PASSING):
            own.update(name for name in node.outputs if name not in others)
        elif is_own and not (node.op_type in _EXACT or node.is_trees or _is_index(node, own)):
            if node.op_type in _JUMPING - _COMPARING or not node.is_known:
                return Steadiness(is_exact=False, is_level=False)
            is_level = is_level and not _is_normalised(node, own)
            computed.update(node.outputs)
    return Steadiness(is_exact=True, is_level=is_level)


def goes_on_with_choices(graph: onnx.GraphProto) -> bool:
    """Return whether the model computes on with chosen places, or may do so in bodies of branches and loops."""
    steps = Steps(graph)
    return steps.has_bodies or any(
        node.op_type in _CHOOSING and not steps.used.isdisjoint(node.outputs) for node in steps.nodes
    )


def is_trees(node: onnx.NodeProto) -> bool:
    """Return whether a node compares features with the thresholds of its trees."""
    return node.domain == "ai.onnx.ml" and node.op_type in {"TreeEnsembleClassifier", "TreeEnsembleRegressor"}


def _is_normalised(node: _Step, names: set[str]) -> bool:
    return node.op_type in _NORMALISING or (node.op_type == "Div" and node.inputs[1] in names)


def _is_index(node: _Step, own: set[str]) -> bool:
    return node.op_type.startswith("Gather") and node.inputs[0] not in own
