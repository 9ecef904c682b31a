"""Innocent rewrites of the arithmetic: the same numbers in another way, different in the last bits alone."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from paritygate.convert.planted.kinds import NotApplicable, PlantContext, Planted
from paritygate.convert.planted.rows import sliced
from paritygate.text import counted

if TYPE_CHECKING:
    import onnx

    from paritygate.convert.planted.graph_edit import GraphEdit

__all__ = [
    "batchnorm_unfused",
    "constants_folded",
    "gemm_unfused",
    "layernorm_unfused",
    "operators_fused",
    "sums_reassociated",
]

_DEFAULT_EPSILON = 1e-5
_AXES_AS_INPUT = 18
_MATRIX = 2
_FLOAT = 1
_FATAL = 4
_BATCHNORM_INPUTS = 5


def constants_folded(edit: GraphEdit, context: PlantContext) -> Planted | NotApplicable:
    """Let ONNX Runtime compute what does not depend on inputs."""
    del context
    return _optimised(edit, "ORT_ENABLE_BASIC", nothing="nothing in it is to be folded")


def operators_fused(edit: GraphEdit, context: PlantContext) -> Planted | NotApplicable:
    """Let ONNX Runtime fuse operators into its own."""
    del context
    return _optimised(edit, "ORT_ENABLE_EXTENDED", nothing="nothing in it is to be fused")


def _optimised(edit: GraphEdit, level: str, *, nothing: str) -> Planted | NotApplicable:
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
        except Exception as err:  # noqa: BLE001 - onnxruntime raises classes of its own
            return NotApplicable(f"ONNX Runtime does not write it: {str(err).splitlines()[0]}")
        model = onnx.load(str(path))
    if Counter(node.op_type for node in model.graph.node) == before:
        return NotApplicable(nothing)
    edit.take(model)
    return Planted(what=f"{counted(len(edit.graph.node), 'node')} instead of {before.total()}")


def _attribute(node: onnx.NodeProto, name: str, default: float) -> float:
    for item in node.attribute:
        if item.name == name:
            return float(item.f) if item.type == item.FLOAT else float(item.i)
    return default


def layernorm_unfused(edit: GraphEdit, context: PlantContext) -> Planted | NotApplicable:
    """Compute every LayerNormalization by single operators."""
    del context
    nodes = [
        node
        for node in edit.nodes("LayerNormalization")
        if edit.is_float32(node.input[0])
        and edit.shape(node.input[0]) is not None
        and not [name for name in node.output[1:] if name]
    ]
    for node in nodes:
        rank = len(edit.shape(node.input[0]) or ())
        first = int(_attribute(node, "axis", -1)) % rank
        epsilon = _attribute(node, "epsilon", _DEFAULT_EPSILON)
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
    return Planted(what=f"{len(nodes)} LayerNormalization unfused") if nodes else NotApplicable("no LayerNormalization")


def _mean(edit: GraphEdit, name: str, axes: list[int]) -> str:
    if edit.opset < _AXES_AS_INPUT:
        return edit.node("ReduceMean", [name], axes=axes, keepdims=1)
    return edit.node("ReduceMean", [name, edit.constant(axes, np.int64)], keepdims=1)


def batchnorm_unfused(edit: GraphEdit, context: PlantContext) -> Planted | NotApplicable:
    """Compute every BatchNormalization as one product and one sum with constants."""
    del context
    count = 0
    for node in edit.nodes("BatchNormalization"):
        arrays = [edit.array(name) for name in node.input[1:_BATCHNORM_INPUTS]]
        shape = edit.shape(node.input[0])
        if shape is None or not edit.is_float32(node.input[0]) or [name for name in node.output[1:] if name]:
            continue
        scale, bias, mean, variance = (None if array is None else array.astype(np.float64) for array in arrays)
        if scale is None or bias is None or mean is None or variance is None:
            continue
        factor = scale / np.sqrt(variance + _attribute(node, "epsilon", _DEFAULT_EPSILON))
        spread = (-1,) + (1,) * (len(shape) - 2)
        source, output = node.input[0], node.output[0]
        edit.remove(node)
        product = edit.node("Mul", [source, edit.constant(factor.reshape(spread), np.float32)])
        edit.node("Add", [product, edit.constant((bias - mean * factor).reshape(spread), np.float32)], output=output)
        count += 1
    return Planted(what=f"{count} BatchNormalization unfused") if count else NotApplicable("no BatchNormalization")


def gemm_unfused(edit: GraphEdit, context: PlantContext) -> Planted | NotApplicable:
    """Compute every Gemm as a MatMul and an Add."""
    del context
    nodes = [node for node in edit.nodes("Gemm") if edit.is_float32(node.output[0])]
    for node in nodes:
        factors = [
            edit.node("Transpose", [name], perm=[1, 0]) if _attribute(node, flag, 0) else name
            for name, flag in zip(node.input[:_MATRIX], ("transA", "transB"), strict=True)
        ]
        alpha, beta = _attribute(node, "alpha", 1.0), _attribute(node, "beta", 1.0)
        bias = node.input[_MATRIX] if len(node.input) > _MATRIX else ""
        output = node.output[0]
        edit.remove(node)
        result = _scaled(edit, edit.node("MatMul", factors), alpha)
        result = edit.node("Add", [result, _scaled(edit, bias, beta)]) if bias else result
        edit.node("Identity", [result], output=output)
    return Planted(what=f"{len(nodes)} Gemm unfused") if nodes else NotApplicable("no Gemm")


def _scaled(edit: GraphEdit, name: str, factor: float) -> str:
    return name if factor == 1 else edit.node("Mul", [name, edit.constant(factor, np.float32)])


def sums_reassociated(edit: GraphEdit, context: PlantContext) -> Planted | NotApplicable:
    """Cut every product with a constant weight into two halves, and add them up."""
    del context
    count = sum(_halved(edit, node) for node in edit.nodes("MatMul", "Gemm", "Conv"))
    if not count:
        return NotApplicable("no MatMul, Gemm or Conv adds up over a constant weight")
    return Planted(what=f"{counted(count, 'product')} as the sum of two halves")


def _halved(edit: GraphEdit, node: onnx.NodeProto) -> bool:
    weight = edit.array(node.input[1])
    shape = edit.shape(node.input[0])
    if weight is None or weight.dtype != np.float32 or weight.ndim < _MATRIX or shape is None:
        return False
    if (
        _attribute(node, "transA", 0)
        or _attribute(node, "group", 1) != 1
        or (node.op_type == "MatMul" and weight.ndim != _MATRIX)
    ):
        return False
    is_outputs_first = node.op_type == "Conv" or bool(_attribute(node, "transB", 0))
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
