"""SavedModel to ONNX, through the checks that every conversion ends with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from tests.convert.conftest import Bench, Lazy, assert_near, sign

from paritygate.convert.onnx import rewrite as onnx_rewrite
from paritygate.errors import UnsupportedOperatorsError, UsageError
from paritygate.models.tensorflow.importing import import_tensorflow

pytestmark = pytest.mark.tensorflow

tf: Any = Lazy(import_tensorflow)
_WEIGHTS = np.arange(8, dtype=np.float32).reshape(4, 2)


def _save(path: Path, function: Callable[..., Any], *specs: Any) -> Path:  # noqa: ANN401 - TensorFlow has no types
    module = tf.Module()
    module.weights = tf.Variable(_WEIGHTS)
    traced = tf.function(lambda *tensors: function(module, *tensors), input_signature=specs, autograph=False)
    module.serve = traced
    tf.saved_model.save(module, str(path), signatures={"serving_default": traced.get_concrete_function()})
    return path


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a SavedModel whose outputs are not in alphabetical order, one name no Python name."""

    def function(module: Any, first: Any, second: Any) -> dict[str, Any]:  # noqa: ANN401
        return {"z": first @ module.weights, "a": second + 1, "m": tf.math.erfc(first)}

    first = tf.TensorSpec((None, 4), tf.float32, name="first.1")
    return _save(
        tmp_path_factory.mktemp("saved") / "model",
        function,
        first,
        tf.TensorSpec((None, None), tf.int64, name="second"),
    )


def test_each_name_has_its_own_tensor_in_the_order_of_the_signature(bench: Bench, saved: Path) -> None:
    signature = sign(
        {"second": "int64[batch, sequence]", "x": "float32[batch, 4]"},
        {"z": "float32[batch, 2]", "a": "int64[batch, sequence]", "m": "float32[batch, 4]"},
    )
    converted = bench.convert("savedmodel", saved, signature=signature, rename={"first.1": "x"})
    assert converted.conversion.signature == signature
    first = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    second = np.array([[1, -5, 2**40]] * 3)
    actual = converted.run({"x": first, "second": second})
    assert_near(actual["z"], first @ _WEIGHTS)
    assert_near(actual["a"], second + 1)
    assert_near(actual["m"], tf.math.erfc(first))


def test_without_a_signature_the_models_own_is_taken(bench: Bench, saved: Path) -> None:
    conversion = bench.convert("savedmodel", saved, rename={"z": "logits"}).conversion
    assert conversion.signature == sign(
        {"first.1": "float32[batch, 4]", "second": "int64[batch, second_dim1]"},
        {"a": "int64[batch, a_dim1]", "m": "float32[batch, 4]", "logits": "float32[batch, 2]"},
    )
    assert conversion.facts["opset"] == 18
    assert conversion.facts["ir_version"] == 8


def test_no_name_that_tf2onnx_made_up_is_left_in_the_interface(bench: Bench, saved: Path) -> None:
    graph = onnx.load(str(bench.convert("savedmodel", saved).main)).graph
    dims = {dim.dim_param for value in (*graph.input, *graph.output) for dim in value.type.tensor_type.shape.dim}
    assert dims == {"", "batch", "second_dim1", "a_dim1"}


def test_outputs_that_are_not_in_the_signature_are_left_out_and_noted(bench: Bench, saved: Path) -> None:
    signature = sign({"first.1": "float32[batch, 4]", "second": "int64[batch, s]"}, {"z": "float32[batch, 2]"})
    conversion = bench.convert("savedmodel", saved, signature=signature).conversion
    assert conversion.notes == ("outputs not in the signature were left out: a, m",)


@pytest.mark.parametrize(
    ("inputs", "outputs", "message"),
    [
        ({"first.1": "float32[b, 4]"}, {"z": "float32[b, 2]"}, "needs the input 'second'"),
        ({"x": "float32[b, 4]", "second": "int64[b, s]"}, {"z": "float32[b, 2]"}, "has no input 'x'"),
        ({"first.1": "float32[b, 4]", "second": "int64[b, s]"}, {"q": "float32[b, 2]"}, "has no output 'q'"),
    ],
)
def test_names_that_the_model_does_not_have_are_refused(
    bench: Bench, saved: Path, inputs: dict[str, str], outputs: dict[str, str], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        bench.convert("savedmodel", saved, signature=sign(inputs, outputs))


def test_the_reason_why_an_operator_is_left_is_in_the_table(bench: Bench) -> None:
    table = tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer(tf.constant([1], tf.int64), tf.constant([10], tf.float64)),
        tf.constant(-1, tf.float64),
    )

    def function(module: Any, keys: Any) -> dict[str, Any]:  # noqa: ANN401
        module.table = table
        return {"y": table.lookup(keys)}

    path = _save(bench.folder / "table", function, tf.TensorSpec((None,), tf.int64, name="keys"))
    with pytest.raises(UnsupportedOperatorsError, match="LookupTableFindV2") as caught:
        bench.convert("savedmodel", path)
    (row,) = caught.value.rows
    assert row[2].startswith("tf2onnx could not convert it: ")
    assert "Traceback" not in row[2]


def test_an_operator_that_tf2onnx_fails_at_is_not_said_to_be_none_of_onnx(bench: Bench) -> None:
    def function(_: Any, ids: Any, lengths: Any) -> dict[str, Any]:  # noqa: ANN401
        ragged = tf.RaggedTensor.from_tensor(ids, lengths=lengths)
        return {"largest": tf.reduce_max(tf.cast(ragged, tf.int32), axis=1)}

    ids = tf.TensorSpec((None, None), tf.int32, name="ids")
    path = _save(bench.folder / "bag", function, ids, tf.TensorSpec((None,), tf.int32, name="lengths"))
    with pytest.raises(UnsupportedOperatorsError) as caught:
        bench.convert("savedmodel", path)
    assert str(caught.value) == "tf2onnx cannot convert this operator of the model: SegmentMax"
    ((_, _, reason, _),) = caught.value.rows
    assert reason.startswith("tf2onnx could not convert it: AttributeError: ")


def test_constants_of_a_function_are_weights(bench: Bench) -> None:
    large, small = np.linspace(0, 1, 300, dtype=np.float32), np.float32([0.5, 0.25])
    held = [tf.constant(large), tf.constant(small)]

    def function(_: Any, x: Any) -> dict[str, Any]:  # noqa: ANN401
        return {"y": x * held[0] + tf.reduce_sum(held[1])}

    path = _save(bench.folder / "constants", function, tf.TensorSpec((None, 300), tf.float32, name="x"))
    x = np.random.default_rng(0).standard_normal((2, 300)).astype(np.float32)
    assert_near(bench.convert("savedmodel", path).run({"x": x})["y"], x * large + np.float32(0.75))


def test_large_weights_lie_beside_the_file(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_rewrite, "EXTERNAL_DATA_BYTES", 1000)
    large = np.random.default_rng(0).standard_normal((4, 256)).astype(np.float32)

    def function(module: Any, x: Any) -> dict[str, Any]:  # noqa: ANN401
        module.large = tf.Variable(large) if not hasattr(module, "large") else module.large
        return {"y": x @ module.large}

    path = _save(tmp_path / "large", function, tf.TensorSpec((None, 4), tf.float32, name="x"))
    converted = bench.convert("savedmodel", path)
    assert sorted(converted.files) == ["model.onnx", "model.onnx.data"]
    assert_near(converted.run({"x": np.ones((1, 4), np.float32)})["y"], np.ones((1, 4), np.float32) @ large)
