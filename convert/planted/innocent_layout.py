"""Innocent rewrites that change no arithmetic at all: names, orders, operators that do nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from paritygate.convert.onnx.rewrite import rename_values
from paritygate.convert.planted.graph_edit import needs_of_nodes
from paritygate.convert.planted.kinds import NotApplicable, PlantContext, Planted
from paritygate.models.onnx.graph import graphs_in
from paritygate.text import counted, one_or_many

if TYPE_CHECKING:
    import onnx

    from paritygate.convert.planted.graph_edit import GraphEdit

__all__ = [
    "identities_added",
    "inputs_reordered",
    "newer_opset",
    "nodes_reordered",
    "outputs_reordered",
    "tensors_renamed",
    "weights_as_constants",
]

_NEWER_BY = (3, 2, 1)


def tensors_renamed(edit: GraphEdit, context: PlantContext) -> Planted | NotApplicable:
    """Give every inner value and node another name."""
    del context
    graph = edit.graph
    served = {value.name for value in (*graph.input, *graph.output)}
    names = {name: f"renamed_{at}" for at, name in enumerate(_inner_values(graph)) if name not in served}
    if any(name in served for name in names.values()):
        return NotApplicable("an input or output has a name such as renamed_0")
    rename_values(edit.model, names)
    for at, node in enumerate(graph.node):
        node.name = f"node_{at}"
    return Planted(what=f"{counted(len(names), 'inner tensor')} and {counted(len(graph.node), 'node')} renamed")


def _inner_values(graph: onnx.GraphProto) -> list[str]:
    found: dict[str, None] = {}
    for each in graphs_in(graph):
        found.update((tensor.name, None) for tensor in each.initializer)
        found.update((name, None) for node in each.node for name in node.output if name)
    return list(found)


def _reversed(field: Sequence[onnx.ValueInfoProto], what: str) -> Planted | NotApplicable:
    copies = []
    for value in reversed(field):
        copy = type(value)()
        copy.CopyFrom(value)
        copies.append(copy)
    if len(copies) == 1:
        return NotApplicable(f"there is one {what}")
    del field[:]  # type: ignore[attr-defined]
    field.extend(copies)  # type: ignore[attr-defined]
    return Planted(what=f"{what}s in the order {', '.join(value.name for value in copies)}")


def outputs_reordered(edit: GraphEdit, context: PlantContext) -> Planted | NotApplicable:
    """Reverse the order of the outputs, each keeping its name."""
    del context
    return _reversed(edit.graph.output, "output")


def inputs_reordered(edit: GraphEdit, context: PlantContext) -> Planted | NotApplicable:
    """Reverse the order of the inputs, each keeping its name."""
    del context
    return _reversed(edit.graph.input, "input")


def nodes_reordered(edit: GraphEdit, context: PlantContext) -> Planted | NotApplicable:
    """Bring the nodes into another order in which each reads only what was made before."""
    needs = needs_of_nodes(edit.graph)
    missing = [len(need) for need in needs]
    readers: list[list[int]] = [[] for _ in needs]
    for at, need in enumerate(needs):
        for each in need:
            readers[each].append(at)
    ready = [at for at, count in enumerate(missing) if not count]
    order: list[int] = []
    while ready:
        at = ready.pop(int(context.random.integers(len(ready))))
        order.append(at)
        for reader in readers[at]:
            missing[reader] -= 1
            if not missing[reader]:
                ready.append(reader)
    moved = sum(before != after for before, after in enumerate(order))
    if not moved:
        return NotApplicable("the nodes have one valid order")
    edit.arrange(order)
    return Planted(what=f"{moved} of {counted(len(order), 'node')} at another place")


def identities_added(edit: GraphEdit, context: PlantContext) -> Planted | NotApplicable:
    """Put an Identity after every input and before every output."""
    del context
    for value in edit.inputs:
        edit.node("Identity", [value.name], output=edit.after_input(value.name))
    outputs = [value.name for value in edit.graph.output if edit.producer(value.name) is not None]
    for name in outputs:
        inner = edit.before_output(name)
        edit.node("Identity", [inner], output=name)
    return Planted(what=f"Identity at {counted(len(edit.inputs), 'input')} and {counted(len(outputs), 'output')}")


def weights_as_constants(edit: GraphEdit, context: PlantContext) -> Planted | NotApplicable:
    """Move every initializer into a Constant node."""
    import onnx

    del context
    fed = {value.name for value in edit.graph.input}
    moved = [tensor for tensor in edit.graph.initializer if tensor.name not in fed]
    if not moved:
        return NotApplicable("no weight is an initializer")
    for tensor in moved:
        edit.graph.node.append(onnx.helper.make_node("Constant", [], [tensor.name], value=tensor))
        edit.graph.initializer.remove(tensor)
    return Planted(
        what=f"{counted(len(moved), 'initializer')} as {one_or_many(len(moved), 'a Constant node', 'Constant nodes')}"
    )


def newer_opset(edit: GraphEdit, context: PlantContext) -> Planted | NotApplicable:
    """Convert the model to a newer operator set, by ONNX's own converter."""
    import onnx
    import onnx.version_converter

    del context
    before, reason = edit.opset, ""
    for by in _NEWER_BY:
        if before + by > onnx.defs.onnx_opset_version():
            reason = reason or f"opset {before} is the newest that this onnx knows"
            continue
        try:
            converted = onnx.version_converter.convert_version(edit.model, before + by)
        except (RuntimeError, ValueError, onnx.checker.ValidationError) as err:
            reason = (str(err).strip() or type(err).__name__).splitlines()[0]
            continue
        # The converter may leave out what the file says of itself.
        converted.ir_version = edit.model.ir_version
        edit.take(converted)
        return Planted(what=f"opset {before + by} instead of {before}")
    return NotApplicable(f"not converted to a newer opset: {reason}")
