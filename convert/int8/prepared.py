"""An FP32 ONNX model as quantizers want it: functions inlined, weights in initializers, every node named."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from paritygate.errors import ConversionError
from paritygate.models.onnx.file import external_files, opset_of, read_onnx
from paritygate.models.onnx.functions import inline_functions
from paritygate.models.onnx.graph import graphs_in, name_nodes

if TYPE_CHECKING:
    import onnx

__all__ = ["prepared_model"]

# A scale a channel came with this opset.
_LOWEST_OPSET = 13


def prepared_model(path: Path) -> onnx.ModelProto:
    """Return the model in `path` with its weights loaded, ready to be quantized; it computes what it did.

    Raises:
        ConversionError: Its opset has no quantization by channel.
    """
    import onnx

    model = read_onnx(path)
    opset = opset_of(model)
    if opset < _LOWEST_OPSET:
        msg = f"a model of opset {opset} cannot be quantized by channel (needed: {_LOWEST_OPSET} and up)"
        raise ConversionError(msg, hint=f"set opset: {_LOWEST_OPSET} or higher in the spec, or export the model so")
    if external_files(model):
        onnx.load_external_data_for_model(model, str(path.parent))
    inline_functions(model)
    _lift_constants(model.graph)
    name_nodes(model.graph)
    for graph in graphs_in(model.graph):
        # Shapes that an exporter noted may contradict those that quantizers infer; they can be found again.
        del graph.value_info[:]
    return model


def _lift_constants(graph: onnx.GraphProto) -> None:
    """Make initializers of the Constant nodes that hold a tensor, in place: quantizers look for weights there."""
    kept = []
    for node in graph.node:
        value = next((item for item in node.attribute if item.name == "value"), None)
        if node.op_type == "Constant" and value is not None:
            tensor = graph.initializer.add()
            tensor.CopyFrom(value.t)
            tensor.name = node.output[0]
        else:
            kept.append(node)
    del graph.node[:]
    graph.node.extend(kept)
