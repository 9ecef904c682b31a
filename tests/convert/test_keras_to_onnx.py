"""Keras 3 to ONNX, through the checks that every conversion ends with."""

from __future__ import annotations

import numpy as np
import pytest

from paritygate.convert.checked import convert_and_check
from paritygate.errors import ConversionError, InputFileError, UnsupportedOperatorsError, UsageError
from paritygate.tensorflow_import import import_keras

pytestmark = pytest.mark.tensorflow


@pytest.fixture(scope="module")
def keras():
    pytest.importorskip("tensorflow", reason="needs TensorFlow: pip install 'paritygate[tensorflow]'")
    return import_keras()


def dict_model(keras):
    """Two inputs and two outputs whose order is neither that of the signatures here nor alphabetical."""
    keras.utils.set_random_seed(0)
    right = keras.Input((None, 4), name="right")
    left = keras.Input((None, 4), name="left")
    hidden = keras.layers.Dense(3, activation="tanh")(left) - keras.layers.Dense(3)(right)
    return keras.Model({"right": right, "left": left}, {"zz": hidden, "aa": keras.ops.sum(left, axis=(1, 2))})


def test_each_name_has_its_own_tensor_whatever_the_order(keras, make_job, sign, run_onnx, assert_near):
    model = dict_model(keras)
    signature = sign(
        {"left": "float32[batch, sequence, 4]", "right": "float32[batch, sequence, 4]"},
        {"zz": "float32[batch, sequence, 3]", "total": "float32[batch]"},
    )
    job = make_job(kind="keras", model=model, signature=signature, rename={"aa": "total"})
    conversion = convert_and_check(job, "onnx")
    assert conversion.signature == signature
    for batch, sequence in ((1, 1), (3, 5)):
        random = np.random.default_rng(sequence)
        inputs = {name: random.standard_normal((batch, sequence, 4), np.float32) for name in ("left", "right")}
        expected = model(inputs)
        actual = run_onnx(job, conversion, inputs)
        assert list(actual) == ["zz", "total"]
        assert_near(actual["zz"], expected["zz"])
        assert_near(actual["total"], expected["aa"])


def test_an_exact_gelu_survives(keras, make_job, run_onnx, assert_near):
    value = keras.Input((16,), name="x")
    model = keras.Model(value, keras.activations.gelu(value, approximate=False))
    job = make_job(kind="keras", model=model)
    conversion = convert_and_check(job, "onnx")
    x = np.linspace(-6, 6, 48, dtype=np.float32).reshape(3, 16)
    assert_near(run_onnx(job, conversion, {"x": x})["output_0"], model(x))


def test_a_signature_is_inferred_from_a_keras_file(keras, make_job, sign, run_onnx, assert_near, tmp_path):
    ids = keras.Input((None,), name="ids", dtype="int64")
    hidden = keras.layers.Embedding(9, 4)(ids)
    model = keras.Model(ids, keras.layers.Dropout(0.5)(keras.layers.GlobalAveragePooling1D()(hidden)))
    path = tmp_path / "model.keras"
    model.save(path)
    job = make_job(path, kind="keras", rename={"output_0": "embedding"})
    conversion = convert_and_check(job, "onnx")
    assert conversion.signature == sign({"ids": "int64[batch, ids_dim1]"}, {"embedding": "float32[batch, 4]"})
    values = np.arange(6, dtype=np.int64).reshape(2, 3)
    assert_near(run_onnx(job, conversion, {"ids": values})["embedding"], model(values))


def test_names_that_tensorflow_does_not_allow_are_served(keras, make_job, sign, run_onnx, assert_near):
    value = keras.Input((2,), name="x")
    model = keras.Model(value, value * 2.0)
    signature = sign({"input.1:0": "float32[batch, 2]"}, {"return": "float32[batch, 2]"})
    job = make_job(kind="keras", model=model, signature=signature)
    conversion = convert_and_check(job, "onnx")
    x = np.ones((3, 2), np.float32)
    assert_near(run_onnx(job, conversion, {"input.1:0": x})["return"], 2 * x)


def test_a_subclassed_model_works_with_a_declared_signature(keras, make_job, sign, run_onnx, assert_near):
    class Subclassed(keras.Model):
        def call(self, a, b):
            return [a + b, a - b]

    model = Subclassed()
    signature = sign(
        {"b": "int32[batch, 2]", "a": "int32[batch, 2]"}, {"sum": "int32[batch, 2]", "difference": "int32[batch, 2]"}
    )
    job = make_job(kind="keras", model=model, signature=signature)
    conversion = convert_and_check(job, "onnx")
    a, b = np.full((2, 2), 5, np.int32), np.full((2, 2), 3, np.int32)
    actual = run_onnx(job, conversion, {"a": a, "b": b})
    assert_near(actual["sum"], a + b)
    assert_near(actual["difference"], a - b)


def test_a_subclassed_model_without_a_signature_is_refused(keras, make_job):
    class Subclassed(keras.Model):
        def call(self, a):
            return a

    with pytest.raises(UsageError, match="'Subclassed' are not known before it is called"):
        convert_and_check(make_job(kind="keras", model=Subclassed()), "onnx")


def test_unsupported_operators_come_as_one_table(keras, make_job):
    import tensorflow as tf

    class Digamma(keras.layers.Layer):
        def call(self, x):
            return tf.math.digamma(x) + tf.math.bessel_i0e(x) + tf.math.digamma(x + 1)

    value = keras.Input((4,), name="x")
    job = make_job(kind="keras", model=keras.Model(value, Digamma()(value)))
    with pytest.raises(UnsupportedOperatorsError, match="ONNX does not have these operators") as caught:
        convert_and_check(job, "onnx")
    assert sorted(row[0] for row in caught.value.rows) == ["BesselI0e", "Digamma", "Digamma"]
    assert len({row[1] for row in caught.value.rows}) == 3
    assert all(row[2] == "ONNX has no such operator in opset 18" and row[3] for row in caught.value.rows)
    assert not list(job.folder.iterdir())


def test_an_opset_above_those_of_tf2onnx_is_refused(keras, make_job):
    value = keras.Input((4,), name="x")
    job = make_job(kind="keras", model=keras.Model(value, value + 1.0), opset=19)
    with pytest.raises(ConversionError, match="opset 19 is not supported for TensorFlow models"):
        convert_and_check(job, "onnx")


def test_a_lower_opset_is_read_back(keras, make_job):
    value = keras.Input((4,), name="x")
    job = make_job(kind="keras", model=keras.Model(value, value + 1.0), opset=15)
    assert convert_and_check(job, "onnx").facts["opset"] == 15


def test_a_lambda_in_a_keras_file_is_not_run(keras, make_job, tmp_path):
    value = keras.Input((4,), name="x")
    path = tmp_path / "lambda.keras"
    keras.Model(value, keras.layers.Lambda(lambda x: x * 2)(value)).save(path)
    with pytest.raises(InputFileError, match="code in a model file is not run"):
        convert_and_check(make_job(path, kind="keras"), "onnx")


def test_a_cut_off_keras_file_is_an_input_error(keras, make_job, tmp_path):
    value = keras.Input((4,), name="x")
    path = tmp_path / "cut.keras"
    keras.Model(value, value + 1.0).save(path)
    path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(InputFileError, match=r"Keras .* does not load .*cut\.keras"):
        convert_and_check(make_job(path, kind="keras"), "onnx")


def test_a_dim_that_the_model_fixes_is_not_promised_as_open(keras, make_job, sign):
    value = keras.Input((4,), name="x")
    job = make_job(
        kind="keras",
        model=keras.Model(value, keras.ops.reshape(value, (2, -1))),
        signature=sign({"x": "float32[batch, 4]"}, {"output_0": "float32[batch, 4]"}),
    )
    with pytest.raises(ConversionError, match="dim 0 of output 'output_0' is fixed at 2, promised is batch"):
        convert_and_check(job, "onnx")


def test_a_wrong_dtype_is_named(keras, make_job, sign):
    value = keras.Input((4,), name="x")
    signature = sign({"x": "float32[batch, 4]"}, {"output_0": "float64[batch, 4]"})
    job = make_job(kind="keras", model=keras.Model(value, value + 1.0), signature=signature)
    with pytest.raises(ConversionError, match="output 'output_0' is float32, promised is float64"):
        convert_and_check(job, "onnx")
