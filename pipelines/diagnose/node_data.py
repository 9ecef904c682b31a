"""Keep data of the user out of the nodes of minimal models: weights, tables and remarks in attributes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import onnx

# Longer lists in attributes may be weights or tables; axes, pads and names of activations are shorter.
_MOST_NUMBERS, _MOST_WHOLE, _MOST_BYTES = 6, 16, 64


def holds_data(node: onnx.NodeProto) -> bool:
    """Return whether an attribute may hold weights, tables or nodes, which cannot be drawn."""
    return any(_is_data(item, node.domain) for item in node.attribute)


def _is_data(item: onnx.AttributeProto, domain: str) -> bool:
    # The lists of this domain are what a model has learned: trees, coefficients, labels.
    is_learned = domain == "ai.onnx.ml"
    if item.type in {item.INT, item.FLOAT}:
        return False
    if item.type == item.INTS:
        return len(item.ints) > (1 if is_learned else _MOST_WHOLE)
    if item.type == item.FLOATS:
        return len(item.floats) > (1 if is_learned else _MOST_NUMBERS)
    if item.type in {item.STRING, item.STRINGS}:
        most = 1 if is_learned else _MOST_NUMBERS
        return len(item.strings) > most or max(map(len, [item.s, *item.strings])) > _MOST_BYTES
    if item.type == item.TENSOR:
        is_elsewhere = item.t.data_location == item.t.EXTERNAL
        return is_elsewhere or int(np.prod(item.t.dims)) > (0 if is_learned else _MOST_NUMBERS)
    # Graphs, sparse tensors, and whatever a later version adds.
    return item.type != item.TYPE_PROTO


def without_remarks(node: onnx.NodeProto) -> onnx.NodeProto:
    """Return a copy without what exporters note in it, such as lines of a user's code."""
    copy = type(node)()
    copy.CopyFrom(node)
    for remarked in (copy, *copy.attribute, *(item.t for item in copy.attribute if item.HasField("t"))):
        for field in ("doc_string", "metadata_props"):
            if field in remarked.DESCRIPTOR.fields_by_name:
                remarked.ClearField(field)
    return copy
