"""Run a TFLite file in LiteRT and read what its operators compute, quantized integers as floats."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from paritygate.errors import BackendError
from paritygate.models.tensorflow.tflite_file import open_tflite, tflite_reason
from paritygate.models.tensorflow.tflite_graph import fused_activation, operator_name
from paritygate.validate.tensors.meter import Meter
from paritygate.validate.tensors.tensor_graph import (
    FUSED,
    TFLITE,
    Layout,
    TensorGraph,
    Weight,
    channels_first,
    foreign_graph,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from paritygate.validate.tensors.tensor_graph import Arrays, Feed

# Narrower ones are quantized floats.
_INTEGERS = (np.int32, np.int64, np.bool_)


class TfliteValues:
    """Runs a file without delegates, so that each tensor exists."""

    def __init__(self, path: Path, inputs: Mapping[str, int]) -> None:
        """Take the file, and the numbers of its inputs by the names served."""
        from ai_edge_litert.interpreter import Interpreter, OpResolverType

        resolver = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
        self._interpreter = Interpreter(
            model_path=str(path), experimental_preserve_all_tensors=True, experimental_op_resolver_type=resolver
        )
        self._inputs = inputs
        self.details = {item["index"]: item for item in self._interpreter.get_tensor_details()}
        self.numbers: dict[str, int] = {}
        self.layouts: Mapping[str, Layout] = {}

    def open(self, names: Sequence[str], values: Mapping[str, Arrays]) -> Callable[[Feed], list[NDArray[np.generic]]]:
        """Return what computes these tensors; LiteRT takes no values in the place of computed ones."""
        if values:
            raise BackendError("LiteRT takes no values for inner tensors", hint="make the TFLite file the reference")
        return partial(self._computed, names)

    def _computed(self, names: Sequence[str], feed: Feed) -> list[NDArray[np.generic]]:
        try:
            for name, number in self._inputs.items():
                self._interpreter.resize_tensor_input(number, feed[name].shape)
            self._interpreter.allocate_tensors()
            for name, number in self._inputs.items():
                self._interpreter.set_tensor(number, np.asarray(feed[name], order="C"))
            self._interpreter.invoke()
        except (RuntimeError, ValueError) as err:
            msg = f"LiteRT failed while inner tensors were read: {tflite_reason(err)}"
            raise BackendError(msg, hint="check that both models run on these samples: use `compare`") from err
        return [self._array(name) for name in names]

    def _array(self, name: str) -> NDArray[Any]:
        layout = self.layouts.get(name)
        array = self.stored(self.numbers[name if layout is None else layout.tensor])
        return array if layout is None else array.transpose(layout.axes)

    def stored(self, number: int) -> NDArray[Any]:
        """Return the values of a tensor."""
        array = np.asarray(self._interpreter.get_tensor(number))
        scales, zeros, axis = (
            self.details[number]["quantization_parameters"][key]
            for key in ("scales", "zero_points", "quantized_dimension")
        )
        if not len(scales) or array.dtype.kind not in "iu":
            return array
        shape = [-1 if at == axis and len(scales) > 1 else 1 for at in range(array.ndim)]
        exact: NDArray[Any] = (array.astype(np.float32) - zeros.reshape(shape)) * scales.reshape(shape)
        return exact.astype(np.float32)


def tflite_graph(path: Path, inputs: Sequence[str], outputs: Sequence[str], meter: Meter) -> TensorGraph:
    """Return the operators of a file as a graph, by the names served of its inputs and outputs in its order.

    Raises:
        InputFileError: It is not a TFLite file.
        BackendError: LiteRT cannot run it.
    """
    from onnx import helper

    model = open_tflite(path)
    own = [spec.name for spec in model.signature.inputs], [spec.name for spec in model.signature.outputs]
    fed = {name: model.inputs[each] for name, each in zip(inputs, own[0], strict=True)}
    made = {name: model.outputs[each] for name, each in zip(outputs, own[1], strict=True)}
    values = TfliteValues(path, fed)
    subgraph = model.graph.Subgraphs(0)
    # Names of tensors need not be unique.
    names = {at: f"{subgraph.Tensors(at).Name().decode()}:{at}" for at in range(subgraph.TensorsLength())}
    names |= {at: name for name, at in fed.items()}
    nodes, computed = [], set[int]()
    for at in range(subgraph.OperatorsLength()):
        node = subgraph.Operators(at)
        read, written = ([int(number) for number in side] for side in (node.InputsAsNumpy(), node.OutputsAsNumpy()))
        operator = FUSED.join(filter(None, (operator_name(model.graph, node), fused_activation(node))))
        label = names[written[0]].rpartition(":")[0] or operator
        sides = [names.get(number, "") for number in read], [names[number] for number in written]
        nodes.append(helper.make_node(operator, *sides, name=f"{label}/{operator}_{at}", domain=TFLITE))
        computed.update(written)
    nodes += [helper.make_node("Identity", [names[at]], [name], name=name, domain=TFLITE) for name, at in made.items()]
    stored = set(names) - computed - set(fed.values())
    values.numbers = {name: at for at, name in names.items()} | made
    values.layouts = channels_first(
        {names[at]: len(values.details[at]["shape"]) for at in computed if at in values.details}
    )
    weights = {
        names[at]: Weight(
            shape=tuple(map(int, values.details[at]["shape"])),
            is_float=values.details[at]["dtype"] not in _INTEGERS,
            load=partial(values.stored, at),
        )
        for at in stored
        if at in values.details
    }
    return foreign_graph(
        nodes, values, weights, inputs=fed, outputs=made, path=path, meter=meter, layouts=values.layouts
    )
