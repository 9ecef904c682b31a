"""Look-up tables of TensorFlow, written for ONNX: each answer against TensorFlow's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from tests.convert.conftest import Bench, Lazy, assert_near

from paritygate.errors import UnsupportedOperatorsError
from paritygate.models.tensorflow.importing import import_keras, import_tensorflow

pytestmark = pytest.mark.tensorflow

keras: Any = Lazy(import_keras)
tf: Any = Lazy(import_tensorflow)

_WORDS = ["a", "bb", "c c", "é", "한국어"]
# Known and unknown ones, the empty text, and near misses.
_TEXTS = np.array([*_WORDS, "A", "", "a ", "[UNK]", "한국"], dtype=object).reshape(5, 2)


def _of_texts(layer: Any) -> Any:  # noqa: ANN401 - Keras has no types
    words = keras.Input((2,), name="words", dtype="string")
    return keras.Model(words, layer(words))


@pytest.mark.parametrize("mode", ["int", "multi_hot", "count"])
def test_a_string_lookup_finds_what_it_finds_in_keras(bench: Bench, mode: str) -> None:
    model = _of_texts(keras.layers.StringLookup(vocabulary=_WORDS, output_mode=mode))
    (actual,) = bench.convert("keras", model=model).run({"words": _TEXTS}).values()
    assert_near(actual, model(tf.constant(_TEXTS)))


def test_a_mask_and_a_vocabulary_without_unknown_words_keep_their_numbers(bench: Bench) -> None:
    layer = keras.layers.StringLookup(vocabulary=_WORDS, num_oov_indices=0, mask_token="")
    model = _of_texts(layer)
    known = np.array([*_WORDS, ""], dtype=object).reshape(3, 2)
    (actual,) = bench.convert("keras", model=model).run({"words": known}).values()
    assert_near(actual, model(tf.constant(known)))


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_an_integer_lookup_finds_what_it_finds_in_keras(bench: Bench, dtype: str) -> None:
    ids = keras.Input((3,), name="ids", dtype=dtype)
    model = keras.Model(ids, keras.layers.IntegerLookup(vocabulary=[5, 9, 100, -3], mask_token=-1)(ids))
    given = np.array([[5, 9, 100], [-3, 0, 1], [-1, 6, 5]], dtype=dtype)
    (actual,) = bench.convert("keras", model=model).run({"ids": given}).values()
    assert_near(actual, model(tf.constant(given)))


def _saved_table(bench: Bench, keys: Sequence[Any], values: Sequence[Any], unknown: Any, asked: Any) -> Any:  # noqa: ANN401
    """Save a model that looks texts or numbers up, and return its answers and those of what was converted."""
    module = tf.Module()
    table = tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer(tf.constant(keys), tf.constant(values)), tf.constant(unknown)
    )
    module.table = table
    specs = [tf.TensorSpec([None], asked.dtype, name="x")]
    module.serve = tf.function(lambda x: {"y": table.lookup(x)}, input_signature=specs)
    path = bench.folder / "model"
    tf.saved_model.save(module, str(path), signatures={"serving_default": module.serve.get_concrete_function()})
    converted = bench.convert("savedmodel", path)
    # TensorFlow's texts are bytes.
    given = asked.numpy().astype(str).astype(object) if asked.dtype == tf.string else asked.numpy()
    return module.serve(asked)["y"].numpy(), converted.run({"x": given})["y"]


def test_a_table_of_a_savedmodel_gives_each_key_its_value(bench: Bench) -> None:
    expected, actual = _saved_table(bench, ["a", "b"], [0.5, -2.0], -1.0, tf.constant(["b", "c", "a"]))
    assert_near(actual, expected)


def test_a_table_gives_texts_too(bench: Bench) -> None:
    asked = tf.constant([7, 3, 8], dtype=tf.int64)
    expected, actual = _saved_table(bench, tf.constant([7, 8], tf.int64), ["seven", "ächt"], "none", asked)
    assert actual.tolist() == [value.decode() for value in expected] == ["seven", "none", "ächt"]


def test_a_kind_of_table_that_onnx_does_not_have_is_said(bench: Bench) -> None:
    with pytest.raises(UnsupportedOperatorsError) as caught:
        _saved_table(bench, ["a"], tf.constant([0.5], tf.float64), tf.constant(1.0, tf.float64), tf.constant(["a"]))
    ((operator, _, reason, hint),) = caught.value.rows
    assert operator == "LookupTableFindV2"
    assert reason == "tf2onnx could not convert it: ONNX has no table with float64"
    assert hint == "write it with operators that ONNX has, or serve the model as a SavedModel"


def test_what_hashes_text_is_named(bench: Bench) -> None:
    with pytest.raises(UnsupportedOperatorsError, match=r"this operator of the model: StringToHashBucketFast$"):
        bench.convert("keras", model=_of_texts(keras.layers.Hashing(8)))


@pytest.mark.parametrize("name", ["equal", "not_equal"])
def test_text_is_compared_with_a_constant(bench: Bench, name: str) -> None:
    words = keras.Input((2,), name="words", dtype="string")

    class Compared(keras.layers.Layer):  # type: ignore[misc]  # Keras has no types
        def call(self, x: Any) -> Any:  # noqa: ANN401
            return tf.cast(getattr(tf, name)(x, "é"), tf.float32)

    model = keras.Model(words, Compared(dtype="string")(words))
    (actual,) = bench.convert("keras", model=model).run({"words": _TEXTS}).values()
    assert_near(actual, model(tf.constant(_TEXTS)))


def test_text_that_is_compared_with_text_of_the_input_is_said(bench: Bench) -> None:
    words = keras.Input((2,), name="words", dtype="string")

    class Compared(keras.layers.Layer):  # type: ignore[misc]  # Keras has no types
        def call(self, x: Any) -> Any:  # noqa: ANN401
            return tf.cast(tf.equal(x, x[:, ::-1]), tf.float32)

    with pytest.raises(UnsupportedOperatorsError) as caught:
        bench.convert("keras", model=keras.Model(words, Compared(dtype="string")(words)))
    assert str(caught.value) == "tf2onnx cannot convert this operator of the model: Equal"
    ((operator, _, reason, _),) = caught.value.rows
    assert operator == "Equal"
    assert "ONNX compares text with one constant text only" in reason


def test_numbers_are_compared_as_before(bench: Bench) -> None:
    value = keras.Input((3,), name="x")
    model = keras.Model(value, keras.ops.cast(keras.ops.equal(value, 2.0), "float32") + value)
    x = np.float32([[1, 2, np.nan]])
    (actual,) = bench.convert("keras", model=model).run({"x": x}).values()
    np.testing.assert_array_equal(actual, model(x))


def test_text_whose_case_is_changed_is_not_converted_by_a_locale(bench: Bench) -> None:
    class Lower(keras.layers.Layer):  # type: ignore[misc]  # Keras has no types
        def call(self, x: Any) -> Any:  # noqa: ANN401
            return tf.strings.lower(x)

    words = keras.Input((2,), name="words", dtype="string")
    found = keras.layers.StringLookup(vocabulary=_WORDS)(Lower(dtype="string")(words))
    with pytest.raises(UnsupportedOperatorsError) as caught:
        bench.convert("keras", model=keras.Model(words, found))
    ((operator, _, reason, _),) = caught.value.rows
    assert operator == "StringLower"
    assert "TensorFlow changes the case of ASCII letters only, and ONNX of all letters" in reason
