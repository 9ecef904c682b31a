"""Decide whether an ONNX graph masks values where an input is 0, or chooses between two results by the input.

A padding mask adds -1e9 to scores, multiplies by 0, or replaces computed values by a constant. An input that chooses
between two results is not a mask, whatever its name, because both results count.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from paritygate.models.onnx.graph import attribute_of, nodes_in, subgraphs_of
from paritygate.validate.probes.graph.constants import Constants

if TYPE_CHECKING:
    import onnx

# A score this low, or lower, drops out of a softmax.
_LEFT_OUT = -1000.0
_SHAPE_OPS = frozenset({"Shape", "Size"})
# Operators that pass on values of their first input.
_SHAPING = frozenset(
    {"Cast", "Dropout", "Expand", "Flatten", "Gather", "GatherElements", "GatherND", "Identity", "Reshape", "Slice",
     "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze"}
)  # fmt: skip
# The operand that alone decides the result.
_ABSORBING: Mapping[str, float] = {"And": 0.0, "Mul": 0.0, "Or": 1.0}
_COMPUTED: Mapping[str, Callable[[float, float], float]] = {
    "Add": lambda a, b: a + b,
    "And": lambda a, b: float(bool(a) and bool(b)),
    "Div": lambda a, b: a / b if b else math.nan,
    "Equal": lambda a, b: float(a == b),
    "Greater": lambda a, b: float(a > b),
    "GreaterOrEqual": lambda a, b: float(a >= b),
    "Less": lambda a, b: float(a < b),
    "LessOrEqual": lambda a, b: float(a <= b),
    "Mul": lambda a, b: a * b,
    "Or": lambda a, b: float(bool(a) or bool(b)),
    "Sub": lambda a, b: a - b,
}
_ATTENTION_MASK = 3


class Masking(Struct, frozen=True, kw_only=True):
    """A graph's use of an input of zeros and ones: whether it masks at 0, and why it is not a mask even so."""

    leaves_out: bool = False
    why_no_mask: str = ""

    @property
    def is_mask(self) -> bool:
        """True where the input masks at 0 and does nothing else by itself."""
        return self.leaves_out and not self.why_no_mask


NO_MASKING = Masking()


class _Tensor(Struct, frozen=True, kw_only=True):
    """A tensor's values where the input is 0 and where it is 1 (None: open), and whether it depends on fed values."""

    at_zero: float | None = None
    at_one: float | None = None
    of_input: bool = False
    of_data: bool = False

    @property
    def is_fill(self) -> bool:
        return not self.of_data


_CONSTANT = _Tensor()


def masking_by(name: str, graph: onnx.GraphProto, constants: Constants, functions: frozenset[str]) -> Masking:
    """Return the main graph's use of an input; local functions, given by name, are not searched."""
    walk = _Walk(constants, functions)
    for value in graph.input:
        if value.name not in constants.sizes:
            is_it = value.name == name
            walk.known[value.name] = _Tensor(at_zero=0.0, at_one=1.0, of_input=True) if is_it else _Tensor(of_data=True)
    for node in graph.node:
        walk.take(node)
    return walk.found


class _Walk:
    def __init__(self, constants: Constants, functions: frozenset[str]) -> None:
        self.known: dict[str, _Tensor] = {}
        self.found = Masking()
        self._constants = constants
        self._functions = functions

    def take(self, node: onnx.NodeProto) -> None:
        """Process a node whose inputs are done."""
        inputs = [self._tensor(name) for name in node.input]
        inner = [self._tensor(name) for name in _names_inside(node)]
        is_inner = bool(inner) or node.op_type in self._functions
        if is_inner and any(item.of_input for item in (*inputs, *inner)):
            self._no_mask(f"{node.op_type} {node.name or node.output[0]} of the graph hangs on it")
        result = _CONSTANT
        if node.op_type == "ConstantOfShape":
            value = attribute_of(node, "value")
            result = _number(0.0 if value is None else _scalar_of(value))
        elif node.op_type not in _SHAPE_OPS and node.op_type != "Constant":
            result = self._result(node, inputs)
            result = replace(result, of_data=result.of_data or any(item.of_data for item in inner))
        if result != _CONSTANT:
            self.known.update(dict.fromkeys(filter(None, node.output), result))

    def _tensor(self, name: str) -> _Tensor:
        tensor = self.known.get(name)
        if tensor is not None:
            return tensor
        value = self._constants.values.get(name)
        is_number = value is not None and value.size > 0 and bool((value == value.reshape(-1)[0]).all())
        return _number(float(value.reshape(-1)[0])) if value is not None and is_number else _CONSTANT

    def _no_mask(self, why: str) -> None:
        self.found = replace(self.found, why_no_mask=self.found.why_no_mask or why)

    def _leaves_out(self, node: onnx.NodeProto, at_zero: bool, at_one: bool) -> None:  # noqa: FBT001 - two of a kind
        """Record that something is masked where the input is 0, or where it is 1."""
        if at_one and not at_zero:
            self._no_mask(f"{node.op_type} {node.name or node.output[0]} of the graph leaves out where it is set")
        elif at_zero and not at_one:
            self.found = replace(self.found, leaves_out=True)

    def _result(self, node: onnx.NodeProto, inputs: Sequence[_Tensor]) -> _Tensor:
        of_input, of_data = any(item.of_input for item in inputs), any(item.of_data for item in inputs)
        if of_input and of_data:
            self._meet_data(node, inputs)
        if node.op_type in _SHAPING and inputs:
            # The chosen places are not values.
            is_cast_to_bool = node.op_type == "Cast" and attribute_of(node, "to") == 9  # noqa: PLR2004 - bool of ONNX
            first = _as_bool(inputs[0]) if is_cast_to_bool else inputs[0]
            return replace(first, of_input=first.of_input or (of_input and not of_data), of_data=of_data)
        if node.op_type == "Concat":
            first = next((item for item in inputs if item.of_input), _CONSTANT)
            return replace(first, of_data=of_data)
        if node.op_type == "Where":
            at_zero, at_one = (_chosen(inputs, at) for at in ("at_zero", "at_one"))
        elif node.op_type == "Not":
            at_zero, at_one = (None if at is None else float(not at) for at in (inputs[0].at_zero, inputs[0].at_one))
        elif node.op_type == "Neg":
            at_zero, at_one = (None if at is None else -at for at in (inputs[0].at_zero, inputs[0].at_one))
        elif node.op_type in _COMPUTED and len(inputs) == 2:  # noqa: PLR2004 - both sides
            at_zero, at_one = _of_both(node.op_type, *inputs)
        else:
            at_zero = at_one = None
        # Values computed from data are no longer the input's, except conditions and their choices.
        is_condition = node.op_type in {"And", "Or"} or (
            node.op_type == "Where" and inputs[0].of_input and inputs[1].is_fill and inputs[2].is_fill
        )
        is_of_input = of_input and (not of_data or is_condition)
        return _Tensor(at_zero=at_zero, at_one=at_one, of_input=is_of_input, of_data=of_data)

    def _meet_data(self, node: onnx.NodeProto, inputs: Sequence[_Tensor]) -> None:
        """Record what a node does where the input meets other values."""
        of_input = next(item for item in inputs if item.of_input)
        at_zero, at_one = of_input.at_zero, of_input.at_one
        if node.op_type == "Where" and inputs[0].of_input:
            if not (inputs[1].is_fill or inputs[2].is_fill):
                self._no_mask(f"{node.op_type} {node.name or node.output[0]} of the graph chooses by it")
            elif inputs[1].is_fill != inputs[2].is_fill:
                self._leaves_out(node, *(at is not None and bool(at) == inputs[1].is_fill for at in (at_zero, at_one)))
        elif node.op_type == "Mul":
            self._leaves_out(node, at_zero == 0, at_one == 0)
        elif node.op_type in {"Add", "Sub"}:
            sign = -1 if node.op_type == "Sub" and inputs[1].of_input else 1
            self._leaves_out(node, *(at is not None and sign * at <= _LEFT_OUT for at in (at_zero, at_one)))
        elif node.op_type == "Attention" and len(inputs) > _ATTENTION_MASK and inputs[_ATTENTION_MASK].of_input:
            is_added = any(at is not None and at <= _LEFT_OUT for at in (at_zero, at_one))
            end = _LEFT_OUT if is_added else 0.0
            self._leaves_out(node, *(at is not None and at <= end for at in (at_zero, at_one)))


def _number(value: float) -> _Tensor:
    return _Tensor(at_zero=value, at_one=value)


def _scalar_of(tensor: onnx.TensorProto) -> float:
    from onnx import numpy_helper

    return float(numpy_helper.to_array(tensor).reshape(-1)[0])


def _as_bool(item: _Tensor) -> _Tensor:
    return replace(
        item,
        at_zero=None if item.at_zero is None else float(bool(item.at_zero)),
        at_one=None if item.at_one is None else float(bool(item.at_one)),
    )


def _chosen(inputs: Sequence[_Tensor], at: str) -> float | None:
    """Return the result of a selection where the input is 0, or 1."""
    condition = getattr(inputs[0], at)
    if condition is None:
        return None
    result: float | None = getattr(inputs[1] if condition else inputs[2], at)
    return result


def _of_both(kind: str, one: _Tensor, other: _Tensor) -> tuple[float | None, float | None]:
    """Return the result of a binary operator where the input is 0, and where it is 1."""
    at_zero = _computed(kind, one.at_zero, other.at_zero)
    at_one = _computed(kind, one.at_one, other.at_one)
    if one.of_input and other.of_input:
        # The two may mask different positions: only the absorbing result is certain.
        absorbing = _ABSORBING.get(kind)
        return (at_zero if at_zero is not None and at_zero == absorbing else None), None
    return at_zero, at_one


def _computed(kind: str, one: float | None, other: float | None) -> float | None:
    if _ABSORBING.get(kind) in {one, other} and kind in _ABSORBING:
        return _ABSORBING[kind]
    if one is None or other is None:
        # A masked score stays masked, whatever is added to it.
        masked = [value for value in (one, other) if value is not None and value <= _LEFT_OUT]
        return masked[0] if kind == "Add" and masked else None
    return _COMPUTED[kind](one, other)


def _names_inside(node: onnx.NodeProto) -> list[str]:
    return [name for body in subgraphs_of(node) for inner in nodes_in(body) for name in inner.input]
