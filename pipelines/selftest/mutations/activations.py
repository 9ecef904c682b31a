"""Faults that approximate, lose or replace activations and normalisations."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from paritygate.models.onnx.graph import attribute_of
from paritygate.pipelines.selftest.mutations.mutation import Mutated, MutationContext, NotApplicableError, need
from paritygate.text import counted

if TYPE_CHECKING:
    import onnx

    from paritygate.pipelines.selftest.mutations.graph_edit import GraphEdit

_NORMALISATIONS = (
    "LayerNormalization",
    "BatchNormalization",
    "InstanceNormalization",
    "GroupNormalization",
    "RMSNormalization",
)
_DEFAULT_EPSILON = 1e-5
_SMALL = 1e-2
_LEAK = 0.01
_TEMPERATURE = 1.1
_FLOAT16_LARGEST = 65504.0
_CUBE = 0.044715
_WIDE = ("MatMul", "Gemm", "Conv", "Mul", "Pow", "Add", "ReduceSum", "Exp")


def gelu_tanh(edit: GraphEdit, _: MutationContext) -> Mutated:
    """Compute every Erf as the tanh of the usual approximation of GELU."""
    every = edit.nodes("Gelu")
    gelus = [node for node in every if attribute_of(node, "approximate") != b"tanh"]
    for node in gelus:
        edit.set_attribute(node, "approximate", "tanh")
    nodes = [node for node in edit.nodes("Erf") if edit.is_float32(node.output[0])]
    for node in nodes:
        # Erf takes x / sqrt(2).
        source, output = node.input[0], node.output[0]
        edit.remove(node)
        x = edit.node("Mul", [source, edit.constant(math.sqrt(2), np.float32)])
        square = edit.node("Mul", [x, x])
        factor = edit.node("Mul", [square, edit.constant(_CUBE, np.float32)])
        bent = edit.node("Mul", [x, edit.node("Add", [factor, edit.constant(1, np.float32)])])
        edit.node("Tanh", [edit.node("Mul", [bent, edit.constant(math.sqrt(2 / math.pi), np.float32)])], output=output)
    if count := len(gelus) + len(nodes):
        return Mutated(what=f"{count} GELU with tanh in place of erf")
    raise NotApplicableError("no Erf, and every Gelu has tanh already" if every else "no Erf and no Gelu")


def _one(edit: GraphEdit, context: MutationContext, operator: str) -> onnx.NodeProto:
    return context.pick(need(edit.nodes(operator), f"no {operator}"))


def relu_lost(edit: GraphEdit, context: MutationContext) -> Mutated:
    """Let negative values through one Relu."""
    node = _one(edit, context, "Relu")
    node.op_type = "Identity"
    return Mutated(what=f"Relu {node.name} left out", reached_by="a negative value before it")


def relu_leaky(edit: GraphEdit, context: MutationContext) -> Mutated:
    """Let a hundredth of negative values through one Relu."""
    node = _one(edit, context, "Relu")
    source, output, name = node.input[0], node.output[0], node.name
    edit.remove(node)
    edit.node("LeakyRelu", [source], output=output, alpha=_LEAK)
    return Mutated(what=f"Relu {name} leaks {_LEAK} of negative values", reached_by="a negative value before it")


def sigmoid_hard(edit: GraphEdit, _: MutationContext) -> Mutated:
    """Compute every Sigmoid by straight lines."""
    nodes = need(edit.nodes("Sigmoid"), "no Sigmoid")
    for node in nodes:
        node.op_type = "HardSigmoid"
    return Mutated(what=f"{len(nodes)} Sigmoid as HardSigmoid")


def softmax_axis(edit: GraphEdit, context: MutationContext) -> Mutated:
    """Apply one Softmax over the axis before its own."""
    nodes = [node for node in edit.nodes("Softmax") if len(edit.shape(node.output[0]) or ()) > 1]
    need(nodes, "no Softmax of two axes or more")
    node = context.pick(nodes)
    rank = len(edit.shape(node.output[0]) or ())
    before = attribute_of(node, "axis", -1) % rank
    after = before - 1 if before else 1
    edit.set_attribute(node, "axis", after)
    return Mutated(what=f"Softmax {node.name} over axis {after} instead of {before}")


def softmax_temperature(edit: GraphEdit, context: MutationContext) -> Mutated:
    """Divide the input of one Softmax by 1.1."""
    node = _one(edit, context, "Softmax")
    need(edit.dtype(node.input[0]) is not None, "no Softmax")
    cooler = edit.constant(1 / _TEMPERATURE, edit.dtype(node.input[0]))
    node.input[0] = edit.node("Mul", [node.input[0], cooler])
    return Mutated(what=f"Softmax {node.name} at temperature {_TEMPERATURE}")


def epsilon_lost(edit: GraphEdit, _: MutationContext) -> Mutated:
    """Zero the epsilon that every normalisation adds to the variance."""
    epsilons = []
    for node in edit.nodes(*_NORMALISATIONS):
        epsilons.append(attribute_of(node, "epsilon", _DEFAULT_EPSILON))
        edit.set_attribute(node, "epsilon", 0.0)
    for name in dict.fromkeys(_epsilons(edit)):
        array = edit.array(name)
        if array is not None:
            epsilons.append(float(array.item()))
            edit.set_array(name, np.zeros_like(array))
    need(any(epsilons), "no normalisation with an epsilon")
    return Mutated(
        what=f"epsilon of {counted(len(epsilons), 'normalisation')} set to 0, was {max(epsilons):.3g}",
        reached_by="a row whose values before the normalisation are nearly all the same",
    )


def _epsilons(edit: GraphEdit) -> Iterator[str]:
    for root in edit.nodes("Sqrt"):
        node = edit.producer(root.input[0])
        if node is None or node.op_type != "Add":
            continue
        for at, name in enumerate(node.input):
            array = edit.array(name)
            if array is not None and array.size == 1 and 0 < array.item() <= _SMALL:
                yield edit.own_constant(node, at)


def float16_range(edit: GraphEdit, _: MutationContext) -> Mutated:
    """Clip the results of products and sums to the range of float16."""
    low, high = (edit.constant(sign * _FLOAT16_LARGEST, np.float32) for sign in (-1, 1))
    names = [node.output[0] for node in edit.nodes(*_WIDE) if edit.is_float32(node.output[0])]
    for name in names:
        inner = edit.in_place_of(name)
        edit.node("Clip", [inner, low, high], output=name)
    need(names, "no product or sum is float32")
    return Mutated(
        what=f"{counted(len(names), 'inner value')} clipped to +-{_FLOAT16_LARGEST:g}",
        reached_by=f"an input by which an inner value exceeds {_FLOAT16_LARGEST:g}",
    )
