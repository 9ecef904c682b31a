"""Small ONNX graphs, written node by node, with heads whose answers are as large and as spread as is asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

__all__ = ["Net"]

_OPSET = 17
_IR_VERSION = 8


class Net:
    """A graph that grows, and the rows that its heads are scaled by.

    Args:
        rows: The rows of the input `x`.
        seed: Seed of all weights.
        order: Seed of the order of hidden units; None for the order drawn. It changes the sums, and not what is meant.
        same: A net built alike, whose measured weights are taken; None to measure them.
    """

    def __init__(self, rows: NDArray[np.float32], seed: int, order: int | None = None, same: Net | None = None) -> None:
        self._rows = rows
        self._measured: list[tuple[NDArray[np.float64], NDArray[np.float64]]] = []
        self._same = None if same is None else iter(same._measured)  # noqa: SLF001 - of the same class
        self._random = np.random.default_rng(seed)
        self._order = None if order is None else np.random.default_rng(order)
        self._nodes: list[onnx.NodeProto] = []
        self._weights: list[onnx.TensorProto] = []
        # The order of a hidden value's last axis, where it is another than the one drawn.
        self._orders: dict[str, NDArray[np.intp]] = {}
        self._widths = {"x": rows.shape[-1]}

    def normal(self, *shape: int) -> NDArray[np.float64]:
        """Return normal numbers, the same in every order of hidden units."""
        return self._random.standard_normal(shape)

    def constant(self, array: Any) -> str:
        """Return the name of a constant; floats become float32."""
        values = np.asarray(array)
        values = values.astype(np.float32) if values.dtype.kind == "f" else values
        name = f"w{len(self._weights)}"
        self._weights.append(numpy_helper.from_array(values, name))
        return name

    def node(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Return the name of what a new node answers; an order of hidden units goes along with its first input."""
        name = f"v{len(self._nodes)}"
        self._nodes.append(helper.make_node(kind, list(inputs), [name], name=f"{kind}_{name}", **attributes))
        if inputs and inputs[0] in self._orders:
            self._orders[name] = self._orders[inputs[0]]
        self._widths[name] = next((self._widths[each] for each in inputs if each in self._widths), 1)
        return name

    def values_of(self, name: str) -> NDArray[np.float64]:
        """Return a value for all rows."""
        session = onnxruntime.InferenceSession(self.model({name: None}).SerializeToString())
        return np.asarray(session.run([name], {"x": self._rows})[0], dtype=np.float64)

    def hidden(self, value: str, width: int, activation: str = "Relu", gain: float = 1.4) -> str:
        """Return a hidden layer."""
        inputs = self._widths[value]
        weights = self._in_order_of(value, self.normal(inputs, width) * gain / np.sqrt(inputs))
        bias = self.normal(width) * 0.1
        shuffle = np.arange(width) if self._order is None else self._order.permutation(width)
        product = self._product(value, weights[:, shuffle], bias[shuffle])
        if self._order is not None:
            self._orders[product] = shuffle
        return self.node(activation, product) if activation else product

    def head(self, value: str, spreads: Sequence[float] | NDArray[Any], centers: Sequence[float] | NDArray[Any]) -> str:
        """Return a linear layer, each column of which has this standard deviation and this mean over the rows."""
        wanted, middle = np.asarray(spreads, dtype=float), np.asarray(centers, dtype=float)
        weights = self.normal(self._widths[value], wanted.size)

        def measured() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
            plain = self.as_drawn(value)
            # One huge row is not what the others are scaled by.
            low, median, high = np.percentile(plain.reshape(-1, plain.shape[-1]) @ weights, [15.87, 50, 84.13], axis=0)
            scale = wanted * 2 / (high - low)
            return weights * scale, middle - median * scale

        return self.product(value, measured)

    def as_drawn(self, value: str) -> NDArray[np.float64]:
        """Return a value for all rows, hidden units in the order drawn."""
        plain = self.values_of(value)
        return plain[..., np.argsort(self._orders[value])] if value in self._orders else plain

    def product(self, value: str, measured: Callable[[], tuple[NDArray[np.float64], NDArray[np.float64]]]) -> str:
        """Return a linear layer; `measured` returns its weights, of hidden units in the order drawn, and its bias."""
        weights, bias = measured() if self._same is None else next(self._same)
        self._measured.append((weights, bias))
        return self._product(value, self._in_order_of(value, weights), bias)

    def scaled(self, value: str, factors: Any, offsets: Any = 0.0) -> str:
        """Return a value times constants, plus constants."""
        product = self.node("Mul", value, self.constant(np.asarray(factors, dtype=float)))
        if not np.any(offsets):
            return product
        return self.node("Add", product, self.constant(np.asarray(offsets, dtype=float)))

    def joined(self, *values: str, axis: int = -1) -> str:
        """Return values side by side."""
        name = self.node("Concat", *values, axis=axis)
        self._orders.pop(name, None)
        self._widths[name] = sum(self._widths[value] for value in values)
        return name

    def column(self, value: str, place: int) -> str:
        """Return one column of a value."""
        name = self.node("Gather", value, self.constant(np.array([place])), axis=-1)
        self._widths[name] = 1
        return name

    def shaped(self, value: str, *shape: int) -> str:
        """Return a value in another shape."""
        name = self.node("Reshape", value, self.constant(np.array(shape, dtype=np.int64)))
        self._widths[name] = shape[-1]
        return name

    def trunk(self, width: int = 64, depth: int = 2, activation: str = "Relu") -> str:
        """Return the last of some hidden layers on the input."""
        value = "x"
        for _ in range(depth):
            value = self.hidden(value, width, activation)
        return value

    def model(self, outputs: dict[str, str | None]) -> onnx.ModelProto:
        """Return the graph with these outputs: by their names the values; None for a value by its own name."""
        named = [helper.make_node("Identity", [value], [name]) for name, value in outputs.items() if value is not None]
        places = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
        shape = ["batch", *self._rows.shape[1:]]
        graph = helper.make_graph(
            [*self._nodes, *named],
            "net",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
            places,
            self._weights,
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=_IR_VERSION)
        return model if None in outputs.values() else onnx.shape_inference.infer_shapes(model)

    def _in_order_of(self, value: str, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        return weights[self._orders[value]] if value in self._orders else weights

    def _product(self, value: str, weights: NDArray[np.float64], bias: NDArray[np.float64]) -> str:
        product = self.node("MatMul", value, self.constant(weights))
        name = self.node("Add", product, self.constant(bias))
        for each in (product, name):
            self._orders.pop(each, None)
            self._widths[each] = weights.shape[1]
        return name
