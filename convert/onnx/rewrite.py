"""Rewrite an ONNX model's names, order and dims of inputs and outputs, and its IR version.

The computation stays the same.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING

from paritygate.convert.contract import notes_left_out
from paritygate.convert.dim_expressions import are_equal
from paritygate.errors import ConversionError, UsageError
from paritygate.models.onnx.file import opset_of, signature_of_onnx
from paritygate.models.onnx.graph import graphs_in, names_in
from paritygate.models.onnx.zipmap import zip_maps
from paritygate.signature import Signature, TensorSpec

if TYPE_CHECKING:
    import onnx

# Smaller weights are stored in the file itself, because renaming one of two files breaks the model. A protocol buffer
# ends at 2 GiB; the rest is room for the graph.
EXTERNAL_DATA_BYTES = 1_800_000_000
# The element types whose values have no fixed size: undefined, and strings.
_WITHOUT_SIZE = frozenset({0, 8})
# ONNX Runtime reads version 10 since 1.18, the oldest supported here; exporters needlessly write newer ones.
_IR_VERSION = 10
# For the oldest IR version that is still written.
_OPSET_OF_IDENTITY = 8


def rename_values(model: onnx.ModelProto, names: Mapping[str, str]) -> None:
    """Rename values of the graph in place, everywhere they are used; `names` has new names by old ones.

    A value that has one of the new names, and is not renamed itself, gets a fresh one.
    """
    changed = _with_room_made(model.graph, {old: new for old, new in names.items() if old != new})
    if not changed:
        return
    for graph in graphs_in(model.graph):
        tensors = [sparse.values for sparse in graph.sparse_initializer]
        for item in (*graph.input, *graph.output, *graph.value_info, *graph.initializer, *tensors):
            item.name = changed.get(item.name, item.name)
        for annotation in graph.quantization_annotation:
            annotation.tensor_name = changed.get(annotation.tensor_name, annotation.tensor_name)
            for entry in annotation.quant_parameter_tensor_names:
                entry.value = changed.get(entry.value, entry.value)
        for node in graph.node:
            node.input[:] = [changed.get(name, name) for name in node.input]
            node.output[:] = [changed.get(name, name) for name in node.output]


def _with_room_made(graph: onnx.GraphProto, changed: dict[str, str]) -> dict[str, str]:
    """Return the renaming with one more entry for each inner value whose name is taken from it."""
    used = set(names_in(graph))
    moved = {}
    for new in changed.values():
        if new in used and new not in changed:
            fresh = f"{new}_inner"
            while fresh in used or fresh in changed.values():
                fresh += "_"
            moved[new] = fresh
    return {**changed, **moved}


def take_zip_maps_apart(model: onnx.ModelProto) -> tuple[str, ...]:
    """Replace each output of a ZipMap by its table, in place, under the same name; return notes."""
    import onnx

    graph, notes = model.graph, []
    for name, zip_map in zip_maps(model).items():
        at = next(at for at, node in enumerate(graph.node) if name in node.output)
        shape = [None, len(zip_map.classes)]
        table = onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
        next(value for value in graph.output if value.name == name).CopyFrom(table)
        made_by_nodes = {value for node in graph.node for value in node.output}
        if zip_map.table in made_by_nodes and zip_map.table not in {value.name for value in graph.output}:
            del graph.node[at]
            for other in (*graph.output, *graph.value_info):
                # The two become one value.
                other.name = zip_map.table if other.name == name else other.name
            rename_values(model, {zip_map.table: name})
        else:
            # The table needs its own name, as an input, a weight or another output.
            graph.node[at].CopyFrom(onnx.helper.make_node("Identity", [zip_map.table], [name], graph.node[at].name))
            _import_default_opset(model)
        classes = ", ".join(map(repr, zip_map.classes))
        notes.append(f"the ZipMap of {name!r} was taken apart: a table, whose columns are the classes {classes}")
    return tuple(notes)


def _import_default_opset(model: onnx.ModelProto) -> None:
    import onnx

    if opset_of(model) == 0:
        model.opset_import.append(onnx.helper.make_opsetid("", _OPSET_OF_IDENTITY))


def apply_signature(
    model: onnx.ModelProto,
    signature: Signature | None,
    rename: Mapping[str, str],
    ties: Mapping[str, str] | None = None,
) -> tuple[str, ...]:
    """Give the graph the names, the order and the symbolic dims of the signature, in place; return notes.

    None as the signature keeps order and dims. Other outputs are dropped. A dim that the graph fixes stays, because the
    check of the written file compares it. `ties` are expressions that a dim of the inputs always equals.

    Raises:
        UsageError: The graph lacks a named input or output, or needs an input that the signature lacks.
    """
    own = signature_of_onnx(model)
    names = [spec.name for spec in (*own.inputs, *own.outputs)]
    for source in rename:
        if source not in names:
            msg = f"rename names {source!r}, which the model does not have (it has: {', '.join(names)})"
            raise UsageError(msg, hint="write rename as {name in the source: name served}")
    rename_values(model, rename)
    if signature is None:
        return ()
    notes = _arrange(model, signature)
    _write_dims(model, signature, ties or {})
    return notes


def _arrange(model: onnx.ModelProto, signature: Signature) -> tuple[str, ...]:
    graph = model.graph
    inputs = {value.name: value for value in graph.input}
    outputs = {value.name: value for value in graph.output}
    constants = {tensor.name for tensor in graph.initializer}
    for side, there, wanted in (("input", inputs, signature.inputs), ("output", outputs, signature.outputs)):
        missing = [spec.name for spec in wanted if spec.name not in there]
        if missing:
            msg = f"the model has no {side} {missing[0]!r} (it has: {', '.join(there)})"
            raise UsageError(msg, hint="correct model.inputs and model.outputs, or rename: {name in the model: name}")
    fed = [spec.name for spec in signature.inputs]
    unfed = [name for name in inputs if name not in fed and name not in constants]
    if unfed:
        msg = f"the model needs the input {unfed[0]!r}, which the signature does not have (it has: {', '.join(fed)})"
        raise UsageError(msg, hint="declare all the model's inputs")
    order = [*fed, *(name for name in inputs if name in constants and name not in fed)]
    fetched = [spec.name for spec in signature.outputs]
    _reorder(graph.input, [inputs[name] for name in order])
    _reorder(graph.output, [outputs[name] for name in fetched])
    return notes_left_out([name for name in outputs if name not in fetched])


def _reorder(field: Sequence[onnx.ValueInfoProto], values: Sequence[onnx.ValueInfoProto]) -> None:
    copies = [deepcopy(value) for value in values]
    del field[:]  # type: ignore[attr-defined]
    field.extend(copies)  # type: ignore[attr-defined]


def _write_dims(model: onnx.ModelProto, signature: Signature, ties: Mapping[str, str]) -> None:
    symbols = _symbols_by_found_name(model, signature)
    for graph in graphs_in(model.graph):
        for value in (*graph.input, *graph.output, *graph.value_info):
            for dim in value.type.tensor_type.shape.dim:
                if dim.dim_param in symbols:
                    _set_dim(dim, symbols[dim.dim_param])
    promised = {spec.name: spec for spec in (*signature.inputs, *signature.outputs)}
    symbols_of_inputs = {dim for spec in signature.inputs for dim in spec.shape or ()}
    symbols_of_inputs |= {
        dim.dim_param for value in model.graph.input for dim in value.type.tensor_type.shape.dim if dim.dim_param
    }
    for value in (*model.graph.input, *model.graph.output):
        if value.name in promised:
            _write_shape(
                value,
                promised[value.name],
                symbols_of_inputs,
                lambda told, wanted: are_equal(told, wanted, signature.dims, ties),
            )


def _symbols_by_found_name(model: onnx.ModelProto, signature: Signature) -> dict[str, int | str]:
    """Return the signature's name for each symbolic dim of the graph's inputs."""
    symbols: dict[str, int | str] = {}
    for value, spec in zip(model.graph.input, signature.inputs, strict=False):
        dims = value.type.tensor_type.shape.dim
        for dim, wanted in zip(dims, spec.shape or (), strict=False):
            if not dim.dim_param or wanted is None:
                continue
            if symbols.setdefault(dim.dim_param, wanted) != wanted:
                msg = (
                    f"the model has one dim {dim.dim_param!r} where the signature has two, "
                    f"{symbols[dim.dim_param]!r} and {wanted!r}"
                )
                raise ConversionError(msg, hint="give dims that are always equal one name in model.inputs")
    return symbols


def _write_shape(
    value: onnx.ValueInfoProto, spec: TensorSpec, known: set[int | str | None], is_equal: Callable[[str, str], bool]
) -> None:
    if spec.shape is None:
        return
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        for _ in spec.shape:
            tensor.shape.dim.add()
    if len(tensor.shape.dim) != len(spec.shape):
        return
    for dim, wanted in zip(tensor.shape.dim, spec.shape, strict=True):
        if wanted is None or dim.HasField("dim_value"):
            continue
        # A dim of an input, or an expression such as 2*batch, stays in the graph. It is renamed if it always
        # equals the promised one.
        is_told = dim.dim_param in known or not re.fullmatch(r"\w*", dim.dim_param)
        is_alias = isinstance(wanted, str) and (wanted not in known or is_equal(dim.dim_param, wanted))
        if not is_told or is_alias:
            _set_dim(dim, wanted)


def _set_dim(dim: onnx.TensorShapeProto.Dimension, size: int | str) -> None:
    if isinstance(size, int):
        dim.dim_value = size
    else:
        dim.dim_param = size


def lower_ir_version(model: onnx.ModelProto, limit: int | None = None) -> str | None:
    """Lower the IR version of the model to the limit, in place; return a note if it was changed.

    Without a limit, it is the version that every supported ONNX Runtime reads, or the one published with the opset.
    """
    import onnx

    if limit is None:
        needed = onnx.helper.find_min_ir_version_for(model.opset_import, ignore_unknown=True)
        limit = max(_IR_VERSION, needed)
    if model.ir_version <= limit:
        return None
    note = f"the IR version was lowered from {model.ir_version} to {limit}, so that ONNX Runtime reads it"
    model.ir_version = limit
    return note


def is_too_large(model: onnx.ModelProto) -> bool:
    """Return whether the model with its loaded weights has to be saved as two files.

    Protobuf cannot count bytes above 2 GiB, so weights are counted by their shapes first.
    """
    import onnx

    weights = 0
    for graph in graphs_in(model.graph):
        attributes = (attribute for node in graph.node for attribute in node.attribute if attribute.HasField("t"))
        for tensor in (*graph.initializer, *(attribute.t for attribute in attributes)):
            if tensor.data_location != tensor.EXTERNAL and tensor.data_type not in _WITHOUT_SIZE:
                weights += math.prod(tensor.dims) * onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
    return weights >= EXTERNAL_DATA_BYTES or model.ByteSize() >= EXTERNAL_DATA_BYTES


def save_onnx(model: onnx.ModelProto, path: Path) -> None:
    """Write the model to `path`, its weights to a file beside it if they are too large for one."""
    import onnx

    if not is_too_large(model):
        onnx.save_model(model, str(path))
        return
    onnx.save_model(
        model, str(path), save_as_external_data=True, all_tensors_to_one_file=True, location=f"{path.name}.data"
    )
