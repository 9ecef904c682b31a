"""Run an OpenVINO model in FP32 and read what its operators compute."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from paritygate.errors import BackendError
from paritygate.models.openvino.model import import_openvino, openvino_reason, read_openvino
from paritygate.models.openvino.settings import DEFAULT_HINT, DEVICE, PRECISION_HINT
from paritygate.validate.tensors.meter import Meter
from paritygate.validate.tensors.tensor_graph import (
    OPENVINO,
    TensorGraph,
    Weight,
    channels_first,
    foreign_graph,
    shown_attributes,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from paritygate.validate.tensors.tensor_graph import Arrays, Feed, Layout

_NO_OPERATORS = frozenset({"Parameter", "Constant", "Result"})


class OpenvinoValues:
    """Runs a model with results for inner tensors, which OpenVINO then does not fuse away."""

    def __init__(self, network: Any, inputs: Sequence[str], outputs: Mapping[str, str]) -> None:  # noqa: ANN401 - an openvino.Model
        """Take the names of the inputs in their order, and of the tensors that are the outputs."""
        self._network, self._inputs, self._outputs = network, inputs, outputs
        self.layouts: Mapping[str, Layout] = {}

    def open(self, names: Sequence[str], values: Mapping[str, Arrays]) -> Callable[[Feed], list[NDArray[np.generic]]]:
        """Return what computes these tensors: of operators, outputs, inputs or weights."""
        openvino = import_openvino()
        network = self._network.clone()
        ports = dict(named_ports(network, self._inputs))
        wanted = [self.layouts[name].tensor if name in self.layouts else name for name in names]
        read = [ports[self._outputs.get(name, name)] for name in wanted]
        fed = list(network.get_parameters())
        try:
            for name in values:
                port = ports[self._outputs.get(name, name)]
                given = openvino.opset13.parameter(port.get_partial_shape(), port.get_element_type())
                port.replace(given.output(0))
                fed.append(given)
            results = [openvino.opset13.result(port) for port in read]
            settings = {PRECISION_HINT: DEFAULT_HINT}
            compiled = openvino.Core().compile_model(openvino.Model(results, fed, "inner"), DEVICE, settings)
        except Exception as err:
            msg = f"OpenVINO refused the model while its inner tensors were exposed: {openvino_reason(err)}"
            raise BackendError(msg, hint="check that both models run on these samples: use `compare`") from err
        return partial(self._computed, compiled, list(names), [*self._inputs, *values])

    def _computed(self, compiled: Any, names: Sequence[str], fed: Sequence[str], feed: Feed) -> list[NDArray[Any]]:  # noqa: ANN401 - no types
        tensors = {at: np.asarray(feed[name], order="C") for at, name in enumerate(fed)}
        try:
            arrays = compiled(tensors).to_tuple() if names else ()
        except Exception as err:
            msg = f"OpenVINO failed while inner tensors were read: {openvino_reason(err)}"
            raise BackendError(msg, hint="check that both models run on these samples: use `compare`") from err
        return [
            np.array(array).transpose(self.layouts[name].axes) if name in self.layouts else np.array(array)
            for name, array in zip(names, arrays, strict=True)
        ]


def named_ports(network: Any, inputs: Sequence[str]) -> Iterator[tuple[str, Any]]:  # noqa: ANN401 - no types
    """Yield each output of an operator with its name; of several with one name, the later ones get a number."""
    seen = Counter[str]()
    own = {parameter.get_name(): name for parameter, name in zip(network.get_parameters(), inputs, strict=True)}
    for operation in network.get_ordered_ops():
        name = own.get(operation.get_name(), operation.get_friendly_name())
        seen[name] += 1
        name = name if seen[name] == 1 else f"{name}#{seen[name]}"
        for port in operation.outputs():
            yield (name if operation.get_output_size() == 1 else f"{name}:{port.get_index()}"), port


def openvino_graph(path: Path, inputs: Sequence[str], outputs: Sequence[str], meter: Meter) -> TensorGraph:
    """Return the operators of a model as a graph, by the names served of its inputs and outputs in its order.

    Raises:
        InputFileError: It is not an OpenVINO model.
    """
    from onnx import helper

    network = read_openvino(path)
    names = {_key(port): name for name, port in named_ports(network, inputs)}
    nodes = []
    weights: dict[str, Weight] = {}
    ranks: dict[str, int] = {}
    for operation in network.get_ordered_ops():
        made = [names[_key(port)] for port in operation.outputs()]
        kind = operation.get_type_name()
        if kind == "Constant":
            floats = operation.get_element_type().is_real()
            weights[made[0]] = Weight(
                shape=tuple(operation.get_output_shape(0)), is_float=floats, load=partial(_constant, operation)
            )
        if kind in _NO_OPERATORS:
            continue
        read = [names[_key(port)] for port in operation.input_values()]
        node = helper.make_node(kind, read, made, name=made[0].partition(":")[0], domain=OPENVINO)
        attributes = shown_attributes(operation.get_attributes())
        node.attribute.extend(helper.make_attribute(name, value) for name, value in attributes.items())
        nodes.append(node)
        shapes = {name: port.get_partial_shape() for name, port in zip(made, operation.outputs(), strict=True)}
        ranks |= {name: shape.rank.get_length() for name, shape in shapes.items() if shape.rank.is_static}
    results = [names[_key(result.input_value(0))] for result in network.get_results()]
    ends = dict(zip(outputs, results, strict=True))
    nodes += [
        helper.make_node("Identity", [inner], [name], name=name, domain=OPENVINO)
        for name, inner in ends.items()
        if name != inner
    ]
    values = OpenvinoValues(network, inputs, ends)
    values.layouts = channels_first(ranks)
    return foreign_graph(
        nodes, values, weights, inputs=inputs, outputs=outputs, path=path, meter=meter, layouts=values.layouts
    )


def _key(port: Any) -> tuple[str, int]:  # noqa: ANN401 - an openvino.Output
    return port.get_node().get_name(), port.get_index()


def _constant(operation: Any) -> NDArray[Any]:  # noqa: ANN401 - an openvino.Node
    values = np.array(operation.get_data())
    # A converter stores weights in FP16 to save space, and computes in FP32.
    return values.astype(np.float32) if values.dtype == np.float16 else values
