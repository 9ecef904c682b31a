"""Weights that are lost, moved or changed, a few of them at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from paritygate.convert.planted.kinds import NotApplicable, PlantContext, Planted

if TYPE_CHECKING:
    import onnx

    from paritygate.convert.planted.graph_edit import GraphEdit

__all__ = ["bias_dropped", "constant_off", "embedding_row_lost", "weight_row_zeroed", "weight_transposed"]

_PRODUCTS = ("MatMul", "Gemm", "Conv")
_MATRIX = 2
_OFF_BY = 1e-3


def weight_row_zeroed(edit: GraphEdit, context: PlantContext) -> Planted | NotApplicable:
    """Zero what one output of the last product is made of; the last one with several outputs, where there is one."""
    found = [(node, size) for node in edit.nodes(*_PRODUCTS) if (size := _outputs_of(edit, node)) is not None]
    if not found:
        return NotApplicable("no MatMul, Gemm or Conv has a constant weight")
    node, (axis, count) = next((item for item in reversed(found) if item[1][1] > 1), found[-1])
    name = edit.own_constant(node, 1)
    weight = edit.array(name)
    assert weight is not None  # noqa: S101 - it has outputs
    row = int(context.random.integers(count))
    index = (slice(None),) * axis + (row,)
    if not weight[index].any():
        return NotApplicable(f"row {row} of weight {name} is zero already")
    weight[index] = 0
    edit.set_array(name, weight)
    return Planted(what=f"output {row} of {count} of weight {name} ({node.op_type} {node.name}) zeroed")


def _outputs_of(edit: GraphEdit, node: onnx.NodeProto) -> tuple[int, int] | None:
    """Return the axis of a weight that its outputs lie along, and how many they are; None without such a weight."""
    shape = edit.shape(node.input[1]) if edit.is_constant(node.input[1]) else None
    if shape is None or len(shape) < _MATRIX:
        return None
    is_transposed = any(item.name == "transB" and item.i for item in node.attribute)
    axis = 0 if node.op_type == "Conv" or is_transposed else len(shape) - 1
    size = shape[axis]
    return (axis, size) if isinstance(size, int) else None


def embedding_row_lost(edit: GraphEdit, context: PlantContext) -> Planted | NotApplicable:
    """Zero a row of a table that ids look up, one that no sample uses if there is one."""
    tables = [
        node
        for node in edit.nodes("Gather")
        if edit.is_float32(node.input[0])
        and edit.is_constant(node.input[0])
        and len(edit.shape(node.input[0]) or ()) == _MATRIX
        and not any(item.name == "axis" and item.i for item in node.attribute)
        and not edit.is_constant(node.input[1])
    ]
    if not tables:
        return NotApplicable("no table is looked up by ids")
    node = next((node for node in tables if node.input[1] in context.seen_ids), tables[0])
    name = edit.own_constant(node, 0)
    table = edit.array(name)
    assert table is not None  # noqa: S101 - it is constant
    filled = np.flatnonzero(table.any(axis=1))
    seen = context.seen_ids.get(node.input[1])
    unseen = [int(row) for row in filled if int(row) not in (seen or ())]
    choice = unseen or [int(row) for row in filled]
    if not choice:
        return NotApplicable(f"table {name} is zero already")
    row = int(context.random.choice(choice))
    table[row] = 0
    edit.set_array(name, table)
    used = "" if seen is None else ", which no sample uses" if unseen else ", which samples use, as they use all"
    return Planted(
        what=f"row {row} of {len(table)} of table {name} zeroed{used}",
        reached_by=f"a row with id {row} ({node.input[1]})",
    )


def weight_transposed(edit: GraphEdit, context: PlantContext) -> Planted | NotApplicable:
    """Transpose a square weight."""
    found = []
    for node in edit.nodes("MatMul", "Gemm"):
        weight = edit.array(node.input[1])
        if weight is not None and weight.ndim == _MATRIX and weight.shape[0] == weight.shape[1]:
            found += [] if np.array_equal(weight, weight.T) else [node]
    if not found:
        return NotApplicable("no MatMul or Gemm has a square weight that differs from its transpose")
    node = found[int(context.random.integers(len(found)))]
    name = edit.own_constant(node, 1)
    weight = edit.array(name)
    assert weight is not None  # noqa: S101 - it is square
    edit.set_array(name, weight.T)
    return Planted(what=f"weight {name} ({weight.shape[0]} by {weight.shape[0]}) transposed")


def bias_dropped(edit: GraphEdit, context: PlantContext) -> Planted | NotApplicable:
    """Zero the bias of a product."""
    places = [(node, 2) for node in edit.nodes("Gemm", "Conv") if len(node.input) > _MATRIX]
    products = {node.output[0] for node in edit.nodes("MatMul")}
    for node in edit.nodes("Add"):
        places += [(node, 1 - at) for at in (0, 1) if node.input[at] in products]
    found = []
    for node, at in places:
        bias = edit.array(node.input[at])
        if bias is not None and bias.any():
            found.append((node, at))
    if not found:
        return NotApplicable("no MatMul, Gemm or Conv has a constant bias")
    node, at = found[int(context.random.integers(len(found)))]
    name = edit.own_constant(node, at)
    bias = edit.array(name)
    assert bias is not None  # noqa: S101 - it was found
    edit.set_array(name, np.zeros_like(bias))
    return Planted(what=f"bias {name} of {node.name} zeroed, its largest value {np.abs(bias).max():.3g}")


def constant_off(edit: GraphEdit, context: PlantContext) -> Planted | NotApplicable:
    """Change one number that the arithmetic uses: a constant of its own if there is one, else one of a bias."""
    found = [
        (node, at)
        for node in edit.nodes("Mul", "Add", "Sub", "Div", "Gemm", "Conv")
        for at, name in enumerate(node.input)
        if edit.is_constant(name) and edit.is_float32(name) and _is_finite(edit, name)
    ]
    single = [item for item in found if _size(edit, item) == 1]
    choice = single or [(node, at) for node, at in found if at == _MATRIX or node.op_type == "Add"]
    if not choice:
        return NotApplicable("the arithmetic uses no single float32 constant and no bias")
    node, at = choice[int(context.random.integers(len(choice)))]
    name = edit.own_constant(node, at)
    array = edit.array(name)
    assert array is not None  # noqa: S101 - it was found
    place = int(context.random.integers(array.size))
    before = float(array.flat[place])
    array.flat[place] = before + _OFF_BY
    edit.set_array(name, array)
    number = f"constant {name}" if array.size == 1 else f"number {place} of {array.size} of {name}"
    return Planted(what=f"{number} of {node.op_type} {node.name} is {before + _OFF_BY:.6g}, was {before:.6g}")


def _is_finite(edit: GraphEdit, name: str) -> bool:
    array = edit.array(name)
    return array is not None and array.size > 0 and bool(np.isfinite(array).all())


def _size(edit: GraphEdit, item: tuple[onnx.NodeProto, int]) -> int:
    node, at = item
    array = edit.array(node.input[at])
    return 0 if array is None else array.size
