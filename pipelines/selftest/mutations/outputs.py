"""Faults that change outputs on their way out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from paritygate.pipelines.selftest.mutations.mutation import Mutated, MutationContext, NotApplicableError, need

if TYPE_CHECKING:
    import onnx

    from paritygate.pipelines.selftest.mutations.graph_edit import GraphEdit

_OFFSET = 1e-3
_SCALE = 1.01
_NO_FLOAT = "no output of dtype float32 is made by an operator"


def _made(edit: GraphEdit, kinds: str) -> list[onnx.ValueInfoProto]:
    """Return the outputs of these kinds of dtypes that operators make."""
    return [
        value
        for value in edit.graph.output
        if (dtype := edit.dtype(value.name)) is not None
        and dtype.kind in kinds
        and edit.producer(value.name) is not None
    ]


def _chosen(edit: GraphEdit, context: MutationContext, kinds: str = "f", why: str = _NO_FLOAT) -> onnx.ValueInfoProto:
    return context.pick(need(_made(edit, kinds), why))


def offset_added(edit: GraphEdit, context: MutationContext) -> Mutated:
    """Add a thousandth of its scale to every value of an output."""
    value = _chosen(edit, context)
    offset = _OFFSET * context.scales.get(value.name, 1.0)
    inner = edit.before_output(value.name)
    edit.node("Add", [inner, edit.constant(offset, edit.dtype(value.name))], output=value.name)
    return Mutated(what=f"{offset:.3g} added to {value.name}")


def output_scaled(edit: GraphEdit, context: MutationContext) -> Mutated:
    """Multiply an output by 1.01."""
    value = _chosen(edit, context)
    inner = edit.before_output(value.name)
    edit.node("Mul", [inner, edit.constant(_SCALE, edit.dtype(value.name))], output=value.name)
    return Mutated(what=f"{value.name} multiplied by {_SCALE}")


def column_zeroed(edit: GraphEdit, context: MutationContext) -> Mutated:
    """Zero the column that varies least, constant columns aside."""
    columns = [
        (spread, value.name, column)
        for value in _made(edit, "f")
        for column, spread in enumerate(context.columns.get(value.name, ()))
        if spread > 0
    ]
    need(columns, "no output has several columns of which one varies")
    spread, name, column = min(columns)
    factors = np.ones(len(context.columns[name]))
    factors[column] = 0
    inner = edit.before_output(name)
    edit.node("Mul", [inner, edit.constant(factors, edit.dtype(name))], output=name)
    return Mutated(what=f"column {column} of {name} zeroed, which varies by {spread:.3g}")


def outputs_swapped(edit: GraphEdit, _: MutationContext) -> Mutated:
    """Swap the names of two outputs of one dtype and shape."""
    values = _made(edit, "fiub")
    pair = next(
        (
            (first.name, second.name)
            for at, first in enumerate(values)
            for second in values[at + 1 :]
            if edit.dtype(first.name) == edit.dtype(second.name) and edit.shape(first.name) == edit.shape(second.name)
        ),
        None,
    )
    first, second = need(pair, "no two outputs have one dtype and shape")
    inner = [edit.before_output(name) for name in (first, second)]
    edit.node("Identity", [inner[1]], output=first)
    edit.node("Identity", [inner[0]], output=second)
    return Mutated(what=f"{first} and {second} swapped")


def output_off_by_one(edit: GraphEdit, context: MutationContext) -> Mutated:
    """Add 1 to an integer output."""
    value = _chosen(edit, context, "iu", "no integer output is made by an operator")
    inner = edit.before_output(value.name)
    edit.node("Add", [inner, edit.constant(1, edit.dtype(value.name))], output=value.name)
    return Mutated(what=f"1 added to {value.name}")


def output_squeezed(edit: GraphEdit, _: MutationContext) -> Mutated:
    """Return an output without a dim of size 1."""
    for value in _made(edit, "fiub"):
        shape = edit.shape(value.name) or ()
        axes = [axis for axis, size in enumerate(shape) if axis and size == 1]
        if axes:
            inner = edit.before_output(value.name)
            edit.node("Squeeze", [inner, edit.constant([axes[-1]], np.int64)], output=value.name)
            del value.type.tensor_type.shape.dim[axes[-1]]
            return Mutated(what=f"{value.name} without axis {axes[-1]}, whose size is 1")
    raise NotApplicableError("no output has a dim of size 1 besides its rows")


def output_dtype(edit: GraphEdit, context: MutationContext) -> Mutated:
    """Return an output in a dtype of twice or half the size."""
    import onnx

    value = _chosen(edit, context, "fi", "no output is a number that an operator makes")
    before = np.dtype(edit.dtype(value.name))
    others = {"float32": "float64", "float64": "float32", "int64": "int32", "int32": "int64", "float16": "float32"}
    if before.name not in others:
        raise NotApplicableError(f"{value.name} is {before.name}, which is not converted here")
    element = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(others[before.name]))
    inner = edit.before_output(value.name)
    edit.node("Cast", [inner], output=value.name, to=element)
    value.type.tensor_type.elem_type = element
    return Mutated(what=f"{value.name} in {others[before.name]} instead of {before.name}")


def output_nan_cleared(edit: GraphEdit, _: MutationContext) -> Mutated:
    """Replace NaN in all float outputs by 0."""
    values = _made(edit, "f")
    for value in values:
        inner = edit.before_output(value.name)
        zero = edit.constant(0, edit.dtype(value.name))
        edit.node("Where", [edit.node("IsNaN", [inner]), zero, inner], output=value.name)
    need(values, _NO_FLOAT)
    names = ", ".join(value.name for value in values)
    return Mutated(
        what=f"NaN in {names} replaced by 0",
        reached_by="an input that the reference answers with NaN, declared by non_finite: match",
    )


def output_not_activated(edit: GraphEdit, _: MutationContext) -> Mutated:
    """Remove the Softmax or Sigmoid that makes an output."""
    for value in edit.graph.output:
        node = edit.producer(value.name)
        if node is not None and node.op_type in {"Softmax", "LogSoftmax", "Sigmoid", "Tanh"}:
            source, operator = node.input[0], node.op_type
            edit.remove(node)
            edit.node("Identity", [source], output=value.name)
            return Mutated(what=f"{value.name} without its {operator}")
    raise NotApplicableError("no output is made by a Softmax, Sigmoid or Tanh")
