"""Rewriting an ONNX graph so that float32 arithmetic gives the results of a lower precision.

The new graph computes in float32. A pair of Casts, down to the precision and up again, follows every operator that
yields floats to be rounded. So no value passes on, in or out of a subgraph, that the precision does not have. Weights
are rounded once, here. The file decides which values are rounded:

- A file with float16 or bfloat16 tensors (an artifact) is emulated as it is. These tensors are rounded, each to its own
  precision, and float32 stays. Its weights stay as stored.
- A file without any (a float32 original) is emulated as if it had been converted whole: every float32 tensor is
  rounded, inputs and outputs as well. Finite weights beyond the range are brought into it and counted, as converters
  do, because an infinite mask constant would make 0 * inf of every row.

float64 tensors, attributes and sums inside an operator are not rounded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from paritygate.batch import Arrays
from paritygate.errors import BackendError, ConversionError, UsageError
from paritygate.models.onnx.file import opset_of
from paritygate.models.onnx.functions import inline_functions
from paritygate.models.onnx.graph import UniqueNames, element_types, graphs_in, names_in, nodes_in, replace_nodes
from paritygate.models.onnx.weights import ELEMENT_TYPES, FLOAT
from paritygate.precision import Precision
from paritygate.validate.emulation.canary import add_canary
from paritygate.validate.emulation.constants import Constants, drop_default_inputs, precision_of_element
from paritygate.validate.emulation.operators import is_exact, keeps_values_inside, spare_float32_only_inputs
from paritygate.validate.emulation.value_types import infer_all_types

if TYPE_CHECKING:
    import onnx

_EMULATED = (*ELEMENT_TYPES, Precision.MIXED)
# Their results are the constants they hold, which are rounded themselves.
_OF_CONSTANTS = frozenset({"Constant", "ConstantOfShape"})
# Integer attributes that name an element type: of the result, or of the arithmetic inside.
_TYPE_ATTRIBUTES = frozenset(
    {"dtype", "output_datatype", "output_dtype", "precision", "softmax_precision", "stash_type"}
)
# An input of less is stored in float32 since IR version 4, whether or not it is an input of the graph.
_IR_VERSION = 8
_BF16_OPSET = 13


class EmulatedGraph(Struct, frozen=True, kw_only=True):
    """A float32 graph with rounding in it.

    The large `weights` have no data in `model`; the runtime gets them beside it. `inputs` maps names in the file to
    names in the graph. `canary_input` takes `canary.VALUES`, and each of `canary_outputs` shows whether its precision
    is emulated. `is_original` marks a file without tensors of lower precision, whose floats are all rounded. `rounded`
    and `unrounded` count operator results, the latter of float32 and float64. `clamped` counts the values of each
    tensor that were brought into range. `with_values_inside` names operators inside which a device may round more.
    """

    model: onnx.ModelProto
    weights: Arrays
    inputs: Mapping[str, str]
    canary_input: str
    canary_outputs: Mapping[Precision, str]
    is_original: bool
    rounded: int
    unrounded: int
    clamped: Mapping[str, int]
    with_values_inside: tuple[str, ...]


def emulate(model: onnx.ModelProto, folder: Path, precision: Precision) -> EmulatedGraph:
    """Return the graph that computes what `model` would with its values rounded.

    The model, with its external data in `folder`, is used up. `mixed` is for an artifact that may hold fp16 and bf16.

    Raises:
        UsageError: The precision cannot be emulated, or is not that of the artifact's tensors.
        BackendError: The graph has an operator that cannot be emulated.
    """
    if precision not in _EMULATED:
        msg = f"precision {str(precision)!r} cannot be emulated (allowed: {', '.join(map(str, _EMULATED))})"
        raise UsageError(msg, hint="emulate fp16 or bf16")
    _inline(model)
    infer_all_types(model)
    precisions = _low_precisions(model)
    _check_asked(precision, precisions, model)
    if Precision.BF16 in (precisions or (precision,)) and opset_of(model) < _BF16_OPSET:
        msg = f"opset {opset_of(model)} has no Cast to bfloat16 (needed: at least {_BF16_OPSET})"
        raise BackendError(msg, hint=f"export the model with opset {_BF16_OPSET} or higher to emulate bf16")
    return _Emulation(model, {} if precisions else {FLOAT: precision}).run(folder, precisions or (precision,))


def _inline(model: onnx.ModelProto) -> None:
    try:
        inline_functions(model)
    except ConversionError as err:
        raise BackendError(str(err), hint=err.hint) from err
    if model.functions:
        name = model.functions[0].name
        msg = f"local function {name!r} was written for another operator set than the model and cannot be inlined"
        raise BackendError(msg, hint="export the model with one opset to emulate a precision")
    for node in nodes_in(model.graph):
        if node.op_type == "BitCast":
            msg = f"node {node.name!r} is a BitCast, but an emulated tensor has other bits than on the device"
            raise BackendError(msg, hint="export the model without BitCast to emulate a precision")


def _low_precisions(model: onnx.ModelProto) -> tuple[Precision, ...]:
    elements = {element for graph in graphs_in(model.graph) for element in element_types(graph).values()}
    return tuple(precision for precision, element in ELEMENT_TYPES.items() if element in elements)


def _check_asked(precision: Precision, found: tuple[Precision, ...], model: onnx.ModelProto) -> None:
    if found and precision is not Precision.MIXED and found != (precision,):
        has = " and ".join(map(str, found))
        msg = f"the model has tensors of {has}, so {precision} cannot be emulated"
        raise UsageError(msg, hint=f"emulate {found[0] if len(found) == 1 else 'mixed'}, or give the float32 original")
    if found:
        return
    if precision is Precision.MIXED:
        msg = "the model has no tensor of fp16 or bf16, so mixed precision has nothing to round"
        raise UsageError(msg, hint="emulate fp16 or bf16, or give the artifact of mixed precision")
    if not any(FLOAT in element_types(graph).values() for graph in graphs_in(model.graph)):
        msg = f"the model has no float32 tensor, so there is nothing to be rounded to {precision}"
        raise UsageError(msg, hint="emulate a model that computes in float32, fp16 or bf16")


class _Emulation:
    def __init__(self, model: onnx.ModelProto, converted: Mapping[int, Precision]) -> None:
        self._model = model
        # The precision that a tensor of an element type is rounded to, where it is not the type's own.
        self._converted = converted
        self._names = UniqueNames(names_in(model.graph))
        self._used = {name for node in nodes_in(model.graph) for name in node.input}
        self._used.update(value.name for graph in graphs_in(model.graph) for value in graph.output)
        self._rounded = 0
        self._unrounded = 0

    def run(self, folder: Path, precisions: tuple[Precision, ...]) -> EmulatedGraph:
        """Return the graph, with a canary for each of `precisions`."""
        model, graph = self._model, self._model.graph
        inside = {node.op_type for node in nodes_in(graph) if keeps_values_inside(node)}
        drop_default_inputs(graph)
        inputs = {value.name: value.name for value in graph.input}
        renamed = self._rename_inputs()
        inputs.update(renamed)
        spared: frozenset[str] = frozenset()
        if self._converted:
            spared = spare_float32_only_inputs(graph, opset_of(model), self._names, renamed)
        constants = Constants(folder, self._converted, spared)
        # Inner graphs first: rewriting a graph copies its nodes, and what is inside them.
        for each in reversed(list(graphs_in(graph))):
            constants.rewrite_initializers(each, is_outermost=each is graph)
            self._rewrite(each, constants)
        pairs = [node for name, raw in renamed.items() for node in self._pair(raw, name, self._converted[FLOAT])]
        replace_nodes(graph, [*pairs, *graph.node])
        canary_input, canary_outputs = add_canary(graph, self._names, precisions)
        model.ir_version = max(model.ir_version, _IR_VERSION)
        return EmulatedGraph(
            model=model,
            weights=constants.weights,
            inputs=inputs,
            canary_input=canary_input,
            canary_outputs=canary_outputs,
            is_original=bool(self._converted),
            rounded=self._rounded,
            unrounded=self._unrounded,
            clamped=constants.clamped,
            with_values_inside=tuple(sorted(inside)),
        )

    def _rename_inputs(self) -> dict[str, str]:
        """Rename each input that is to be rounded, and return the new names by the old ones."""
        renamed = {}
        for value in self._model.graph.input:
            if value.type.tensor_type.elem_type in self._converted:
                renamed[value.name] = self._names.new(f"{value.name}_float32")
                value.name = renamed[value.name]
        return renamed

    def _pair(self, raw: str, rounded: str, precision: Precision) -> Iterator[onnx.NodeProto]:
        import onnx

        low = self._names.new(f"{rounded}_{precision}")
        yield onnx.helper.make_node("Cast", [raw], [low], to=ELEMENT_TYPES[precision])
        yield onnx.helper.make_node("Cast", [low], [rounded], to=FLOAT)

    def _rewrite(self, graph: onnx.GraphProto, constants: Constants) -> None:
        types = element_types(graph)
        nodes: list[onnx.NodeProto] = []
        for node in graph.node:
            constants.rewrite_attributes(node)
            for attribute in node.attribute:
                _widen_attribute(attribute)
            nodes.append(node)
            nodes.extend(self._round_results(node, types))
        replace_nodes(graph, nodes)
        for value in (*graph.input, *graph.output):
            _widen(value.type)
        del graph.value_info[:]

    def _round_results(self, node: onnx.NodeProto, types: Mapping[str, int]) -> Iterator[onnx.NodeProto]:
        """Rename the node's results, and yield the nodes that round them under their old names."""
        import onnx

        for index, name in enumerate(node.output):
            element = types.get(name, 0) if name else 0
            precision = self._converted.get(element) or precision_of_element(element)
            if precision is None:
                self._unrounded += element in {FLOAT, onnx.TensorProto.DOUBLE}
                continue
            self._rounded += 1
            if name not in self._used or node.op_type in _OF_CONSTANTS or is_exact(node):
                continue
            raw = self._names.new(f"{name}_float32")
            node.output[index] = raw
            if node.op_type == "Cast" and not self._converted:
                # The node itself is the first of the pair: it is the device's own conversion.
                yield onnx.helper.make_node("Cast", [raw], [name], to=FLOAT)
            else:
                yield from self._pair(raw, name, precision)


def _widen_attribute(attribute: onnx.AttributeProto) -> None:
    """Replace types of lower precision that the attribute names with float32, in place."""
    if attribute.HasField("tp"):
        _widen(attribute.tp)
    for kind in attribute.type_protos:
        _widen(kind)
    if attribute.name in _TYPE_ATTRIBUTES and precision_of_element(attribute.i):
        attribute.i = FLOAT


def _widen(kind: onnx.TypeProto) -> None:
    """Replace a type of lower precision with float32, in place; also that of the elements of a sequence or optional."""
    which = kind.WhichOneof("value")
    if which in {"tensor_type", "sparse_tensor_type"}:
        tensor = getattr(kind, which)
        if precision_of_element(tensor.elem_type):
            tensor.elem_type = FLOAT
    elif which in {"sequence_type", "optional_type"}:
        _widen(getattr(kind, which).elem_type)
    elif which == "map_type":
        _widen(kind.map_type.value_type)
