"""A TFLite file is the reference of an ONNX file, in which the channels come first."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from paritygate.models.source import ModelRef, SourceKind
from paritygate.validate.divergence.locate import locate_in
from paritygate.validate.divergence.result import EQUAL, LOCATED, Divergence
from paritygate.validate.tensors.opening import open_graphs

pytestmark = [pytest.mark.tensorflow, pytest.mark.litert]

_FEEDS = [{"x": np.random.default_rng(at).normal(size=(2, 6, 6, 3)).astype(np.float32)} for at in range(3)]
_KERNEL = np.random.default_rng(5).normal(size=(3, 3, 3, 4)).astype(np.float32)
_DENSE = np.random.default_rng(6).normal(size=(4, 5)).astype(np.float32)


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> ModelRef:
    """Return a small convolutional network in TFLite."""
    import tensorflow as tf

    folder = tmp_path_factory.mktemp("tflite")

    class Net(tf.Module):  # type: ignore[misc]
        @tf.function(input_signature=[tf.TensorSpec([None, 6, 6, 3], tf.float32, name="x")])
        def __call__(self, x: object) -> dict[str, object]:
            y = tf.nn.relu(tf.nn.conv2d(x, _KERNEL, 1, "SAME"))
            return {"scores": tf.nn.softmax(tf.matmul(tf.reduce_mean(y, [1, 2]), _DENSE))}

    net = Net()
    signature = net.__call__.get_concrete_function()
    tf.saved_model.save(net, str(folder / "saved"), signatures={"serving_default": signature})
    converter = tf.lite.TFLiteConverter.from_saved_model(str(folder / "saved"))
    (folder / "model.tflite").write_bytes(converter.convert())
    return ModelRef(text="model.tflite", folder=folder, kind=SourceKind.TFLITE)


def _file(folder: Path, *, operator: str = "Relu", dense: np.ndarray = _DENSE) -> ModelRef:  # type: ignore[type-arg]
    weights = {"k": np.ascontiguousarray(_KERNEL.transpose(3, 2, 0, 1)), "d": dense}
    nodes = [
        helper.make_node("Transpose", ["x"], ["a"], perm=[0, 3, 1, 2]),
        helper.make_node("Conv", ["a", "k"], ["b"], pads=[1, 1, 1, 1], name="conv"),
        helper.make_node(operator, ["b"], ["c"], name="cut"),
        helper.make_node("ReduceMean", ["c"], ["e"], axes=[2, 3], keepdims=0),
        helper.make_node("MatMul", ["e", "d"], ["f"], name="dense"),
        helper.make_node("Softmax", ["f"], ["scores"], axis=-1),
    ]
    inputs = [helper.make_tensor_value_info("x", 1, ["n", 6, 6, 3])]
    outputs = [helper.make_tensor_value_info("scores", 1, ["n", 5])]
    tensors = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "net", inputs, outputs, tensors)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), folder / "file.onnx")
    return ModelRef(text="file.onnx", folder=folder, kind=SourceKind.ONNX)


def _located(reference: ModelRef, candidate: ModelRef) -> Divergence:
    return locate_in(*open_graphs(reference, candidate, _FEEDS), _FEEDS)


def test_a_right_file_is_equal(network: ModelRef, tmp_path: Path) -> None:
    assert _located(network, _file(tmp_path)).outcome == EQUAL


def test_a_weight_that_differs_is_named_and_proven(network: ModelRef, tmp_path: Path) -> None:
    found = _located(network, _file(tmp_path, dense=_DENSE * (np.arange(5) != 2).astype(np.float32)))

    (place,) = found.located
    assert (place.candidate_nodes, place.reference_op_types, place.proven) == (("dense",), ("FULLY_CONNECTED",), True)


def test_an_operator_that_is_fused_in_tflite_is_named_without_a_proof(network: ModelRef, tmp_path: Path) -> None:
    (place,) = _located(network, _file(tmp_path, operator="Elu")).located

    # The value before the rectifier does not exist, and Elu keeps the values after it.
    assert "conv" in place.candidate_nodes
    assert (place.reference_op_types, place.certainty) == (("CONV_2D+RELU",), "likely")


def test_as_a_candidate_it_is_named_without_a_proof(network: ModelRef, tmp_path: Path) -> None:
    found = _located(_file(tmp_path, dense=_DENSE * 2), network)

    assert found.outcome == LOCATED
    assert found.located[0].op_types == ("FULLY_CONNECTED",)
    assert not found.located[0].proven
