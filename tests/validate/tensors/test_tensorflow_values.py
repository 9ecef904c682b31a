"""The layers of a Keras model are the reference of an ONNX file, in which the channels come first."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from paritygate.models.source import ModelRef, SourceKind, parse_source
from paritygate.validate.divergence.locate import locate_in
from paritygate.validate.divergence.result import EQUAL, LOCATED, Divergence
from paritygate.validate.tensors.opening import open_graphs

pytestmark = pytest.mark.tensorflow

_CODE = """
import keras
from keras import layers


def load():
    keras.utils.set_random_seed(5)
    x = source = keras.Input((8, 8, 3), name="picture")
    x = layers.Conv2D(4, 3, padding="same", name="first")(x)
    x = layers.ReLU(name="cut")(x)
    x = layers.MaxPooling2D(name="smaller")(x)
    x = layers.Conv2D(6, 3, name="second", activation="swish")(x)
    x = layers.GlobalAveragePooling2D(name="pooled")(x)
    return keras.Model(source, layers.Dense(5, activation="softmax", name="scores")(x))
"""
_FEEDS = [{"picture": np.random.default_rng(at).normal(size=(2, 8, 8, 3)).astype(np.float32)} for at in range(3)]


def _onnx_of(model: Any) -> onnx.ModelProto:  # noqa: ANN401 - a keras.Model
    """Return the model as a converter writes it: transposed once, and with the bias in the convolution."""
    kernels = [np.asarray(weight) for weight in model.get_weights()]
    weights = [
        numpy_helper.from_array(
            np.ascontiguousarray(array.transpose(3, 2, 0, 1) if array.ndim == 4 else array), f"w{at}"
        )
        for at, array in enumerate(kernels)
    ]
    nodes = [
        helper.make_node("Transpose", ["picture"], ["a"], perm=[0, 3, 1, 2]),
        helper.make_node("Conv", ["a", "w0", "w1"], ["b"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["b"], ["c"], name="relu"),
        helper.make_node("MaxPool", ["c"], ["d"], kernel_shape=[2, 2], strides=[2, 2], name="pool"),
        helper.make_node("Conv", ["d", "w2", "w3"], ["e"], name="conv"),
        helper.make_node("Sigmoid", ["e"], ["f"], name="gate"),
        helper.make_node("Mul", ["e", "f"], ["g"]),
        helper.make_node("ReduceMean", ["g"], ["h"], axes=[2, 3], keepdims=0),
        helper.make_node("MatMul", ["h", "w4"], ["i"]),
        helper.make_node("Add", ["i", "w5"], ["j"], name="shift"),
        helper.make_node("Softmax", ["j"], ["scores"], axis=-1, name="softmax"),
    ]
    inputs = [helper.make_tensor_value_info("picture", 1, ["n", 8, 8, 3])]
    outputs = [helper.make_tensor_value_info("scores", 1, ["n", 5])]
    graph = helper.make_graph(nodes, "net", inputs, outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> ModelRef:
    """Return the reference."""
    folder = tmp_path_factory.mktemp("layers")
    (folder / "traced_net.py").write_text(_CODE)
    return parse_source("traced_net:load", folder)


@pytest.fixture(scope="module")
def converted(source: ModelRef) -> onnx.ModelProto:
    """Return an ONNX model that computes the same."""
    from paritygate.models.source import load_source_object

    return _onnx_of(load_source_object(source)[1])


def _located(source: ModelRef, model: onnx.ModelProto, folder: Path) -> Divergence:
    onnx.save(model, folder / "candidate.onnx")
    candidate = ModelRef(text="candidate.onnx", folder=folder, kind=SourceKind.ONNX)
    return locate_in(*open_graphs(source, candidate, _FEEDS), _FEEDS)


def _operator(name: str, operator: str) -> Callable[[onnx.ModelProto], None]:
    def change(model: onnx.ModelProto) -> None:
        next(node for node in model.graph.node if node.name == name).op_type = operator

    return change


def _channel(model: onnx.ModelProto) -> None:
    kernel = next(tensor for tensor in model.graph.initializer if tensor.name == "w2")
    values = numpy_helper.to_array(kernel).copy()
    values[1] = 0
    kernel.CopyFrom(numpy_helper.from_array(values, "w2"))


def test_what_the_channels_first_compute_is_matched_with_the_layers(
    source: ModelRef, converted: onnx.ModelProto, tmp_path: Path
) -> None:
    assert _located(source, converted, tmp_path).outcome == EQUAL
    model = onnx.ModelProto()
    model.CopyFrom(converted)
    _operator("relu", "LeakyRelu")(model)

    found = _located(source, model, tmp_path)

    assert found.outcome == LOCATED
    (place,) = found.located
    assert place.candidate_nodes == ("relu",)
    assert place.reference_nodes[0].startswith("cut")
    assert place.proven


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("change", "layer"),
    [
        (_operator("pool", "AveragePool"), "smaller"),
        (_operator("gate", "HardSigmoid"), "second"),
        (_operator("shift", "Mul"), "scores"),
        (_channel, "second"),
    ],
)
def test_a_fault_is_named_by_its_layer(
    change: Callable[[onnx.ModelProto], None], layer: str, source: ModelRef, converted: onnx.ModelProto, tmp_path: Path
) -> None:
    model = onnx.ModelProto()
    model.CopyFrom(converted)
    change(model)

    (place,) = _located(source, model, tmp_path).located

    assert {name.partition("/")[0] for name in place.reference_nodes} == {layer}
    assert place.proven
