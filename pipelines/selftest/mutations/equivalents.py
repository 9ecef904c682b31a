"""Equivalent rewrites of a model, as a correct conversion may do them.

Names, orders and operators without effect change no arithmetic; other ways of the same arithmetic change only the last
bits.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from paritygate.convert.onnx.rewrite import rename_values
from paritygate.models.onnx.graph import attribute_of, graphs_in, needs_of_nodes
from paritygate.pipelines.selftest.mutations.graph_edit import GraphEdit
from paritygate.pipelines.selftest.mutations.mutation import Mutated, MutationContext, NotApplicableError, need
from paritygate.pipelines.selftest.mutations.rows import sliced
from paritygate.text import counted, first_line, one_or_many

if TYPE_CHECKING:
    import onnx


_NEWER_BY = (3, 2, 1)
_DEFAULT_EPSILON = 1e-5
_AXES_AS_INPUT = 18
_MATRIX = 2
_FLOAT = 1
_FATAL = 4
_BATCHNORM_INPUTS = 5


def tensors_renamed(edit: GraphEdit, _: MutationContext) -> Mutated:
    """Give every inner value and node another name."""
    graph = edit.graph
    served = {value.name for value in (*graph.input, *graph.output)}
    names = {name: f"renamed_{at}" for at, name in enumerate(_inner_values(graph)) if name not in served}
    if any(name in served for name in names.values()):
        raise NotApplicableError("an input or output has a name such as renamed_0")
    rename_values(edit.model, names)
    for at, node in enumerate(graph.node):
        node.name = f"node_{at}"
    return Mutated(what=f"{counted(len(names), 'inner tensor')} and {counted(len(graph.node), 'node')} renamed")


def _inner_values(graph: onnx.GraphProto) -> list[str]:
    names: dict[str, None] = {}
    for each in graphs_in(graph):
        names.update((tensor.name, None) for tensor in each.initializer)
        names.update((name, None) for node in each.node for name in node.output if name)
    return list(names)


def _reversed(field: Sequence[onnx.ValueInfoProto], what: str) -> Mutated:
    copies = [deepcopy(value) for value in reversed(field)]
    need(len(copies) > 1, f"the model has only one {what}")
    del field[:]  # type: ignore[attr-defined]
    field.extend(copies)  # type: ignore[attr-defined]
    return Mutated(what=f"{what}s in the order {', '.join(value.name for value in copies)}")


def outputs_reordered(edit: GraphEdit, _: MutationContext) -> Mutated:
    """Reverse the order of the outputs, each keeping its name."""
    return _reversed(edit.graph.output, "output")


def inputs_reordered(edit: GraphEdit, _: MutationContext) -> Mutated:
    """Reverse the order of the inputs, each keeping its name."""
    return _reversed(edit.graph.input, "input")


def nodes_reordered(edit: GraphEdit, context: MutationContext) -> Mutated:
    """Bring the nodes into another valid order."""
    needs = needs_of_nodes(edit.graph)
    missing = list(map(len, needs))
    readers: list[list[int]] = [[] for _ in needs]
    for at, makers in enumerate(needs):
        for maker in makers:
            readers[maker].append(at)
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
    need(moved, "the nodes have one valid order")
    edit.arrange(order)
    return Mutated(what=f"{moved} of {counted(len(order), 'node')} at another place")


def identities_added(edit: GraphEdit, _: MutationContext) -> Mutated:
    """Put an Identity after every input and before every output."""
    for value in edit.inputs:
        edit.node("Identity", [value.name], output=edit.after_input(value.name))
    outputs = [value.name for value in edit.graph.output if edit.producer(value.name) is not None]
    for name in outputs:
        inner = edit.before_output(name)
        edit.node("Identity", [inner], output=name)
    return Mutated(what=f"Identity at {counted(len(edit.inputs), 'input')} and {counted(len(outputs), 'output')}")


def weights_as_constants(edit: GraphEdit, _: MutationContext) -> Mutated:
    """Move every initializer into a Constant node."""
    import onnx

    fed = {value.name for value in edit.graph.input}
    moved = [tensor for tensor in edit.graph.initializer if tensor.name not in fed]
    need(moved, "no weight is an initializer")
    for tensor in moved:
        edit.graph.node.append(onnx.helper.make_node("Constant", [], [tensor.name], value=tensor))
        edit.graph.initializer.remove(tensor)
    return Mutated(
        what=f"{counted(len(moved), 'initializer')} as {one_or_many(len(moved), 'a Constant node', 'Constant nodes')}"
    )


def newer_opset(edit: GraphEdit, _: MutationContext) -> Mutated:
    """Convert the model to a newer operator set, by ONNX's own converter."""
    import onnx
    import onnx.version_converter

    before, reason = edit.opset, ""
    for by in _NEWER_BY:
        if before + by > onnx.defs.onnx_opset_version():
            reason = reason or f"opset {before} is the newest that this onnx knows"
            continue
        try:
            converted = onnx.version_converter.convert_version(edit.model, before + by)
        except (RuntimeError, ValueError, onnx.checker.ValidationError) as err:
            reason = first_line(err)
            continue
        # The converter may drop the file's own metadata.
        converted.ir_version = edit.model.ir_version
        edit.take(converted)
        return Mutated(what=f"opset {before + by} instead of {before}")
    raise NotApplicableError(f"not converted to a newer opset: {reason}")


def constants_folded(edit: GraphEdit, _: MutationContext) -> Mutated:
    """Compute what does not depend on inputs, by ONNX Runtime."""
    return _optimised(edit, "ORT_ENABLE_BASIC", nothing="nothing in it is to be folded")


def operators_fused(edit: GraphEdit, _: MutationContext) -> Mutated:
    """Fuse operators into ONNX Runtime's own."""
    return _optimised(edit, "ORT_ENABLE_EXTENDED", nothing="nothing in it is to be fused")


def _optimised(edit: GraphEdit, level: str, *, nothing: str) -> Mutated:
    import onnx
    import onnxruntime

    before = Counter(node.op_type for node in edit.graph.node)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = _FATAL
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "optimised.onnx"
        options.optimized_model_filepath = str(path)
        try:
            onnxruntime.InferenceSession(
                edit.model.SerializeToString(), sess_options=options, providers=["CPUExecutionProvider"]
            )
        except Exception as err:
            raise NotApplicableError(f"ONNX Runtime does not write it: {str(err).splitlines()[0]}") from err
        model = onnx.load(str(path))
    need(Counter(node.op_type for node in model.graph.node) != before, nothing)
    edit.take(model)
    return Mutated(what=f"{counted(len(edit.graph.node), 'node')} instead of {before.total()}")


def layernorm_unfused(edit: GraphEdit, _: MutationContext) -> Mutated:
    """Compute every LayerNormalization by single operators."""
    nodes = [
        node
        for node in edit.nodes("LayerNormalization")
        if edit.is_float32(node.input[0])
        and edit.shape(node.input[0]) is not None
        and not [name for name in node.output[1:] if name]
    ]
    for node in nodes:
        rank = len(edit.shape(node.input[0]) or ())
        first = int(attribute_of(node, "axis", -1)) % rank
        epsilon = attribute_of(node, "epsilon", _DEFAULT_EPSILON)
        source, weights, output = node.input[0], list(node.input[1:]), node.output[0]
        edit.remove(node)
        axes = list(range(first, rank))
        centred = edit.node("Sub", [source, _mean(edit, source, axes)])
        variance = _mean(edit, edit.node("Mul", [centred, centred]), axes)
        root = edit.node("Sqrt", [edit.node("Add", [variance, edit.constant(epsilon, np.float32)])])
        result = edit.node("Div", [centred, root])
        for operator, weight in zip(("Mul", "Add"), weights, strict=False):
            result = edit.node(operator, [result, weight]) if weight else result
        edit.node("Identity", [result], output=output)
    need(nodes, "no LayerNormalization")
    return Mutated(what=f"{len(nodes)} LayerNormalization unfused")


def _mean(edit: GraphEdit, name: str, axes: list[int]) -> str:
    if edit.opset < _AXES_AS_INPUT:
        return edit.node("ReduceMean", [name], axes=axes, keepdims=1)
    return edit.node("ReduceMean", [name, edit.constant(axes, np.int64)], keepdims=1)


def batchnorm_unfused(edit: GraphEdit, _: MutationContext) -> Mutated:
    """Compute every BatchNormalization as one product and one sum with constants."""
    count = 0
    for node in edit.nodes("BatchNormalization"):
        arrays = [edit.array(name) for name in node.input[1:_BATCHNORM_INPUTS]]
        shape = edit.shape(node.input[0])
        if shape is None or not edit.is_float32(node.input[0]) or [name for name in node.output[1:] if name]:
            continue
        scale, bias, mean, variance = (None if array is None else array.astype(np.float64) for array in arrays)
        if scale is None or bias is None or mean is None or variance is None:
            continue
        factor = scale / np.sqrt(variance + attribute_of(node, "epsilon", _DEFAULT_EPSILON))
        spread = (-1,) + (1,) * (len(shape) - 2)
        source, output = node.input[0], node.output[0]
        edit.remove(node)
        product = edit.node("Mul", [source, edit.constant(factor.reshape(spread), np.float32)])
        edit.node("Add", [product, edit.constant((bias - mean * factor).reshape(spread), np.float32)], output=output)
        count += 1
    need(count, "no BatchNormalization")
    return Mutated(what=f"{count} BatchNormalization unfused")


def gemm_unfused(edit: GraphEdit, _: MutationContext) -> Mutated:
    """Compute every Gemm as a MatMul and an Add."""
    nodes = [node for node in edit.nodes("Gemm") if edit.is_float32(node.output[0])]
    for node in nodes:
        factors = [
            edit.node("Transpose", [name], perm=[1, 0]) if attribute_of(node, flag, 0) else name
            for name, flag in zip(node.input[:_MATRIX], ("transA", "transB"), strict=True)
        ]
        alpha, beta = attribute_of(node, "alpha", 1.0), attribute_of(node, "beta", 1.0)
        bias = node.input[_MATRIX] if len(node.input) > _MATRIX else ""
        output = node.output[0]
        edit.remove(node)
        result = _scaled(edit, edit.node("MatMul", factors), alpha)
        result = edit.node("Add", [result, _scaled(edit, bias, beta)]) if bias else result
        edit.node("Identity", [result], output=output)
    need(nodes, "no Gemm")
    return Mutated(what=f"{len(nodes)} Gemm unfused")


def _scaled(edit: GraphEdit, name: str, factor: float) -> str:
    return name if factor == 1 else edit.node("Mul", [name, edit.constant(factor, np.float32)])


def sums_reassociated(edit: GraphEdit, _: MutationContext) -> Mutated:
    """Split every product with a constant weight into two halves, and add them up."""
    count = sum(_halved(edit, node) for node in edit.nodes("MatMul", "Gemm", "Conv"))
    need(count, "no MatMul, Gemm or Conv adds up over a constant weight")
    return Mutated(what=f"{counted(count, 'product')} as the sum of two halves")


def _halved(edit: GraphEdit, node: onnx.NodeProto) -> bool:
    weight = edit.array(node.input[1])
    shape = edit.shape(node.input[0])
    if weight is None or weight.dtype != np.float32 or weight.ndim < _MATRIX or shape is None:
        return False
    if (
        attribute_of(node, "transA", 0)
        or attribute_of(node, "group", 1) != 1
        or (node.op_type == "MatMul" and weight.ndim != _MATRIX)
    ):
        return False
    is_outputs_first = node.op_type == "Conv" or bool(attribute_of(node, "transB", 0))
    weight_axis, axis = (1 if is_outputs_first else 0), (1 if node.op_type == "Conv" else len(shape) - 1)
    size = weight.shape[weight_axis]
    if size < _MATRIX:
        return False
    half, output = size // 2, node.output[0]
    parts = np.split(weight, [half], axis=weight_axis)
    copies = [type(node)(), type(node)()]
    results = []
    for copy, part, (start, end) in zip(copies, parts, ((0, half), (half, size)), strict=True):
        copy.CopyFrom(node)
        copy.name = edit.new_name(f"{node.name}_half")
        copy.input[0] = sliced(edit, node.input[0], (start, end), axis=axis)
        copy.input[1] = edit.constant(part, np.float32)
        copy.output[0] = edit.new_name(f"{output}_half")
        results.append(copy.output[0])
    # The bias belongs to one of them.
    del copies[1].input[_MATRIX:]
    edit.remove(node)
    edit.graph.node.extend(copies)
    edit.node("Add", results, output=output)
    return True
