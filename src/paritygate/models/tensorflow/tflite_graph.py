"""Read tensors, operators and weights of a TFLite file without running it.

Verify the file first, because these functions fail in any way on a corrupt one.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from paritygate.models.weights import WeightTally
from paritygate.precision import Precision

# Objects of generated code without types: a model, a subgraph, an operator, a tensor.
Table = Any

_FLOATS = frozenset({"float16", "bfloat16", "float32", "float64"})
_INTEGERS = frozenset({"int4", "int8", "uint8"})
# These convert between integers and floats, and compute nothing else.
_CONVERSIONS = frozenset({"QUANTIZE", "DEQUANTIZE"})
# As in `weights`: nearly all elements decide the precision, and a substantial share makes it mixed.
_NEARLY_ALL = 0.9
_SUBSTANTIAL = 0.1


class TensorFacts(Struct, frozen=True, kw_only=True):
    """A tensor as the file describes it."""

    type: int  # number of its type
    shape: tuple[int, ...] | None  # -1 for an open dim; None for an unknown rank
    scales: tuple[float, ...]  # factors of its integers; empty where it is not quantized


def tensor_facts(tensor: Table) -> TensorFacts:
    """Return the file's description of a tensor."""
    sizes = tensor.ShapeSignature if tensor.ShapeSignatureLength() else tensor.Shape
    rank = tensor.ShapeLength()
    quantization = tensor.Quantization()
    scales = quantization.ScaleAsNumpy() if quantization is not None and quantization.ScaleLength() else ()
    return TensorFacts(
        type=tensor.Type(),
        # A scalar and a tensor of unknown rank both have no sizes.
        shape=tuple(int(sizes(axis)) for axis in range(rank)) if rank or tensor.HasRank() else None,
        scales=tuple(map(float, scales)),
    )


def dtype_name(number: int) -> str:
    """Return the NumPy name of a type, such as `float32`; NumPy has no `bfloat16` and no `int4`."""
    from ai_edge_litert import schema_py_generated as schema

    return _name_of(number, schema.TensorType).lower()


def operators(graph: Table) -> Counter[str]:
    """Return the number of nodes by operator, in all subgraphs."""
    return Counter(operator_name(graph, node) for _, node in _nodes(graph))


def custom_operators(graph: Table) -> list[str]:
    """Return the names of the operators that are not TFLite's own."""
    codes = (graph.OperatorCodes(index) for index in range(graph.OperatorCodesLength()))
    return [code.CustomCode().decode() for code in codes if code.CustomCode()]


def float_operators(graph: Table) -> Counter[str]:
    """Return the number of nodes by operator that take or return floats, without converters."""
    counts: Counter[str] = Counter()
    for subgraph, node in _nodes(graph):
        name = operator_name(graph, node)
        if name not in _CONVERSIONS and any(
            dtype_name(subgraph.Tensors(index).Type()) in _FLOATS for index in _tensor_indices(node)
        ):
            counts[name] += 1
    return counts


def cut_off_weights(graph: Table) -> int:
    """Return how many float16 weights are its largest value or infinite, because most of them were larger."""
    limit = np.finfo(np.float16).max
    count = 0
    for tensor, raw in _weights(graph):
        if dtype_name(tensor.Type()) == "float16":
            count += int(np.count_nonzero(np.abs(raw.view(np.float16)) >= limit))
    return count


def precision_of_tflite(graph: Table) -> Precision | None:
    """Return int8 where nearly all weights are quantized integers, else the precision of the floats.

    Reads all weights of float32, to detect earlier rounding. None where there are none.
    """
    tally = WeightTally()
    integers = floats = 0
    for tensor, raw in _weights(graph):
        facts = tensor_facts(tensor)
        name, elements = dtype_name(facts.type), math.prod(facts.shape or ())
        if name in _INTEGERS and facts.scales:
            integers += elements
        elif name in _FLOATS:
            floats += elements
            if name == "float32":
                tally.add(raw.view(np.float32))
            else:
                tally.add_stored(name, elements)
    if integers >= _NEARLY_ALL * (integers + floats) and integers:
        return Precision.INT8
    return (
        Precision.MIXED
        if integers and integers >= _SUBSTANTIAL * (integers + floats)
        else tally.precision_of_parameters()
    )


def _weights(graph: Table) -> Iterator[tuple[Table, NDArray[np.uint8]]]:
    """Yield each tensor with values in the file and their bytes; shared values once."""
    seen = set()
    for subgraph in _subgraphs(graph):
        for tensor in _tensors(subgraph):
            index = tensor.Buffer()
            raw = _bytes_of(graph, index)
            if raw.size and index not in seen:
                seen.add(index)
                yield tensor, raw


def _bytes_of(graph: Table, index: int) -> NDArray[np.uint8]:
    buffer = graph.Buffers(index)
    if buffer.DataLength():
        raw: NDArray[np.uint8] = buffer.DataAsNumpy()
        return raw
    # Files above 2 GB have the values after the part that describes them.
    count = buffer.Size() if buffer.Offset() > 1 else 0
    return np.frombuffer(graph._tab.Bytes, dtype=np.uint8, count=count, offset=buffer.Offset() if count else 0)  # noqa: SLF001 - generated code has no other way


def _subgraphs(graph: Table) -> Iterator[Table]:
    yield from map(graph.Subgraphs, range(graph.SubgraphsLength()))


def _tensors(subgraph: Table) -> Iterator[Table]:
    yield from map(subgraph.Tensors, range(subgraph.TensorsLength()))


def _nodes(graph: Table) -> Iterator[tuple[Table, Table]]:
    for subgraph in _subgraphs(graph):
        yield from ((subgraph, subgraph.Operators(index)) for index in range(subgraph.OperatorsLength()))


def _tensor_indices(node: Table) -> Iterator[int]:
    indices = (*map(node.Inputs, range(node.InputsLength())), *map(node.Outputs, range(node.OutputsLength())))
    # An optional input that is not given is -1.
    yield from (index for index in indices if index >= 0)


def fused_activation(node: Table) -> str:
    """Return the function that a node applies to its result, such as `RELU`; empty for none."""
    from ai_edge_litert import schema_py_generated as schema

    kind: Any = getattr(schema, _name_of(node.BuiltinOptionsType(), schema.BuiltinOptions), None)
    if not hasattr(kind, "FusedActivationFunction"):
        return ""
    options, stored = kind(), node.BuiltinOptions()
    options.Init(stored.Bytes, stored.Pos)
    number = options.FusedActivationFunction()
    return _name_of(number, schema.ActivationFunctionType) if number else ""


def operator_name(graph: Table, node: Table) -> str:
    """Return the operator of a node, such as `CONV_2D`."""
    from ai_edge_litert import schema_py_generated as schema

    code = graph.OperatorCodes(node.OpcodeIndex())
    if code.CustomCode():
        return str(code.CustomCode().decode())
    # Files of versions with at most 127 operators have the number in the older field only.
    number = max(code.BuiltinCode(), code.DeprecatedBuiltinCode())
    return _name_of(number, schema.BuiltinOperator)


def _name_of(number: int, constants: type) -> str:
    # A number of a newer schema has no name.
    return next((name for name, value in vars(constants).items() if value == number), f"number {number}")
