"""Carry out a plan: change the dtypes of nodes and constants, and add one Cast for each value and dtype."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from paritygate.convert.onnx.precision.constants import ConstantRounding
from paritygate.convert.onnx.precision.low_dtype import fills_with
from paritygate.convert.onnx.precision.plan import GraphPlan, NodePlan, Value
from paritygate.models.onnx.graph import UniqueNames
from paritygate.models.onnx.weights import FLOAT, load_tensor

if TYPE_CHECKING:
    import onnx


def _cast_node(source: str, target: str, element: int, name: str) -> onnx.NodeProto:
    import onnx

    return onnx.helper.make_node("Cast", [source], [target], name=name, to=element)


class ConstantNodes(Struct, frozen=True, kw_only=True):
    """Writes nodes that make a constant."""

    rounding: ConstantRounding
    values: UniqueNames  # for names of values
    nodes: UniqueNames  # for names of nodes
    folder: Path | None  # of external data
    opset: int  # of the default operator set

    def written(self, node: onnx.NodeProto, value: Value) -> list[onnx.NodeProto]:
        """Return a Constant or ConstantOfShape node for each dtype that its value, with settled names, is wanted in."""
        nodes: list[onnx.NodeProto] = []
        for element, name in value.names.items():
            suffix = str(self.rounding.dtype.precision)
            copy = _copy(node, name, self.nodes.new(f"{node.name}_{suffix}") if nodes else node.name)
            if element == FLOAT:
                nodes.append(copy)
            elif node.op_type == "Constant":
                nodes.append(self._low_constant(copy, value.name))
            else:
                nodes.extend(self._low_fill(copy, value.name))
        return nodes

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
        cast = _cast_node(node.output[0], wanted, self.rounding.dtype.element, self.nodes.new(f"{node.name}_cast"))
        return [node, cast]


def _copy(node: onnx.NodeProto, output: str, name: str) -> onnx.NodeProto:
    copy = deepcopy(node)
    copy.output[:] = [output]
    copy.name = name
    return copy


def _set_value(node: onnx.NodeProto, tensor: onnx.TensorProto) -> None:
    import onnx

    del node.attribute[:]
    node.attribute.append(onnx.helper.make_attribute("value", tensor))


class Writer:
    """Writes a plan into the graph that it was made of."""

    def __init__(self, constants: ConstantNodes) -> None:
        self._constants = constants
        self._low = constants.rounding.dtype.element
        self._suffix = {FLOAT: "fp32", self._low: str(constants.rounding.dtype.precision)}
        self.casts_added = 0

    def write(self, plan: GraphPlan) -> None:
        """Change the graph and those inside it."""
        self._settle(plan)
        self._write_graph(plan)

    def _settle(self, plan: GraphPlan) -> None:
        """Name every value, once all its readers are known."""
        for value in plan.values.values():
            if value.cast is not None and value.wanted == {self._low}:
                value.native = self._low
            elements = value.wanted or {FLOAT} if value.constant is not None else {value.native} | value.wanted
            usual = FLOAT if value.constant is not None and FLOAT in elements else value.native
            owner = value.pinned if value.pinned in elements else usual if usual in elements else min(elements)
            for element in sorted(elements):
                name = (
                    value.name
                    if element == owner
                    else self._constants.values.new(f"{value.name}_{self._suffix[element]}")
                )
                value.names[element] = name
        for step in plan.nodes:
            for inner in step.inner:
                self._settle(inner)

    def _write_graph(self, plan: GraphPlan) -> None:
        self._write_types(plan)
        nodes: list[onnx.NodeProto] = []
        made = {value.name for step in plan.nodes for _, value in step.makes}
        for value in plan.values.values():
            if value.name not in made and value.constant is None:
                nodes.extend(self._casts(value))
        self._write_initializers(plan)
        for step in plan.nodes:
            nodes.extend(self._node(step))
        del plan.graph.node[:]
        plan.graph.node.extend(nodes)
        for position, value, element in plan.outputs:
            plan.graph.output[position].name = value.names[element]

    def _node(self, step: NodePlan) -> list[onnx.NodeProto]:
        for position, value, element in step.reads:
            step.node.input[position] = value.names[element]
        for inner in step.inner:
            self._write_graph(inner)
        if step.is_constant:
            nodes = self._constants.written(step.node, step.makes[0][1])
            self.casts_added += sum(node.op_type == "Cast" for node in nodes)
            return nodes
        nodes = [step.node]
        for position, value in step.makes:
            step.node.output[position] = value.names[value.native]
            if value.cast is not None:
                _write_target(value.cast, value.native)
            nodes.extend(self._casts(value))
        return nodes

    def _casts(self, value: Value) -> list[onnx.NodeProto]:
        """Return the nodes that make the value in the other wanted dtypes."""
        nodes = []
        for element in sorted(value.names.keys() - {value.native}):
            stem = f"{value.name}_to_{self._suffix[element]}"
            nodes.append(
                _cast_node(value.names[value.native], value.names[element], element, self._constants.nodes.new(stem))
            )
        self.casts_added += len(nodes)
        return nodes

    def _write_types(self, plan: GraphPlan) -> None:
        """Update the types that the model declared, and remove those that were only inferred."""
        graph = plan.graph
        stated = [_typed(item, plan.values.get(item.name)) for item in graph.value_info if item.name in plan.declared]
        del graph.value_info[:]
        graph.value_info.extend(stated)
        for item in graph.input:
            _typed(item, plan.values.get(item.name))
        for position, _, element in plan.outputs:
            graph.output[position].type.tensor_type.elem_type = element

    def _write_initializers(self, plan: GraphPlan) -> None:
        import onnx

        graph, rounding, folder = plan.graph, self._constants.rounding, self._constants.folder
        for tensor in list(graph.initializer):
            value = plan.values.get(tensor.name)
            if value is None or not isinstance(value.constant, onnx.TensorProto):
                continue
            low = value.names.get(self._low)
            if low is not None:
                target = graph.initializer.add() if FLOAT in value.names else tensor
                target.CopyFrom(rounding.tensor(value.name, tensor, folder))
                target.name = low
            if FLOAT in value.names:
                tensor.name = value.names[FLOAT]


def _typed(item: onnx.ValueInfoProto, value: Value | None) -> onnx.ValueInfoProto:
    for element, name in value.names.items() if value else ():
        if name == item.name:
            item.type.tensor_type.elem_type = element
    return item


def _write_target(node: onnx.NodeProto, element: int) -> None:
    for attribute in node.attribute:
        if attribute.name == "to":
            attribute.i = element
