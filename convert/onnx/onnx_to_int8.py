"""ONNX in FP32 to ONNX in INT8: quantize and dequantize nodes, inputs and outputs as they were."""

from __future__ import annotations

import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from paritygate.backends import require_backend, version_of
from paritygate.convert.conversion import Calibration, Conversion, ConversionJob
from paritygate.convert.int8.census import Census, take_census
from paritygate.convert.int8.choice import has_attention, inner_nodes
from paritygate.convert.int8.nncf_tool import check_nncf_settings, quantize_with_nncf
from paritygate.convert.int8.onnxruntime_tool import quantize_dynamically, quantize_statically
from paritygate.convert.int8.order import sort_nodes
from paritygate.convert.int8.prepared import prepared_model
from paritygate.convert.int8.settings import DYNAMIC, Int8Settings, settings_of
from paritygate.convert.onnx.rewrite import EXTERNAL_DATA_BYTES, lower_ir_version, save_onnx
from paritygate.errors import ConversionError
from paritygate.models.onnx.file import opset_of, read_onnx, signature_of_onnx

if TYPE_CHECKING:
    import onnx

__all__ = ["convert"]

_MAIN = "model.onnx"


def convert(job: ConversionJob) -> Conversion:
    """Write the model as `model.onnx`, the weights of its products and convolutions in int8 by channel.

    Args:
        job: Its source is an ONNX artifact in FP32; its calibration says by which tool and rows.

    Raises:
        UsageError: There is no calibration, or it asks for what the tool or the model does not allow.
        ConversionError: There is nothing to quantize, or the ranges found are not finite.
        MissingBackendError: The tool is not installed.
    """
    settings, calibration = settings_of(job)
    if settings.tool == "nncf":
        check_nncf_settings(settings)
    require_backend(settings.tool)
    model = prepared_model(job.source.path)
    inner = inner_nodes(model.graph)
    quantized = _quantized(model, job.folder, settings, calibration)
    sort_nodes(quantized.graph)
    lower_ir_version(quantized)
    # Shapes as a tool left them: they are found again where they are needed.
    del quantized.graph.value_info[:]
    census = take_census(quantized)
    path = job.folder / _MAIN
    save_onnx(quantized, path)
    written = read_onnx(path)
    return Conversion(
        main=_MAIN,
        signature=signature_of_onnx(written),
        notes=_notes(settings, census, inner),
        facts={
            "opset": opset_of(written),
            "ir_version": written.ir_version,
            settings.tool: version_of(settings.tool),
            "quantized": census.to_json(),
            "calibration": {**calibration.facts, **asdict(settings)},
        },
    )


def _quantized(
    model: onnx.ModelProto, folder: Path, settings: Int8Settings, calibration: Calibration
) -> onnx.ModelProto:
    if settings.tool == "nncf":
        if model.ByteSize() >= EXTERNAL_DATA_BYTES:
            msg = f"NNCF takes ONNX models that fit into one file, and this one has {model.ByteSize()} bytes"
            raise ConversionError(msg, hint="write calibration: {tool: onnxruntime}")
        quantized: onnx.ModelProto = quantize_with_nncf(model, calibration, is_transformer=has_attention(model.graph))
        return quantized
    # On the disk of the artifact: there has to be room for it anyway.
    with tempfile.TemporaryDirectory(dir=folder) as place:
        if settings.method == DYNAMIC:
            return quantize_dynamically(model, Path(place))
        return quantize_statically(model, Path(place), settings, calibration)


def _notes(settings: Int8Settings, census: Census, inner: int) -> tuple[str, ...]:
    how = f"{settings.tool} {version_of(settings.tool)}"
    if settings.tool != "nncf":
        how += f", {settings.method}"
    notes = [f"quantized to int8 by {how}: {census}"]
    if inner:
        notes.append(f"{inner} nodes inside of If, Loop or Scan were left in fp32")
    return tuple(notes)
