"""Run a PyTorch model and read what its operators compute, as it runs, without an export.

An exporter may be what is wrong, so its graph is not a reference. Each operator is recorded when PyTorch dispatches it,
by the module that calls it and the line of the user's code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from numpy.typing import NDArray

from paritygate.errors import BackendError
from paritygate.validate.runners.torch import TorchRunner, array_of
from paritygate.validate.tensors.meter import Meter
from paritygate.validate.tensors.tensor_graph import TORCH, Arrays, Feed, TensorGraph, Weight, foreign_graph
from paritygate.validate.tensors.torch_places import Places
from paritygate.validate.tensors.torch_recorder import Operation, Recorder

if TYPE_CHECKING:
    import numpy as np


class TorchValues:
    """Runs the module of a runner, and records its operators.

    Attributes:
        operations: Those of the first feed; every other has to take the same ones.
        outputs: The names of the tensors that are returned.
    """

    def __init__(self, runner: TorchRunner, feed: Feed) -> None:
        self._runner = runner
        self._places = Places(runner)
        first = self._recorded(feed, (), {})
        self.operations: Sequence[Operation] = first.operations
        self.outputs: Sequence[str] = first.outputs
        self._inner = first.inner
        self.weights = {
            name: Weight(shape=tuple(tensor.shape), is_float=tensor.is_floating_point(), load=partial(array_of, tensor))
            for name, tensor in first.constants.items()
        }

    def open(self, names: Sequence[str], values: Mapping[str, Arrays]) -> Callable[[Feed], list[NDArray[np.generic]]]:
        """Return what computes these tensors: of operators, outputs, inputs or weights."""

        def computed(feed: Feed) -> list[NDArray[np.generic]]:
            given = {self._inner.get(name, name): feed[name] for name in values}
            run = self._recorded({name: array for name, array in feed.items() if name not in values}, names, given)
            if [each.name for each in run.operations] != [each.name for each in self.operations]:
                msg = "the PyTorch module runs different operators for different rows"
                raise BackendError(msg, hint="give only rows that take the same branches of the code")
            return [run.values[name] for name in names]

        return computed

    def _recorded(self, feed: Feed, names: Sequence[str], values: Mapping[str, NDArray[np.generic]]) -> Recorder:
        recorder = Recorder(self._places, frozenset(names), values)
        signature = self._runner.signature
        inputs, outputs = ([spec.name for spec in specs] for specs in (signature.inputs, signature.outputs))
        with self._places.watched(), recorder.recording(inputs, outputs):
            self._runner.run({name: feed[name] for name in inputs if name in feed})
        return recorder


def torch_graph(runner: TorchRunner, feed: Feed, meter: Meter) -> TensorGraph:
    """Return the operators that the runner's module calls for a feed, as a graph.

    Raises:
        BackendError: The module fails.
    """
    from onnx import helper

    values = TorchValues(runner, feed)
    nodes = [
        helper.make_node(
            each.operator, each.inputs, each.outputs, name=each.name, domain=TORCH, doc_string=each.code or None
        )
        for each in values.operations
    ]
    for node, each in zip(nodes, values.operations, strict=True):
        node.attribute.extend(helper.make_attribute(name, value) for name, value in each.attributes.items())
    graph = foreign_graph(
        nodes,
        values,
        values.weights,
        inputs=(spec.name for spec in runner.signature.inputs),
        outputs=values.outputs,
        path=runner.loaded.ref.path,
        meter=meter,
    )
    return replace(graph, in_training=runner.facts.in_training)
