"""The spread by which a channel is judged: that of its own bulk, whatever lies beside it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from paritygate.validate.measure.profile import OutputProfile, profile_outputs, with_activation_floors
from paritygate.validate.measure.robust_scale import NORMAL_REACH

_ROWS = 400
_EXPONENTS = st.floats(-9, 7)
_SEEDS = st.integers(0, 2**32 - 1)


def _normal(*shape: int, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def _profile(values: NDArray[np.generic], axis: int | None = 1, batch: int = 64) -> OutputProfile:
    parts = [values[at : at + batch] for at in range(0, len(values), batch)]
    return profile_outputs("y", [(part, len(part)) for part in parts], axis=axis, dtype=values.dtype.name)


@given(exponents=st.lists(_EXPONENTS, min_size=2, max_size=5), seed=_SEEDS)
@settings(max_examples=20, deadline=None)
def test_a_column_has_its_own_spread_whatever_lies_beside_it(exponents: list[float], seed: int) -> None:
    unit = np.float32(10) ** np.array(exponents, dtype=np.float32)
    columns = _normal(_ROWS, len(exponents), seed=seed)

    found = _profile(columns * unit)

    assert found.own_spread == pytest.approx(unit, rel=0.3)
    assert found.own_spread == pytest.approx(found.spread)
    assert (found.own_spread <= found.tail).all()


@given(exponent=_EXPONENTS, seed=_SEEDS)
@settings(max_examples=20, deadline=None)
def test_it_is_in_proportion_to_the_unit_and_does_not_depend_on_the_offset(exponent: float, seed: int) -> None:
    values = _normal(_ROWS, 2, seed=seed).astype(np.float64)
    unit = 2.0 ** round(exponent * 3)

    before, after = _profile(values), _profile(values * unit)
    moved = _profile(values + 16)

    for name in ("own_spread", "tail", "rms"):
        assert getattr(after, name) == pytest.approx(getattr(before, name) * unit)
        assert getattr(moved, name) == pytest.approx(getattr(before, name))


@given(batch=st.integers(1, _ROWS))
@settings(max_examples=10, deadline=None)
def test_it_is_the_same_however_the_rows_are_cut_into_batches(batch: int) -> None:
    values = _normal(_ROWS, 3)

    assert _profile(values, batch=batch).own_spread.tolist() == _profile(values).own_spread.tolist()


@pytest.mark.parametrize("share", [0.55, 0.9])
@pytest.mark.parametrize("constant", [0.0, 7.0])
def test_a_column_that_is_mostly_one_number_has_the_spread_of_the_others(share: float, constant: float) -> None:
    values = constant + 1e-3 * np.abs(_normal(_ROWS, 2)).astype(np.float64)
    values[: int(share * _ROWS), 0] = constant

    found = _profile(values)

    # The reach of the values off the constant, as a standard deviation.
    off = np.sort(values[int(share * _ROWS) :, 0] - constant)
    assert found.own_spread[0] == pytest.approx(off[int((off.size - 1) * 0.9)] / NORMAL_REACH)
    # The bulk of nine tenths holds the constant as well.
    assert found.spread[0] <= found.own_spread[0]


@pytest.mark.parametrize(("varying", "has_spread"), [(0, False), (29, False), (30, True)])
def test_fewer_than_thirty_values_off_the_constant_give_no_spread(varying: int, *, has_spread: bool) -> None:
    values = np.full((_ROWS, 2), 5.0, np.float32)
    values[:varying, 1] += 1 + np.arange(varying, dtype=np.float32)

    found = _profile(values)

    assert found.own_spread[0] == 0
    assert bool(found.own_spread[1] > 0) is has_spread


def test_the_tail_is_what_thirty_values_reach() -> None:
    values = np.zeros((_ROWS, 2), np.float32)
    values[:, 0] = _normal(_ROWS)
    values[:30, 1] = 100.0
    values[30:, 1] = _normal(_ROWS - 30)

    found = _profile(values)

    assert found.tail[1] == pytest.approx(100, abs=1)
    assert found.tail[0] < 3


def test_one_huge_row_moves_neither() -> None:
    values = _normal(_ROWS, 2)
    before = _profile(values)
    values[7] *= 1e6

    after = _profile(values)

    assert after.own_spread == pytest.approx(before.own_spread, rel=0.02)
    assert after.tail == pytest.approx(before.tail, rel=0.1)


def _shares(classes: int, *, sharpness: float = 1.0, shape: tuple[int, ...] = ()) -> NDArray[np.float32]:
    logits = sharpness * _normal(_ROWS, *shape, classes).astype(np.float64)
    exp = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(exp / exp.sum(axis=-1, keepdims=True), dtype=np.float32)


@pytest.mark.parametrize(("classes", "sharpness"), [(3, 1.0), (10, 1.0), (10, 10.0), (1000, 1.0)])
def test_rows_that_sum_to_one_have_the_spread_of_their_largest_values(classes: int, sharpness: float) -> None:
    values = _shares(classes, sharpness=sharpness)

    found = _profile(values)

    assert found.is_shares
    judged = found.own_spread[found.own_spread > 0]
    assert judged.size
    assert judged == pytest.approx(np.median(values.max(axis=1)))


def test_two_columns_that_sum_to_one_are_two_columns() -> None:
    found = _profile(_shares(2))

    assert not found.is_shares
    assert found.own_spread == pytest.approx(found.spread)


def test_positions_of_rank_three_may_be_shares() -> None:
    assert _profile(_shares(4, shape=(5,)), axis=2).is_shares
    # The axis is that of the channels: positions do not sum up to 1.
    assert not _profile(np.moveaxis(_shares(4, shape=(5,)), 2, 1), axis=2).is_shares


@pytest.mark.parametrize("fault", ["one row", "negative", "not a number"])
def test_one_row_that_does_not_sum_to_one_is_enough(fault: str) -> None:
    values = _shares(4)
    if fault == "one row":
        values[100] *= 1.01
    elif fault == "negative":
        values[100, :2] = -0.5, 1.5 - values[100, 2:].sum()
    else:
        values[100] = np.nan

    # Positions that do not count are NaN here: they say nothing.
    assert _profile(values).is_shares is (fault == "not a number")


def test_fill_values_are_in_no_spread() -> None:
    values = _normal(_ROWS, 2)
    values[: _ROWS // 4, 1] = np.finfo(np.float32).min
    values[_ROWS // 4 : _ROWS // 3, 1] = -1e9

    found = _profile(values)

    assert found.fills == (float(np.finfo(np.float32).min), -1e9)
    assert found.own_spread == pytest.approx([1, 1], rel=0.2)
    assert (found.tail < 5).all()


def test_whole_numbers_have_a_profile_as_well() -> None:
    found = _profile(np.arange(_ROWS).reshape(-1, 2))

    assert not found.is_float
    assert not found.is_shares


def test_floors_of_columns_go_to_columns_alone() -> None:
    table, cube = _profile(_normal(_ROWS, 2)), _profile(_normal(_ROWS, 5, 2), axis=2)
    floors = {"y": np.array([3e-7, 0.0])}

    assert with_activation_floors({"y": table}, floors)["y"].activation_floor.tolist() == [3e-7, 0]
    assert with_activation_floors({"y": cube}, floors)["y"].activation_floor.tolist() == [0, 0]
    assert with_activation_floors({"y": table}, {"y": np.array([3e-7])})["y"].activation_floor.tolist() == [3e-7, 3e-7]
    assert with_activation_floors({"y": table}, {"z": np.array([1.0])})["y"].activation_floor.tolist() == [0, 0]
