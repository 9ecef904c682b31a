"""Nodes that make a constant, in the dtypes in which it is wanted."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from paritygate.convert.onnx.precision.constants import ConstantRounding, load_tensor
from paritygate.convert.onnx.precision.low_dtype import FLOAT
from paritygate.convert.onnx.precision.operator_support import fills_with
from paritygate.convert.onnx.precision.plan import Value
from paritygate.models.onnx.graph import UniqueNames

if TYPE_CHECKING:
    import onnx

__all__ = ["ConstantNodes", "cast_node"]


def cast_node(source: str, target: str, element: int, name: str) -> onnx.NodeProto:
    """Return the node that makes `target`, of the element type, of `source`."""
    import onnx

    return onnx.helper.make_node("Cast", [source], [target], name=name, to=element)


@dataclass(frozen=True, kw_only=True, slots=True)
class ConstantNodes:
    """Writes nodes that make a constant.

    Attributes:
        rounding: Rounds the constants and keeps account of them.
        values: Hands out names of values.
        nodes: Hands out names of nodes.
        folder: Where external data is; None if there is none.
        opset: Version of the default operator set.
    """

    rounding: ConstantRounding
    values: UniqueNames
    nodes: UniqueNames
    folder: Path | None
    opset: int

    def written(self, node: onnx.NodeProto, value: Value) -> list[onnx.NodeProto]:
        """Return the nodes that make the constant in each dtype in which it is wanted.

        Args:
            node: The Constant or ConstantOfShape node that made it in FP32.
            value: The constant, its names settled.

        Raises:
            InputFileError: Its data cannot be read.
        """
        found: list[onnx.NodeProto] = []
        for element, name in value.names.items():
            suffix = str(self.rounding.dtype.precision)
            copy = _copy(node, name, self.nodes.new(f"{node.name}_{suffix}") if found else node.name)
            if element == FLOAT:
                found.append(copy)
            elif node.op_type == "Constant":
                found.append(self._low_constant(copy, value.name))
            else:
                found.extend(self._low_fill(copy, value.name))
        return found

    def _low_constant(self, node: onnx.NodeProto, reported: str) -> onnx.NodeProto:
        attribute = node.attribute[0]
        if attribute.name == "value":
            tensor = self.rounding.tensor(reported, attribute.t, self.folder)
        else:
            values = np.asarray(attribute.f if attribute.name == "value_float" else attribute.floats, np.float32)
            tensor = self.rounding.packed("", self.rounding.rounded(reported, values), list(values.shape))
        _set_value(node, tensor)
        return node

    def _low_fill(self, node: onnx.NodeProto, reported: str) -> list[onnx.NodeProto]:
        """Return the node that fills a shape with the value, and a Cast where it cannot make the dtype itself."""
        import onnx

        fill: NDArray[Any] = np.zeros(1, np.float32)
        for attribute in node.attribute:
            fill = load_tensor(attribute.t, self.folder)
        rounded = self.rounding.rounded(reported, fill)
        if fills_with(self.opset, self.rounding.dtype):
            _set_value(node, self.rounding.packed("", rounded, list(rounded.shape)))
            return [node]
        _set_value(node, onnx.numpy_helper.from_array(rounded.astype(np.float32)))
        wanted = node.output[0]
        node.output[:] = [self.values.new(f"{wanted}_fill")]
        cast = cast_node(node.output[0], wanted, self.rounding.dtype.element, self.nodes.new(f"{node.name}_cast"))
        return [node, cast]


def _copy(node: onnx.NodeProto, output: str, name: str) -> onnx.NodeProto:
    import onnx

    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    copy.output[:] = [output]
    copy.name = name
    return copy


def _set_value(node: onnx.NodeProto, tensor: onnx.TensorProto) -> None:
    import onnx

    del node.attribute[:]
    node.attribute.append(onnx.helper.make_attribute("value", tensor))
