"""Rounding of weights to float16 and bfloat16, against rounding done on the bits."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from paritygate.models.onnx.weights import DTYPES, ELEMENT_TYPES, FLOAT, stored_in
from paritygate.precision import Precision
from paritygate.validate.emulation.constants import round_values

_PRECISIONS = [Precision.FP16, Precision.BF16]
_FLOAT32 = st.floats(width=32, allow_nan=True, allow_infinity=True, allow_subnormal=True)
_ARRAYS = hnp.arrays(np.float32, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0), elements=_FLOAT32)
# Bits of the exponent and of the mantissa.
_SIZES = {Precision.FP16: (5, 10), Precision.BF16: (8, 7)}


def convert_values(values: NDArray[np.float32], precision: Precision) -> tuple[NDArray[np.float32], int]:
    """Return the values as they are stored, in float32, and how many are clamped."""
    stored, beyond, _ = stored_in(precision, values)
    return stored.astype(np.float32), int(np.count_nonzero(beyond))


def _rounded_by_theory(value: float, precision: Precision) -> float:
    """Return the value rounded to nearest, ties to even, computed in integers of the last place."""
    exponent_bits, mantissa_bits = _SIZES[precision]
    if not np.isfinite(value) or value == 0.0:
        return value
    bias = 2 ** (exponent_bits - 1) - 1
    # Below the smallest normal number the last place stays where it is.
    exponent = max(int(np.frexp(np.float64(value))[1]) - 1, 1 - bias)
    unit = 2.0 ** (exponent - mantissa_bits)
    rounded = float(np.rint(value / unit)) * unit
    return float(np.copysign(np.inf, value)) if abs(rounded) >= 2.0 ** (bias + 1) else rounded


@pytest.mark.parametrize("precision", _PRECISIONS)
@given(value=_FLOAT32)
def test_values_round_to_nearest_with_ties_to_even(precision: Precision, value: float) -> None:
    found = float(round_values(np.array(value, dtype=np.float32), precision))
    expected = _rounded_by_theory(value, precision)
    assert found == expected or (np.isnan(found) and np.isnan(expected)), (value, found, expected)


@pytest.mark.parametrize(
    ("precision", "value", "expected"),
    [
        (Precision.FP16, 65519.0, 65504.0),
        (Precision.FP16, 65520.0, np.inf),
        (Precision.FP16, 2.0**-24, 2.0**-24),
        (Precision.FP16, 2.0**-25, 0.0),
        (Precision.BF16, 65520.0, 65536.0),
        (Precision.BF16, 1.0 + 2.0**-9, 1.0),
        (Precision.BF16, 1.0 + 3.0 * 2.0**-8, 1.0 + 2.0**-6),
    ],
)
def test_the_edges_of_the_range_round_as_the_formats_say(precision: Precision, value: float, expected: float) -> None:
    assert round_values(np.array([value], dtype=np.float32), precision).tolist() == [expected]


@pytest.mark.parametrize("precision", _PRECISIONS)
@given(values=_ARRAYS)
def test_rounding_keeps_the_shape_and_what_is_rounded_stays(precision: Precision, values: NDArray[np.float32]) -> None:
    once = round_values(values, precision)
    assert (once.shape, once.dtype.name) == (values.shape, "float32")
    np.testing.assert_array_equal(round_values(once, precision), once)


@pytest.mark.parametrize("precision", _PRECISIONS)
@given(values=_ARRAYS)
def test_converted_weights_are_finite_where_they_were_and_clamps_are_counted(
    precision: Precision, values: NDArray[np.float32]
) -> None:
    converted, clamped = convert_values(values, precision)
    assert (converted.shape, converted.dtype.name) == (values.shape, "float32")
    np.testing.assert_array_equal(np.isfinite(converted), np.isfinite(values))
    changed = np.isinf(round_values(values, precision)) & np.isfinite(values)
    assert clamped == np.count_nonzero(changed)
    np.testing.assert_array_equal(
        converted[changed], np.copysign(float(ml_dtypes.finfo(DTYPES[precision]).max), values[changed])
    )


def test_a_mask_constant_becomes_the_largest_number_and_infinity_stays() -> None:
    converted, clamped = convert_values(np.array([-1e9, -np.inf, 2.0], dtype=np.float32), Precision.FP16)
    assert (converted.tolist(), clamped) == ([-65504.0, -np.inf, 2.0], 1)


@pytest.mark.parametrize("shape", [(), (1,)])
def test_a_single_small_value_does_not_become_zero(shape: tuple[int, ...]) -> None:
    converted, clamped = convert_values(np.full(shape, -1e-12, dtype=np.float32), Precision.FP16)
    assert (converted.reshape(-1).tolist(), converted.shape, clamped) == ([-(2.0**-24)], shape, 0)
    assert convert_values(np.zeros(shape, dtype=np.float32), Precision.FP16)[0].reshape(-1).tolist() == [0.0]


def test_small_values_among_others_become_zero() -> None:
    assert convert_values(np.array([1e-12, 1.0], dtype=np.float32), Precision.FP16)[0].tolist() == [0.0, 1.0]


def test_element_types_are_those_of_onnx() -> None:
    assert onnx.TensorProto.FLOAT == FLOAT
    assert {precision: onnx.TensorProto.DataType.Name(low) for precision, low in ELEMENT_TYPES.items()} == {
        Precision.FP16: "FLOAT16",
        Precision.BF16: "BFLOAT16",
    }
