"""Keras 3 to ONNX, through the checks that every conversion ends with."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.convert.conftest import Bench, Lazy, assert_near, sign

from paritygate.errors import ConversionError, InputFileError, UnsupportedOperatorsError, UsageError
from paritygate.models.tensorflow.importing import import_keras, import_tensorflow

pytestmark = pytest.mark.tensorflow

keras: Any = Lazy(import_keras)
tf: Any = Lazy(import_tensorflow)


def _plus_one() -> Any:  # noqa: ANN401 - Keras has no types
    value = keras.Input((4,), name="x")
    return keras.Model(value, value + 1.0)


def test_each_name_has_its_own_tensor_whatever_the_order(bench: Bench) -> None:
    keras.utils.set_random_seed(0)
    right, left = keras.Input((None, 4), name="right"), keras.Input((None, 4), name="left")
    hidden = keras.layers.Dense(3, activation="tanh")(left) - keras.layers.Dense(3)(right)
    model = keras.Model({"right": right, "left": left}, {"zz": hidden, "aa": keras.ops.sum(left, axis=(1, 2))})
    signature = sign(
        {"left": "float32[batch, sequence, 4]", "right": "float32[batch, sequence, 4]"},
        {"zz": "float32[batch, sequence, 3]", "total": "float32[batch]"},
        batch=(1, 2, 8),
    )
    converted = bench.convert("keras", model=model, signature=signature, rename={"aa": "total"})
    assert converted.conversion.signature == signature
    for batch, sequence in ((1, 1), (3, 5)):
        random = np.random.default_rng(sequence)
        inputs = {name: random.standard_normal((batch, sequence, 4)).astype(np.float32) for name in ("left", "right")}
        expected, actual = model(inputs), converted.run(inputs)
        assert list(actual) == ["zz", "total"]
        assert_near(actual["zz"], expected["zz"])
        assert_near(actual["total"], expected["aa"])


def test_an_exact_gelu_survives(bench: Bench) -> None:
    value = keras.Input((16,), name="x")
    model = keras.Model(value, keras.activations.gelu(value, approximate=False))
    converted = bench.convert("keras", model=model)
    x = np.linspace(-6, 6, 48, dtype=np.float32).reshape(3, 16)
    (actual,) = converted.run({"x": x}).values()
    assert_near(actual, model(x))


def test_statistics_that_a_layer_was_adapted_to_are_weights(bench: Bench) -> None:
    keras.utils.set_random_seed(0)
    rows = np.random.default_rng(0).normal((5, -300, 0.1), (2, 90, 0.01), (50, 3)).astype(np.float32)
    normalization = keras.layers.Normalization()
    normalization.adapt(rows)
    value = keras.Input((3,), name="x")
    model = keras.Model(value, keras.layers.Dense(2, name="score")(normalization(value)))
    converted = bench.convert("keras", model=model)
    assert [spec.name for spec in converted.conversion.signature.inputs] == ["x"]
    assert_near(converted.run({"x": rows})["score"], model(rows))


@pytest.mark.parametrize("length", [3, 300])
def test_a_constant_made_beforehand_is_a_weight(bench: Bench, length: int) -> None:
    class Captured(keras.Model):  # type: ignore[misc]  # Keras has no types
        def __init__(self) -> None:
            super().__init__()
            self.scale = tf.constant(np.linspace(1, 2, length, dtype=np.float32))

        def call(self, x: Any) -> Any:  # noqa: ANN401
            # TensorFlow captures by its number of elements: small ones as constants, large ones as inputs.
            return tf.while_loop(lambda i, _: i < 2, lambda i, y: (i + 1, y * self.scale), [0, x])[1] - self.scale[1]

    model = Captured()
    x = np.random.default_rng(0).standard_normal((2, length)).astype(np.float32)
    signature = sign({"x": f"float32[batch, {length}]"}, {"y": f"float32[batch, {length}]"})
    assert_near(bench.convert("keras", model=model, signature=signature).run({"x": x})["y"], model(x))


def test_constants_in_a_lambda_are_known_where_onnx_wants_them_known(bench: Bench) -> None:
    order, shape = tf.constant([2, 0, 1]), tf.constant([3, -1, 2])
    value = keras.Input((3, 2), name="x")
    hidden = keras.layers.Lambda(lambda x: tf.reshape(tf.transpose(x, order), shape)[:, :1], (1, 2))(value)
    model = keras.Model(value, keras.ops.transpose(hidden, (1, 0, 2)))
    signature = sign({"x": "float32[batch, 3, 2]"}, {"y": "float32[1, 3, 2]"})
    x = np.random.default_rng(0).standard_normal((4, 3, 2)).astype(np.float32)
    assert_near(bench.convert("keras", model=model, signature=signature).run({"x": x})["y"], model(x))


def test_an_input_that_tf2onnx_made_up_is_no_fault_of_the_users(bench: Bench) -> None:
    class Defaulting(keras.Model):  # type: ignore[misc]  # Keras has no types
        def call(self, x: Any) -> Any:  # noqa: ANN401
            return x + tf.compat.v1.placeholder_with_default(tf.constant([1.0, 2.0]), [2])

    signature = sign({"x": "float32[batch, 2]"}, {"y": "float32[batch, 2]"})
    with pytest.raises(ConversionError, match=r"tf2onnx made '.*PlaceholderWithDefault:0', a value inside the model"):
        bench.convert("keras", model=Defaulting(), signature=signature)


def test_a_signature_is_inferred_from_a_keras_file(bench: Bench) -> None:
    ids = keras.Input((None,), name="ids", dtype="int64")
    hidden = keras.layers.Embedding(9, 4)(ids)
    model = keras.Model(ids, keras.layers.Dropout(0.5)(keras.layers.GlobalAveragePooling1D()(hidden)))
    path = bench.folder / "model.keras"
    model.save(path)
    converted = bench.convert("keras", path, rename={"output_0": "embedding"})
    expected = sign({"ids": "int64[batch, ids_dim1]"}, {"embedding": "float32[batch, 4]"})
    assert converted.conversion.signature == expected
    values = np.arange(6, dtype=np.int64).reshape(2, 3)
    assert_near(converted.run({"ids": values})["embedding"], model(values))


def test_names_that_tensorflow_does_not_allow_are_served(bench: Bench) -> None:
    signature = sign({"input.1:0": "float32[batch, 4]"}, {"return": "float32[batch, 4]"})
    converted = bench.convert("keras", model=_plus_one(), signature=signature)
    x = np.ones((3, 4), np.float32)
    assert_near(converted.run({"input.1:0": x})["return"], x + 1)


def test_a_subclassed_model_works_with_a_declared_signature(bench: Bench) -> None:
    class Subclassed(keras.Model):  # type: ignore[misc]  # Keras has no types
        def call(self, a: Any, b: Any) -> list[Any]:  # noqa: ANN401
            return [a + b, a - b]

    signature = sign(
        {"b": "int32[batch, 2]", "a": "int32[batch, 2]"}, {"sum": "int32[batch, 2]", "difference": "int32[batch, 2]"}
    )
    converted = bench.convert("keras", model=Subclassed(), signature=signature)
    a, b = np.full((2, 2), 5, np.int32), np.full((2, 2), 3, np.int32)
    actual = converted.run({"a": a, "b": b})
    assert_near(actual["sum"], a + b)
    assert_near(actual["difference"], a - b)


def test_a_subclassed_model_without_a_signature_is_refused(bench: Bench) -> None:
    class Subclassed(keras.Model):  # type: ignore[misc]  # Keras has no types
        def call(self, a: Any) -> Any:  # noqa: ANN401
            return a

    with pytest.raises(UsageError, match="'Subclassed' are not known before it is called"):
        bench.convert("keras", model=Subclassed())


def test_a_branch_on_a_value_is_refused_with_what_to_do(bench: Bench) -> None:
    class Branching(keras.Model):  # type: ignore[misc]  # Keras has no types
        def call(self, x: Any) -> Any:  # noqa: ANN401
            return x * 2 if tf.reduce_sum(x) > 0 else x

    signature = sign({"x": "float32[batch, 4]"}, {"y": "float32[batch, 4]"})
    with pytest.raises(ConversionError, match="branches on the values of a tensor") as caught:
        bench.convert("keras", model=Branching(), signature=signature)
    assert "keras.ops.where" in caught.value.hint


def test_unsupported_operators_come_as_one_table(bench: Bench) -> None:
    class Special(keras.layers.Layer):  # type: ignore[misc]  # Keras has no types
        def call(self, x: Any) -> Any:  # noqa: ANN401
            return tf.math.digamma(x) + tf.math.bessel_i0e(x) + tf.math.digamma(x + 1)

    value = keras.Input((4,), name="x")
    with pytest.raises(UnsupportedOperatorsError, match="ONNX does not have these operators") as caught:
        bench.convert("keras", model=keras.Model(value, Special()(value)))
    assert sorted(row[0] for row in caught.value.rows) == ["BesselI0e", "Digamma", "Digamma"]
    assert len({row[1] for row in caught.value.rows}) == 3
    assert all(row[2] == "ONNX has no such operator in opset 18" and row[3] for row in caught.value.rows)
    assert not list((bench.folder / "converted").iterdir())


def test_an_opset_above_those_of_tf2onnx_is_refused(bench: Bench) -> None:
    with pytest.raises(UsageError, match=r"opset 19 .* \(allowed: 7 to 18\)"):
        bench.convert("keras", model=_plus_one(), opset=19)


def test_a_lower_opset_is_read_back(bench: Bench) -> None:
    assert bench.convert("keras", model=_plus_one(), opset=15).conversion.facts["opset"] == 15


def test_a_lambda_in_a_keras_file_is_not_run(bench: Bench) -> None:
    value = keras.Input((4,), name="x")
    path = bench.folder / "code.keras"
    keras.Model(value, keras.layers.Lambda(lambda x: x * 2)(value)).save(path)
    with pytest.raises(InputFileError, match="whose code is not run"):
        bench.convert("keras", path)


def test_a_cut_off_keras_file_is_an_input_error(bench: Bench) -> None:
    path = bench.folder / "cut.keras"
    _plus_one().save(path)
    path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(InputFileError, match=r"Keras .* does not load .*cut\.keras"):
        bench.convert("keras", path)


def test_a_dim_that_the_model_fixes_is_not_promised_as_open(bench: Bench) -> None:
    value = keras.Input((4,), name="x")
    model = keras.Model(value, keras.ops.reshape(value, (2, -1)))
    signature = sign({"x": "float32[batch, 4]"}, {"output_0": "float32[batch, 4]"})
    with pytest.raises(ConversionError, match="dim 0 of output 'output_0' is fixed at 2, expected batch"):
        bench.convert("keras", model=model, signature=signature)


def test_a_wrong_dtype_is_named(bench: Bench) -> None:
    signature = sign({"x": "float32[batch, 4]"}, {"output_0": "float64[batch, 4]"})
    with pytest.raises(ConversionError, match="output 'output_0' is float32, expected float64"):
        bench.convert("keras", model=_plus_one(), signature=signature)
