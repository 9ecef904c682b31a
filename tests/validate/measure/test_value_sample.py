"""The sample of values: the same for any cut and any order of merging, bounded, and near to all values."""

from __future__ import annotations

import functools
import itertools
import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from paritygate.validate.measure import robust_scale

_CUTS = st.lists(st.integers(0, 5000), max_size=6)


@pytest.fixture(autouse=True)
def _keeps_little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(robust_scale, "_VALUES_KEPT", 600)
    monkeypatch.setattr(robust_scale, "_LEAST_OF_A_CHANNEL", 100)


def _values(count: int, channels: int) -> NDArray[np.float64]:
    return np.random.default_rng(0).standard_normal((channels, count))


def _parts(values: NDArray[np.float64], cuts: list[int]) -> list[tuple[int, NDArray[np.float64]]]:
    edges = [0, *sorted(min(cut, values.shape[1]) for cut in cuts), values.shape[1]]
    return [(a, values[:, a:b]) for a, b in itertools.pairwise(edges)]


def _whole(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return robust_scale.finish(robust_scale.update(robust_scale.empty(len(values)), values))


@given(st.integers(0, 5000), st.integers(1, 7), _CUTS, st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_any_cut_fed_or_merged_in_any_order_keeps_the_same_values(
    count: int, channels: int, cuts: list[int], order: random.Random
) -> None:
    values = _values(count, channels)
    fed = robust_scale.empty(channels)
    states = []
    for first, part in _parts(values, cuts):
        robust_scale.update(fed, part)
        states.append(robust_scale.update(robust_scale.empty(channels, first_place=first), part))
    order.shuffle(states)

    merged = functools.reduce(robust_scale.merge, states)

    assert np.array_equal(robust_scale.finish(fed), _whole(values))
    assert np.array_equal(robust_scale.finish(merged), _whole(values))


@given(_CUTS.filter(lambda cuts: len(cuts) >= 2))
@settings(max_examples=30, deadline=None)
def test_merging_is_associative(cuts: list[int]) -> None:
    a, b, c = (
        robust_scale.update(robust_scale.empty(1, first_place=first), part)
        for first, part in _parts(_values(5000, 1), cuts[:2])
    )

    left = robust_scale.merge(robust_scale.merge(a, b), c)
    right = robust_scale.merge(a, robust_scale.merge(b, c))

    assert np.array_equal(robust_scale.finish(left), robust_scale.finish(right))


def test_few_values_are_all_kept_in_their_order() -> None:
    values = _values(300, 2)

    assert np.array_equal(_whole(values), values)


@pytest.mark.parametrize(("channels", "most"), [(1, 600), (3, 200), (50, 100)])
def test_many_values_are_thinned_to_a_bounded_number(channels: int, most: int) -> None:
    kept = _whole(_values(20_000, channels))

    assert most / 4 < kept.shape[1] <= most


@pytest.mark.parametrize("period", [2, 8, 64, 100])
def test_what_repeats_with_a_period_keeps_its_share(period: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(robust_scale, "_VALUES_KEPT", 20_000)
    is_first = (np.arange(200_000) % period == 0).astype(np.float64)

    kept: Any = _whole(is_first[np.newaxis])

    assert kept.mean() == pytest.approx(1 / period, rel=0.25)
