"""Repair generated FP16 models, and count the runs, the operators kept in FP32, and held-out passes."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from paritygate.batch import Batch

_WIDE, _STEPS, _HEADS = 32, 8, 2
_ROWS, _HELD_OUT = 48, 128


class _Builder:
    """Adds nodes and seeded weights to a graph."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def constant(self, values: Any) -> str:  # noqa: ANN401 - whatever NumPy takes
        """Return the name of a constant."""
        self.weights.append(numpy_helper.from_array(np.asarray(values), f"w{len(self.weights)}"))
        return self.weights[-1].name

    def number(self, value: float) -> str:
        """Return the name of a constant of one number."""
        return self.constant(np.float32(value))

    def weight(self, *shape: int) -> str:
        """Return the name of a normal weight."""
        return self.constant((self.random.normal(size=shape) / np.sqrt(shape[0])).astype(np.float32))

    def node(self, op_type: str, *inputs: str, **attributes: Any) -> str:  # noqa: ANN401 - of any operator
        """Return the output of a new node."""
        output = f"x{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, inputs, [output], name=f"{op_type}_{output}", **attributes))
        return output


def overflowing_transformer(seed: int) -> onnx.ModelProto:
    """Return two layers with a masked attention and a gated block, of which seven operators exceed 65504."""
    made = _Builder(seed)

    def linear(x: str, rows: int, columns: int) -> str:
        return made.node("Add", made.node("MatMul", x, made.weight(rows, columns)), made.weight(columns))

    def parted(x: str, order: list[int]) -> str:
        shape = made.constant(np.array([0, 0, _HEADS, _WIDE // _HEADS]))
        return made.node("Transpose", made.node("Reshape", linear(x, _WIDE, _WIDE), shape), perm=order)

    def attention(x: str, mask: str) -> str:
        query, key, value = (parted(x, order) for order in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]))
        scores = made.node("Mul", made.node("MatMul", query, key), made.number((_WIDE / _HEADS) ** -0.5))
        mixed = made.node("MatMul", made.node("Softmax", made.node("Add", scores, mask), axis=-1), value)
        mixed = made.node(
            "Reshape", made.node("Transpose", mixed, perm=[0, 2, 1, 3]), made.constant(np.array([0, 0, _WIDE]))
        )
        return made.node("Add", linear(mixed, _WIDE, _WIDE), x)

    mask = made.node("Mul", made.node("Sub", made.number(1), "mask"), made.number(-1e4))
    x = made.node("Tanh", linear("x", _WIDE, _WIDE))
    for is_loud in (True, False):
        x = attention(x, mask)
        hidden = made.node("Relu", linear(x, _WIDE, 2 * _WIDE))
        if is_loud:
            # Five of these exceed the range, and their readers read what does.
            loud = made.node("Mul", hidden, made.number(3e4))
            loud = made.node("Add", loud, made.node("Neg", made.node("Mul", loud, made.number(0.5))))
            hidden = made.node("Mul", made.node("Relu", made.node("Mul", loud, made.number(2))), made.number(1 / 3e4))
        gate = made.node("Sigmoid", linear(x, _WIDE, 2 * _WIDE))
        x = made.node("Add", linear(made.node("Mul", hidden, gate), 2 * _WIDE, _WIDE), x)
    pooled = made.node("ReduceMean", made.node("Tanh", x), axes=[1], keepdims=0)
    output = made.node("Gemm", pooled, made.weight(_WIDE, 4), made.weight(4))
    shape = ["batch", _STEPS, _WIDE]
    inputs = [
        helper.make_tensor_value_info("x", 1, shape),
        helper.make_tensor_value_info("mask", 1, ["batch", 1, 1, _STEPS]),
    ]
    outputs = [helper.make_tensor_value_info(output, 1, ["batch", 4])]
    graph = helper.make_graph(made.nodes, "overflowing", inputs, outputs, made.weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def rows_of(seed: int, count: int) -> list[Batch]:
    """Return rows of the transformer."""
    random = np.random.default_rng(seed)
    lengths = random.integers(2, _STEPS + 1, size=count)
    mask = (np.arange(_STEPS) < lengths[:, None]).astype(np.float32).reshape(count, 1, 1, _STEPS)
    x = random.normal(size=(count, _STEPS, _WIDE)).astype(np.float32)
    return [
        Batch(
            inputs={"x": x[at : at + 16], "mask": mask[at : at + 16]},
            ids=[f"{seed}-{at + i}" for i in range(len(x[at : at + 16]))],
        )
        for at in range(0, count, 16)
    ]
