"""TensorFlow operators that are written for ONNX here, each against float64 on all of its range."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.convert.conftest import Bench, Lazy, sign

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
