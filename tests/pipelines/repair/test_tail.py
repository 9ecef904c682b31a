"""The share of the tolerance predicted for more rows is rarely exceeded, and not far above what they use."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from paritygate.pipelines.repair.mixer import AIM
from paritygate.pipelines.repair.tail import Tail

_SEEN, _OTHERS, _TRIALS = 48, 256, 30


def _rows(random: np.random.Generator, count: int, heavy: float) -> NDArray[np.float64]:
    """Return the largest of three normal differences of each row; rows differ in their spread."""
    spread = np.exp(heavy * random.normal(size=count))
    return np.asarray(spread * np.abs(random.normal(size=(count, 3))).max(axis=1))


@pytest.mark.parametrize("heavy", [0.0, 0.2])
def test_other_rows_rarely_use_more_than_predicted(heavy: float) -> None:
    ratios = []
    for seed in range(100):
        random = np.random.default_rng(seed)
        tail = Tail(_OTHERS)
        for _ in range(_TRIALS):
            predicted = tail.predict(_rows(random, _SEEN, heavy))
        ratios.append(_rows(random, _OTHERS, heavy).max() / predicted)

    assert np.mean(np.array(ratios) > 1 / AIM) < 0.1
    assert np.median(ratios) > 0.75


def test_equal_models_use_nothing() -> None:
    assert Tail(_OTHERS).predict(np.zeros(_SEEN)) == 0


def test_more_rows_use_more() -> None:
    shares = _rows(np.random.default_rng(1), _SEEN, 0.0)

    predictions = [Tail(rows).predict(shares) for rows in (10, 100, 1000)]

    assert predictions == sorted(predictions)
    assert predictions[0] < predictions[-1]
