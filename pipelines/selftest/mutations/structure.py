"""Faults that lose layers and branches, or use the semantics of another framework's operators."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from paritygate.models.onnx.graph import attribute_of
from paritygate.pipelines.selftest.mutations.mutation import Mutated, MutationContext, NotApplicableError, need
from paritygate.text import one_or_many

if TYPE_CHECKING:
    import onnx

    from paritygate.pipelines.selftest.mutations.graph_edit import GraphEdit

_PAIR = 2
_CONSTANT_PAD_INPUTS = 3


def layer_skipped(edit: GraphEdit, context: MutationContext) -> Mutated:
    """Remove one layer: the branch of a residual sum, else a product that keeps the shape."""
    sums = [
        node
        for node in edit.nodes("Add")
        if edit.is_float32(node.output[0])
        and not any(edit.is_constant(name) for name in node.input)
        and edit.shape(node.input[0]) is not None
        and edit.shape(node.input[0]) == edit.shape(node.input[1])
        and len(edit.shape(node.input[0]) or ()) > 1
    ]
    squares = [node for node in edit.nodes("Gemm", "MatMul") if _is_square(edit, node)]
    layers = sums or squares
    need(layers, "no residual sum, and no product that keeps the shape")
    node = context.pick(layers)
    # The branch is computed later than the value that it is added to.
    order = {name: at for at, each in enumerate(edit.graph.node) for name in each.output}
    source = min(node.input, key=lambda name: order.get(name, -1)) if node in sums else node.input[0]
    operator, name, output = node.op_type, node.name, node.output[0]
    edit.remove(node)
    edit.node("Identity", [source], output=output)
    what = "the branch added in" if operator == "Add" else "layer"
    return Mutated(what=f"{what} {operator} {name} left out")


def _is_square(edit: GraphEdit, node: onnx.NodeProto) -> bool:
    shape = edit.shape(node.input[1]) if edit.is_constant(node.input[1]) else None
    return shape is not None and len(shape) == _PAIR and shape[0] == shape[1]


def branch_lost(edit: GraphEdit, context: MutationContext) -> Mutated:
    """Use the computed side of a Where everywhere."""
    places = [
        (node, at)
        for node in edit.nodes("Where")
        for at in (1, 2)
        if not edit.is_constant(node.input[at])
        and not edit.is_constant(node.input[0])
        and edit.is_float32(node.output[0])
    ]
    need(places, "no Where chooses between computed float32 values")
    node, at = context.pick(places)
    branch, output, name = node.input[at], node.output[0], node.name
    other = node.input[3 - at]
    condition = node.input[0]
    edit.remove(node)
    # Where broadcasts all three to one shape.
    chosen = edit.node("And" if at == _PAIR else "Or", [condition, edit.constant(at == 1, np.bool_)])
    sides = [branch, other] if at == 1 else [other, branch]
    edit.node("Where", [chosen, *sides], output=output)
    side = "where its condition holds" if at == 1 else "where its condition does not hold"
    return Mutated(what=f"Where {name} takes everywhere what it should take {side}")


def concat_swapped(edit: GraphEdit, context: MutationContext) -> Mutated:
    """Swap the two float parts of a concatenation."""
    nodes = [
        node
        for node in edit.nodes("Concat")
        if len(node.input) == _PAIR
        and node.input[0] != node.input[1]
        and edit.is_float32(node.output[0])
        and edit.shape(node.input[0]) is not None
        and edit.shape(node.input[0]) == edit.shape(node.input[1])
    ]
    need(nodes, "no concatenation of two float parts of one shape")
    node = context.pick(nodes)
    node.input[:] = [node.input[1], node.input[0]]
    return Mutated(what=f"the two parts of Concat {node.name} swapped")


def pad_value(edit: GraphEdit, _: MutationContext) -> Mutated:
    """Pad with another value."""
    for node in edit.nodes("Pad"):
        if attribute_of(node, "mode", b"constant") != b"constant" or not edit.is_float32(node.input[0]):
            continue
        axes = node.input[_CONSTANT_PAD_INPUTS:]
        before = edit.array(node.input[2]) if len(node.input) > _PAIR and node.input[2] else None
        value = 0.0 if before is None else float(before.item())
        padding = edit.constant(value + 1, np.float32)
        node.input[:] = [*node.input[:2], padding, *axes]
        return Mutated(what=f"Pad {node.name} fills up with {value + 1:g} instead of {value:g}")
    raise NotApplicableError("no Pad with a constant value")


def padding_side(edit: GraphEdit, _: MutationContext) -> Mutated:
    """Swap begin and end of asymmetric paddings."""
    changed = []
    for node in edit.nodes("Conv", "MaxPool", "AveragePool", "ConvTranspose"):
        for item in node.attribute:
            if item.name == "pads" and list(item.ints[: len(item.ints) // 2]) != list(item.ints[len(item.ints) // 2 :]):
                half = len(item.ints) // 2
                item.ints[:] = [*item.ints[half:], *item.ints[:half]]
                changed.append(node.name)
            elif item.name == "auto_pad" and item.s in {b"SAME_UPPER", b"SAME_LOWER"}:
                item.s = b"SAME_LOWER" if item.s == b"SAME_UPPER" else b"SAME_UPPER"
                changed.append(node.name)
    need(changed, "no convolution or pooling pads one side more than the other")
    pad = one_or_many(len(changed), "convolution or pooling pads", "convolutions and poolings pad")
    return Mutated(what=f"{len(changed)} {pad} on the other side, {changed[0]} first")


def floor_truncates(edit: GraphEdit, _: MutationContext) -> Mutated:
    """Round towards zero instead of down."""
    floors = [node for node in edit.nodes("Floor") if edit.dtype(node.output[0]) is not None]
    for node in floors:
        source, output = node.input[0], node.output[0]
        edit.remove(node)
        size = edit.node("Floor", [edit.node("Abs", [source])])
        edit.node("Mul", [edit.node("Sign", [source]), size], output=output)
    remainders = [
        node
        for node in edit.nodes("Mod")
        if not attribute_of(node, "fmod", 0) and edit.dtype(node.output[0]) is not None
    ]
    for node in remainders:
        edit.set_attribute(node, "fmod", 1)
    count = len(floors) + len(remainders)
    need(count, "no Floor and no Mod")
    return Mutated(
        what=f"{count} {one_or_many(count, 'Floor or Mod rounds', 'Floor and Mod round')} towards zero",
        reached_by="a negative value before them",
    )


def ties_last(edit: GraphEdit, _: MutationContext) -> Mutated:
    """Choose the last of equal values in every ArgMax and ArgMin."""
    nodes = edit.nodes("ArgMax", "ArgMin")
    for node in nodes:
        edit.set_attribute(node, "select_last_index", 1 - attribute_of(node, "select_last_index", 0))
    need(nodes, "no ArgMax and no ArgMin")
    return Mutated(
        what=f"{len(nodes)} ArgMax {one_or_many(len(nodes), 'takes', 'take')} the other end of ties",
        reached_by="a row with a tie",
    )
