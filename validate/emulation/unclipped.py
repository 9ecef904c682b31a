"""An INT8 graph without the ranges of its activations: its outputs if no value were cut off.

Calibration sets the ranges, and a correct INT8 model cuts off values beyond them. Weights and operators stay as they
are, so a fault in them stays a fault.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct

from paritygate.batch import Arrays
from paritygate.models.onnx.file import read_onnx
from paritygate.models.onnx.graph import UniqueNames, names_in, readers_of, replace_nodes, stored_tensors

if TYPE_CHECKING:
    from pathlib import Path

    import onnx
    from numpy.typing import NDArray

# The output that is added: how many steps the value farthest out lies beyond the range of its activation.
STEPS_BEYOND = "paritygate_steps_beyond_range"
# Of the values of onnx.TensorProto.DataType: float.
_FLOAT = 1
# A value that ends one step beyond a range is rounded to its end.
_BEYOND = 1.0
_WEIGHTS = "model.onnx.data"
# A protocol buffer holds 2 GB at the most.
_ONE_FILE_BYTES = 1_800_000_000


class _Range(Struct, frozen=True, kw_only=True):
    """The range of one activation; `value` names it before it is quantized, `step` is the distance of two results."""

    value: str
    low: float
    high: float
    step: float


def write_without_ranges(source: Path, folder: Path) -> Path | None:
    """Write an ONNX file without the ranges of its activations into a folder; return it, or None without ranges."""
    import onnx

    model = read_onnx(source)
    onnx.load_external_data_for_model(model, str(source.parent))
    if not without_ranges(model):
        return None
    folder.mkdir(exist_ok=True)
    path = folder / "model.onnx"
    is_large = model.ByteSize() >= _ONE_FILE_BYTES
    onnx.save(model, str(path), save_as_external_data=is_large, location=_WEIGHTS if is_large else None)
    return path


def without_ranges(model: onnx.ModelProto) -> bool:
    """Remove the quantization of activations from a graph with its weights in place, and add `STEPS_BEYOND`.

    It returns False and changes nothing if no QuantizeLinear and DequantizeLinear have one constant range for all
    values.
    """
    import onnx

    graph = model.graph
    values = dict(_values(graph))
    ranges = {node.output[0]: activation for node in graph.node if (activation := _range(node, values)) is not None}
    used = readers_of(graph)
    # What stays quantized, as the input of an integer operator, keeps its range.
    ranges = {
        name: item
        for name, item in ranges.items()
        if name in used and all(node.op_type == "DequantizeLinear" and node.input[0] == name for node in used[name])
    }
    if not ranges:
        return False
    names = UniqueNames(names_in(graph))
    nodes: list[onnx.NodeProto] = []
    farthest = []
    for node in graph.node:
        if node.op_type == "DequantizeLinear" and node.input[0] in ranges:
            item = ranges[node.input[0]]
            # A range that begins at 0 stands for the Relu before it, which quantization takes out.
            kind = "Relu" if item.low == 0 else "Identity"
            nodes.append(onnx.helper.make_node(kind, [item.value], [node.output[0]]))
        elif node.output[0] in ranges:
            made, name = _excess(ranges[node.output[0]], graph, names)
            nodes += made
            farthest.append(name)
        else:
            nodes.append(node)
    nodes.append(onnx.helper.make_node("Max", farthest, [STEPS_BEYOND]))
    replace_nodes(graph, nodes)
    graph.output.append(onnx.helper.make_tensor_value_info(STEPS_BEYOND, _FLOAT, []))
    return True


def _values(graph: onnx.GraphProto) -> Iterator[tuple[str, NDArray[Any]]]:
    """Yield the constants of one number, by name; a scale or a zero point of all values is one."""
    from onnx import numpy_helper

    for name, tensor in stored_tensors(graph).items():
        if int(np.prod(tensor.dims, dtype=np.int64)) == 1:
            yield name, numpy_helper.to_array(tensor).reshape(-1)


def _range(node: onnx.NodeProto, values: Mapping[str, NDArray[Any]]) -> _Range | None:
    if node.op_type != "QuantizeLinear" or len(node.input) < 3 or node.input[0] in values:  # noqa: PLR2004 - scale, zero
        return None
    scale, zero = values.get(node.input[1]), values.get(node.input[2])
    if scale is None or zero is None or scale.dtype != np.float32 or zero.dtype.kind not in "iu":
        return None
    limits, step, middle = np.iinfo(zero.dtype), float(scale[0]), int(zero[0])
    return _Range(value=node.input[0], low=(limits.min - middle) * step, high=(limits.max - middle) * step, step=step)


def _excess(item: _Range, graph: onnx.GraphProto, names: UniqueNames) -> tuple[list[onnx.NodeProto], str]:
    """Return the nodes that measure how far a value goes beyond its range, and the name of the number of steps."""
    import onnx

    def constant(number: float) -> str:
        name = names.new(f"{item.value}_constant")
        graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(number, dtype=np.float32), name))
        return name

    nodes: list[onnx.NodeProto] = []

    def step(kind: str, *inputs: str) -> str:
        output = names.new(f"{item.value}_{kind}")
        nodes.append(onnx.helper.make_node(kind, list(inputs), [output]))
        return output

    value = step("Relu", item.value) if item.low == 0 else item.value
    inside = step("Max", step("Min", value, constant(item.high)), constant(item.low))
    steps = step("Div", step("Abs", step("Sub", value, inside)), constant(item.step))
    farthest = step("ReduceMax", steps)
    nodes[-1].attribute.append(onnx.helper.make_attribute("keepdims", 0))
    return nodes, farthest


def answer_beyond_ranges(outputs: Arrays) -> dict[str, NDArray[np.generic]] | None:
    """Return the outputs of a graph without ranges if an activation goes beyond its range; else None."""
    answer = dict(outputs)
    return answer if float(answer.pop(STEPS_BEYOND).reshape(())) > _BEYOND else None
