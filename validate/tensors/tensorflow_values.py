"""Trace a Keras model or SavedModel and read what its operators compute, by the names of its layers."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from paritygate.errors import BackendError
from paritygate.validate.runners.runner import reason_of
from paritygate.validate.tensors.meter import Meter
from paritygate.validate.tensors.tensor_graph import (
    TENSORFLOW,
    Layout,
    TensorGraph,
    Weight,
    channels_first,
    foreign_graph,
)

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

    from paritygate.validate.runners.tensorflow import KerasRunner, SavedModelRunner
    from paritygate.validate.tensors.tensor_graph import Arrays, Feed

# Operators that pass on a tensor, and those that compute none.
_PASSED = frozenset({"Identity", "StopGradient", "PreventGradient", "EnsureShape"})
_NO_TENSORS = frozenset({"Placeholder", "Const", "NoOp", "Assert"})
# A traced graph computes what the model does, up to rounding.
_AGREE = 1e-4
# A trace appends a number to a scope that was open before.
_AGAIN = re.compile(r"_\d+$")


class TensorflowValues:
    """Runs a frozen graph, without TensorFlow's optimisations, so that each tensor exists."""

    def __init__(self, graph: Any, tensors: Mapping[str, str], layouts: Mapping[str, Layout]) -> None:  # noqa: ANN401 - a tf.Graph
        """Take the name in TensorFlow of each tensor, and the layouts of some."""
        import tensorflow as tf
        from tensorflow.core.protobuf import rewriter_config_pb2

        config = tf.compat.v1.ConfigProto(device_count={"GPU": 0})
        config.graph_options.optimizer_options.opt_level = tf.compat.v1.OptimizerOptions.L0
        config.graph_options.rewrite_options.disable_meta_optimizer = True
        config.graph_options.rewrite_options.constant_folding = rewriter_config_pb2.RewriterConfig.OFF
        self._session = tf.compat.v1.Session(graph=graph, config=config)
        self._tensors, self._layouts = tensors, layouts

    def open(self, names: Sequence[str], values: Mapping[str, Arrays]) -> Callable[[Feed], list[NDArray[np.generic]]]:
        """Return what computes these tensors: of operators, outputs, inputs or weights."""
        del values
        fetched = [self._tensors[name] for name in names]

        def computed(feed: Feed) -> list[NDArray[np.generic]]:
            fed = {self._tensors[name]: array for name, array in feed.items() if name in self._tensors}
            try:
                arrays = [np.asarray(array) for array in self._session.run(fetched, fed)]
            except Exception as err:
                msg = f"tensorflow failed while inner tensors were read: {reason_of(err)}"
                raise BackendError(msg, hint="check that both models run on these samples: use `compare`") from err
            return [
                array.transpose(self._layouts[name].axes) if name in self._layouts else array
                for name, array in zip(names, arrays, strict=True)
            ]

        return computed

    def constant(self, name: str) -> NDArray[np.generic]:
        """Return a tensor that depends on no input."""
        return self.open([name], {})({})[0]


def tensorflow_graph(runner: KerasRunner | SavedModelRunner, feed: Feed, meter: Meter) -> TensorGraph:
    """Return the operators of the runner's model, traced, as a graph.

    Raises:
        BackendError: The model cannot be traced, or computes other outputs when it was.
    """
    from onnx import helper

    graph, ends = _traced(runner)
    signature = runner.signature
    names = _names(graph, dict(zip(ends[0], (spec.name for spec in signature.inputs), strict=True)))
    shown = _shown(graph, runner)
    nodes = [node for operation in graph.get_operations() for node in _nodes(operation, names, shown)]
    for spec, tensor in zip(signature.outputs, ends[1], strict=True):
        if names[tensor] != spec.name:
            nodes.append(helper.make_node("Identity", [names[tensor]], [spec.name], name=spec.name, domain=TENSORFLOW))
    tensors = {name: tensor for tensor, name in reversed(names.items()) if _of(graph, tensor).type not in _PASSED}
    tensors |= {spec.name: tensor for spec, tensor in zip(signature.outputs, ends[1], strict=True)}
    layouts = channels_first(dict(_ranks(graph, tensors)))
    tensors |= {name: tensors[layout.tensor] for name, layout in layouts.items()}
    values = TensorflowValues(graph, tensors, layouts)
    _check(runner, values, feed)
    weights = {names[each.outputs[0].name]: _weight(each) for each in graph.get_operations() if each.type == "Const"}
    weights = {**_computed(graph, names, values), **weights}
    return foreign_graph(
        nodes,
        values,
        weights,
        inputs=(spec.name for spec in signature.inputs),
        outputs=(spec.name for spec in signature.outputs),
        path=runner.loaded.ref.path,
        meter=meter,
        layouts=layouts,
    )


def _traced(runner: KerasRunner | SavedModelRunner) -> tuple[Any, tuple[list[str], list[str]]]:
    import tensorflow as tf
    from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

    specs = [
        tf.TensorSpec(
            None if spec.shape is None else [dim if isinstance(dim, int) else None for dim in spec.shape],
            tf.dtypes.as_dtype(spec.dtype),
            name=f"input_{at}",
        )
        for at, spec in enumerate(runner.signature.inputs)
    ]
    try:
        with tf.device("/cpu:0"):
            traced = tf.function(lambda *tensors: list(runner.function(*tensors)), autograph=False)
            frozen = convert_variables_to_constants_v2(traced.get_concrete_function(*specs))
        graph = tf.Graph()
        with graph.as_default():
            tf.import_graph_def(frozen.graph.as_graph_def(), name="")
    except Exception as err:
        msg = f"tensorflow cannot trace {runner.loaded.ref.text}: {reason_of(err)}"
        raise BackendError(msg, hint="export it to ONNX twice, and match the two files") from err
    return graph, ([each.name for each in frozen.inputs], [each.name for each in frozen.outputs])


def _of(graph: Any, tensor: str) -> Any:  # noqa: ANN401 - a tf.Graph, and an operation of it
    return graph.get_tensor_by_name(tensor).op


def _names(graph: Any, inputs: Mapping[str, str]) -> dict[str, str]:  # noqa: ANN401 - a tf.Graph
    """Return the name of each tensor by TensorFlow's; one that is passed on keeps its name."""
    names: dict[str, str] = {}
    for operation in graph.get_operations():
        for tensor in operation.outputs:
            own = inputs.get(tensor.name, tensor.name.removesuffix(":0"))
            names[tensor.name] = names[operation.inputs[0].name] if operation.type in _PASSED else own
    return names


def _shown(graph: Any, runner: KerasRunner | SavedModelRunner) -> dict[str, str]:  # noqa: ANN401 - a tf.Graph
    """Return the name of each operator by layers, such as `attention/Softmax`, without what a trace appends to them.

    A name that two operators would have stays.
    """
    flatten = getattr(runner.loaded.model, "_flatten_layers", None)
    layers = {layer.name for layer in flatten()} if flatten is not None else set()
    model = getattr(runner.loaded.model, "name", "")
    shown: dict[str, str] = {}
    for operation in graph.get_operations():
        parts = [part if part in layers else _own_name(part, layers) for part in operation.name.split("/")]
        name = "/".join(parts[1:] if parts[0] == model and len(parts) > 1 else parts)
        shown[operation.name] = operation.name if name in shown.values() else name
    return shown


def _own_name(part: str, layers: Collection[str]) -> str:
    base = _AGAIN.sub("", part)
    return base if base in layers else part


def _computed(graph: Any, names: Mapping[str, str], values: TensorflowValues) -> dict[str, Weight]:  # noqa: ANN401 - a tf.Graph
    """Return what the graph computes from constants alone, such as a reshaped kernel."""
    constant: set[str] = set()
    found: dict[str, Weight] = {}
    for operation in graph.get_operations():
        if operation.type == "Placeholder" or any(tensor.op.name not in constant for tensor in operation.inputs):
            continue
        constant.add(operation.name)
        for tensor in operation.outputs[:1] if operation.type not in _NO_TENSORS | _PASSED else ():
            if tensor.dtype.is_floating and tensor.shape.is_fully_defined():
                load = partial(values.constant, names[tensor.name])
                found[names[tensor.name]] = Weight(shape=tuple(tensor.shape), is_float=True, load=load)
    return found


def _nodes(operation: Any, names: Mapping[str, str], shown: Mapping[str, str]) -> Iterator[onnx.NodeProto]:  # noqa: ANN401 - a tf.Operation
    from onnx import helper

    if operation.type in _PASSED or operation.type in _NO_TENSORS or not operation.outputs:
        return
    inputs = [names[tensor.name] for tensor in operation.inputs]
    outputs = [names[tensor.name] for tensor in operation.outputs]
    yield helper.make_node(operation.type, inputs, outputs, name=shown[operation.name], domain=TENSORFLOW)


def _ranks(graph: Any, tensors: Mapping[str, str]) -> Iterator[tuple[str, int]]:  # noqa: ANN401 - a tf.Graph
    for name, own in tensors.items():
        tensor = graph.get_tensor_by_name(own)
        if tensor.dtype.is_floating and tensor.op.type != "Const":
            yield name, tensor.shape.rank or 0


def _weight(operation: Any) -> Weight:  # noqa: ANN401 - a tf.Operation
    import tensorflow as tf

    tensor = operation.outputs[0]
    value = operation.get_attr("value")
    return Weight(
        shape=tuple(dim.size for dim in value.tensor_shape.dim),
        is_float=tensor.dtype.is_floating,
        load=partial(tf.make_ndarray, value),
    )


def _check(runner: KerasRunner | SavedModelRunner, values: TensorflowValues, feed: Feed) -> None:
    """Raise a `BackendError` if the traced graph computes other outputs than the model."""
    names = [spec.name for spec in runner.signature.outputs]
    answers = runner.run({spec.name: feed[spec.name] for spec in runner.signature.inputs})
    for name, traced in zip(names, values.open(names, {})(feed), strict=True):
        answer = answers[name]
        if answer.dtype.kind != "f" or traced.shape != answer.shape:
            continue
        size = float(np.sqrt(np.square(answer.astype(np.float64)).mean())) or 1.0
        if not np.allclose(traced, answer, rtol=_AGREE, atol=_AGREE * size, equal_nan=True):
            msg = f"the traced graph of {runner.loaded.ref.text} computes a different {name} than the model itself"
            raise BackendError(msg, hint="give rows that take the same Python branches: tracing fixes them")
