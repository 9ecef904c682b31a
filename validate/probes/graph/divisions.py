"""The numbers that a graph divides the whole numbers of an input by: `//`, `%`, shifts, Floor of a quotient, casts.

A value is followed as `floor((scale * x - offset) / step)` through additions, products and divisions by constants. So
the boundaries of each division are values of the input itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from paritygate.codec import with_fields_of
from paritygate.models.onnx.graph import attribute_of
from paritygate.validate.probes.graph.constants import Constants
from paritygate.validate.probes.graph.flow import InputFlow, is_to_whole
from paritygate.validate.probes.inputs.thresholds import Division

if TYPE_CHECKING:
    import onnx

_MOST = 8
# Operators that only move values, from their first input to all outputs.
_PASSING = frozenset(
    {"Cast", "Dropout", "Expand", "Flatten", "Gather", "Identity", "Reshape", "Slice", "Split", "Squeeze", "Tile",
     "Transpose", "Unsqueeze"}
)  # fmt: skip
_DIVIDING = frozenset({"BitShift", "BitwiseAnd", "Div", "Mod"})
_BITS = 62
# No input holds larger numbers.
_LARGEST = 1 << _BITS
# A factor this close to the reciprocal of a whole number is that reciprocal in float32.
_NEAR = 1e-6


@dataclass(frozen=True, kw_only=True, slots=True)
class _Value:
    """A tensor as a function of an input x: `floor((scale * x - offset) / step)`, or the quotient itself.

    `columns` is None for all features, or unknown ones. `is_quotient` means a float quotient that is not yet rounded.
    `is_float` means float arithmetic; `is_computed` means fractions or other inputs came in.
    """

    scale: int = 1
    offset: int = 0
    step: int = 1
    columns: tuple[int, ...] | None = None
    is_quotient: bool = False
    is_float: bool = False
    is_computed: bool = False


def divisions_in(
    graph: onnx.GraphProto, carried: Mapping[str, InputFlow], constants: Constants
) -> tuple[Division, ...]:
    """Return the divisions of an input's whole numbers, those of the input itself before computed ones."""
    values = {
        name: _Value(columns=flow.columns)
        for name, flow in carried.items()
        if flow.is_raw and (flow.is_whole or flow.is_plain)
    }
    divisions: dict[Division, None] = {}
    for node in graph.node if values else ():
        if not any(name in values for name in node.input) or (node.output and node.output[0] in values):
            continue
        divisions.update(dict.fromkeys(_by_feature(node, values, constants)))
        value, division = _after(node, values, constants)
        if division is not None:
            divisions[division] = None
        if value is not None:
            values.update(dict.fromkeys(filter(None, node.output), value))
    ordered = sorted(divisions, key=lambda item: item.is_computed)
    return tuple(ordered[:_MOST])


def _by_feature(node: onnx.NodeProto, values: Mapping[str, _Value], constants: Constants) -> Iterator[Division]:
    """Yield the divisions of whole numbers in which each feature has its own divisor."""
    value, other = values.get(node.input[0]), constants.values.get(node.input[-1])
    if value is None or other is None or node.op_type not in {"Div", "Mod"} or other.dtype.kind not in "iu":
        return
    numbers = [int(number) for number in other.reshape(-1)]
    features = value.columns or tuple(range(len(numbers)))
    if len(set(numbers)) < 2 or other.shape[-1:] != (len(features),) or len(numbers) != len(features):  # noqa: PLR2004
        return
    for feature, number in zip(features, numbers, strict=True):
        after = _over(value, number) if number else None
        division = None if after is None else _division(replace(after, columns=(feature,)))
        if division is not None:
            yield division


def _after(
    node: onnx.NodeProto, values: Mapping[str, _Value], constants: Constants
) -> tuple[_Value | None, Division | None]:
    """Return the value after a node, and the division that the node completes."""
    at = next(place for place, name in enumerate(node.input) if name in values)
    value = values[node.input[at]]
    if is_to_whole(node) and value.is_quotient:
        # Round may break ties either way.
        is_tied = node.op_type == "Round"
        return (None, None) if is_tied else (replace(value, is_quotient=False), _division(value))
    if (node.op_type in _PASSING and at == 0) or is_to_whole(node):
        return value, None
    number = _number(node, at, constants)
    if number is None:
        is_mixed = (node.op_type in {"Add", "Sub"} and at == 0) or (node.op_type == "Where" and at > 0)
        return (replace(value, is_computed=True) if is_mixed else None), None
    if node.op_type not in _DIVIDING or at:
        return _moved(node, at, value, number), None
    return _divided(node, value, number) if node.op_type in {"Div", "Mod"} else _of_bits(node, value, int(number))


def _number(node: onnx.NodeProto, at: int, constants: Constants) -> float | None:
    """Return the constant on the other side of a node, if it is one number for all features."""
    if len(node.input) != 2:  # noqa: PLR2004 - both sides
        return None
    other = constants.values.get(node.input[1 - at])
    if other is None or not other.size or (other != other.reshape(-1)[0]).any():
        return None
    number = other.reshape(-1)[0]
    return int(number) if other.dtype.kind in "iu" else float(number)


def _of_bits(node: onnx.NodeProto, value: _Value, number: int) -> tuple[_Value | None, Division | None]:
    """Return the value after a shift or a mask of its lowest bits."""
    is_shift = node.op_type == "BitShift"
    divisor = 1 << number if is_shift and 0 <= number < _BITS else number + 1
    if divisor < 2 or divisor & (divisor - 1):  # noqa: PLR2004 - nothing is divided
        return None, None
    if is_shift and attribute_of(node, "direction") == b"LEFT":
        return _times(value, divisor), None
    after = _over(value, divisor)
    return (after if is_shift else value), None if after is None else _division(after)


def _divided(node: onnx.NodeProto, value: _Value, number: float) -> tuple[_Value | None, Division | None]:
    is_float = isinstance(number, float)
    if not number or not float(number).is_integer():
        return (_times_float(value, 1 / number) if number and node.op_type == "Div" else None), None
    after = _over(value, int(number))
    if after is None:
        return None, None
    after = replace(after, is_float=after.is_float or is_float)
    if node.op_type == "Mod":
        # A remainder is divided at the same places where the next divisor divides the number too.
        return replace(value, is_float=after.is_float), _division(after)
    return replace(after, is_quotient=is_float), None if is_float else _division(after)


def _moved(node: onnx.NodeProto, at: int, value: _Value, number: float) -> _Value | None:
    """Return the value after an addition or a product."""
    value = replace(value, is_float=value.is_float or isinstance(number, float))
    if node.op_type == "Mul":
        return _times(value, int(number)) if float(number).is_integer() else _times_float(value, float(number))
    if node.op_type not in {"Add", "Sub"}:
        return None
    if not float(number).is_integer():
        return replace(value, is_computed=True)
    sign = -1 if node.op_type == "Sub" and at else 1
    moved = replace(value, scale=sign * value.scale, offset=sign * value.offset)
    added = -int(number) if node.op_type == "Sub" and not at else int(number)
    return _checked(replace(moved, offset=moved.offset - added * moved.step))


def _over(value: _Value, number: int) -> _Value | None:
    return _checked(replace(value, step=value.step * abs(number)))


def _times(value: _Value, number: int) -> _Value | None:
    if not number:
        return None
    is_computed = value.is_computed or value.step != 1
    return _checked(replace(value, scale=value.scale * number, offset=value.offset * number, is_computed=is_computed))


def _times_float(value: _Value, number: float) -> _Value | None:
    """Return the value times the reciprocal of a whole number, which is one way to divide."""
    divisor = round(1 / number) if number else 0
    if not 1 < abs(divisor) < _LARGEST or abs(1 / number - divisor) > _NEAR * abs(divisor):
        return None
    after = _over(value, divisor)
    return None if after is None else replace(after, is_quotient=True, is_float=True)


def _checked(value: _Value) -> _Value | None:
    return value if max(abs(value.scale), abs(value.offset), value.step) < _LARGEST else None


def _division(value: _Value) -> Division | None:
    # By less than 2, nothing is divided.
    return None if value.step < 2 else with_fields_of(Division, value)  # noqa: PLR2004 - as above
