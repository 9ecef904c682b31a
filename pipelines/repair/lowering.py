"""Open an FP32 ONNX model with a switch for each node that can have a lower precision."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from paritygate.convert.conversion import ConversionJob
from paritygate.convert.int8.choice import nodes_to_quantize
from paritygate.convert.int8.onnxruntime_tool import quantize_statically
from paritygate.convert.int8.quantized_values import quantized_values
from paritygate.convert.int8.settings import DYNAMIC, settings_of
from paritygate.convert.onnx.onnx_to_int8 import prepared_model
from paritygate.convert.onnx.onnx_to_low_precision import lowered_nodes
from paritygate.errors import ConversionError
from paritygate.models.onnx.file import read_onnx
from paritygate.models.onnx.weights import FLOAT
from paritygate.precision import Precision
from paritygate.signature import Signature
from paritygate.validate.emulation.switchable import CastRounding, RangeRounding, make_switchable
from paritygate.validate.runners.emulated import check_rounding
from paritygate.validate.runners.switchable import SwitchableModel
from paritygate.validate.tensors.meter import Meter
from paritygate.validate.tensors.onnx_values import tensor_graph_of
from paritygate.validate.tensors.tensor_graph import TensorGraph

if TYPE_CHECKING:
    import onnx

    from paritygate.models.onnx.lowering import Lowering

# A value from here on is beyond the range: 65504, less a margin for rows that were not seen.
_LARGEST_FP16 = 0.9 * 65504


class LoweredModel(Struct, frozen=True, kw_only=True):
    """A model with its switches.

    `closed` returns the nodes that stay in FP32 with those that are kept. A node overflows whose values are larger than
    `largest`; None for a precision that does not overflow.
    """

    graph: TensorGraph
    lowered: Mapping[str, Lowering]
    constants: Mapping[str, tuple[int, ...]]
    model: SwitchableModel
    low_bytes: int
    largest: float | None
    closed: Callable[[Collection[str]], Collection[str]]


def open_fp16(path: Path, signature: Signature) -> LoweredModel:
    """Return the FP32 model in `path`, to run with any of its nodes in FP16.

    Raises:
        ConversionError: The model cannot be converted to FP16.
        BackendError: ONNX Runtime refused the switchable graph.
    """
    check_rounding((Precision.FP16,))
    work, lowered = lowered_nodes(read_onnx(path), precision=Precision.FP16, folder=path.parent)
    plain = _copy_of(work)
    graph = make_switchable(work, lowered, CastRounding(precision=Precision.FP16), path.parent)
    return LoweredModel(
        graph=tensor_graph_of(plain, path, Meter()),
        lowered=lowered,
        constants=float_constants(plain),
        model=SwitchableModel(graph, signature),
        low_bytes=2,
        largest=_LARGEST_FP16,
        closed=lambda kept: kept,
    )


def open_int8(job: ConversionJob, signature: Signature, folder: Path) -> LoweredModel:
    """Return the FP32 model of the job, to run with any of its nodes in INT8; `folder` is for temporary files.

    Raises:
        NotAvailableError: There is nothing to quantize.
        ConversionError: Another tool than ONNX Runtime quantizes the model, or its opset has no quantization.
        BackendError: ONNX Runtime refused the switchable graph.
    """
    settings, calibration = settings_of(job)
    if settings.tool != "onnxruntime" or settings.method == DYNAMIC:
        tool = f"{settings.tool}, {settings.method}"
        msg = f"the search for operators to keep in fp32 uses ranges of onnxruntime (got {tool})"
        raise ConversionError(msg, hint="write calibration: {tool: onnxruntime, method: minmax}")
    path = job.source.path
    model = prepared_model(path)
    quantized = quantize_statically(_copy_of(model), folder, settings, calibration)
    values = quantized_values(model, quantized)
    # Nodes in float that read what quantized ones made have no switch of their own.
    chosen = frozenset(nodes_to_quantize(model.graph))
    lowered = {name: item for name, item in values.lowered.items() if name in chosen}
    rounding = RangeRounding(
        ranges={name: (item.scale, item.zero) for name, item in values.ranges.items()}, constants=values.constants
    )
    plain = _copy_of(model)
    switchable = make_switchable(model, lowered, rounding, path.parent)

    def closed(kept: Collection[str]) -> Collection[str]:
        # Nodes between convolutions are quantized only behind quantized ones.
        low = frozenset(nodes_to_quantize(plain.graph, kept))
        return [name for name in switchable.switches if name not in low]

    return LoweredModel(
        graph=tensor_graph_of(plain, path, Meter()),
        lowered=lowered,
        constants=float_constants(plain),
        model=SwitchableModel(switchable, signature),
        low_bytes=1,
        largest=None,
        closed=closed,
    )


def _copy_of(model: onnx.ModelProto) -> onnx.ModelProto:
    copy = type(model)()
    copy.CopyFrom(model)
    return copy


def float_constants(model: onnx.ModelProto) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the float weights of a model, by name."""
    return {tensor.name: tuple(tensor.dims) for tensor in model.graph.initializer if tensor.data_type == FLOAT}
