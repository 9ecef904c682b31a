"""Cut a place out of two models: the smallest pair of models that shows its fault."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from paritygate.convert.onnx.rewrite import rename_values
from paritygate.errors import BackendError
from paritygate.pipelines.diagnose.drawing import Array, Constant, drawn_constant, input_draws, paired_constants
from paritygate.pipelines.diagnose.node_data import holds_data, without_remarks
from paritygate.validate.divergence.result import KeptConstant, Located, Minimal
from paritygate.validate.divergence.sketch import error_between, sketch_of
from paritygate.validate.tensors.inner_values import Feed, read_inner
from paritygate.validate.tensors.onnx_values import run_model
from paritygate.validate.tensors.tensor_graph import TensorGraph, reads_of
from paritygate.validate.words.sentence import say

if TYPE_CHECKING:
    import onnx

MOST_NODES = 10
_MOST_BATCHES = 16
# The fault survives if this share of its error is left, and more than rounding.
_SHARE, _LEAST = 0.1, 1e-4
_SEED = 20261127
# Since this version of the format, an initializer need not be an input.
_LEAST_IR = 4


class MinimalPair(Struct, frozen=True, kw_only=True):
    """Two models with equal inputs that show one fault alone, and values of these inputs."""

    reference: onnx.ModelProto
    candidate: onnx.ModelProto
    inputs: Mapping[str, Array]


def minimal_pair(
    graphs: tuple[TensorGraph, TensorGraph], feeds: Sequence[Feed], place: Located, *, with_inputs: bool
) -> tuple[Minimal, MinimalPair | None]:
    """Return what the minimal models of a place hold, and the models; none if the fault does not show in them.

    `graphs` are the candidate and the reference, and `feeds` are inputs by the reference's names, for each batch.
    `with_inputs` stores the real values of the tensors that the nodes read, and no drawn ones.
    """
    if place.makes is None:
        return Minimal(words=say("minimal.unknown")), None
    cut = _Cut(graphs, feeds[:_MOST_BATCHES], place)
    if max(cut.sizes) > MOST_NODES:
        return Minimal(words=say("minimal.large", count=max(cut.sizes), most=MOST_NODES)), None
    holder = next((node for node in cut.nodes if holds_data(node)), None)
    if holder is not None:
        return Minimal(words=say("minimal.holds", operator=holder.op_type)), None
    try:
        return cut.made(with_inputs=with_inputs)
    except (BackendError, ValueError, TypeError):
        # A sequence or a map is not an input of these models.
        return Minimal(words=say("minimal.unknown")), None


class _Cut:
    """The nodes of both models at one place, candidate first, with their constants and inputs."""

    def __init__(self, graphs: tuple[TensorGraph, TensorGraph], feeds: Sequence[Feed], place: Located) -> None:
        self._graphs, self._feeds = graphs, feeds
        self._names: tuple[dict[str, str], dict[str, str]] = ({}, {})
        for pair in place.reads:
            number = len({*self._names[0].values(), *self._names[1].values()})
            known = self._names[0].get(pair.candidate) or self._names[1].get(pair.reference) or f"x{number}"
            self._names[0].setdefault(pair.candidate, known)
            self._names[1].setdefault(pair.reference, known)
        assert place.makes is not None  # noqa: S101 - the caller has checked it
        self._ends = place.makes.candidate, place.makes.reference
        self._nodes = [
            _nodes_between(graph, names, end) for graph, names, end in zip(graphs, self._names, self._ends, strict=True)
        ]
        self._reshaped = self._other_shapes()
        self.sizes = [
            max(len(nodes), 1) + extra for nodes, extra in zip(self._nodes, (len(self._reshaped), 0), strict=True)
        ]

    @property
    def nodes(self) -> list[onnx.NodeProto]:
        """The nodes of both models."""
        return [*self._nodes[0], *self._nodes[1]]

    def _other_shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shapes of tensors that the candidate's nodes read, and the reference has in another shape."""
        shapes: list[dict[str, tuple[int, ...]]] = []
        for side, graph in enumerate(self._graphs):
            (feed,) = self._own(side, self._feeds[:1])
            read = dict(read_inner(graph, [name for name in self._names[side] if name not in graph.inputs], [feed]))
            shapes.append({name: (read[name][0] if name in read else feed[name]).shape for name in self._names[side]})
        wanted = {x: shapes[1][name] for name, x in self._names[1].items()}
        used = {name for node in self._nodes[0] for name in reads_of(node)}
        return {
            name: shapes[0][name] for name, x in self._names[0].items() if name in used and shapes[0][name] != wanted[x]
        }

    def made(self, *, with_inputs: bool) -> tuple[Minimal, MinimalPair | None]:
        """Return the models, with values that are drawn where the fault survives that."""
        random = np.random.default_rng(_SEED)
        constants = paired_constants(*(self._constants(at) for at in range(2)))
        real = max((self._inputs(feed) for feed in self._feeds), key=lambda values: self._error(constants, values))
        least = max(_LEAST, min(1.0, _SHARE * self._error(constants, real)))
        draws = [dict(zip(real, values, strict=True)) for values in input_draws(list(real.values()), random)]
        survivors = (values for values in draws if self._shows(constants, values, least))
        inputs = real if with_inputs else next(survivors, None)
        if inputs is None or self._error(constants, inputs) < _LEAST:
            return Minimal(words=say("minimal.inputs" if inputs is None else "minimal.unseen")), None
        shown = self._drawn(constants, inputs, least, random)
        error = self._error(shown, inputs)
        minimal = Minimal(
            candidate_nodes=self.sizes[0],
            reference_nodes=self.sizes[1],
            error=error if np.isfinite(error) else None,
            has_real_inputs=with_inputs,
            constants=tuple(_kept(at, constant) for at, constant in enumerate(shown)),
        )
        candidate, reference = (self._typed(side, shown, inputs) for side in range(2))
        return minimal, MinimalPair(candidate=candidate, reference=reference, inputs=inputs)

    def _typed(self, side: int, constants: Sequence[Constant], inputs: Mapping[str, Array]) -> onnx.ModelProto:
        """Return the model of one side, whose output has its type."""
        from onnx import helper

        model = self._model(side, constants, inputs)
        (values,) = run_model(model, ["y"], inputs, self._graphs[side].path)
        element = helper.np_dtype_to_tensor_dtype(values.dtype)
        model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", element, values.shape))
        return model

    def _drawn(
        self, constants: Sequence[Constant], inputs: Mapping[str, Array], least: float, random: np.random.Generator
    ) -> Sequence[Constant]:
        """Return the constants, drawn ones in the place of all that the fault does not need."""
        drawn = [drawn_constant(each, random) if each.can_be_drawn else each for each in constants]
        if self._shows(drawn, inputs, least):
            return drawn
        kept = list(constants)
        for at, constant in enumerate(drawn):
            tried = [*kept[:at], constant, *kept[at + 1 :]]
            if self._shows(tried, inputs, least):
                kept = tried
        return kept

    def _constants(self, side: int) -> dict[str, Array]:
        graph = self._graphs[side]
        names = dict.fromkeys(name for node in self._nodes[side] for name in reads_of(node) if name in graph.constants)
        return {name: arrays[0] for name, arrays in read_inner(graph, list(names), self._own(side, self._feeds[:1]))}

    def _own(self, side: int, feeds: Sequence[Feed]) -> Sequence[Feed]:
        inputs = dict(zip(self._graphs[0].inputs, self._graphs[1].inputs, strict=True))
        if set(self._graphs[0].inputs) == set(self._graphs[1].inputs):
            inputs = {name: name for name in inputs}
        return feeds if side else [{name: feed[other] for name, other in inputs.items()} for feed in feeds]

    def _inputs(self, feed: Feed) -> dict[str, Array]:
        """Return the reference's values of the tensors that the nodes read."""
        graph, names = self._graphs[1], self._names[1]
        read = dict(read_inner(graph, [name for name in names if name not in graph.inputs], [feed]))
        return {x: feed[name] if name in graph.inputs else read[name][0] for name, x in names.items()}

    def _shows(self, constants: Sequence[Constant], inputs: Mapping[str, Array], least: float) -> bool:
        """Return whether drawn values have so large an error; not if they are none that the nodes take."""
        try:
            return self._error(constants, inputs) >= least
        except BackendError:
            return False

    def _error(self, constants: Sequence[Constant], inputs: Mapping[str, Array]) -> float:
        actual, expected = (
            run_model(self._model(side, constants, inputs), ["y"], inputs, self._graphs[side].path) for side in range(2)
        )
        return error_between(sketch_of(actual), sketch_of(expected))

    def _model(self, side: int, constants: Sequence[Constant], inputs: Mapping[str, Array]) -> onnx.ModelProto:
        """Return the model of one side, whose inputs are `x0` and so on, and whose output is `y`."""
        import onnx
        from onnx import helper

        graph, end = self._graphs[side], self._ends[side]
        names = dict(self._names[side])
        nodes = [without_remarks(node) for node in self._nodes[side]]
        nodes = nodes or [helper.make_node("Identity", [end], ["y"], name="Identity")]
        tensors = self._constants_in(side, constants, names)
        for at, name in enumerate(() if side else self._reshaped):
            x, shape = self._names[0][name], f"shape/{at}"
            tensors[shape] = np.array(self._reshaped[name], np.int64)
            nodes.insert(0, helper.make_node("Reshape", [f"{x}/input", shape], [name], name=f"Reshape{at}"))
            names |= {f"{x}/input": x, shape: f"shape{at}", name: f"shaped{at}"}
        made = [name for node in nodes for name in node.output if name and name not in {"y", end, *names}]
        names |= {name: f"t{at}" for at, name in enumerate(made)} | ({} if end in names else {end: "y"})
        # An input that only the other model reads must have no name of a tensor in this one.
        names |= {f"{x}/input": x for x in inputs if x not in names.values()}
        old = {new: name for name, new in names.items()}
        declared = [
            helper.make_tensor_value_info(old[x], helper.np_dtype_to_tensor_dtype(each.dtype), each.shape)
            for x, each in inputs.items()
        ]
        outputs = [onnx.ValueInfoProto(name="y" if end in self._names[side] else end)]
        model = _model(graph.model, nodes, declared, outputs, tensors)
        rename_values(model, names)
        return model

    def _constants_in(self, side: int, constants: Sequence[Constant], names: dict[str, str]) -> dict[str, Array]:
        """Return the constants of one model, and put their names in the minimal one into `names`."""
        tensors: dict[str, Array] = {}
        for at, constant in enumerate(constants):
            name, values = (constant.reference, constant.expected) if side else (constant.candidate, constant.actual)
            if values is not None:
                tensors[name], names[name] = values, f"c{at}"
        return tensors


def _model(
    whole: onnx.ModelProto,
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
    tensors: Mapping[str, Array],
) -> onnx.ModelProto:
    from onnx import helper, numpy_helper

    weights = [numpy_helper.from_array(np.ascontiguousarray(values), name) for name, values in tensors.items()]
    graph = helper.make_graph(nodes, "minimal", inputs, outputs, weights)
    used = {node.domain for node in nodes} | {""}
    opsets = [item for item in whole.opset_import if item.domain in used]
    return helper.make_model(graph, opset_imports=opsets, ir_version=max(whole.ir_version, _LEAST_IR))


def _nodes_between(graph: TensorGraph, start: Mapping[str, str], end: str) -> list[onnx.NodeProto]:
    waiting, found = [end], set[str]()
    while waiting:
        name = waiting.pop()
        node = graph.producers.get(name)
        if name in start or node is None or node.name in found:
            continue
        found.add(node.name)
        waiting += graph.data_inputs(node)
    return [node for node in graph.nodes if node.name in found]


def _kept(at: int, constant: Constant) -> KeptConstant:
    values = constant.expected if constant.actual is None else constant.actual
    assert values is not None  # noqa: S101 - a constant is of one model at least
    return KeptConstant(name=f"c{at}", shape=values.shape, dtype=values.dtype.name, is_drawn=constant.is_drawn)
