"""Read an ONNX file: signature, opset, external data, the precision found, and its soundness."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from paritygate.errors import InputFileError
from paritygate.file_names import check_names
from paritygate.models.onnx.graph import QUANTIZATION_OPERATORS, all_nodes, graphs_in, shape_of, subgraphs_of
from paritygate.models.onnx.zipmap import zip_maps
from paritygate.precision import Precision
from paritygate.signature import Signature, TensorSpec
from paritygate.text import a_or_an, first_line

if TYPE_CHECKING:
    import numpy as np
    import onnx
    from numpy.typing import NDArray

_FLOAT32_BYTES = 4
# For a valid file that ONNX Runtime loads only without graph optimisations.
OPTIMISER_HINT = (
    "it loads without graph optimisations: use another version of onnxruntime, or turn them off where you serve it"
)


def read_onnx(path: Path) -> onnx.ModelProto:
    """Return the model in `path`, its external data not loaded.

    Raises:
        InputFileError: The file is missing or no ONNX model, or its external data is missing or outside its folder.
    """
    import onnx
    from google.protobuf.message import DecodeError

    if not path.is_file():
        raise InputFileError(f"model {path} does not exist", hint="give the path of a .onnx file")
    try:
        model = onnx.load(str(path), load_external_data=False)
    except (DecodeError, ValueError, RuntimeError) as err:
        msg = f"{path} is not an ONNX model: {first_line(err)}"
        raise InputFileError(msg, hint="export the model again; the file may be cut off or in another format") from err
    if not model.graph.node and not model.graph.output:
        msg = f"{path} is not an ONNX model: its graph is empty ({path.stat().st_size} bytes)"
        raise InputFileError(msg, hint="export the model again; the file may be cut off or in another format")
    _check_names(model, path)
    _check_external_data(model, path)
    return model


def _check_names(model: onnx.ModelProto, path: Path) -> None:
    """Check that every name is text, because protobuf returns bytes for what is not UTF-8."""
    for name in _names(model):
        if not isinstance(name, str):
            msg = f"{path} is not an ONNX model: the name {name!r} in it is not UTF-8"
            raise InputFileError(msg, hint="export the model again, with names that are text")


def _names(model: onnx.ModelProto) -> Iterator[object]:
    import onnx

    yield from (entry.domain for entry in model.opset_import)
    for function in model.functions:
        yield from (function.name, function.domain, *function.input, *function.output)
    for graph in _all_graphs(model):
        for node in graph.node:
            yield from (node.name, node.op_type, node.domain, *node.input, *node.output)
            yield from (attribute.name for attribute in node.attribute)
        if isinstance(graph, onnx.GraphProto):
            for value in (*graph.input, *graph.output, *graph.value_info):
                yield value.name
                yield from (dim.dim_param for dim in value.type.tensor_type.shape.dim)
    for tensor in _tensors(model):
        yield tensor.name
        yield from itertools.chain.from_iterable((entry.key, entry.value) for entry in tensor.external_data)


def _check_external_data(model: onnx.ModelProto, path: Path) -> None:
    folder = path.parent.resolve()
    for tensor in _tensors(model):
        if not tensor.external_data:
            continue
        name, offset, length = _place_of_external_data(tensor)
        try:
            check_names([name])
        except ValueError as err:
            msg = f"{path} refers to external data outside its folder: {err}"
            raise InputFileError(msg, hint="move the data beside the model and export it again") from err
        data = folder / name
        if not data.resolve().is_relative_to(folder):
            msg = f"{path} refers to external data outside its folder: {name!r}"
            raise InputFileError(msg, hint="move the data beside the model and export it again")
        if not data.is_file():
            msg = f"{path} refers to external data that is missing: {name!r}"
            raise InputFileError(msg, hint="copy the data file beside the model, under the name it refers to")
        if data.stat().st_size < offset + length:
            msg = f"{path} refers to {offset + length} bytes of {name!r}, but that file has only {data.stat().st_size}"
            raise InputFileError(msg, hint="copy the data file again, or export the model again")


def _place_of_external_data(tensor: onnx.TensorProto) -> tuple[str, int, int]:
    """Return file name, offset and length in bytes of a tensor whose data is in another file."""
    entries = {entry.key: entry.value for entry in tensor.external_data}
    try:
        offset, length = int(entries.get("offset", "0")), int(entries.get("length", "0"))
    except ValueError:
        offset = length = -1
    length = max(length, _elements(tensor) * _FLOAT32_BYTES if _weight_dtype(tensor) == "float32" else 0)
    location = entries.get("location", "")
    if offset < 0 or length < 0 or not location or "\0" in location:
        msg = f"the external data of tensor {tensor.name!r} is not valid: {entries}"
        raise InputFileError(msg, hint="export the model again with location, offset and length")
    # `./weights.bin` is the same file as `weights.bin`.
    return "/".join(part for part in location.split("/") if part != "."), offset, length


def check_onnx(path: Path) -> None:
    """Check the file with onnx.checker, full check included; raise InputFileError if it is not valid."""
    import onnx

    read_onnx(path)
    try:
        onnx.checker.check_model(str(path), full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError, ValueError, RuntimeError) as err:
        msg = f"{path} is not valid ONNX: {first_line(err)}"
        raise InputFileError(msg, hint="export the model again with another opset or exporter") from err


def _all_graphs(model: onnx.ModelProto) -> Iterator[onnx.GraphProto | onnx.FunctionProto]:
    yield from graphs_in(model.graph)
    for function in model.functions:
        yield function
        for node in function.node:
            for inner in subgraphs_of(node):
                yield from graphs_in(inner)


def _initializers(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    import onnx

    for graph in _all_graphs(model):
        if isinstance(graph, onnx.GraphProto):
            yield from graph.initializer
            for sparse in graph.sparse_initializer:
                yield from (sparse.values, sparse.indices)


def _tensors(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    yield from _initializers(model)
    for node in all_nodes(model):
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
            for sparse in (attribute.sparse_tensor, *attribute.sparse_tensors):
                yield from (sparse.values, sparse.indices)


def initializers_of(path: Path) -> Iterator[tuple[str, NDArray[np.generic]]]:
    """Yield name and value of each initializer and constant of the file, one at a time."""
    import onnx

    model = read_onnx(path)
    for graph in _all_graphs(model):
        tensors = [(tensor.name, tensor) for tensor in getattr(graph, "initializer", ())]
        constants = [(node.output[0], item.t) for node in graph.node for item in node.attribute if item.name == "value"]
        for name, tensor in (*tensors, *constants):
            yield name, onnx.numpy_helper.to_array(tensor, base_dir=str(path.parent))


def external_files(model: onnx.ModelProto) -> tuple[str, ...]:
    """Return the relative paths of all external data files that the model refers to."""
    names = (_place_of_external_data(tensor)[0] for tensor in _tensors(model) if tensor.external_data)
    return tuple(dict.fromkeys(names))


def opset_of(model: onnx.ModelProto) -> int:
    """Return the version of the default operator set that the model imports; 0 if it imports none."""
    return next((entry.version for entry in model.opset_import if entry.domain in {"", "ai.onnx"}), 0)


def signature_of_onnx(model: onnx.ModelProto) -> Signature:
    """Return the signature of the model; initializers that are also inputs are left out.

    The output of a ZipMap is its table: float32, one column a class. InputFileError is raised for other non-tensors.
    """
    tables = {
        name: TensorSpec(name=name, dtype="float32", shape=(None, len(zip_map.classes)))
        for name, zip_map in zip_maps(model).items()
    }
    constants = {tensor.name for tensor in model.graph.initializer}
    return Signature(
        inputs=tuple(_spec(value) for value in model.graph.input if value.name not in constants),
        outputs=tuple(tables.get(value.name) or _spec(value) for value in model.graph.output),
    )


def _spec(value: onnx.ValueInfoProto) -> TensorSpec:
    if not value.type.HasField("tensor_type"):
        msg = f"{value.name!r} is {a_or_an(value.type.WhichOneof('value') or 'value')}, not a tensor"
        raise InputFileError(msg, hint="export the model without sequences and maps: only tensors are supported")
    return TensorSpec(name=value.name, dtype=_dtype_name(value.type.tensor_type.elem_type), shape=shape_of(value))


def _dtype_name(element: int) -> str:
    import onnx

    if element == onnx.TensorProto.STRING:
        return "string"
    if element == onnx.TensorProto.BFLOAT16:
        # Older versions of onnx return float32 here.
        return "bfloat16"
    try:
        return str(onnx.helper.tensor_dtype_to_np_dtype(element))
    except KeyError:
        return f"ONNX element type {element}"


def precision_found(path: Path) -> Precision:
    """Return the precision that the weights of the model in `path` really have. Reads all weights."""
    return precision_of_onnx(read_onnx(path), path.parent)


def precision_of_onnx(model: onnx.ModelProto, folder: Path) -> Precision:
    """Return the precision that the model's weights really have, whatever they are declared as.

    Float32 weights that were rounded before count as the precision they were rounded to, as do weights that the graph
    casts before use. Without weights, inputs and outputs decide. Reads all weights, one tensor at a time, external data
    from `folder`.

    Raises:
        InputFileError: A tensor lacks data for its shape.
    """
    from paritygate.models.weights import WeightTally

    if any(node.op_type in QUANTIZATION_OPERATORS for node in all_nodes(model)):
        return Precision.INT8
    casts = _casts_of_weights(model)
    tally = WeightTally()
    for tensor in _tensors(model):
        dtype = casts.get(tensor.name) or _weight_dtype(tensor)
        if dtype == "float32":
            tally.add(_float32_values(tensor, folder))
        else:
            tally.add_stored(dtype, _elements(tensor))
    return tally.precision() or _precision_of_signature(signature_of_onnx(model))


def _casts_of_weights(model: onnx.ModelProto) -> dict[str, str]:
    """Return the dtype of each initializer that is only used through a cast to a lower precision."""
    weights = {tensor.name for tensor in _initializers(model)}
    casts: dict[str, str] = {}
    uncast: set[str] = set()
    for node in all_nodes(model):
        dtype = ""
        if node.op_type == "Cast":
            dtype = _dtype_name(next((attribute.i for attribute in node.attribute if attribute.name == "to"), 0))
        for name in weights.intersection(node.input):
            if dtype in {"float16", "bfloat16"}:
                casts[name] = dtype
            else:
                uncast.add(name)
    return {name: dtype for name, dtype in casts.items() if name not in uncast}


def _weight_dtype(tensor: onnx.TensorProto) -> str:
    import onnx

    kinds = onnx.TensorProto
    dtypes: dict[int, str] = {kinds.FLOAT: "float32", kinds.FLOAT16: "float16", kinds.BFLOAT16: "bfloat16"}
    return {**dtypes, kinds.DOUBLE: "float64"}.get(tensor.data_type, "")


def _elements(tensor: onnx.TensorProto) -> int:
    return math.prod(tensor.dims)


def _float32_values(tensor: onnx.TensorProto, folder: Path) -> NDArray[np.float32]:
    import numpy as np

    if tensor.data_location == tensor.EXTERNAL:
        file, offset, _ = _place_of_external_data(tensor)
        if _elements(tensor) <= 0:
            return np.empty(0, dtype=np.float32)
        return np.memmap(folder / file, dtype="<f4", mode="r", offset=offset, shape=(_elements(tensor),))
    if tensor.HasField("raw_data"):
        raw = tensor.raw_data
        if len(raw) != _elements(tensor) * _FLOAT32_BYTES:
            msg = f"tensor {tensor.name!r} has {len(raw)} bytes of data, which do not fit its shape {list(tensor.dims)}"
            raise InputFileError(msg, hint="export the model again; the file may be corrupt")
        return np.frombuffer(raw, dtype="<f4")
    return np.fromiter(tensor.float_data, dtype=np.float32, count=len(tensor.float_data))


def _precision_of_signature(signature: Signature) -> Precision:
    dtypes = {spec.dtype for spec in (*signature.inputs, *signature.outputs)}
    if "float16" in dtypes:
        return Precision.FP16
    return Precision.BF16 if "bfloat16" in dtypes else Precision.FP32
