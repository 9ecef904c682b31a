"""Open a model of any framework as a graph whose inner tensors can be read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from paritygate.batch import Batch
from paritygate.errors import InputFileError
from paritygate.models.example import example_of
from paritygate.models.source import ModelRef, SourceKind
from paritygate.validate.divergence.inner_values import Feed
from paritygate.validate.divergence.meter import Meter
from paritygate.validate.divergence.tensor_graph import TensorGraph, read_tensor_graph

if TYPE_CHECKING:
    from paritygate.signature import Signature


def open_graph(ref: ModelRef, feeds: Sequence[Feed], meter: Meter, like: Signature | None = None) -> TensorGraph:
    """Return the graph of a model; one without a file is found by a run on the first feed.

    `like` is the signature of the other model, which names as many unnamed outputs.

    Raises:
        InputFileError: The file is no model, or its inner tensors cannot be read.
        UsageError: A callable returns no model, or its inputs are not those of the feeds.
        BackendError: The model cannot run.
    """
    if ref.kind is SourceKind.ONNX:
        return read_tensor_graph(ref.path, meter)
    from paritygate.validate.runners.opening import open_model
    from paritygate.validate.runners.torch import TorchRunner

    def read() -> list[Batch]:
        return [Batch(inputs=feed, ids=()) for feed in feeds]

    runner = open_model(ref, "cpu", example=example_of(lambda: iter(read()), like, ref.takes))
    if isinstance(runner, TorchRunner):
        from paritygate.validate.divergence.values.torch import torch_graph

        return torch_graph(runner, feeds[0], meter)
    msg = f"the inner tensors of {ref.text} cannot be read (got {ref.kind}, expected an ONNX or PyTorch model)"
    raise InputFileError(msg, hint="give the ONNX file that it was exported to, or built from")
