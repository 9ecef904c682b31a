"""An ONNX graph as nodes over tensors: which node makes a tensor, which ones read it, and what is constant."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from paritygate.models.onnx.file import read_onnx
from paritygate.models.onnx.functions import inline_functions
from paritygate.models.onnx.graph import name_nodes, names_in, subgraphs_of
from paritygate.validate.divergence.meter import Meter

if TYPE_CHECKING:
    import onnx


@dataclass(frozen=True, kw_only=True, slots=True)
class TensorGraph:
    """Hold the main graph of a model, its local functions inlined and each node named.

    `path` is the file, beside which its external data is. `nodes` are in the order in which they run. A node with
    subgraphs is one node, which also reads their captured tensors. `producers` has no inputs and initializers.
    `constants` are the names of initializers, and of everything computed from them alone. `meter` counts its runs.
    """

    path: Path
    model: onnx.ModelProto
    nodes: Sequence[onnx.NodeProto]
    producers: Mapping[str, onnx.NodeProto]
    consumers: Mapping[str, Sequence[onnx.NodeProto]]
    constants: frozenset[str]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    meter: Meter

    def operator(self, name: str) -> str:
        """Return the operator that computes the tensor; empty for an input or an initializer."""
        return self.producers[name].op_type if name in self.producers else ""

    def data_inputs(self, node: onnx.NodeProto) -> list[str]:
        """Return the tensors that the node reads and that depend on the model's inputs."""
        return [name for name in reads_of(node) if name not in self.constants]

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


def read_tensor_graph(path: Path, meter: Meter) -> TensorGraph:
    """Return the graph of an ONNX file; its external data is not read.

    Raises:
        InputFileError: The file is no ONNX model, or its external data is missing.
    """
    model = read_onnx(path)
    inline_functions(model)
    name_nodes(model.graph)
    return tensor_graph_of(model, path, meter)


def tensor_graph_of(model: onnx.ModelProto, path: Path, meter: Meter) -> TensorGraph:
    """Return the graph of a model without local functions, whose nodes have names; it was read from `path`."""
    graph = model.graph
    initializers = {tensor.name for tensor in graph.initializer}
    initializers.update(sparse.values.name for sparse in graph.sparse_initializer)
    consumers: dict[str, list[onnx.NodeProto]] = defaultdict(list)
    for node in graph.node:
        for name in reads_of(node):
            consumers[name].append(node)
    return TensorGraph(
        path=path,
        model=model,
        nodes=tuple(graph.node),
        producers={name: node for node in graph.node for name in node.output if name},
        consumers=consumers,
        constants=frozenset(_constants(graph, initializers)),
        inputs=tuple(value.name for value in graph.input if value.name not in initializers),
        outputs=tuple(value.name for value in graph.output),
        meter=meter,
    )


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
