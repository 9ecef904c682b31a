"""Outputs behind a bounded function, where implementations differ by the same absolute amount at any value.

Sigmoid, Tanh and Erf are approximated: the error of a small output is as large as that of one near 1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from paritygate.models.onnx.graph import attribute_of, makers_of, shape_of
from paritygate.validate.measure.limits import ACTIVATION_FLOOR
from paritygate.validate.probes.graph.constants import Constants, constants_of

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

_BOUNDED = frozenset({"Erf", "Sigmoid", "Tanh"})
# Operators that keep differences between implementations as they are.
_KEEPING = frozenset({"Cast", "Clip", "Dropout", "Identity", "Neg"})
# Operators that change a difference by an amount that depends on the values.
_COMBINING = frozenset({"Add", "Div", "Exp", "Log", "Mean", "Mul", "Pow", "Reciprocal", "Sqrt", "Sub", "Sum"})
# Operators that may rearrange columns.
_RESHAPING = frozenset({"Flatten", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})
_LOGISTIC = "LOGISTIC"


def activation_floors(model: onnx.ModelProto) -> dict[str, NDArray[np.float64]]:
    """Return by output the amount by which implementations differ: one number, or one per column.

    Only outputs behind a bounded function have one; weights need not be present. NaN is an unknown amount, because the
    function is combined with other values.
    """
    graph = _Graph(model)
    floors = {output.name: graph.floor_of(output.name) for output in model.graph.output}
    # NaN counts as nonzero.
    return {name: floor for name, floor in floors.items() if floor.any()}


_NONE = np.zeros(1)
_UNKNOWN = np.full(1, np.nan)


class _Graph:
    """The main graph of a model, walked from its outputs backwards."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._model = model
        self._constants: Constants = constants_of(model.graph)
        self._nodes = makers_of(model.graph)
        self._floors: dict[str, NDArray[np.float64]] = {}
        self._inferred: dict[str, tuple[int | None, ...]] | None = None

    def floor_of(self, name: str) -> NDArray[np.float64]:
        """Return the floor of a value: one number, or one per entry of its last axis; zeros without any."""
        if name not in self._floors:
            # A graph has no circles, and long chains of such operators are none that models end in.
            self._floors[name] = _NONE
            self._floors[name] = self._floor(name)
        return self._floors[name]

    def _floor(self, name: str) -> NDArray[np.float64]:
        node = self._nodes.get(name)
        if node is None:
            return _NONE
        if node.op_type in _BOUNDED or attribute_of(node, "post_transform", b"") == _LOGISTIC.encode():
            return np.full(1, ACTIVATION_FLOOR)
        if node.op_type in _KEEPING:
            return self.floor_of(node.input[0])
        if node.op_type in _RESHAPING:
            return _smallest(self.floor_of(node.input[0]))
        handlers: dict[str, Callable[[onnx.NodeProto, str], NDArray[np.float64]]] = {
            "Add": self._shifted,
            "Concat": self._joined,
            "Div": self._scaled,
            "Gather": self._gathered,
            "Mul": self._scaled,
            "Slice": self._sliced,
            "Split": self._split,
            "Sub": self._shifted,
        }
        handler = handlers.get(node.op_type)
        floor = _NONE if handler is None else handler(node, name)
        if not floor.any() and node.op_type in _COMBINING and any(self.floor_of(each).any() for each in node.input):
            return _UNKNOWN
        return floor

    def _constant_and_other(self, node: onnx.NodeProto) -> tuple[NDArray[np.float64], str] | None:
        """Return the constant (one number, or one per column) that a value is combined with, and that value's name."""
        for at, other in ((1, 0), (0, 1)):
            value = self._constants.values.get(node.input[at])
            if value is not None and value.dtype.kind in "fiu" and value.size == (value.shape or (1,))[-1]:
                return value.reshape(-1).astype(np.float64), node.input[other]
        return None

    def _shifted(self, node: onnx.NodeProto, _: str) -> NDArray[np.float64]:
        sides = self._constant_and_other(node)
        return _NONE if sides is None else self.floor_of(sides[1])

    def _scaled(self, node: onnx.NodeProto, _: str) -> NDArray[np.float64]:
        sides = self._constant_and_other(node)
        if sides is None or (node.op_type == "Div" and sides[1] != node.input[0]):
            return _NONE
        factor, other = sides
        with np.errstate(divide="ignore"):
            factor = np.abs(1 / factor if node.op_type == "Div" else factor)
        floor = self.floor_of(other)
        fits = np.isfinite(factor).all() and (1 in {floor.size, factor.size} or floor.size == factor.size)
        return floor * factor if fits else _NONE

    def _joined(self, node: onnx.NodeProto, _: str) -> NDArray[np.float64]:
        floors = [self.floor_of(name) for name in node.input]
        if not any(floor.any() for floor in floors):
            return _NONE
        rank = self._rank_of(node.input[0])
        axis = int(attribute_of(node, "axis", 0))
        if rank is None or axis % rank != rank - 1:
            return _smallest(np.concatenate(floors))
        widths = [self._width_of(name) for name in node.input]
        parts = []
        for floor, width in zip(floors, widths, strict=True):
            if width is None or floor.size not in {1, width}:
                return _NONE
            parts.append(np.broadcast_to(floor, width))
        return np.concatenate(parts)

    def _gathered(self, node: onnx.NodeProto, _: str) -> NDArray[np.float64]:
        floor, places = self.floor_of(node.input[0]), self._constants.values.get(node.input[1])
        if floor.size == 1:
            return floor
        rank = self._rank_of(node.input[0])
        is_last = rank is not None and int(attribute_of(node, "axis", 0)) % rank == rank - 1
        if places is None or not is_last or not (np.abs(places) < floor.size).all():
            return _smallest(floor)
        return np.take(floor, places.reshape(-1).astype(np.intp))

    def _sliced(self, node: onnx.NodeProto, name: str) -> NDArray[np.float64]:
        floor = self.floor_of(node.input[0])
        if floor.size == 1:
            return floor
        parts = [self._constants.values.get(each) for each in node.input[1:4]]
        rank = self._rank_of(node.input[0])
        if rank is None or len(parts) < 3 or any(part is None or part.size != 1 for part in parts):  # noqa: PLR2004
            return _smallest(floor)
        start, end, axis = (int(part.reshape(-1)[0]) for part in parts if part is not None)
        own = np.array(floor[start:end] if axis % rank == rank - 1 else floor)
        # With a step, these are not the columns.
        return own if own.size == self._width_of(name) else _smallest(floor)

    def _split(self, node: onnx.NodeProto, name: str) -> NDArray[np.float64]:
        floor = self.floor_of(node.input[0])
        widths = [self._width_of(output) for output in node.output]
        sizes = [width for width in widths if width is not None]
        if floor.size == 1 or len(sizes) < len(widths) or sum(sizes) != floor.size:
            return _smallest(floor)
        at = list(node.output).index(name)
        return np.split(floor, np.cumsum(sizes))[at]

    def _rank_of(self, name: str) -> int | None:
        return None if (shape := self._shape_of(name)) is None else len(shape) or None

    def _width_of(self, name: str) -> int | None:
        shape = self._shape_of(name)
        return shape[-1] if shape else None

    def _shape_of(self, name: str) -> tuple[int | None, ...] | None:
        if self._inferred is None:
            self._inferred = _shapes_of(self._model)
        return self._inferred.get(name)


def _smallest(floor: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.full(1, floor.min())


def _shapes_of(model: onnx.ModelProto) -> dict[str, tuple[int | None, ...]]:
    """Return the inferred shapes of the values of the main graph."""
    import onnx

    try:
        graph = onnx.shape_inference.infer_shapes(model).graph
    except (ValueError, RuntimeError):
        # The model is larger than 2 GB, or has operators that are not ONNX's own.
        graph = model.graph
    values = (*graph.input, *graph.value_info, *graph.output)
    return {
        value.name: tuple(size if isinstance(size, int) else None for size in shape)
        for value in values
        if (shape := shape_of(value)) is not None
    }
