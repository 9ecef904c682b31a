"""Faults that return one row of a batch for another, or cut inputs to sizes that were traced as constants."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from paritygate.pipelines.selftest.mutations.graph_edit import GraphEdit
from paritygate.pipelines.selftest.mutations.mutation import Mutated, MutationContext, NotApplicableError, need

_NO_ROWS = "no output has as many rows as the batch: the size of the batch is fixed"
_MANY_ROWS = np.iinfo(np.int64).max
_NOISE, _SHARE = 1e-2, 0.02


def _outputs_with_rows(edit: GraphEdit) -> list[str]:
    """Return the outputs whose first dim is the open first dim of an input, by name."""
    rows = {shape[0] for value in edit.inputs if (shape := edit.shape(value.name)) and isinstance(shape[0], str)}
    return [
        value.name
        for value in edit.graph.output
        if (shape := edit.shape(value.name)) and shape[0] in rows and edit.producer(value.name) is not None
    ]


def _changed(edit: GraphEdit, operator: str, inputs_of: Callable[[str], list[str]], **attributes: int) -> list[str]:
    names = need(_outputs_with_rows(edit), _NO_ROWS)
    for name in names:
        edit.node(operator, inputs_of(edit.before_output(name)), output=name, **attributes)
    return names


def sliced(edit: GraphEdit, name: str, bounds: tuple[int, ...], *, axis: int = 0) -> str:
    """Return a part of a value along an axis; bounds are start, end and optionally step."""
    start, end, step = (*bounds, 1)[:3]
    numbers = [edit.constant([number], np.int64) for number in (start, end, axis, step)]
    return edit.node("Slice", [name, *numbers])


def first_row_for_all(edit: GraphEdit, name: str) -> str:
    """Return a value of the same shape with the first row in all rows."""
    return edit.node("Expand", [sliced(edit, name, (0, 1)), edit.node("Shape", [name])])


def rows_reversed(edit: GraphEdit, _: MutationContext) -> Mutated:
    """Return the last row first."""
    names = _changed(edit, "Identity", lambda inner: [sliced(edit, inner, (-1, -_MANY_ROWS, -1))])
    return Mutated(what=f"rows of {', '.join(names)} reversed")


def last_row_as_first(edit: GraphEdit, _: MutationContext) -> Mutated:
    """Return the first row in place of the last one."""
    names = _changed(edit, "Concat", lambda inner: [sliced(edit, inner, (0, -1)), sliced(edit, inner, (0, 1))], axis=0)
    return Mutated(what=f"the last row of {', '.join(names)} is the first one", reached_by="a batch of two rows")


def rows_as_first(edit: GraphEdit, _: MutationContext) -> Mutated:
    """Return the first row in place of all rows."""
    names = _changed(edit, "Identity", lambda inner: [first_row_for_all(edit, inner)])
    return Mutated(what=f"every row of {', '.join(names)} is the first one", reached_by="a batch of two rows")


def rows_beyond_seen(edit: GraphEdit, context: MutationContext) -> Mutated:
    """Return the first row in place of rows beyond the largest batch of the samples."""
    largest = context.largest_batch
    if context.most_rows is not None and context.most_rows <= largest:
        raise NotApplicableError(f"the samples' largest batch, {largest} rows, is the largest allowed")

    def parts(inner: str) -> list[str]:
        rest = sliced(edit, inner, (largest, _MANY_ROWS))
        rows = edit.node("Expand", [sliced(edit, inner, (0, 1)), edit.node("Shape", [rest])])
        return [sliced(edit, inner, (0, largest)), rows]

    names = _changed(edit, "Concat", parts, axis=0)
    return Mutated(
        what=f"rows of {', '.join(names)} from the {largest + 1}th on are the first one",
        reached_by=f"a batch of more than {largest} rows",
    )


def row_noise(edit: GraphEdit, context: MutationContext) -> Mutated:
    """Add noise to about one row in fifty, to other rows in every call."""
    seed = float(context.random.integers(1, 2**20))
    names = [name for name in _outputs_with_rows(edit) if edit.is_float32(name)]
    for name in names:
        inner = edit.before_output(name)
        row = edit.node("Cast", [_first_of_row(edit, inner)], to=1)
        draw = edit.node("RandomUniformLike", [row], dtype=1, seed=seed)
        is_hit = edit.node("Cast", [edit.node("Less", [draw, edit.constant(_SHARE, np.float32)])], to=1)
        noise = edit.node("Mul", [is_hit, edit.constant(_NOISE * context.scales.get(name, 1.0), np.float32)])
        edit.node("Add", [inner, noise], output=name)
    need(names, f"{_NO_ROWS}, or no such output is float32")
    return Mutated(
        what=f"{_NOISE} of their scale added to about one row in {round(1 / _SHARE)} of {', '.join(names)}",
        reached_by="many rows, or some rows many times",
    )


def _first_of_row(edit: GraphEdit, name: str) -> str:
    """Return the first value of every row, with all other dims of size 1."""
    for axis in range(1, len(edit.shape(name) or ())):
        name = sliced(edit, name, (0, 1), axis=axis)
    return name


def size_baked(edit: GraphEdit, context: MutationContext) -> Mutated:
    """Cut or pad inputs to the size of an open dim in the first batch of the samples."""
    for value in edit.inputs:
        for axis, size in enumerate(edit.shape(value.name) or ()):
            seen = context.sizes.get(value.name, ())
            if axis and isinstance(size, str) and len(seen) > axis and edit.dtype(value.name) is not None:
                return _bake(edit, context, size, seen[axis])
    raise NotApplicableError("no input has an open dim besides its rows")


def _bake(edit: GraphEdit, context: MutationContext, dim: str, size: int) -> Mutated:
    names = []
    for value in edit.inputs:
        shape = edit.shape(value.name) or ()
        for axis, each in enumerate(shape):
            if each == dim and edit.dtype(value.name) is not None and len(context.sizes.get(value.name, ())) > axis:
                _fit(edit, value.name, axis, size)
                names.append(value.name)
                break
    return Mutated(
        what=f"{', '.join(names)} cut or filled up to {dim} {size}, the size in the samples' first batch",
        reached_by=f"a {dim} other than {size}",
    )


def _fit(edit: GraphEdit, name: str, axis: int, size: int) -> None:
    import onnx

    inner = edit.after_input(name)
    is_other = np.ones(len(edit.shape(name) or ()), dtype=np.int64)
    is_other[axis] = 0
    other_sizes = edit.node("Mul", [edit.node("Shape", [name]), edit.constant(is_other, np.int64)])
    shape = edit.node("Add", [other_sizes, edit.constant((1 - is_other) * size, np.int64)])
    zero = onnx.numpy_helper.from_array(np.zeros(1, dtype=edit.dtype(name)))
    filling = edit.node("ConstantOfShape", [shape], value=zero)
    longer = edit.node("Concat", [name, filling], axis=axis)
    edit.node("Identity", [sliced(edit, longer, (0, size), axis=axis)], output=inner)
