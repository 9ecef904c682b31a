"""The precision of weights, counted by elements."""

from __future__ import annotations

import tracemalloc

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from paritygate.models.weights import WeightTally
from paritygate.precision import Precision


def _weights(*shape: int, seed: int = 0) -> NDArray[np.float32]:
    return (np.random.default_rng(seed).standard_normal(shape) * 0.05).astype(np.float32)


def _rounded(values: NDArray[np.float32], dtype: type) -> NDArray[np.float32]:
    return values.astype(dtype).astype(np.float32)


def _found(*tensors: NDArray[np.generic]) -> Precision | None:
    tally = WeightTally()
    for tensor in tensors:
        tally.add(tensor)
    return tally.precision()


def test_trained_float32_weights_are_fp32() -> None:
    assert _found(_weights(64, 32), _weights(64)) is Precision.FP32


@pytest.mark.parametrize(("dtype", "expected"), [(np.float16, Precision.FP16), (ml_dtypes.bfloat16, Precision.BF16)])
def test_float32_weights_that_were_rounded_count_as_what_they_were_rounded_to(dtype: type, expected: Precision) -> None:
    assert _found(_rounded(_weights(64, 32), dtype), _rounded(_weights(64), dtype)) is expected


@pytest.mark.parametrize(("dtype", "expected"), [(np.float16, Precision.FP16), (ml_dtypes.bfloat16, Precision.BF16)])
def test_one_full_tensor_among_rounded_ones_does_not_hide_them(dtype: type, expected: Precision) -> None:
    assert _found(_rounded(_weights(100, 64), dtype), _weights(1, 64), _weights(10, 64, seed=1)) is expected


def test_some_rounded_tensors_among_full_ones_are_mixed() -> None:
    assert _found(_rounded(_weights(64, 32), ml_dtypes.bfloat16), _weights(64, 32, seed=1)) is Precision.MIXED


def test_a_few_round_constants_do_not_lower_the_precision() -> None:
    constants = [np.full(16, value, dtype=np.float32) for value in (0.5, 1.0, 2.0, -1e4)]
    assert _found(_weights(16, 16), *constants, np.float32(0.5).reshape(1)) is Precision.FP32


@pytest.mark.parametrize(
    "table",
    [
        np.zeros((512, 512), dtype=np.float32),
        np.arange(100_000, dtype=np.float32),
        np.arange(10_000, dtype=np.float32) + 0.5,
        np.where(np.tri(512, dtype=bool), 0, -np.inf).astype(np.float32),
    ],
    ids=["zeros", "positions", "anchors", "causal mask"],
)
def test_tables_of_round_numbers_say_nothing_however_large(table: NDArray[np.float32]) -> None:
    assert _found(table, _weights(16, 16)) is Precision.FP32
    assert _found(table) is None


def test_zeros_of_a_pruned_model_do_not_lower_the_precision() -> None:
    weights = _weights(100, 100)
    weights[np.random.default_rng(1).random(weights.shape) < 0.95] = 0
    assert _found(weights) is Precision.FP32


@pytest.mark.parametrize(("dtype", "expected"), [(np.float16, Precision.FP16), (ml_dtypes.bfloat16, Precision.BF16)])
def test_stored_dtypes_count_by_their_elements(dtype: type, expected: Precision) -> None:
    assert _found(_weights(100, 64).astype(dtype), _weights(64)) is expected


def test_stored_dtypes_in_like_shares_are_mixed() -> None:
    assert _found(_weights(64, 64).astype(np.float16), _weights(64, 64)) is Precision.MIXED
    assert _found(_weights(64, 64).astype(np.float16), _weights(64, 64).astype(ml_dtypes.bfloat16)) is Precision.MIXED


def test_float64_is_full_precision() -> None:
    assert _found(_weights(64, 64).astype(np.float64)) is Precision.FP32


def test_a_model_of_scalars_is_judged_as_a_whole() -> None:
    scalars = [np.float32(1 + value).reshape(1, 1) for value in _weights(1000)]
    assert _found(*scalars) is Precision.FP32
    assert _found(*(_rounded(scalar, ml_dtypes.bfloat16) for scalar in scalars)) is Precision.BF16
    assert _found(*(scalar.astype(np.float16) for scalar in scalars)) is Precision.FP16


def test_a_handful_of_scalars_says_nothing() -> None:
    assert _found(*(np.float32(value).reshape(()) for value in (0.5, 0.044715, 1e-12))) is None


def test_a_handful_of_parameters_is_of_the_precision_that_they_are_stored_in() -> None:
    tally = WeightTally()
    assert tally.precision_of_parameters() is None
    tally.add(np.arange(12))
    assert tally.precision_of_parameters() is None
    # A layer of 4 inputs and 3 outputs.
    tally.add(_weights(3, 4))
    tally.add(_weights(3))
    assert tally.precision() is None
    assert tally.precision_of_parameters() is Precision.FP32


def test_integers_and_strings_are_no_float_weights() -> None:
    assert _found(np.arange(100), np.array(["a"] * 100), np.ones(100, dtype=bool)) is None


def test_empty_tensors_and_no_tensors_say_nothing() -> None:
    assert _found() is None
    assert _found(np.empty((0, 8), dtype=np.float32)) is None


def test_a_transposed_tensor_counts_as_any_other() -> None:
    assert _found(_rounded(_weights(64, 32), np.float16).T) is Precision.FP16


def test_a_large_tensor_costs_a_chunk_of_memory() -> None:
    weights = _rounded(_weights(4 << 20), ml_dtypes.bfloat16)
    tracemalloc.start()
    try:
        assert _found(weights) is Precision.BF16
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < weights.nbytes / 4
