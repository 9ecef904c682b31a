"""TensorFlow operators that are written for ONNX here, each against float64 on all of its range."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.convert.conftest import Bench, Lazy, sign

from paritygate.errors import UnsupportedOperatorsError
from paritygate.models.tensorflow.importing import import_keras, import_tensorflow

pytestmark = pytest.mark.tensorflow

keras: Any = Lazy(import_keras)
tf: Any = Lazy(import_tensorflow)

# What ONNX Runtime's own kernels lose, in units of the last place: 4 and 6 were measured.
_LIMIT = 10


def _answers(bench: Bench, function: Callable[[Any], Any], x: NDArray[Any]) -> NDArray[Any]:
    class Model(keras.Model):  # type: ignore[misc]  # Keras has no types
        def call(self, x: Any) -> Any:  # noqa: ANN401
            return function(x)

    signature = sign({"x": f"{x.dtype}[batch]"}, {"y": f"{x.dtype}[batch]"})
    converted = bench.convert("keras", model=Model(dtype=str(x.dtype)), signature=signature)
    return converted.run({"x": x})["y"]


def _everything() -> NDArray[np.float32]:
    """Return float32 of all exponents and both signs, subnormal ones and NaN too, and where the functions turn."""
    patterns = np.arange(0, 2**32, 4093, dtype=np.uint64).astype(np.uint32).view(np.float32)
    tiny, one = np.float32(1e-45), np.float32(1)
    turns = [0, tiny, -tiny, -1, np.nextafter(-one, one), np.nextafter(-one, -2 * one), np.inf, -np.inf, np.nan]
    spread = np.linspace(-2, 3, 200_001, dtype=np.float32)
    return np.concatenate([patterns, np.array(turns, np.float32), spread, spread * np.float32(1e-6)])


def _assert_exact_enough(x: NDArray[Any], actual: NDArray[Any], exact: Callable[..., NDArray[Any]]) -> None:
    wide = np.longdouble if x.dtype == np.float64 else np.float64
    with np.errstate(all="ignore"):
        wanted = exact(x.astype(wide))
        rounded = wanted.astype(x.dtype)
    is_finite = np.isfinite(rounded)
    np.testing.assert_array_equal(actual[~is_finite], rounded[~is_finite])
    units = np.abs(actual[is_finite] - wanted[is_finite]) / np.spacing(np.abs(rounded[is_finite]))
    worst = np.argmax(units)
    assert units[worst] <= _LIMIT, f"{units[worst]} units in the last place at {x[is_finite][worst]!r}"


@pytest.mark.parametrize("name", ["log1p", "expm1"])
def test_it_is_exact_for_every_float32(bench: Bench, name: str) -> None:
    x = _everything()
    # Next to the largest float32, whether it is infinity is a matter of the last place of exp.
    x = x[~((x > 88.7) & (x < 88.8))]
    _assert_exact_enough(x, _answers(bench, getattr(tf.math, name), x), getattr(np, name))


@pytest.mark.parametrize("name", ["log1p", "expm1"])
def test_float64_keeps_its_digits(bench: Bench, name: str) -> None:
    x = np.concatenate([sign * np.geomspace(1e-300, 0.99, 5000) for sign in (1, -1)])
    _assert_exact_enough(x, _answers(bench, getattr(tf.math, name), x), getattr(np, name))


def test_what_the_naive_formula_loses_would_be_seen() -> None:
    x = np.float32([1e-4, 1e-5])
    with pytest.raises(AssertionError, match="units in the last place"):
        _assert_exact_enough(x, np.log(1 + x), np.log1p)


def test_an_infinity_that_is_not_chosen_stays_out(bench: Bench) -> None:
    x = np.float32([0, 1, np.inf, -1])
    actual = _answers(bench, lambda x: tf.where(x > 0, tf.math.log(x), 0.0), x)
    np.testing.assert_allclose(actual, [0, 0, np.inf, 0])


_BOUNDARIES = [-1.0, 0.0, 0.1, 2.5, 2.5, 16777217.0, 1e30]


def _bucketized(bench: Bench, x: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the buckets of the values in ONNX Runtime, and in TensorFlow."""

    class Model(keras.Model):  # type: ignore[misc]  # Keras has no types
        def call(self, x: Any) -> Any:  # noqa: ANN401
            return tf.raw_ops.Bucketize(input=x, boundaries=_BOUNDARIES)

    # Keras would cast to the dtype of the model otherwise.
    model = Model(autocast=False)
    signature = sign({"x": f"{x.dtype}[batch]"}, {"y": "int32[batch]"})
    return bench.convert("keras", model=model, signature=signature).run({"x": x})["y"], model(x).numpy()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_value_falls_into_the_bucket_of_tensorflow_at_each_boundary_and_next_to_it(bench: Bench, dtype: str) -> None:
    at = np.array(_BOUNDARIES, dtype=np.float32).astype(dtype)
    ends = np.array([np.nan, np.inf, -np.inf, -0.0, np.finfo(dtype).max, np.finfo(dtype).min], dtype=dtype)
    below, above = np.nextafter(at, at.dtype.type(-np.inf)), np.nextafter(at, at.dtype.type(np.inf))
    # TensorFlow flushes subnormal numbers to 0: so next to 0 is one that is not.
    below[1], above[1] = -1e-30, 1e-30
    x = np.concatenate([at, below, above, ends])
    actual, expected = _bucketized(bench, x)
    np.testing.assert_array_equal(actual, expected)
    # The test means something: all buckets are there, and NaN is in the last one.
    assert set(expected) == {0, 1, 2, 3, 5, 6, 7}
    assert expected[len(at) * 3] == len(at)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_an_integer_falls_into_the_bucket_that_its_float32_does(bench: Bench, dtype: str) -> None:
    x = np.array([-2, -1, 0, 1, 2, 3, 16777215, 16777216, 16777217, 16777218, np.iinfo(dtype).max], dtype=dtype)
    actual, expected = _bucketized(bench, x)
    np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("mode", ["int", "one_hot", "multi_hot", "count"])
def test_a_discretization_layer_is_exact_at_its_boundaries(bench: Bench, mode: str) -> None:
    value = keras.Input((1 if mode == "one_hot" else 3,), name="x")
    model = keras.Model(value, keras.layers.Discretization([-1.0, 0.0, 2.5], output_mode=mode)(value))
    at, tiny = np.float32([-1, 0, 2.5]), np.float32(1e-30)
    # TensorFlow flushes subnormal numbers to 0: so next to 0 is one that is not.
    below, above = np.nextafter(at, np.float32(-9)), np.nextafter(at, np.float32(9))
    below[1], above[1] = -tiny, tiny
    x = np.stack([at, below, above, at * np.float32(np.nan)])
    x = x.reshape(-1, value.shape[1])
    (actual,) = bench.convert("keras", model=model).run({"x": x}).values()
    np.testing.assert_array_equal(actual, model(x))


def test_buckets_are_written_for_an_older_opset_too(bench: Bench) -> None:
    value = keras.Input((3,), name="x")
    model = keras.Model(value, keras.layers.Discretization([0.0, 2.5])(value))
    converted = bench.convert("keras", model=model, opset=12)
    assert converted.conversion.facts["opset"] == 12
    (actual,) = converted.run({"x": np.float32([[-1, 0, 2.5]])}).values()
    np.testing.assert_array_equal(actual, [[0, 1, 2]])


@pytest.mark.parametrize("name", ["argmax", "argmin", "signbit"])
def test_what_looks_at_the_sign_of_a_number_converts(bench: Bench, name: str) -> None:
    value = keras.Input((3,), name="x")
    function = getattr(keras.ops, name)
    found = function(value) if name == "signbit" else function(value, axis=-1)
    model = keras.Model(value, keras.ops.cast(found, "int32"))
    x = np.float32([[0, -0.0, -1], [-0.0, 0, 0], [5, -np.inf, np.inf], [1e-30, -1e-30, 0], [0, 0, -0.0]])
    (actual,) = bench.convert("keras", model=model).run({"x": x}).values()
    np.testing.assert_array_equal(actual, model(x))


def test_other_bits_than_the_sign_are_said(bench: Bench) -> None:
    x = np.float32([1, 2])
    with pytest.raises(UnsupportedOperatorsError) as caught:
        _answers(bench, lambda x: tf.cast(tf.bitwise.bitwise_and(tf.bitcast(x, tf.int32), 255), tf.float32), x)
    ((operator, _, reason, _),) = caught.value.rows
    assert operator == "Bitcast"
    assert "ONNX gives access to the sign of a number alone, and not to its other bits" in reason
