"""The keys of the lookup tables of an input; samples hardly ever hold all of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from paritygate.models.onnx.graph import attribute_of
from paritygate.validate.probes.inputs.thresholds import Keys

if TYPE_CHECKING:
    import onnx

    from paritygate.validate.probes.graph.flow import InputFlow

# The attributes of operators of ai.onnx.ml that hold their keys.
_KEYS: Mapping[str, tuple[str, ...]] = {
    "CategoryMapper": ("cats_int64s", "cats_strings"),
    "LabelEncoder": ("keys_int64s", "keys_floats", "keys_strings", "classes_strings"),
    "OneHotEncoder": ("cats_int64s", "cats_strings"),
}


def keys_in(graph: onnx.GraphProto, carried: Mapping[str, InputFlow]) -> tuple[Keys, ...]:
    """Return the keys of every table in which the graph looks up values of an input as they are."""
    tables = (
        Keys(values=_keys_of(node), columns=carried[node.input[0]].columns)
        for node in graph.node
        if node.op_type in _KEYS and node.input[0] in carried and carried[node.input[0]].is_raw
    )
    return tuple(dict.fromkeys(keys for keys in tables if keys.values))


def _keys_of(node: onnx.NodeProto) -> tuple[str | float, ...]:
    from onnx import numpy_helper

    keys = [key for name in _KEYS[node.op_type] for key in attribute_of(node, name, ())]
    tensor = attribute_of(node, "keys_tensor")
    if tensor is not None:
        keys += numpy_helper.to_array(tensor).reshape(-1).tolist()
    return tuple(key.decode(errors="replace") if isinstance(key, bytes) else key for key in keys)
