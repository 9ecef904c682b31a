"""Faults that drop, swap, round or cut inputs on their way in."""

from __future__ import annotations

import numpy as np

from paritygate.pipelines.selftest.mutations.graph_edit import GraphEdit
from paritygate.pipelines.selftest.mutations.mutation import Mutated, MutationContext, NotApplicableError, need
from paritygate.pipelines.selftest.mutations.rows import first_row_for_all, sliced

_FLOAT32_EXACT = 2**24
_IMAGE_RANK = 4
_COLOURS = 3
_NO_MASK = "no input is a mask"
_MATRIX = 2
_FLOAT = 1
_INT16, _INT64 = 5, 7
_MANY = np.iinfo(np.int64).max


def input_ignored(edit: GraphEdit, context: MutationContext) -> Mutated:
    """Give all rows the first row's values of an input."""
    names = [name for value in edit.inputs if _has_rows(edit, name := value.name) and edit.dtype(name) is not None]
    need(names, "no input has an open number of rows")
    name = context.pick(names)
    inner = edit.after_input(name)
    edit.node("Identity", [first_row_for_all(edit, name)], output=inner)
    return Mutated(what=f"{name} of the first row taken for all rows", reached_by="a batch of two rows")


def _has_rows(edit: GraphEdit, name: str) -> bool:
    shape = edit.shape(name)
    return shape is not None and len(shape) > 0 and not isinstance(shape[0], int)


def inputs_swapped(edit: GraphEdit, _: MutationContext) -> Mutated:
    """Swap two inputs of one dtype and shape."""
    names = [value.name for value in edit.inputs]
    pair = next(
        (
            (first, second)
            for at, first in enumerate(names)
            for second in names[at + 1 :]
            if edit.dtype(first) is not None
            and edit.dtype(first) == edit.dtype(second)
            and edit.shape(first) == edit.shape(second)
        ),
        None,
    )
    one, other = need(pair, "no two inputs have one dtype and shape")
    edit.rename_reads({one: other, other: one})
    return Mutated(what=f"{one} and {other} swapped")


def mask_dropped(edit: GraphEdit, context: MutationContext) -> Mutated:
    """Use a mask of ones instead of the fed one."""
    for name in _masks(edit, context):
        inner = edit.after_input(name)
        _ones(edit, name, edit.dtype(name), output=inner)
        return Mutated(what=f"{name} taken to be all ones", reached_by=f"a row that {name} masks a part of")
    raise NotApplicableError(_NO_MASK)


def _ones(edit: GraphEdit, like: str, dtype: np.dtype[np.generic] | None, *, output: str | None = None) -> str:
    import onnx

    one = onnx.numpy_helper.from_array(np.ones(1, dtype=dtype))
    return edit.node("ConstantOfShape", [edit.node("Shape", [like])], output=output, value=one)


def _masks(edit: GraphEdit, context: MutationContext) -> list[str]:
    names = {value.name for value in edit.inputs}
    return [name for name in context.masks if name in names and edit.dtype(name) is not None]


def mask_of_first_row(edit: GraphEdit, context: MutationContext) -> Mutated:
    """Apply the first row's mask to all rows."""
    for name in _masks(edit, context):
        if _has_rows(edit, name):
            inner = edit.after_input(name)
            edit.node("Identity", [first_row_for_all(edit, name)], output=inner)
            return Mutated(
                what=f"{name} of the first row for all rows", reached_by="rows of other lengths in one batch"
            )
    raise NotApplicableError(f"{_NO_MASK}, or its number of rows is fixed")


def mask_as_length(edit: GraphEdit, context: MutationContext) -> Mutated:
    """Move the real positions of a mask to the left."""
    import onnx

    for name in _masks(edit, context):
        dtype = edit.dtype(name)
        if len(edit.shape(name) or ()) != _MATRIX or dtype is None:
            continue
        inner = edit.after_input(name)
        length = edit.node(
            "ReduceSum", [edit.node("Cast", [name], to=_INT64), edit.constant([1], np.int64)], keepdims=1
        )
        positions = edit.node("CumSum", [_ones(edit, name, np.dtype(np.int64)), edit.constant(1, np.int64)])
        is_let_through = edit.node("Not", [edit.node("Greater", [positions, length])])
        edit.node("Cast", [is_let_through], output=inner, to=onnx.helper.np_dtype_to_tensor_dtype(dtype))
        return Mutated(what=f"{name} taken for filled up on the right", reached_by="a row padded on the left or inside")
    raise NotApplicableError(f"{_NO_MASK} of rows and positions")


def ids_float32(edit: GraphEdit, context: MutationContext) -> Mutated:
    """Pass ids through float32."""
    return _through(edit, context, _FLOAT, "float32", _FLOAT32_EXACT)


def ids_int16(edit: GraphEdit, context: MutationContext) -> Mutated:
    """Pass ids through int16."""
    return _through(edit, context, _INT16, "int16", int(np.iinfo(np.int16).max))


def _through(edit: GraphEdit, context: MutationContext, element: int, title: str, exact: int) -> Mutated:
    import onnx

    wide = [
        value.name
        for value in edit.inputs
        if (dtype := edit.dtype(value.name)) is not None
        and dtype.kind in "iu"
        and dtype.itemsize > np.dtype(np.int16).itemsize
        and value.name not in context.masks
    ]
    need(wide, "no input is of whole numbers of 32 or 64 bits, masks aside")
    inexact = [name for name in wide if (high := context.ids.get(name)) is None or high > exact]
    largest = max(context.ids.get(name) or 0 for name in wide)
    name, *_ = need(inexact, f"every id is exact in {title}: the largest is {largest}")
    inner = edit.after_input(name)
    back = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(edit.dtype(name)))
    edit.node("Cast", [edit.node("Cast", [name], to=element)], output=inner, to=back)
    return Mutated(what=f"{name} through {title}", reached_by=f"a value of {name} above {exact}")


def input_nan_cleared(edit: GraphEdit, _: MutationContext) -> Mutated:
    """Replace NaN in all float inputs by 0."""
    names = [value.name for value in edit.inputs if edit.is_float32(value.name)]
    for name in names:
        inner = edit.after_input(name)
        edit.node("Where", [edit.node("IsNaN", [name]), edit.constant(0, np.float32), name], output=inner)
    need(names, "no input is float32")
    return Mutated(
        what=f"NaN in {', '.join(names)} taken for 0",
        reached_by="NaN in an input, which the reference must answer with NaN, declared by non_finite: match",
    )


def negatives_lost(edit: GraphEdit, context: MutationContext) -> Mutated:
    """Replace negative values of an input by 0."""
    names = [value.name for value in edit.inputs if edit.is_float32(value.name)]
    need(names, "no input is float32")
    name = context.pick(names)
    inner = edit.after_input(name)
    edit.node("Relu", [name], output=inner)
    return Mutated(what=f"negative values of {name} taken for 0", reached_by=f"negative values in {name}")


def channels_reversed(edit: GraphEdit, _: MutationContext) -> Mutated:
    """Reverse the three channels of an image."""
    for value in edit.inputs:
        shape = edit.shape(value.name) or ()
        axes = [axis for axis in (len(shape) - 1, 1) if len(shape) == _IMAGE_RANK and shape[axis] == _COLOURS]
        if axes:
            inner = edit.after_input(value.name)
            edit.node("Identity", [sliced(edit, value.name, (-1, -_MANY, -1), axis=axes[0])], output=inner)
            return Mutated(what=f"channels of {value.name} (axis {axes[0]}) reversed")
    raise NotApplicableError("no input is an image with three channels")
