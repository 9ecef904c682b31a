"""SavedModel to ONNX, through the checks that every conversion ends with."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from paritygate.convert import onnx_rewrite
from paritygate.convert.checked import convert_and_check
from paritygate.errors import UnsupportedOperatorsError, UsageError
from paritygate.tensorflow_import import import_tensorflow

pytestmark = pytest.mark.tensorflow


@pytest.fixture(scope="module")
def tf():
    pytest.importorskip("tensorflow", reason="needs TensorFlow: pip install 'paritygate[tensorflow]'")
    return import_tensorflow()


def save(tf, path, function, *specs):
    """Write a SavedModel of one function."""
    module = tf.Module()
    module.weights = tf.Variable(np.arange(8, dtype=np.float32).reshape(4, 2))
    traced = tf.function(lambda *tensors: function(module, *tensors), input_signature=specs, autograph=False)
    module.serve = traced
    tf.saved_model.save(module, str(path), signatures={"serving_default": traced.get_concrete_function()})
    return path


@pytest.fixture(scope="module")
def two_outputs(tf, tmp_path_factory):
    def function(module, first, second):
        return {"z": first @ module.weights, "a": second + 1, "m": tf.math.erfc(first)}

    return save(
        tf,
        tmp_path_factory.mktemp("saved") / "two",
        function,
        tf.TensorSpec((None, 4), tf.float32, name="first.1"),
        tf.TensorSpec((None, None), tf.int64, name="second"),
    )


def test_each_name_has_its_own_tensor_in_the_order_of_the_signature(two_outputs, make_job, sign, run_onnx, assert_near):
    signature = sign(
        {"second": "int64[batch, sequence]", "x": "float32[batch, 4]"},
        {"z": "float32[batch, 2]", "a": "int64[batch, sequence]", "m": "float32[batch, 4]"},
    )
    job = make_job(two_outputs, kind="savedmodel", signature=signature, rename={"first.1": "x"})
    conversion = convert_and_check(job, "onnx")
    assert conversion.signature == signature
    first = np.random.default_rng(0).standard_normal((3, 4), np.float32)
    second = np.array([[1, -5, 2**40]] * 3)
    actual = run_onnx(job, conversion, {"x": first, "second": second})
    assert_near(actual["z"], first @ np.arange(8, dtype=np.float32).reshape(4, 2))
    assert_near(actual["a"], second + 1)
    assert_near(actual["m"], import_tensorflow().math.erfc(first))


def test_without_a_signature_the_models_own_is_taken(two_outputs, make_job, sign):
    conversion = convert_and_check(make_job(two_outputs, kind="savedmodel", rename={"z": "logits"}), "onnx")
    assert conversion.signature == sign(
        {"first.1": "float32[batch, 4]", "second": "int64[batch, second_dim1]"},
        {"a": "int64[batch, a_dim1]", "m": "float32[batch, 4]", "logits": "float32[batch, 2]"},
    )
    assert conversion.facts["opset"] == 18
    assert conversion.facts["ir_version"] == 8


def test_no_name_that_tf2onnx_made_up_is_left_in_the_interface(two_outputs, make_job):
    job = make_job(two_outputs, kind="savedmodel")
    conversion = convert_and_check(job, "onnx")
    graph = onnx.load(str(job.folder / conversion.main)).graph
    dims = {dim.dim_param for value in (*graph.input, *graph.output) for dim in value.type.tensor_type.shape.dim}
    assert dims == {"", "batch", "second_dim1", "a_dim1"}


def test_outputs_that_are_not_in_the_signature_are_left_out_and_noted(two_outputs, make_job, sign):
    signature = sign({"first.1": "float32[batch, 4]", "second": "int64[batch, s]"}, {"z": "float32[batch, 2]"})
    conversion = convert_and_check(make_job(two_outputs, kind="savedmodel", signature=signature), "onnx")
    assert conversion.notes == ("outputs not in the signature were left out: a, m",)


@pytest.mark.parametrize(
    ("inputs", "outputs", "message"),
    [
        ({"first.1": "float32[b, 4]"}, {"z": "float32[b, 2]"}, "needs the input 'second'"),
        ({"x": "float32[b, 4]", "second": "int64[b, s]"}, {"z": "float32[b, 2]"}, "has no input 'x'"),
        ({"first.1": "float32[b, 4]", "second": "int64[b, s]"}, {"q": "float32[b, 2]"}, "has no output 'q'"),
    ],
)
def test_names_that_the_model_does_not_have_are_refused(two_outputs, make_job, sign, inputs, outputs, message):
    job = make_job(two_outputs, kind="savedmodel", signature=sign(inputs, outputs))
    with pytest.raises(UsageError, match=message):
        convert_and_check(job, "onnx")


def test_the_reason_why_an_operator_is_left_is_in_the_table(tf, make_job, tmp_path):
    table = tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer(tf.constant([1], tf.int64), tf.constant([10], tf.int64)), -1
    )

    def function(module, keys):
        module.table = table
        return {"y": table.lookup(keys)}

    path = save(tf, tmp_path / "table", function, tf.TensorSpec((None,), tf.int64, name="keys"))
    with pytest.raises(UnsupportedOperatorsError, match="LookupTableFindV2") as caught:
        convert_and_check(make_job(path, kind="savedmodel"), "onnx")
    (row,) = caught.value.rows
    assert row[2].startswith("tf2onnx could not convert it: ")
    assert "Traceback" not in row[2]


def test_large_weights_lie_beside_the_file(two_outputs, make_job, run_onnx, assert_near, monkeypatch):
    monkeypatch.setattr(onnx_rewrite, "EXTERNAL_DATA_BYTES", 10)
    job = make_job(two_outputs, kind="savedmodel")
    conversion = convert_and_check(job, "onnx")
    first = np.ones((1, 4), np.float32)
    actual = run_onnx(job, conversion, {"first.1": first, "second": np.ones((1, 1), np.int64)})
    assert_near(actual["z"], np.array([[12, 16]], np.float32))
