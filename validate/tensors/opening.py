"""Open a model of any framework as a graph whose inner tensors can be read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from paritygate.batch import Batch
from paritygate.errors import InputFileError
from paritygate.models.example import example_of
from paritygate.models.onnx.file import read_onnx, signature_of_onnx
from paritygate.models.source import MODELS_WITH_INNER_TENSORS, OF_TENSORFLOW, OF_TORCH, ModelRef, SourceKind
from paritygate.validate.tensors.meter import Meter
from paritygate.validate.tensors.onnx_values import read_tensor_graph
from paritygate.validate.tensors.tensor_graph import Feed, TensorGraph

if TYPE_CHECKING:
    from paritygate.signature import Signature
    from paritygate.validate.runners.tensorflow import KerasRunner
    from paritygate.validate.runners.torch import TorchRunner


def open_graphs(
    reference: ModelRef, candidate: ModelRef, feeds: Sequence[Feed], most_tensors: int | None = None
) -> tuple[TensorGraph, TensorGraph]:
    """Return the graphs of both models, which have one meter; the operators of one without a file come from a run.

    `feeds` are by the reference's names. `most_tensors` are computed at most.

    Raises:
        InputFileError: A file is not a model, or its inner tensors cannot be read.
        UsageError: A callable returns no model, or its inputs are not those of the feeds.
        BackendError: A model cannot run.
    """
    meter = Meter(most_tensors)
    theirs = open_graph(reference, feeds, meter, _signature(candidate))
    # Other names of inputs are paired in order. As in a comparison, a candidate runs in the mode in which it was saved.
    feeds = [{name: feed[name] for name in theirs.inputs if name in feed} for feed in feeds]
    return theirs, open_graph(candidate, feeds, meter, _signature(reference), side="candidate")


def _signature(ref: ModelRef) -> Signature | None:
    """Return the signature of an ONNX file, by which the other model's unnamed outputs are named."""
    return signature_of_onnx(read_onnx(ref.path)) if ref.kind is SourceKind.ONNX else ref.signature


def open_graph(
    ref: ModelRef, feeds: Sequence[Feed], meter: Meter, like: Signature | None = None, *, side: str = ""
) -> TensorGraph:
    """Return the graph of one model; see `open_graphs`. `like` names as many unnamed outputs."""
    if ref.kind is SourceKind.ONNX:
        return read_tensor_graph(ref.path, meter)
    from paritygate.validate.runners.opening import open_model

    batches = [Batch(inputs=feed, ids=_rows(feed)) for feed in feeds]
    example = None if ref.signature is not None else example_of(lambda: iter(batches), like, ref.takes)
    runner = open_model(ref, "cpu", example=example, side=side)
    kind = runner.loaded.ref.kind
    inputs, outputs = ([spec.name for spec in specs] for specs in (runner.signature.inputs, runner.signature.outputs))
    feed = feeds[0] if feeds[0].keys() >= set(inputs) else dict(zip(inputs, feeds[0].values(), strict=False))
    if kind in OF_TORCH:
        from paritygate.validate.tensors.torch_values import torch_graph

        return torch_graph(cast("TorchRunner", runner), feed, meter)
    if kind is SourceKind.OPENVINO:
        from paritygate.validate.tensors.openvino_values import openvino_graph

        return openvino_graph(ref.path, inputs, outputs, meter)
    if kind is SourceKind.TFLITE:
        from paritygate.validate.tensors.tflite_values import tflite_graph

        return tflite_graph(ref.path, inputs, outputs, meter)
    if kind in OF_TENSORFLOW:
        from paritygate.validate.tensors.tensorflow_values import tensorflow_graph

        return tensorflow_graph(cast("KerasRunner", runner), feed, meter)
    msg = f"the inner tensors of {ref.text} cannot be read (got {kind}, expected {MODELS_WITH_INNER_TENSORS})"
    raise InputFileError(msg, hint="give the ONNX file that it was exported to, or built from")


def _rows(feed: Feed) -> list[str]:
    sizes = [array.shape[0] for array in feed.values() if array.ndim]
    return [str(row) for row in range(max(sizes, default=0))]
