"""Analyse what an ONNX graph does with each of its inputs: the strongest sign of an input's role."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from paritygate.validate.probes.graph.constants import Constants, constants_of
from paritygate.validate.probes.graph.discontinuity import goes_on_with_choices
from paritygate.validate.probes.graph.divisions import divisions_in
from paritygate.validate.probes.graph.flow import InputFlow, input_flow_from
from paritygate.validate.probes.graph.keys import keys_in
from paritygate.validate.probes.graph.masking import NO_MASKING, Masking, masking_by
from paritygate.validate.probes.graph.sizes import inputs_of_sizes
from paritygate.validate.probes.graph.tables import column_ranges, lookups_in, reaches, widest_range
from paritygate.validate.probes.graph.thresholds import buckets_in, thresholds_in
from paritygate.validate.probes.inputs.thresholds import Buckets, Division, Keys, Threshold

if TYPE_CHECKING:
    import onnx

_CONVOLVING = frozenset({"AveragePool", "Conv", "ConvInteger", "GlobalAveragePool", "MaxPool", "QLinearConv"})
_TESTING = frozenset({"IsInf", "IsNaN"})
_MASK_RANK = 2
# The inputs at which a node takes places to read or write.
_PLACES: Mapping[str, frozenset[int]] = {
    "GatherElements": frozenset({1}),
    "GatherND": frozenset({1}),
    "Pad": frozenset({1}),
    "Scatter": frozenset({1}),
    "ScatterElements": frozenset({1}),
    "ScatterND": frozenset({1}),
    "Slice": frozenset({1, 2, 3, 4}),
    "TensorScatter": frozenset({2}),
}


class GraphUse(Struct, frozen=True, kw_only=True):
    """The use of one input, as far as it can be followed through casts and changes of shape.

    - `table_rows`: rows of the constant table that it indexes, shared by all its tables; `first_id` takes the first.
    - `columns`: first and last id of each column where columns index their own tables; None for a column without one.
    - `reach`: first and last number of each column that a table, which columns share by parts, has a row for.
    - `is_shifted`: a number is added before the table. `is_place`: it addresses places to read or write.
    - `is_size`: a shape, a loop's count or a loop's condition depends on it. `is_convolved`: it is convolved or pooled.
    - `is_tested`: the graph tests for NaN or infinity. `equals`: a whole number that it is compared with for equality.
    - `positions`: sizes of constant tables that no input indexes, which limit the positions of a row.
    - `chooses`: the graph computes on with chosen places, such as those of the largest scores.
    """

    table_rows: int | None = None
    first_id: int = 0
    columns: tuple[tuple[int, int] | None, ...] = ()
    reach: tuple[tuple[int, int] | None, ...] = ()
    is_shifted: bool = False
    is_place: bool = False
    is_size: bool = False
    is_convolved: bool = False
    is_tested: bool = False
    equals: int | None = None
    thresholds: tuple[Threshold, ...] = ()
    buckets: tuple[Buckets, ...] = ()
    keys: tuple[Keys, ...] = ()
    divisions: tuple[Division, ...] = ()
    positions: tuple[int, ...] = ()
    chooses: bool = False
    masking: Masking = NO_MASKING


def uses_of_inputs(model: onnx.ModelProto) -> Mapping[str, GraphUse]:
    """Return the main graph's use of each input, by name; weights need not be present."""
    graph = model.graph
    constants = constants_of(graph)
    flows = {
        value.name: input_flow_from(value, graph, constants)
        for value in graph.input
        if value.name not in constants.sizes
    }
    positions = _positions(graph, constants, {tensor for flow in flows.values() for tensor in flow})
    sizes = inputs_of_sizes(model)
    chooses = goes_on_with_choices(graph)
    functions = frozenset(function.name for function in model.functions)
    # Only inputs with rows and positions, because every walk goes through the whole graph.
    masking = {
        value.name: masking_by(value.name, graph, constants, functions)
        for value in graph.input
        if value.name in flows and len(value.type.tensor_type.shape.dim) == _MASK_RANK
    }
    return {
        name: replace(
            _use(flow, graph, constants),
            positions=positions,
            is_size=name in sizes,
            chooses=chooses,
            masking=masking.get(name, NO_MASKING),
        )
        for name, flow in flows.items()
    }


def _positions(graph: onnx.GraphProto, constants: Constants, flows: Iterable[str]) -> tuple[int, ...]:
    """Return the sizes of constants from which something other than an input's values takes a part."""
    sizes: set[int] = set()
    for node in graph.node:
        shape = constants.sizes.get(node.input[0]) if node.op_type in {"Gather", "Slice"} else None
        if shape is None or len(shape) < 2 or node.input[1] in flows:  # noqa: PLR2004 - positions and features
            continue
        sizes.update(shape[:1] if node.op_type == "Gather" else shape[:-1])
    return tuple(sorted(size for size in sizes if size > 1))


def _use(flows: Mapping[str, InputFlow], graph: onnx.GraphProto, constants: Constants) -> GraphUse:
    lookups = lookups_in(graph, flows, constants)
    ranges = widest_range(lookups)
    use = GraphUse(
        table_rows=None if ranges is None else ranges[1] - ranges[0] + 1,
        first_id=0 if ranges is None else ranges[0],
        columns=column_ranges(lookups),
        reach=reaches(lookups),
        is_shifted=any(lookup.is_shifted for lookup in lookups),
        thresholds=thresholds_in(graph, flows, constants),
        buckets=buckets_in(graph, flows, constants),
        keys=keys_in(graph, flows),
        divisions=divisions_in(graph, flows, constants),
    )
    for node in graph.node:
        for at, tensor in enumerate(node.input):
            if tensor in flows:
                use = _with_node(use, node, at, flows[tensor], constants)
    return use


def _with_node(use: GraphUse, node: onnx.NodeProto, at: int, flows: InputFlow, constants: Constants) -> GraphUse:
    if node.op_type == "Gather" and at == 1:
        return use
    if at in _PLACES.get(node.op_type, ()):
        is_table = node.op_type.startswith("Gather") and node.input[0] in constants.sizes
        return replace(use, is_place=use.is_place or not is_table)
    if not flows.is_plain:
        return use
    whole = [constants.whole(name) for name in node.input if name != node.input[at]]
    others = [number for number in whole if number is not None]
    return replace(
        use,
        equals=others[0] if node.op_type == "Equal" and others else use.equals,
        is_convolved=use.is_convolved or node.op_type in _CONVOLVING,
        is_tested=use.is_tested or node.op_type in _TESTING,
    )
