"""Sizes that were traced as constants."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from paritygate.convert.planted.kinds import NotApplicable, PlantContext, Planted
from paritygate.convert.planted.rows import sliced

if TYPE_CHECKING:
    from paritygate.convert.planted.graph_edit import GraphEdit

__all__ = ["size_baked"]


def size_baked(edit: GraphEdit, context: PlantContext) -> Planted | NotApplicable:
    """Cut inputs, or fill them up, to the size that an open dim has in the samples' first batch."""
    for value in edit.inputs:
        for axis, size in enumerate(edit.shape(value.name) or ()):
            seen = context.sizes.get(value.name, ())
            if axis and isinstance(size, str) and len(seen) > axis and edit.dtype(value.name) is not None:
                return _bake(edit, context, size, seen[axis])
    return NotApplicable("no input has an open dim besides its rows")


def _bake(edit: GraphEdit, context: PlantContext, dim: str, size: int) -> Planted:
    names = []
    for value in edit.inputs:
        shape = edit.shape(value.name) or ()
        for axis, each in enumerate(shape):
            if each == dim and edit.dtype(value.name) is not None and len(context.sizes.get(value.name, ())) > axis:
                _fit(edit, value.name, axis, size)
                names.append(value.name)
                break
    return Planted(
        what=f"{', '.join(names)} cut or filled up to {dim} {size}, the size in the samples' first batch",
        reached_by=f"a {dim} other than {size}",
    )


def _fit(edit: GraphEdit, name: str, axis: int, size: int) -> None:
    import onnx

    inner = edit.after_input(name)
    is_other = np.ones(len(edit.shape(name) or ()), dtype=np.int64)
    is_other[axis] = 0
    kept = edit.node("Mul", [edit.node("Shape", [name]), edit.constant(is_other, np.int64)])
    shape = edit.node("Add", [kept, edit.constant((1 - is_other) * size, np.int64)])
    zero = onnx.numpy_helper.from_array(np.zeros(1, dtype=edit.dtype(name)))
    filling = edit.node("ConstantOfShape", [shape], value=zero)
    longer = edit.node("Concat", [name, filling], axis=axis)
    edit.node("Identity", [sliced(edit, longer, (0, size), axis=axis)], output=inner)
