"""Describe how two nodes of one operator differ: in attributes, constants and inputs."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from paritygate.models.onnx.graph import graphs_in, names_in, schema_of
from paritygate.validate.divergence.matching import Matching
from paritygate.validate.divergence.weights import constants_of, difference
from paritygate.validate.tensors.tensor_graph import TensorGraph
from paritygate.validate.words.sentence import Words, say

if TYPE_CHECKING:
    import onnx

# A graph is shown by so many of its operators.
_MOST_SHOWN = 8
_COMMUTATIVE = frozenset({"Add", "Mul", "And", "Or", "Xor", "Max", "Min", "Sum", "Mean", "Equal"})


class Sides(Struct, frozen=True, kw_only=True):
    """Both graphs, and the partners of the tensors of each in the other, within one tolerance."""

    candidate: TensorGraph
    reference: TensorGraph
    partners: Matching
    their_partners: Matching
    tolerance: float

    def start_of(self, node: onnx.NodeProto) -> list[tuple[str, str]]:
        """Return each data input of the candidate's node with its partners in the reference."""
        return [
            (name, other)
            for name in self.candidate.data_inputs(node)
            for other in self.partners.matched(name, self.tolerance)
        ]


def differences_of_nodes(
    node: onnx.NodeProto, other: onnx.NodeProto, sides: Sides, read: Sequence[str] | None = None
) -> list[Words]:
    """Return how two nodes of one operator differ in attributes, constants and inputs, one sentence each.

    `read` are the other's inputs, those empty that are not compared.
    """
    ours, theirs = attributes_of(node, sides.candidate), attributes_of(other, sides.reference)
    words = [
        say("divergence.attribute", name=name, candidate=shown(ours.get(name)), reference=shown(theirs.get(name)))
        for name in sorted(ours.keys() | theirs.keys())
        if ours.get(name) != theirs.get(name)
    ]
    order = _order(node, other, sides)
    mine, wanted = constants_of(sides.candidate, node), constants_of(sides.reference, other)
    for at in sorted(mine):
        change = difference(mine[at], wanted[order[at]]) if order[at] in wanted else ()
        if change:
            words.append(say("divergence.constant", number=at, input=node.input[at], difference=change))
    names = list(other.input) if read is None else list(read)
    for at, name in enumerate(node.input):
        wanted_name = names[order[at]] if order[at] < len(names) else ""
        is_constant, is_wanted_constant = name in sides.candidate.constants, wanted_name in sides.reference.constants
        partners = sides.partners.matched(name, sides.tolerance)
        if name and wanted_name and is_constant != is_wanted_constant:
            key = "divergence.is_constant" if is_constant else "divergence.is_computed"
            words.append(say(key, number=at, input=name))
        elif wanted_name and not is_constant and partners and wanted_name not in partners:
            words.append(say("divergence.other_input", number=at, input=name))
    return words


def _order(node: onnx.NodeProto, other: onnx.NodeProto, sides: Sides) -> Sequence[int]:
    """Return the number of the other's input for each input: a sum or a product may have them in another order."""
    order = range(len(node.input))
    if node.op_type not in _COMMUTATIVE or len(node.input) != len(other.input) or len(node.input) != 2:  # noqa: PLR2004
        return order

    def fits(name: str, wanted: str) -> bool:
        is_constant = name in sides.candidate.constants
        return is_constant == (wanted in sides.reference.constants) and (
            is_constant or wanted in sides.partners.matched(name, sides.tolerance)
        )

    straight = [fits(name, wanted) for name, wanted in zip(node.input, other.input, strict=True)]
    turned = [fits(name, wanted) for name, wanted in zip(node.input, reversed(other.input), strict=True)]
    return order if sum(straight) >= sum(turned) else order[::-1]


def attributes_of(node: onnx.NodeProto, graph: TensorGraph) -> dict[str, Any]:
    """Return the attributes of the node, defaults of its operator included."""
    import onnx

    version = next((item.version for item in graph.model.opset_import if item.domain == node.domain), 0)
    values: dict[str, Any] = {}
    schema = schema_of(node.op_type, version, node.domain)
    for name, attribute in () if schema is None else schema.attributes.items():
        if attribute.default_value.name:
            values[name] = onnx.helper.get_attribute_value(attribute.default_value)
    for item in node.attribute:
        is_shown = item.type in {item.INT, item.INTS, item.FLOAT, item.FLOATS, item.STRING, item.STRINGS}
        values[item.name] = onnx.helper.get_attribute_value(item) if is_shown else _stored(item, graph)
    return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}


class _Stored(Struct, frozen=True):
    """A graph or a tensor in an attribute: what it is, and the digest of its bytes."""

    what: str
    digest: str


def _stored(item: onnx.AttributeProto, graph: TensorGraph) -> _Stored:
    """Return a graph or a tensor of an attribute, the weights of the model that a graph reads included."""
    from onnx import numpy_helper

    if item.type == item.TENSOR and item.t.data_location != item.t.EXTERNAL and item.t.data_type != item.t.STRING:
        # Equal values may be stored in several fields.
        array = numpy_helper.to_array(item.t)
        what = f"{array.dtype.name}{list(array.shape)}"
        return _Stored(what, hashlib.sha256(what.encode() + array.tobytes()).hexdigest())
    copied = type(item)()
    copied.CopyFrom(item)
    inner = [
        each for outer in [*([copied.g] if copied.HasField("g") else []), *copied.graphs] for each in graphs_in(outer)
    ]
    operators = [node.op_type for each in inner for node in each.node]
    for remarked in (*inner, *(node for each in inner for node in each.node)):
        # The lines of code in them compute nothing.
        remarked.ClearField("doc_string")
        remarked.ClearField("metadata_props")
    digest = hashlib.sha256(copied.SerializeToString(deterministic=True))
    for name in sorted({name for each in inner for name in names_in(each)} & graph.weights.keys()):
        digest.update(graph.weights[name].load().tobytes())
    return _Stored(f"a graph of {', '.join(operators[:_MOST_SHOWN])}" if inner else "stored data", digest.hexdigest())


def shown(value: Any) -> str:  # noqa: ANN401 - the value of an attribute
    """Return the value of an attribute as text."""
    if value is None:
        return "not set"
    if isinstance(value, _Stored):
        return f"{value.what} ({value.digest[:8]})"
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(list(value)) if isinstance(value, tuple) else str(value)
