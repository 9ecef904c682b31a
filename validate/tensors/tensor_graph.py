"""A graph as nodes over tensors: which node makes a tensor, which ones read it, and what is constant."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from paritygate.models.onnx.graph import names_in, subgraphs_of
from paritygate.validate.tensors.meter import Meter

if TYPE_CHECKING:
    import onnx

Feed = Mapping[str, NDArray[np.generic]]
Arrays = Sequence[NDArray[np.generic]]

# The domains of nodes that are operators of another framework.
TORCH, TENSORFLOW, OPENVINO, TFLITE = "torch", "tensorflow", "openvino", "tflite"
# In the name of an operator that applies another one to its result, so that the value between does not exist.
FUSED = "+"
FRAMEWORKS = frozenset({TORCH, TENSORFLOW, OPENVINO, TFLITE})
# The classes of numbers and texts that one attribute may hold.
_OF_ATTRIBUTES = ({bool, int}, {float}, {str})
# A tensor with the channels first, as ONNX has them, where the model has them last.
_FIRST = "/channels_first"
_LEAST_RANK, _MOST_RANK = 3, 5


class InnerValues(Protocol):
    """A model that gives the values of its inner tensors, with others in the place of some of them."""

    def open(self, names: Sequence[str], values: Mapping[str, Arrays]) -> Callable[[Feed], list[NDArray[np.generic]]]:
        """Return what computes these tensors for a feed, which also has the new values by the names of `values`.

        Raises:
            BackendError: The model cannot run, or not with these values.
        """


@dataclass(frozen=True, kw_only=True, slots=True)
class Weight:
    """A constant that a model stores; `load` reads it."""

    shape: tuple[int, ...]
    is_float: bool
    load: Callable[[], NDArray[Any]]


@dataclass(frozen=True, kw_only=True, slots=True)
class TensorGraph:
    """Hold the main graph of a model, its local functions inlined and each node named.

    `path` is the file, beside which its external data is. `nodes` are in the order in which they run. A node with
    subgraphs is one node, which also reads their captured tensors. A node of another framework has that one's operator
    and domain, and the line of the code as its documentation. `producers` has no inputs and initializers. `constants`
    are the names of initializers, and of everything computed from them alone. `weights` are the stored ones. `values`
    runs the model, and `meter` counts its runs. `layouts` has tensors with their axes in another order, and the name of
    the tensor itself. `in_training` names what runs in train mode.
    """

    path: Path
    model: onnx.ModelProto
    values: InnerValues
    weights: Mapping[str, Weight]
    nodes: Sequence[onnx.NodeProto]
    producers: Mapping[str, onnx.NodeProto]
    consumers: Mapping[str, Sequence[onnx.NodeProto]]
    constants: frozenset[str]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    meter: Meter
    layouts: Mapping[str, str] = field(default_factory=dict)
    in_training: tuple[str, ...] = ()

    @property
    def framework(self) -> str:
        """The framework whose operators the nodes are; empty for ONNX."""
        domain = self.nodes[0].domain if self.nodes else ""
        return domain if domain in FRAMEWORKS else ""

    def operator(self, name: str) -> str:
        """Return the operator that computes the tensor; empty for an input or an initializer."""
        return self.producers[name].op_type if name in self.producers else ""

    def data_inputs(self, node: onnx.NodeProto) -> list[str]:
        """Return the tensors that the node reads and that depend on the model's inputs."""
        return [name for name in reads_of(node) if name not in self.constants]

    def readers(self, name: str) -> Sequence[onnx.NodeProto]:
        """Return the nodes that read a tensor, or the tensor of which it is a layout."""
        return self.consumers.get(self.layouts.get(name, name), ())

    def layouts_of(self, name: str) -> list[str]:
        """Return the tensor, and itself with its axes in another order."""
        return [name, *(other for other, base in self.layouts.items() if base == name)]

    def inner(self) -> list[str]:
        """Return the tensors that depend on the model's inputs, in the order in which they are computed."""
        return [name for node in self.nodes for name in node.output if name and name not in self.constants]


def reads_of(node: onnx.NodeProto) -> list[str]:
    """Return the tensors that the node reads, those of its subgraphs included, each once."""
    names = dict.fromkeys(name for name in node.input if name)
    for graph in subgraphs_of(node):
        own = {
            *(value.name for value in graph.input),
            *(tensor.name for tensor in graph.initializer),
            *(name for inner in graph.node for name in inner.output),
        }
        names.update(dict.fromkeys(name for name in names_in(graph) if name and name not in own))
    return list(names)


def graph_of(
    model: onnx.ModelProto, values: InnerValues, weights: Mapping[str, Weight], *, path: Path, meter: Meter
) -> TensorGraph:
    """Return the graph of a model in memory, each node named; `weights` are its stored constants."""
    graph = model.graph
    consumers: dict[str, list[onnx.NodeProto]] = defaultdict(list)
    for node in graph.node:
        for name in reads_of(node):
            consumers[name].append(node)
    stored = {*weights, *(each.values.name for each in graph.sparse_initializer)}
    constants = frozenset(_constants(graph, stored))
    return TensorGraph(
        path=path,
        model=model,
        values=values,
        weights=weights,
        nodes=tuple(graph.node),
        producers={name: node for node in graph.node for name in node.output if name},
        consumers=consumers,
        constants=constants,
        inputs=tuple(value.name for value in graph.input if value.name not in stored),
        outputs=tuple(value.name for value in graph.output),
        meter=meter,
    )


def foreign_graph(  # noqa: PLR0913 - the parts of a graph
    nodes: Sequence[onnx.NodeProto],
    values: InnerValues,
    weights: Mapping[str, Weight],
    *,
    inputs: Iterable[str],
    outputs: Iterable[str],
    path: Path,
    meter: Meter,
    layouts: Mapping[str, Layout] | None = None,
) -> TensorGraph:
    """Return the graph of nodes of another framework; `layouts` are tensors in another order of axes."""
    from onnx import helper

    ends = ([helper.make_tensor_value_info(name, 0, None) for name in names] for names in (inputs, outputs))
    model = helper.make_model(helper.make_graph(nodes, "foreign", next(ends), next(ends)))
    made = graph_of(model, values, weights, path=path, meter=meter)
    return replace(made, layouts={name: layout.tensor for name, layout in (layouts or {}).items()})


def shown_attributes(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a foreign operator that are a number, a text, or a list of some of one class."""
    lists = {name: value if isinstance(value, list | tuple) else [value] for name, value in values.items()}
    return {
        name: values[name]
        for name, items in lists.items()
        if items and any(all(type(item) in kinds for item in items) for kinds in _OF_ATTRIBUTES)
    }


@dataclass(frozen=True, kw_only=True, slots=True)
class Layout:
    """A tensor with its axes in another order."""

    tensor: str
    axes: tuple[int, ...]


def channels_first(ranks: Mapping[str, int]) -> dict[str, Layout]:
    """Return the layouts, with the channels first, of the tensors that may have them last."""
    fitting = {name: rank for name, rank in ranks.items() if _LEAST_RANK <= rank <= _MOST_RANK}
    return {
        name + _FIRST: Layout(tensor=name, axes=(0, rank - 1, *range(1, rank - 1))) for name, rank in fitting.items()
    }


# Two runs of these differ, although nothing that they read does.
_RANDOM = frozenset(
    {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Bernoulli"}
)


def _constants(graph: onnx.GraphProto, initializers: set[str]) -> Iterator[str]:
    constants = set(initializers)
    yield from initializers
    for node in graph.node:
        if node.op_type not in _RANDOM and all(name in constants for name in reads_of(node)):
            constants.update(node.output)
            yield from node.output
