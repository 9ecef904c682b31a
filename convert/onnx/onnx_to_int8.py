"""Convert ONNX in FP32 to ONNX in INT8 with quantize and dequantize nodes; inputs and outputs stay.

The model is prepared for quantizers, quantized by one of the tools, and its nodes are sorted again.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import asdict

from paritygate.backends import require_backend, version_of
from paritygate.convert.conversion import Calibration, Conversion, ConversionJob
from paritygate.convert.int8.choice import (
    has_attention,
    has_products,
    inner_nodes,
    nothing_to_quantize,
)
from paritygate.convert.int8.nncf_tool import check_nncf_settings, quantize_with_nncf
from paritygate.convert.int8.onnxruntime_tool import quantize_dynamically, quantize_statically
from paritygate.convert.int8.quantized_counts import QuantizedCounts, count_quantized
from paritygate.convert.int8.settings import DYNAMIC, Int8Settings, settings_of
from paritygate.convert.onnx.rewrite import EXTERNAL_DATA_BYTES, is_too_large, lower_ir_version, save_onnx
from paritygate.errors import ConversionError
from paritygate.models.onnx.file import external_files, opset_of, read_onnx, signature_of_onnx
from paritygate.models.onnx.functions import inline_functions
from paritygate.models.onnx.graph import graphs_in, name_nodes, replace_nodes, sort_nodes, stored_tensors

if TYPE_CHECKING:
    import onnx

_MAIN = "model.onnx"
# A scale for each channel needs this opset.
_LOWEST_OPSET = 13


def convert(job: ConversionJob) -> Conversion:
    """Write the model as `model.onnx`, the weights of its products and convolutions in int8 by channel.

    The job's source is an ONNX artifact in FP32, and its calibration selects tool and rows.
    """
    settings, calibration = settings_of(job)
    if settings.tool == "nncf":
        check_nncf_settings(settings)
    require_backend(settings.tool)
    model = prepared_model(job.source.path)
    inner = inner_nodes(model.graph)
    quantized = _quantized(model, job.folder, settings, calibration, frozenset(job.kept))
    # Quantizers sort by the listed inputs, but an If or Loop uses values that it does not list. A circle is found by
    # the check of the written file.
    sort_nodes(quantized.graph)
    lower_ir_version(quantized)
    # A tool's shapes are inferred again where they are needed.
    del quantized.graph.value_info[:]
    counts = count_quantized(quantized)
    path = job.folder / _MAIN
    save_onnx(quantized, path)
    written = read_onnx(path)
    return Conversion(
        main=_MAIN,
        signature=signature_of_onnx(written),
        notes=_notes(settings, counts, inner),
        facts={
            "opset": opset_of(written),
            "ir_version": written.ir_version,
            settings.tool: version_of(settings.tool),
            "quantized": counts.to_json(),
            "calibration": {**calibration.facts, **asdict(settings)},
        },
    )


def _quantized(
    model: onnx.ModelProto, folder: Path, settings: Int8Settings, calibration: Calibration, kept: frozenset[str]
) -> onnx.ModelProto:
    if kept and (settings.tool == "nncf" or settings.method == DYNAMIC):
        msg = f"{settings.tool} with method {settings.method} cannot keep nodes in float"
        raise ConversionError(msg, hint="write calibration: {tool: onnxruntime, method: minmax}")
    if settings.tool == "nncf":
        if is_too_large(model):
            msg = f"NNCF accepts only ONNX models of at most {EXTERNAL_DATA_BYTES} bytes, and this one is larger"
            raise ConversionError(msg, hint="write calibration: {tool: onnxruntime}")
        quantized: onnx.ModelProto = quantize_with_nncf(model, calibration, is_transformer=has_attention(model.graph))
        return quantized
    # On the artifact's disk, which needs the space anyway.
    with tempfile.TemporaryDirectory(dir=folder) as place:
        if settings.method == DYNAMIC:
            return quantize_dynamically(model, Path(place))
        return quantize_statically(model, Path(place), settings, calibration, kept)


def _notes(settings: Int8Settings, counts: QuantizedCounts, inner: int) -> tuple[str, ...]:
    how = f"{settings.tool} {version_of(settings.tool)}"
    if settings.tool != "nncf":
        how += f", {settings.method}"
    notes = [f"quantized to int8 by {how}: {counts}"]
    if inner:
        notes.append(f"{inner} nodes inside of If, Loop or Scan were left in fp32")
    return tuple(notes)


def prepared_model(path: Path) -> onnx.ModelProto:
    """Return the model in `path`, weights loaded, ready for quantizers; its outputs do not change.

    Raises:
        ConversionError: Its opset has no quantization by channel; NotAvailableError if it has no products at all.
    """
    import onnx

    model = read_onnx(path)
    opset = opset_of(model)
    if opset < _LOWEST_OPSET:
        if not has_products(model.graph):
            # Another opset would not help.
            raise nothing_to_quantize(model.graph)
        msg = f"a model of opset {opset} cannot be quantized by channel (expected {_LOWEST_OPSET} or higher)"
        raise ConversionError(msg, hint=f"set opset: {_LOWEST_OPSET} or higher in the spec, or export with it")
    if external_files(model):
        onnx.load_external_data_for_model(model, str(path.parent))
    inline_functions(model)
    _lift_constants(model.graph)
    name_nodes(model.graph)
    for graph in graphs_in(model.graph):
        # Shapes of an exporter may contradict those that quantizers infer, and can be inferred again.
        del graph.value_info[:]
    return model


def _lift_constants(graph: onnx.GraphProto) -> None:
    """Make initializers of Constant nodes with a tensor, in place, because quantizers look for weights there."""
    stored = {tensor.name for tensor in graph.initializer}
    lifted = {name: tensor for name, tensor in stored_tensors(graph).items() if name not in stored}
    for name, constant in lifted.items():
        tensor = graph.initializer.add()
        tensor.CopyFrom(constant)
        tensor.name = name
    replace_nodes(graph, [node for node in graph.node if lifted.keys().isdisjoint(node.output)])
