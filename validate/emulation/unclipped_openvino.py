"""An OpenVINO INT8 model without the ranges of its activations; `unclipped` has it for ONNX."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from paritygate.models.openvino.model import import_openvino, read_openvino
from paritygate.validate.emulation.unclipped import STEPS_BEYOND

# At which of its inputs a FakeQuantize takes the ends of its range, those of its result last.
_ENDS = (1, 2, 3, 4)


def write_openvino_without_ranges(source: Path, folder: Path) -> Path | None:
    """Write an OpenVINO `.xml` without the ranges of its activations into a folder; return it, None without ranges."""
    ov = import_openvino()
    from openvino import opset13

    model = read_openvino(source)
    farthest = []
    for node in model.get_ordered_ops():
        ends = _ends(node)
        if ends is None:
            continue
        low, high = ends
        # A range that begins at 0 stands for the Relu before it.
        value = node.input_value(0) if low.min() < 0 else opset13.relu(node.input_value(0)).output(0)
        inside = opset13.minimum(opset13.maximum(value, opset13.constant(low)), opset13.constant(high))
        step = np.maximum((high - low) / (node.get_attributes()["levels"] - 1), np.finfo(np.float32).tiny)
        steps = opset13.divide(opset13.abs(opset13.subtract(value, inside)), opset13.constant(step))
        flat = opset13.reshape(steps, opset13.constant(np.array([-1])), special_zero=False)
        farthest.append(opset13.reduce_max(flat, opset13.constant(np.array([0])), keep_dims=True))
        node.output(0).replace(value)
    if not farthest:
        return None
    largest = opset13.reduce_max(opset13.concat(farthest, 0), opset13.constant(np.array([0])), keep_dims=False)
    largest.output(0).set_names({STEPS_BEYOND})
    model.add_results([opset13.result(largest.output(0))])
    folder.mkdir(exist_ok=True)
    path = folder / "model.xml"
    ov.save_model(model, str(path), compress_to_fp16=False)
    return path


def _ends(node: Any) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]] | None:  # noqa: ANN401 - no types
    """Return the ends of an activation's range if the node only brings values into it; else None."""
    if node.get_type_name() != "FakeQuantize" or _is_constant(node.input_value(0).get_node()):
        return None
    ends = [node.input_value(at).get_node() for at in _ENDS]
    if any(end.get_type_name() != "Constant" for end in ends):
        return None
    low, high, result_low, result_high = (np.asarray(end.data, dtype=np.float32) for end in ends)
    is_same = np.array_equal(low, result_low) and np.array_equal(high, result_high)
    return (low, high) if is_same and (low <= high).all() else None


def _is_constant(node: Any) -> bool:  # noqa: ANN401 - no types
    while node.get_type_name() == "Convert":
        node = node.input_value(0).get_node()
    return bool(node.get_type_name() == "Constant")
