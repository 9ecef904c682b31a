"""Rewriting the models that this project brings along."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from tests.convert.conftest import Bench, Converted, sign

from paritygate.convert.onnx.onnx_to_low_precision import rewrite_precision
from paritygate.fixtures import linear_model, sts
from paritygate.models.onnx.file import precision_of_onnx, read_onnx
from paritygate.precision import Precision

pytestmark = [pytest.mark.torch, pytest.mark.slow]


@pytest.fixture(scope="module")
def sentence_pairs(tmp_path_factory: pytest.TempPathFactory) -> Converted:
    """Return the sentence-pair model in FP32."""
    signature = sign(
        {"input_ids": "int64[batch, sequence]", "attention_mask": "int64[batch, sequence]"},
        {"logits": "float32[batch, 1]"},
        batch=(1, 8, 64),
        sequence=(8, 64, 128),
    )
    return Bench(folder=tmp_path_factory.mktemp("sts")).convert("torch", model=sts.torch_model(), signature=signature)


def _outputs(model: onnx.ModelProto, inputs: dict[str, NDArray[Any]]) -> NDArray[Any]:
    import onnxruntime

    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    found: NDArray[Any] = session.run(None, inputs)[0]
    return found


@pytest.mark.thorough
def test_the_sentence_pair_model_answers_alike_in_fp16(sentence_pairs: Converted) -> None:
    model = read_onnx(sentence_pairs.main)
    result = rewrite_precision(model, precision=Precision.FP16, folder=sentence_pairs.main.parent)
    assert ({node.operator for node in result.nodes_kept}, result.clamps) == ({"LayerNormalization"}, ())
    assert precision_of_onnx(result.model, sentence_pairs.main.parent) is Precision.FP16
    assert result.model.ByteSize() < 0.55 * sentence_pairs.main.stat().st_size
    for batch in islice(sts.evaluation_pairs(), 4):
        inputs = dict(batch.inputs)
        expected = sentence_pairs.run(inputs)["logits"]
        assert np.abs(_outputs(result.model, inputs) - expected).max() < 1e-2


@pytest.mark.thorough
def test_the_sentence_pair_model_is_valid_in_bf16(sentence_pairs: Converted) -> None:
    model = read_onnx(sentence_pairs.main)
    result = rewrite_precision(model, precision=Precision.BF16, folder=sentence_pairs.main.parent)
    onnx.checker.check_model(result.model, full_check=True)
    assert precision_of_onnx(result.model, sentence_pairs.main.parent) is Precision.BF16


def test_a_thousand_layers_need_two_casts() -> None:
    # Exporting that many takes most of a minute, and they are all of one kind.
    weights = {name: array.numpy() for name, array in linear_model.torch_model().state_dict().items()}
    layers = len(weights) // 2
    names = ["INPUT", *(f"h{layer}" for layer in range(layers - 1)), "OUTPUT"]
    nodes = [
        onnx.helper.make_node(
            "Gemm", [names[layer], f"layers.{layer}.weight", f"layers.{layer}.bias"], [names[layer + 1]], transB=1
        )
        for layer in range(layers)
    ]
    ends = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["N", 1]) for name in ("INPUT", "OUTPUT")]
    tensors = [onnx.numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = onnx.helper.make_graph(nodes, "layers", ends[:1], ends[1:], tensors)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    result = rewrite_precision(model, precision=Precision.FP16)
    assert (result.casts_added, result.nodes_kept, len(result.nodes_converted)) == (2, (), 1000)
    inputs = {"INPUT": np.linspace(-10, 10, 16, dtype=np.float32)[:, None]}
    expected = _outputs(model, inputs)
    assert np.abs(_outputs(result.model, inputs) - expected).max() < 2e-2 * np.abs(expected).max()
