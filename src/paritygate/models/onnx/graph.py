"""Walk an ONNX graph and everything inside it: subgraphs, nodes, names, types of values.

A graph is the model's own or one inside a node (a branch of an If, the body of a Loop or Scan). Bodies of local
functions have no types and are not graphs here; `functions` inlines them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import onnx

# The domain of ONNX's own operators, under both its names.
OWN_DOMAINS = frozenset({"", "ai.onnx"})
# In place of an element type, for values that are sequences, optionals or maps.
NOT_A_TENSOR = -1
# A graph that has one of these is quantized: its precision is int8, whatever its float tensors are.
QUANTIZATION_OPERATORS = frozenset(
    {"QuantizeLinear", "DequantizeLinear", "QLinearConv", "QLinearMatMul", "ConvInteger", "MatMulInteger",
     "DynamicQuantizeLinear"}
)  # fmt: skip
# Shape inference reads the values of small tensors only, such as the shape that a Reshape is given.
_INFERENCE_BYTES = 4096


def subgraphs_of(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """Yield the graphs that are attributes of the node, not those nested in them."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def graphs_in(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """Yield the graph and every graph inside its nodes, an outer one before those inside it."""
    yield graph
    for node in graph.node:
        for inner in subgraphs_of(node):
            yield from graphs_in(inner)


def nodes_in(body: onnx.GraphProto | onnx.FunctionProto) -> Iterator[onnx.NodeProto]:
    """Yield every node of a graph or a local function, and of the graphs inside it."""
    yield from body.node
    for node in body.node:
        for inner in subgraphs_of(node):
            yield from nodes_in(inner)


def all_nodes(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """Yield every node of the model and of its local functions, and of the graphs inside them."""
    for body in (model.graph, *model.functions):
        yield from nodes_in(body)


def names_in(graph: onnx.GraphProto) -> Iterator[str]:
    """Yield the name of every value of the graph and of the graphs inside it, with repetitions."""
    for each in graphs_in(graph):
        for item in (*each.input, *each.output, *each.value_info, *each.initializer):
            yield item.name
        for sparse in each.sparse_initializer:
            yield sparse.values.name
        for node in each.node:
            yield from node.input
            yield from node.output


def attribute_of(node: onnx.NodeProto, name: str, default: Any = None) -> Any:  # noqa: ANN401 - of any kind
    """Return an attribute of a node, or the default."""
    from onnx import helper

    return next((helper.get_attribute_value(item) for item in node.attribute if item.name == name), default)


def stored_tensors(graph: onnx.GraphProto) -> dict[str, onnx.TensorProto]:
    """Return the weights of this graph and the tensors of its Constant nodes by name, not copied."""
    constants = [node for node in graph.node if node.op_type == "Constant" and node.domain in OWN_DOMAINS]
    tensors = {node.output[0]: item.t for node in constants for item in node.attribute if item.name == "value"}
    return tensors | {tensor.name: tensor for tensor in graph.initializer}


def makers_of(graph: onnx.GraphProto) -> dict[str, onnx.NodeProto]:
    """Return the node of this graph that makes each value."""
    return {name: node for node in graph.node for name in node.output if name}


def readers_of(graph: onnx.GraphProto) -> dict[str, list[onnx.NodeProto]]:
    """Return the nodes of this graph that read each value, once for each time they read it."""
    readers: dict[str, list[onnx.NodeProto]] = {}
    for node in graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node)
    return readers


def names_used_inside(node: onnx.NodeProto) -> set[str]:
    """Return the names that the graphs inside the node use, their own values included."""
    graphs = [each for inner in subgraphs_of(node) for each in graphs_in(inner)]
    outputs = {value.name for each in graphs for value in each.output}
    return outputs | {name for each in graphs for inner in each.node for name in inner.input}


def needs_of_nodes(graph: onnx.GraphProto) -> list[set[int]]:
    """Return for each node the positions of the nodes whose values it, or a graph inside it, reads."""
    makers = {name: at for at, node in enumerate(graph.node) for name in node.output if name}
    return [
        {makers[name] for name in node.input if name in makers}
        | {makers[name] for name in names_used_inside(node) if name in makers} - {at}
        for at, node in enumerate(graph.node)
    ]


def sort_nodes(graph: onnx.GraphProto) -> bool:
    """Sort the nodes in place so that each reads only earlier values, and otherwise keep their order.

    Return False, and change nothing, if nodes read their own results.
    """
    needs = needs_of_nodes(graph)
    order: list[int] = []
    done: set[int] = set()
    for first in range(len(needs)):
        way = [] if first in done else [first]
        while way:
            missing = min(needs[way[-1]] - done, default=None)
            if missing is None:
                done.add(way[-1])
                order.append(way.pop())
            elif missing in way:
                return False
            else:
                way.append(missing)
    replace_nodes(graph, [graph.node[at] for at in order])
    return True


def replace_nodes(graph: onnx.GraphProto, nodes: Iterable[onnx.NodeProto]) -> None:
    """Replace the nodes of a graph by copies of these, which may be its own."""
    kept = list(nodes)
    del graph.node[:]
    graph.node.extend(kept)


@lru_cache(maxsize=4096)
def schema_of(operator: str, opset: int, domain: str = "") -> onnx.defs.OpSchema | None:
    """Return the schema of an operator; None if the opset of the domain has no such operator."""
    import onnx

    try:
        return onnx.defs.get_schema(operator, opset, "" if domain in OWN_DOMAINS else domain)
    except onnx.defs.SchemaError:
        return None


class UniqueNames:
    """Makes names that nothing else has."""

    def __init__(self, taken: Iterable[str]) -> None:
        self._taken = set(taken)
        self._next: dict[str, int] = {}

    def new(self, stem: str) -> str:
        """Return `stem`, or `stem_1`, `stem_2`, ... where that is taken; it is taken from now on."""
        name, count = stem, self._next.get(stem, 0)
        while name in self._taken:
            count += 1
            name = f"{stem}_{count}"
        self._next[stem] = count
        self._taken.add(name)
        return name


def name_nodes(graph: onnx.GraphProto) -> None:
    """Give every node without a name of its own one, in place and inside subgraphs.

    The same graph always gets the same names: the operator, or the shared name, and a number.
    """
    nodes = list(nodes_in(graph))
    names = UniqueNames(node.name for node in nodes)
    seen: set[str] = set()
    for node in nodes:
        if not node.name or node.name in seen:
            node.name = names.new(node.name or node.op_type)
        seen.add(node.name)


def element_types(graph: onnx.GraphProto) -> dict[str, int]:
    """Return the element type (`onnx.TensorProto.DataType`) of every value that this graph has a type for.

    Values of graphs outside and inside are not included. A sequence, optional or map has `NOT_A_TENSOR`.
    `infer_value_types` adds types first.
    """
    types: dict[str, int] = {}
    for value in (*graph.value_info, *graph.input, *graph.output):
        element = element_of(value.type)
        if element:
            types[value.name] = element
    types.update((tensor.name, tensor.data_type) for tensor in graph.initializer)
    types.update((sparse.values.name, sparse.values.data_type) for sparse in graph.sparse_initializer)
    return types


def element_of(value_type: onnx.TypeProto) -> int:
    """Return the element type of a tensor, `NOT_A_TENSOR` for any other kind of value, 0 where that is unknown."""
    kind = value_type.WhichOneof("value")
    if kind == "tensor_type":
        return value_type.tensor_type.elem_type
    if kind == "sparse_tensor_type":
        return value_type.sparse_tensor_type.elem_type
    return NOT_A_TENSOR if kind else 0


def shape_of(value: onnx.ValueInfoProto) -> tuple[int | str | None, ...] | None:
    """Return the shape of a value, with open sizes as names or None; None for no tensor, or an unknown rank."""
    if not value.type.HasField("tensor_type") or not value.type.tensor_type.HasField("shape"):
        return None
    return tuple(
        dim.dim_value if dim.HasField("dim_value") and dim.dim_value >= 0 else (dim.dim_param or None)
        for dim in value.type.tensor_type.shape.dim
    )


def infer_value_types(model: onnx.ModelProto) -> None:
    """Write the type of every value that can be inferred into the `value_info` of its graph, in place.

    Existing types stay. Results of unknown operators, and values computed from them, stay untyped. External data is not
    read, and weights are not copied.
    """
    import onnx

    skeleton = _without_weights(model)
    try:
        inferred = onnx.shape_inference.infer_shapes(skeleton)
    except (onnx.shape_inference.InferenceError, RuntimeError, ValueError):
        # Contradicting shapes stop the inference, and the types so far are all there are.
        return
    for graph, typed in zip(graphs_in(model.graph), graphs_in(inferred.graph), strict=True):
        _complete(graph, typed)


def _complete(graph: onnx.GraphProto, typed: onnx.GraphProto) -> None:
    for mine, typed_values in ((graph.input, typed.input), (graph.output, typed.output)):
        for value, wanted in zip(mine, typed_values, strict=True):
            if not element_of(value.type):
                value.type.CopyFrom(wanted.type)
    there = {value.name: value for value in graph.value_info}
    for value in typed.value_info:
        if value.name not in there:
            graph.value_info.add().CopyFrom(value)
        elif not element_of(there[value.name].type):
            there[value.name].type.CopyFrom(value.type)


def _without_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy with only dtype and dims of large tensors."""
    import onnx

    skeleton = onnx.ModelProto(ir_version=model.ir_version)
    skeleton.opset_import.extend(model.opset_import)
    skeleton.functions.extend(model.functions)
    _copy_graph(skeleton.graph, model.graph)
    return skeleton


def _copy_graph(target: onnx.GraphProto, graph: onnx.GraphProto) -> None:
    target.name = graph.name
    for field in ("input", "output", "value_info", "sparse_initializer"):
        getattr(target, field).extend(getattr(graph, field))
    for tensor in graph.initializer:
        _copy_tensor(target.initializer.add(), tensor)
    for node in graph.node:
        copy = target.node.add(
            op_type=node.op_type, domain=node.domain, name=node.name, input=node.input, output=node.output
        )
        if node.HasField("overload"):
            copy.overload = node.overload
        for attribute in node.attribute:
            _copy_attribute(copy.attribute.add(), attribute)


def _copy_attribute(target: onnx.AttributeProto, attribute: onnx.AttributeProto) -> None:
    if not (attribute.HasField("t") or attribute.HasField("g") or attribute.graphs):
        target.CopyFrom(attribute)
        return
    target.name, target.type = attribute.name, attribute.type
    if attribute.HasField("t"):
        _copy_tensor(target.t, attribute.t)
    if attribute.HasField("g"):
        _copy_graph(target.g, attribute.g)
    for graph in attribute.graphs:
        _copy_graph(target.graphs.add(), graph)


def _copy_tensor(target: onnx.TensorProto, tensor: onnx.TensorProto) -> None:
    # A scan over a float tensor's fields costs nothing compared to copying gigabytes of weights.
    if tensor.data_location != tensor.EXTERNAL and tensor.ByteSize() <= _INFERENCE_BYTES:
        target.CopyFrom(tensor)
        return
    target.name, target.data_type = tensor.name, tensor.data_type
    target.dims.extend(tensor.dims)
    target.data_location = tensor.EXTERNAL
    entry = target.external_data.add()
    entry.key, entry.value = "location", "weights"
