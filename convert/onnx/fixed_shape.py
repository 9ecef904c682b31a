"""Fix dims of an ONNX model, for accelerators that compile a model for one shape."""

from __future__ import annotations

from typing import TYPE_CHECKING

from paritygate.convert.conversion import Conversion, ConversionJob
from paritygate.convert.onnx.rewrite import rename_values, save_onnx
from paritygate.models.fixed_shape import FixedShape
from paritygate.models.onnx.file import external_files, opset_of, read_onnx, signature_of_onnx
from paritygate.models.onnx.graph import UniqueNames, graphs_in, names_in
from paritygate.signature import TensorSpec

if TYPE_CHECKING:
    import onnx

_MAIN = "model.onnx"


def fix(job: ConversionJob, rule: FixedShape) -> Conversion:
    """Write the model as `model.onnx` with the rule's dims fixed, and shapes inferred again from them.

    An input in another dtype is cast back where it enters the graph, and a mask that was bool is true where it is not
    0. The rest of the model stays.
    """
    import onnx

    source = job.source.path
    model = read_onnx(source)
    _fix_dims(model, rule)
    casts = [_cast_input(model, name, dtype) for name, dtype in rule.dtypes.items()]
    # With the values computed from shapes, which alone fix a Reshape that follows its input.
    model = onnx.shape_inference.infer_shapes(model, data_prop=True)
    if external_files(model):
        # Not before, because the inference copies weights and does not need them.
        onnx.load_external_data_for_model(model, str(source.parent))
    save_onnx(model, job.folder / _MAIN)
    facts = {"opset": opset_of(model), "ir_version": model.ir_version}
    notes = tuple(cast for cast in casts if cast)
    return Conversion(main=_MAIN, signature=signature_of_onnx(model), notes=notes, facts=facts)


def _fix_dims(model: onnx.ModelProto, rule: FixedShape) -> None:
    # The graph may lack a dim that the signature names, as in an output that the user declared.
    declared = {spec.name: spec for spec in (*rule.signature.inputs, *rule.signature.outputs)}
    for value in (*model.graph.input, *model.graph.output):
        if value.name in declared:
            _fix_shape(value, declared[value.name], rule)
    for graph in graphs_in(model.graph):
        # Types of inner values apply to any size, and are inferred again for this one.
        del graph.value_info[:]
        for value in (*graph.input, *graph.output):
            for dim in value.type.tensor_type.shape.dim:
                if dim.dim_param in rule.dims:
                    dim.dim_value = rule.dims[dim.dim_param]
    for function in model.functions:
        if "value_info" in function.DESCRIPTOR.fields_by_name:
            del function.value_info[:]


def _fix_shape(value: onnx.ValueInfoProto, spec: TensorSpec, rule: FixedShape) -> None:
    dims = value.type.tensor_type.shape.dim
    for dim, name in zip(dims, spec.shape or (), strict=False):
        if isinstance(name, str) and name in rule.dims and not dim.HasField("dim_value"):
            dim.dim_value = rule.dims[name]


def _cast_input(model: onnx.ModelProto, name: str, dtype: str) -> str:
    """Give the input another dtype in the graph; return a note, empty if it already has it."""
    import numpy as np
    import onnx

    value = next(value for value in model.graph.input if value.name == name)
    own, target = value.type.tensor_type.elem_type, onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    if own == target:
        return ""
    inner = UniqueNames(names_in(model.graph)).new(f"{name}_in_own_dtype")
    rename_values(model, {name: inner})
    value.name = name
    value.type.tensor_type.elem_type = target
    nodes = UniqueNames(node.name for node in model.graph.node)
    cast = onnx.helper.make_node("Cast", [name], [inner], name=nodes.new(f"cast_{name}"), to=own)
    model.graph.node.insert(0, cast)
    own_name = onnx.helper.tensor_dtype_to_np_dtype(own).name
    return f"input {name} is given as {dtype} and cast to {own_name} in the graph"
