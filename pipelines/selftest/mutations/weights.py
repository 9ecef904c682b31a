"""Faults that lose, move or change a few weights, or round them to a lower precision than their dtype."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import numpy as np

from paritygate.models.onnx.graph import attribute_of
from paritygate.pipelines.selftest.mutations.mutation import Mutated, MutationContext, NotApplicableError, need
from paritygate.text import counted

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

    from paritygate.pipelines.selftest.mutations.graph_edit import GraphEdit

    Weight = NDArray[np.float32]

_PRODUCTS = ("MatMul", "Gemm", "Conv")
_MATRIX = 2
_OFF_BY = 1e-3
_ROUNDED_PRODUCTS = ("MatMul", "Gemm", "Conv", "ConvTranspose")
_BF16_BITS, _TF32_BITS = 16, 13
_STEPS = 127
# The largest value of each precision; TF32 has the range of float32.
_LARGEST_FP16 = float(np.finfo(np.float16).max)
_LARGEST_BF16 = float(np.uint32(0x7F7F0000).view(np.float32))


def weight_row_zeroed(edit: GraphEdit, context: MutationContext) -> Mutated:
    """Zero the weights of one output of the last product, preferably of one with several outputs."""
    products = [(node, size) for node in edit.nodes(*_PRODUCTS) if (size := _outputs_of(edit, node)) is not None]
    need(products, "no MatMul, Gemm or Conv has a constant weight")
    node, (axis, count) = next((item for item in reversed(products) if item[1][1] > 1), products[-1])
    name = edit.own_constant(node, 1)
    weight = edit.array(name)
    assert weight is not None  # noqa: S101 - it has outputs
    row = int(context.random.integers(count))
    index = (slice(None),) * axis + (row,)
    if not weight[index].any():
        raise NotApplicableError(f"row {row} of weight {name} is zero already")
    weight[index] = 0
    edit.set_array(name, weight)
    return Mutated(what=f"output {row} of {count} of weight {name} ({node.op_type} {node.name}) zeroed")


def _outputs_of(edit: GraphEdit, node: onnx.NodeProto) -> tuple[int, int] | None:
    """Return the axis of a weight's outputs and their number; None without a constant weight."""
    shape = edit.shape(node.input[1]) if edit.is_constant(node.input[1]) else None
    if shape is None or len(shape) < _MATRIX:
        return None
    is_transposed = bool(attribute_of(node, "transB", 0))
    axis = 0 if node.op_type == "Conv" or is_transposed else len(shape) - 1
    size = shape[axis]
    return (axis, size) if isinstance(size, int) else None


def embedding_row_lost(edit: GraphEdit, context: MutationContext) -> Mutated:
    """Zero a row of an embedding table, preferably one that no sample uses."""
    tables = [
        node
        for node in edit.nodes("Gather")
        if edit.is_float32(node.input[0])
        and edit.is_constant(node.input[0])
        and len(edit.shape(node.input[0]) or ()) == _MATRIX
        and not attribute_of(node, "axis", 0)
        and not edit.is_constant(node.input[1])
    ]
    need(tables, "no table is looked up by ids")
    node = next((node for node in tables if node.input[1] in context.seen_ids), tables[0])
    name = edit.own_constant(node, 0)
    table = edit.array(name)
    assert table is not None  # noqa: S101 - it is constant
    filled = np.flatnonzero(table.any(axis=1))
    seen = context.seen_ids.get(node.input[1])
    unseen = [int(row) for row in filled if int(row) not in (seen or ())]
    choice = unseen or [int(row) for row in filled]
    need(choice, f"table {name} is zero already")
    row = int(context.random.choice(choice))
    table[row] = 0
    edit.set_array(name, table)
    used = "" if seen is None else ", which no sample uses" if unseen else ", which samples use, as they use all"
    return Mutated(
        what=f"row {row} of {len(table)} of table {name} zeroed{used}",
        reached_by=f"a row with id {row} ({node.input[1]})",
    )


def weight_transposed(edit: GraphEdit, context: MutationContext) -> Mutated:
    """Transpose a square weight."""
    nodes = []
    for node in edit.nodes("MatMul", "Gemm"):
        weight = edit.array(node.input[1])
        if weight is not None and weight.ndim == _MATRIX and weight.shape[0] == weight.shape[1]:
            nodes += [] if np.array_equal(weight, weight.T) else [node]
    need(nodes, "no MatMul or Gemm has a square weight that differs from its transpose")
    node = context.pick(nodes)
    name = edit.own_constant(node, 1)
    weight = edit.array(name)
    assert weight is not None  # noqa: S101 - it is square
    edit.set_array(name, weight.T)
    return Mutated(what=f"weight {name} ({weight.shape[0]} by {weight.shape[0]}) transposed")


def bias_dropped(edit: GraphEdit, context: MutationContext) -> Mutated:
    """Zero the bias of a product."""
    places = [(node, 2) for node in edit.nodes("Gemm", "Conv") if len(node.input) > _MATRIX]
    products = {node.output[0] for node in edit.nodes("MatMul")}
    for node in edit.nodes("Add"):
        places += [(node, 1 - at) for at in (0, 1) if node.input[at] in products]
    biases = []
    for node, at in places:
        bias = edit.array(node.input[at])
        if bias is not None and bias.any():
            biases.append((node, at))
    need(biases, "no MatMul, Gemm or Conv has a constant bias")
    node, at = context.pick(biases)
    name = edit.own_constant(node, at)
    bias = edit.array(name)
    assert bias is not None  # noqa: S101 - it was found
    edit.set_array(name, np.zeros_like(bias))
    return Mutated(what=f"bias {name} of {node.name} zeroed, its largest value {np.abs(bias).max():.3g}")


def constant_off(edit: GraphEdit, context: MutationContext) -> Mutated:
    """Change one number in the arithmetic: a scalar constant, else a number of a bias."""
    constants = [
        (node, at)
        for node in edit.nodes("Mul", "Add", "Sub", "Div", "Gemm", "Conv")
        for at, name in enumerate(node.input)
        if edit.is_constant(name) and edit.is_float32(name) and _is_finite(edit, name)
    ]
    single = [(node, at) for node, at in constants if _elements(edit, node.input[at]) == 1]
    choice = single or [(node, at) for node, at in constants if at == _MATRIX or node.op_type == "Add"]
    need(choice, "the arithmetic uses no single float32 constant and no bias")
    node, at = context.pick(choice)
    name = edit.own_constant(node, at)
    array = edit.array(name)
    assert array is not None  # noqa: S101 - it was found
    place = int(context.random.integers(array.size))
    before = float(array.flat[place])
    array.flat[place] = before + _OFF_BY
    edit.set_array(name, array)
    number = f"constant {name}" if array.size == 1 else f"number {place} of {array.size} of {name}"
    return Mutated(what=f"{number} of {node.op_type} {node.name} is {before + _OFF_BY:.6g}, was {before:.6g}")


def _is_finite(edit: GraphEdit, name: str) -> bool:
    array = edit.array(name)
    return array is not None and array.size > 0 and bool(np.isfinite(array).all())


def weights_bf16(edit: GraphEdit, _: MutationContext) -> Mutated:
    """Round every float32 weight to 8 bits of mantissa."""
    return _round(
        edit, edit.constants(), lambda array: _within(array, _cut(array, _BF16_BITS), _LARGEST_BF16), "bfloat16"
    )


def weights_fp16(edit: GraphEdit, _: MutationContext) -> Mutated:
    """Round every float32 weight to float16."""

    def rounded(array: Weight) -> Weight:
        clipped = np.clip(array, -_LARGEST_FP16, _LARGEST_FP16).astype(np.float16)
        return _within(array, clipped.astype(np.float32), _LARGEST_FP16)

    return _round(edit, edit.constants(), rounded, "float16")


def weights_tf32(edit: GraphEdit, _: MutationContext) -> Mutated:
    """Round the weights of products to 10 bits of mantissa, as TF32 does; the other factor stays."""
    names = dict.fromkeys(
        name for node in edit.nodes(*_ROUNDED_PRODUCTS) for name in node.input if edit.is_constant(name)
    )
    return _round(edit, names, lambda array: _within(array, _cut(array, _TF32_BITS), np.inf), "TF32")


def weights_int8(edit: GraphEdit, _: MutationContext) -> Mutated:
    """Round the weights of products to the steps of a symmetric int8 scale per tensor."""
    names = dict.fromkeys(
        name
        for node in edit.nodes(*_ROUNDED_PRODUCTS)
        for name in node.input[:2]
        if len(edit.shape(name) or ()) > 1 and _elements(edit, name) > 1
    )

    def rounded(array: Weight) -> Weight:
        scale = np.float32(np.abs(array).max(initial=0) / _STEPS)
        return np.round(array / scale) * scale if scale > 0 else array

    return _round(edit, names, rounded, "int8 steps")


def _within(array: Weight, rounded: Weight, largest: float) -> Weight:
    """Return rounded values, except beyond the precision's range: a mask's stand-in for -inf is not a weight."""
    is_held = (np.abs(array) <= largest) & np.isfinite(rounded)
    return np.where(is_held, rounded, array)


def _elements(edit: GraphEdit, name: str) -> int:
    array = edit.array(name)
    return 0 if array is None else array.size


def _cut(array: Weight, bits: int) -> Weight:
    """Return float32 values rounded to nearest, ties to even, with the last bits zero."""
    whole = array.view(np.uint32).astype(np.uint64)
    rounded = (whole + (1 << (bits - 1)) - 1 + ((whole >> bits) & 1)) >> bits << bits
    return np.where(np.isfinite(array), rounded.astype(np.uint32).view(np.float32), array)


def _round(edit: GraphEdit, names: Iterable[str], rounded: Callable[[Weight], Weight], to: str) -> Mutated:
    changed, largest = 0, 0.0
    for name in names:
        array = edit.array(name)
        if array is None or array.dtype != np.float32 or not array.size:
            continue
        lower = rounded(np.ascontiguousarray(array).reshape(-1)).astype(np.float32).reshape(array.shape)
        if not np.array_equal(lower, array, equal_nan=True):
            changed += 1
            largest = max(largest, float(np.nanmax(np.abs(lower - array))))
            edit.set_array(name, lower)
    need(changed, f"no float32 weight changes when it is rounded to {to}")
    return Mutated(what=f"{counted(changed, 'weight')} rounded to {to}, the largest change {largest:.3g}")
