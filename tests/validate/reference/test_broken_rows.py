"""The first rows in which a reference is not finite are named."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from paritygate.validate.reference.broken_rows import BrokenRows

_BOTH = np.zeros((2, 3, 2), dtype=np.float32)


def _named(values: NDArray[np.generic], rows: int) -> tuple[str, ...]:
    """Name the rows of batches of these values, one along axis 0."""
    found = BrokenRows()
    for batch, array in enumerate(values):
        found.add([f"{batch}.{row}" for row in range(rows)], {"y": array, "other": np.full(rows, np.nan)}, inputs={})
    return found.of("y")


def test_rows_are_named_over_batches_and_three_at_most() -> None:
    values = _BOTH.copy()
    values[0, 2, 1], values[1, 0, 0] = np.nan, -np.inf
    assert _named(values, 3) == ("0.2", "1.0")

    values[:] = np.inf
    assert _named(values, 3) == ("0.0", "0.1", "0.2")


@pytest.mark.parametrize("shape", [(1, 4), (1,)])
def test_where_an_output_has_no_rows_the_batch_is_named(shape: tuple[int, ...]) -> None:
    assert _named(np.full(shape, np.nan, dtype=np.float32), 3) == ("0.0..0.2",)


@pytest.mark.parametrize("dtype", ["float16", "float64", "bfloat16"])
def test_every_float_dtype_is_looked_at(dtype: str) -> None:
    values = np.zeros((1, 3, 2), dtype=getattr(ml_dtypes, dtype, dtype))
    values[0, 1, 0] = np.inf

    assert _named(values, 3) == ("0.1",)


def test_finite_values_name_nothing() -> None:
    assert _named(_BOTH, 3) == ()
    assert _named(_BOTH.astype(np.int64), 3) == ()


@pytest.mark.parametrize(("value", "words"), [(np.nan, "NaN"), (-np.inf, "infinity")])
def test_what_the_samples_hold_themselves_is_said_with_row_and_input(value: float, words: str) -> None:
    found = BrokenRows()
    outputs = np.array([[1.0], [np.nan], [np.nan]], dtype=np.float32)
    inputs = {"ids": np.arange(3), "x": np.array([[0.0], [0.0], [value]], dtype=np.float32)}

    found.add(["a", "b", "c"], {"y": outputs, "z": np.zeros(3, np.float32)}, inputs)

    assert found.in_samples("y") == f"the samples themselves hold {words} in input 'x', first at row 'c'"
    assert found.in_samples("z") == ""


def test_of_samples_that_are_finite_nothing_is_said() -> None:
    found = BrokenRows()
    found.add(["a"], {"y": np.array([np.nan])}, {"x": np.array([1.0])})

    assert found.in_samples("y") == ""
