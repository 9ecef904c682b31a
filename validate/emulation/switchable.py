"""Rewrite an ONNX graph so that the lower precision of each node can be switched on and off from run to run.

The new graph computes in float32, and has one more input, a boolean for each node that a converter can lower. Where it
is true, the node reads its inputs and weights rounded, and what it makes is rounded. Where it is false, the node is as
in the original. A value that a float32 node makes is rounded for its lowered readers alone, as by a Cast. So one
session measures any choice of nodes, without a conversion for each.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from msgspec import Struct

from paritygate.batch import Arrays
from paritygate.models.onnx.graph import UniqueNames, names_in, replace_nodes
from paritygate.models.onnx.weights import ELEMENT_TYPES, FLOAT, load_external, load_tensor, stored_in
from paritygate.validate.emulation.constants import LARGE_ELEMENTS, drop_data, drop_default_inputs
from paritygate.validate.emulation.operators import float_constants, is_exact

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

    from paritygate.models.onnx.lowering import Lowering
    from paritygate.precision import Precision

_BOOL = 9


class Rounding(Protocol):
    """A lower precision: how it changes values and constants."""

    def constant(self, node: str, position: int, values: NDArray[Any]) -> NDArray[np.float32]:
        """Return the constant at an input of a node as the lowered node reads it."""

    def nodes(self, name: str, target: str) -> Iterator[onnx.NodeProto]:
        """Yield the nodes that make `target`, the rounded value, of the value called `name` in the original."""


class CastRounding(Struct, frozen=True, kw_only=True):
    """Rounding to FP16 or BF16 by a pair of Casts."""

    precision: Precision

    def constant(self, node: str, position: int, values: NDArray[Any]) -> NDArray[np.float32]:
        """Return the values as converters store them."""
        del node, position
        return stored_in(self.precision, values)[0].astype(np.float32)

    def nodes(self, name: str, target: str) -> Iterator[onnx.NodeProto]:
        """Yield the pair of Casts."""
        import onnx

        low = f"{target}_{self.precision}"
        yield onnx.helper.make_node("Cast", [name], [low], to=ELEMENT_TYPES[self.precision])
        yield onnx.helper.make_node("Cast", [low], [target], to=FLOAT)


class RangeRounding(Struct, frozen=True, kw_only=True):
    """Rounding to INT8 by the scale and zero point of each value, and by stored constants at each place."""

    ranges: Mapping[str, tuple[NDArray[np.float32], NDArray[Any]]]
    constants: Mapping[tuple[str, int], NDArray[np.float32]]

    def constant(self, node: str, position: int, values: NDArray[Any]) -> NDArray[np.float32]:
        """Return the stored constant."""
        del values
        return self.constants[node, position]

    def nodes(self, name: str, target: str) -> Iterator[onnx.NodeProto]:
        """Yield the pair of QuantizeLinear and DequantizeLinear, and their constants."""
        import onnx

        names = [f"{target}_scale", f"{target}_zero"]
        for own, values in zip(names, self.ranges[name], strict=True):
            tensor = onnx.numpy_helper.from_array(np.asarray(values).reshape(()), own)
            yield onnx.helper.make_node("Constant", [], [own], value=tensor)
        low = f"{target}_int8"
        yield onnx.helper.make_node("QuantizeLinear", [name, *names], [low])
        yield onnx.helper.make_node("DequantizeLinear", [low, *names], [target])


class SwitchableGraph(Struct, frozen=True, kw_only=True):
    """A float32 graph with a switch for each node.

    `switches` are names of nodes in the order of the values of `switch_input`. The large `weights` have no data in
    `model`; the runtime gets them beside it.
    """

    model: onnx.ModelProto
    weights: Arrays
    switches: tuple[str, ...]
    switch_input: str


def make_switchable(
    model: onnx.ModelProto, lowered: Mapping[str, Lowering], rounding: Rounding, folder: Path | None
) -> SwitchableGraph:
    """Return the graph with a switch for each node of `lowered`.

    The float32 model has named nodes and no local functions, and is used up. `folder` has its external data.

    Raises:
        InputFileError: External data is missing or corrupt.
    """
    return _Switching(model, lowered, rounding, folder).run()


class _Switching:
    def __init__(
        self, model: onnx.ModelProto, lowered: Mapping[str, Lowering], rounding: Rounding, folder: Path | None
    ) -> None:
        self._model = model
        self._graph = model.graph
        self._lowered = lowered
        self._rounding = rounding
        self._folder = folder
        self._names = UniqueNames(names_in(model.graph))
        self._constants = float_constants(model.graph)
        self._gates: dict[str, str] = {}
        self._rounded: dict[str, str] = {}
        self._low_constants: dict[tuple[str, bytes], str] = {}
        self._nodes: list[onnx.NodeProto] = []
        self._added: list[onnx.TensorProto] = []

    def run(self) -> SwitchableGraph:
        import onnx

        graph = self._graph
        switches = tuple(node.name for node in graph.node if node.name in self._lowered)
        switch_input = self._names.new("paritygate_switches")
        original = list(graph.node)
        self._add_gates(switches, switch_input)
        for node in original:
            self._add(node)
        replace_nodes(graph, self._nodes)
        graph.input.append(onnx.helper.make_tensor_value_info(switch_input, _BOOL, [len(switches)]))
        graph.initializer.extend(self._added)
        drop_default_inputs(graph)
        # An exporter's types of values in between are of no use here.
        del graph.value_info[:]
        weights = self._take_weights()
        return SwitchableGraph(model=self._model, weights=weights, switches=switches, switch_input=switch_input)

    def _add_gates(self, switches: Iterable[str], switch_input: str) -> None:
        import onnx

        for at, name in enumerate(switches):
            index, gate = self._names.new(f"{name}_place"), self._names.new(f"{name}_switch")
            self._added.append(onnx.numpy_helper.from_array(np.asarray(at, np.int64), index))
            self._nodes.append(onnx.helper.make_node("Gather", [switch_input, index], [gate], axis=0))
            self._gates[name] = gate

    def _add(self, node: onnx.NodeProto) -> None:
        lowering = self._lowered.get(node.name)
        if lowering is None:
            self._nodes.append(node)
            return
        gate = self._gates[node.name]
        is_moving = is_exact(node)
        for position in sorted(lowering.inputs):
            node.input[position] = self._read(node, position, gate)
        raw = {}
        for position in sorted(lowering.outputs):
            # What only moves its inputs makes rounded values of rounded ones.
            if node.output[position] and not is_moving:
                raw[position] = self._names.new(f"{node.output[position]}_raw")
        targets = {position: node.output[position] for position in raw}
        for position, name in raw.items():
            node.output[position] = name
        self._nodes.append(node)
        for position, name in raw.items():
            rounded = self._names.new(f"{targets[position]}_rounded")
            self._round(name, targets[position], rounded)
            self._select(gate, rounded, name, targets[position])
            self._rounded[targets[position]] = rounded

    def _read(self, node: onnx.NodeProto, position: int, gate: str) -> str:
        name = node.input[position]
        target = self._names.new(f"{name}_for_{node.name}")
        if name in self._constants:
            self._select(gate, self._low_constant(node.name, position, name), name, target)
            return target
        if name not in self._rounded:
            rounded = self._names.new(f"{name}_rounded")
            self._round(name, name, rounded)
            self._rounded[name] = rounded
        self._select(gate, self._rounded[name], name, target)
        return target

    def _round(self, source: str, name: str, target: str) -> None:
        """Add the nodes that make `target`, the rounded value of `source`, which the original calls `name`."""
        made = list(self._rounding.nodes(name, target))
        for node in made:
            node.input[:] = [source if value == name else value for value in node.input]
        self._nodes += made

    def _select(self, gate: str, low: str, full: str, target: str) -> None:
        import onnx

        self._nodes.append(onnx.helper.make_node("Where", [gate, low, full], [target]))

    def _low_constant(self, node: str, position: int, name: str) -> str:
        import onnx

        values = self._rounding.constant(node, position, load_tensor(self._constants[name], self._folder))
        key = (name, hashlib.sha256(values.tobytes()).digest())
        if key not in self._low_constants:
            self._low_constants[key] = self._names.new(f"{name}_low")
            self._added.append(onnx.numpy_helper.from_array(np.ascontiguousarray(values), self._low_constants[key]))
        return self._low_constants[key]

    def _take_weights(self) -> dict[str, NDArray[np.generic]]:
        """Move the data of large float weights out of the graph, and read external data of the others into it."""
        taken: dict[str, NDArray[np.generic]] = {}
        for tensor in self._graph.initializer:
            if tensor.data_type != FLOAT or np.prod(tensor.dims) < LARGE_ELEMENTS:
                load_external(tensor, self._folder)
                continue
            taken[tensor.name] = np.ascontiguousarray(load_tensor(tensor, self._folder))
            drop_data(tensor, FLOAT)
        return taken
