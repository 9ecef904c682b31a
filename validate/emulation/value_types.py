"""The element type of every value of a graph, which decides what is rounded."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from paritygate.errors import BackendError
from paritygate.models.onnx.file import opset_of
from paritygate.models.onnx.graph import (
    OWN_DOMAINS,
    element_types,
    graphs_in,
    infer_value_types,
    schema_of,
    subgraphs_of,
)

if TYPE_CHECKING:
    import onnx

# Larger tensors become inputs of the graph that ONNX Runtime only infers types of.
_SMALL_ELEMENTS = 1024
_ELEMENT_OF_TYPE_NAME = {
    "float": "FLOAT", "float16": "FLOAT16", "bfloat16": "BFLOAT16", "double": "DOUBLE", "int64": "INT64",
    "int32": "INT32", "int16": "INT16", "int8": "INT8", "uint64": "UINT64", "uint32": "UINT32", "uint16": "UINT16",
    "uint8": "UINT8", "bool": "BOOL", "string": "STRING",
}  # fmt: skip


def infer_all_types(model: onnx.ModelProto) -> None:
    """Write the type of every node's results into the `value_info` of its graph, in place.

    The file's own types come late, because a tool that changed an operator may have left the old type. ONNX Runtime
    comes last, for its own operators. Local functions must be inlined; weights are not read. BackendError is raised
    where a type stays unknown.
    """
    declared = _take_declared(model)
    shapes = _take_output_shapes(model)
    _infer(model, declared)
    for value, shape in shapes:
        # ONNX Runtime wants those of a Scan's body.
        value.type.tensor_type.shape.CopyFrom(shape)
    missing = _untyped(model)
    if missing:
        node, name = missing[0]
        msg = f"the type of {name!r}, made by operator {node.domain or 'ai.onnx'}::{node.op_type}, is not known"
        raise BackendError(msg, hint="export the model with standard ONNX operators to emulate a precision")


def _infer(model: onnx.ModelProto, declared: list[list[onnx.ValueInfoProto]]) -> None:
    """Try one source of types after the other, until none is missing."""
    infer_value_types(model)
    for more in (
        partial(_infer_by_schemas, model.graph, {}, opset_of(model)),
        partial(_use_declared, model, declared),
        partial(_ask_onnxruntime, model),
    ):
        if not _untyped(model):
            return
        more()
        infer_value_types(model)


def _infer_by_schemas(graph: onnx.GraphProto, outer: Mapping[str, int], opset: int) -> None:
    """Add the types that results share with an input by schema; ONNX does not infer some of them in bfloat16."""
    import onnx

    types = {**outer, **element_types(graph)}
    for node in graph.node:
        for name, element in _types_shared_with_inputs(node, types, opset).items():
            types[name] = element
            graph.value_info.append(onnx.helper.make_tensor_value_info(name, element, None))
        for inner in subgraphs_of(node):
            _infer_by_schemas(inner, types, opset)


def _types_shared_with_inputs(node: onnx.NodeProto, types: Mapping[str, int], opset: int) -> dict[str, int]:
    import onnx

    schema = schema_of(node.op_type, opset) if node.domain in OWN_DOMAINS else None
    if schema is None:
        return {}
    # A variadic parameter may have another type each time.
    bound = {
        formal.type_str: types.get(name, 0)
        for formal, name in zip(schema.inputs, node.input, strict=False)
        if formal.option != onnx.defs.OpSchema.FormalParameterOption.Variadic
    }
    return {
        name: bound[formal.type_str]
        for formal, name in zip(schema.outputs, node.output, strict=False)
        if name and name not in types and bound.get(formal.type_str, 0) > 0
    }


def _use_declared(model: onnx.ModelProto, declared: list[list[onnx.ValueInfoProto]]) -> None:
    for graph, values in zip(graphs_in(model.graph), declared, strict=True):
        types = element_types(graph)
        graph.value_info.extend(value for value in values if value.name not in types)


def _take_declared(model: onnx.ModelProto) -> list[list[onnx.ValueInfoProto]]:
    """Remove the file's types of values in between, and return them by graph."""
    declared = []
    for graph in graphs_in(model.graph):
        declared.append(list(graph.value_info))
        del graph.value_info[:]
    return declared


def _take_output_shapes(model: onnx.ModelProto) -> list[tuple[onnx.ValueInfoProto, onnx.TensorShapeProto]]:
    """Remove the shapes of the graphs' outputs, and return each with its output."""
    import onnx

    taken = []
    for value in (value for graph in graphs_in(model.graph) for value in graph.output):
        # A wrong shape would stop the inference, and no shape is needed for it.
        if value.type.HasField("tensor_type") and value.type.tensor_type.HasField("shape"):
            shape = onnx.TensorShapeProto()
            shape.CopyFrom(value.type.tensor_type.shape)
            taken.append((value, shape))
            value.type.tensor_type.ClearField("shape")
    return taken


def _untyped(model: onnx.ModelProto) -> list[tuple[onnx.NodeProto, str]]:
    results: list[tuple[onnx.NodeProto, str]] = []
    for graph in graphs_in(model.graph):
        types = element_types(graph)
        results.extend((node, name) for node in graph.node for name in node.output if name and name not in types)
    return results


def _ask_onnxruntime(model: onnx.ModelProto) -> None:
    """Add ONNX Runtime's types of the untyped values of the outermost graph."""
    import onnx
    import onnxruntime

    made = {name for node in model.graph.node for name in node.output}
    names = [name for _, name in _untyped(model) if name in made]
    probe = _without_weights(model)
    probe.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        session = onnxruntime.InferenceSession(probe.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception:  # noqa: BLE001 - what it does not load it cannot tell the types of, and the caller says so
        return
    types = {value.name: value.type for value in session.get_outputs()}
    for name in names:
        element = _ELEMENT_OF_TYPE_NAME.get(types[name].removeprefix("tensor(").removesuffix(")"))
        if element:
            kind = onnx.TensorProto.DataType.Value(element)
            model.graph.value_info.append(onnx.helper.make_tensor_value_info(name, kind, None))


def _without_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    import onnx

    large = [
        tensor
        for tensor in model.graph.initializer
        if tensor.data_location == tensor.EXTERNAL or math.prod(tensor.dims) > _SMALL_ELEMENTS
    ]
    probe = onnx.ModelProto(ir_version=model.ir_version, opset_import=model.opset_import, functions=model.functions)
    graph, names = model.graph, {tensor.name for tensor in large}
    probe.graph.name = graph.name
    probe.graph.node.extend(graph.node)
    probe.graph.output.extend(graph.output)
    probe.graph.input.extend(value for value in graph.input if value.name not in names)
    probe.graph.input.extend(onnx.helper.make_tensor_value_info(each.name, each.data_type, each.dims) for each in large)
    probe.graph.initializer.extend(tensor for tensor in graph.initializer if tensor.name not in names)
    return probe
