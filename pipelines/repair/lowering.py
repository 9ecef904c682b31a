"""Open an FP32 ONNX model with a switch for each node that can have a lower precision."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from paritygate.convert.onnx.onnx_to_low_precision import lowered_nodes
from paritygate.models.onnx.file import read_onnx
from paritygate.models.onnx.weights import FLOAT
from paritygate.precision import Precision
from paritygate.signature import Signature
from paritygate.validate.divergence.meter import Meter
from paritygate.validate.divergence.tensor_graph import TensorGraph, tensor_graph_of
from paritygate.validate.emulation.switchable import CastRounding, make_switchable
from paritygate.validate.runners.switchable import SwitchableModel

if TYPE_CHECKING:
    import onnx

    from paritygate.models.onnx.lowering import Lowering

# A value from here on is beyond the range: 65504, less a margin for rows that were not seen.
_LARGEST_FP16 = 0.9 * 65504


@dataclass(frozen=True, kw_only=True, slots=True)
class LoweredModel:
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
    import onnx

    work, lowered = lowered_nodes(read_onnx(path), precision=Precision.FP16, folder=path.parent)
    plain = onnx.ModelProto()
    plain.CopyFrom(work)
    graph = make_switchable(work, lowered, CastRounding(precision=Precision.FP16), path.parent)
    return LoweredModel(
        graph=tensor_graph_of(plain, path, Meter()),
        lowered=lowered,
        constants=float_constants(plain),
        model=SwitchableModel(graph, signature, precisions=(Precision.FP16,)),
        low_bytes=2,
        largest=_LARGEST_FP16,
        closed=lambda kept: kept,
    )


def float_constants(model: onnx.ModelProto) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the float weights of a model, by name."""
    return {tensor.name: tuple(tensor.dims) for tensor in model.graph.initializer if tensor.data_type == FLOAT}
