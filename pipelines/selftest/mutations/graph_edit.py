"""Edit an ONNX graph in place: find, insert and replace values, and sort nodes again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from paritygate.models.onnx.file import opset_of
from paritygate.models.onnx.functions import inline_functions
from paritygate.models.onnx.graph import (
    OWN_DOMAINS,
    UniqueNames,
    element_types,
    graphs_in,
    infer_value_types,
    name_nodes,
    names_in,
    replace_nodes,
    shape_of,
    sort_nodes,
    stored_tensors,
    subgraphs_of,
)

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

_Shape = tuple[int | str | None, ...]


class GraphEdit:
    """A model that is being changed.

    Only the model's own graph is edited; graphs inside its nodes follow renamed values. Nodes may be added in any
    order: `finish` sorts them.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        self.take(model)

    def take(self, model: onnx.ModelProto) -> None:
        """Continue with another model."""
        inline_functions(model)
        name_nodes(model.graph)
        infer_value_types(model)
        self.model = model
        self.graph = model.graph
        self._names = UniqueNames(names_in(model.graph))
        self._node_names = UniqueNames(node.name for node in model.graph.node)
        self._types = element_types(model.graph)
        values = (*self.graph.value_info, *self.graph.input, *self.graph.output)
        self._shapes = {value.name: shape for value in values if (shape := shape_of(value)) is not None}
        self._initializers = {tensor.name for tensor in self.graph.initializer}
        self._tensors = stored_tensors(self.graph)

    @property
    def opset(self) -> int:
        """The version of ONNX's own operators."""
        return opset_of(self.model)

    @property
    def inputs(self) -> list[onnx.ValueInfoProto]:
        """The fed inputs: those without an initializer."""
        return [value for value in self.graph.input if value.name not in self._initializers]

    def nodes(self, *operators: str) -> list[onnx.NodeProto]:
        """Return the nodes of ONNX's own operators of these types."""
        return [node for node in self.graph.node if node.op_type in operators and node.domain in OWN_DOMAINS]

    def producer(self, name: str) -> onnx.NodeProto | None:
        """Return the node that makes a value; None for inputs and constants."""
        return next((node for node in self.graph.node if name in node.output), None)

    def readers(self, name: str) -> list[onnx.NodeProto]:
        """Return the nodes that read a value."""
        return [node for node in self.graph.node if name in node.input]

    def dtype(self, name: str) -> np.dtype[Any] | None:
        """Return NumPy's dtype of a value; None where it is unknown or none of NumPy's."""
        import onnx

        element = self._types.get(name, 0)
        if element <= 0 or element == onnx.TensorProto.STRING:
            return None
        array_dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(element))
        return array_dtype if array_dtype.kind in "fiub" else None

    def is_float32(self, name: str) -> bool:
        """Return whether a value is float32."""
        return self.dtype(name) == np.float32

    def shape(self, name: str) -> _Shape | None:
        """Return the shape of a value, with open sizes as names or None; None for an unknown rank."""
        if (tensor := self._tensors.get(name)) is not None:
            return tuple(tensor.dims)
        return self._shapes.get(name)

    def constants(self) -> list[str]:
        """Return the names of all constants."""
        return list(self._tensors)

    def is_constant(self, name: str) -> bool:
        """Return whether a value is a constant."""
        return name in self._tensors

    def array(self, name: str) -> NDArray[Any] | None:
        """Return a copy of a constant's values; None if it is not a constant."""
        import onnx

        tensor = self._tensors.get(name)
        return None if tensor is None else np.array(onnx.numpy_helper.to_array(tensor))

    def set_array(self, name: str, array: NDArray[Any]) -> None:
        """Set other values of the same dtype and shape, for all readers of a constant."""
        import onnx

        tensor = self._tensors[name]
        tensor.CopyFrom(onnx.numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), tensor.name))

    def new_name(self, stem: str) -> str:
        """Return a name that no value has."""
        return self._names.new(stem)

    def constant(self, values: Any, dtype: Any, stem: str = "planted") -> str:  # noqa: ANN401 - as numpy takes them
        """Add a constant and return its name."""
        import onnx

        name = self._names.new(f"{stem}_constant")
        array = np.asarray(values, dtype=dtype)
        self.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
        self._initializers.add(name)
        self._tensors[name] = self.graph.initializer[-1]
        return name

    def node(self, operator: str, inputs: Sequence[str], *, output: str | None = None, **attributes: Any) -> str:  # noqa: ANN401 - as onnx takes them
        """Add a node with one output and return the output's name."""
        import onnx

        made = output or self._names.new(f"planted_{operator.lower()}")
        name = self._node_names.new(f"planted_{operator}")
        self.graph.node.append(onnx.helper.make_node(operator, list(inputs), [made], name=name, **attributes))
        return made

    def set_attribute(self, node: onnx.NodeProto, name: str, value: float | str) -> None:
        """Set an attribute of a node."""
        import onnx

        for item in [item for item in node.attribute if item.name == name]:
            node.attribute.remove(item)
        node.attribute.append(onnx.helper.make_attribute(name, value))

    def remove(self, node: onnx.NodeProto) -> None:
        """Remove a node."""
        self.graph.node.remove(node)

    def in_place_of(self, name: str) -> str:
        """Rename a node's value and return its new name; insert a value under the old name for readers and outputs."""
        producer = self.producer(name)
        assert producer is not None  # noqa: S101 - callers ask for values that nodes make
        inner = self._named_as(name)
        producer.output[:] = [inner if each == name else each for each in producer.output]
        return inner

    def before_output(self, name: str) -> str:
        """Rename the value of an output, and return its new name, which all other nodes go on reading."""
        inner = self.in_place_of(name)
        self.rename_reads({name: inner})
        return inner

    def after_input(self, name: str) -> str:
        """Return a new name that all readers of an input read from now on."""
        inner = self._named_as(name)
        self.rename_reads({name: inner})
        return inner

    def _named_as(self, name: str) -> str:
        """Return a new name for a value with the dtype and shape of this one."""
        inner = self._names.new(f"{name}_planted")
        if name in self._types:
            self._types[inner] = self._types[name]
        if name in self._shapes:
            self._shapes[inner] = self._shapes[name]
        return inner

    def rename_reads(self, names: dict[str, str]) -> None:
        """Rename what all nodes, and the graphs inside them, read."""
        for node in self.graph.node:
            for each in (node, *_nodes_inside(node)):
                each.input[:] = [names.get(name, name) for name in each.input]

    def own_constant(self, node: onnx.NodeProto, position: int) -> str:
        """Return the constant that a node reads, copied first if it has other readers."""
        name: str = node.input[position]
        if len(self.readers(name)) == 1:
            return name
        array = self.array(name)
        assert array is not None  # noqa: S101 - callers have read it
        copied = self.constant(array, array.dtype, stem=name)
        node.input[position] = copied
        return copied

    def arrange(self, order: Sequence[int]) -> None:
        """Bring the nodes into this order of their positions."""
        replace_nodes(self.graph, [self.graph.node[at] for at in order])

    def finish(self) -> onnx.ModelProto:
        """Return the model with sorted nodes, without inferred types because they may have changed."""
        sort_nodes(self.graph)
        for graph in graphs_in(self.graph):
            del graph.value_info[:]
        return self.model


def _nodes_inside(node: onnx.NodeProto) -> Iterator[onnx.NodeProto]:
    for graph in subgraphs_of(node):
        for each in graphs_in(graph):
            yield from each.node
