"""Metrics against gold: each beside a second implementation, and where it is not defined."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from paritygate.validate.gold.bootstrap import RESAMPLES, paired_resamples
from paritygate.validate.gold.metrics import metric_function
from paritygate.validate.gold.rule import METRICS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Values = NDArray[np.float64]

# Few values, so that ties are the rule.
_SCORES = arrays.arrays(np.float64, st.integers(2, 30), elements=st.sampled_from([-2.5, -1.0, 0.0, 0.25, 1.0, 3.0]))


def _metric(name: str, predicted: object, gold: object) -> float:
    found = metric_function(name)(np.asarray([predicted], dtype=np.float64), np.asarray([gold], dtype=np.float64))
    assert found.shape == (1,)
    return float(found[0])


def _gold_of(draw: st.DataObject, like: Values, values: list[float]) -> Values:
    return np.array(draw.draw(st.lists(st.sampled_from(values), min_size=len(like), max_size=len(like))))


def _naive_auc(predicted: Values, gold: Values) -> float:
    pairs = [(p, n) for p in predicted[gold == 1] for n in predicted[gold == 0]]
    return sum(1.0 if p > n else 0.5 if p == n else 0.0 for p, n in pairs) / len(pairs) if pairs else math.nan


def _naive_f1(predicted: Values, gold: Values, label: float = 1.0) -> float:
    tp = sum(p == label and g == label for p, g in zip(predicted, gold, strict=True))
    fp = sum(p == label and g != label for p, g in zip(predicted, gold, strict=True))
    fn = sum(p != label and g == label for p, g in zip(predicted, gold, strict=True))
    return 2 * tp / (2 * tp + fp + fn) if tp + fp + fn else math.nan


@given(predicted=_SCORES, draw=st.data())
def test_correlations_are_those_of_scipy(predicted: Values, draw: st.DataObject) -> None:
    gold = _gold_of(draw, predicted, [0.0, 0.5, 1.0, 4.0])
    if len(set(predicted)) == 1 or len(set(gold)) == 1:
        assert math.isnan(_metric("pearson", predicted, gold))
        assert math.isnan(_metric("spearman", predicted, gold))
    else:
        assert _metric("pearson", predicted, gold) == pytest.approx(
            scipy.stats.pearsonr(predicted, gold).statistic, abs=1e-12
        )
        assert _metric("spearman", predicted, gold) == pytest.approx(
            scipy.stats.spearmanr(predicted, gold).statistic, abs=1e-12
        )


@given(predicted=_SCORES, draw=st.data())
def test_auc_counts_the_pairs_in_the_right_order(predicted: Values, draw: st.DataObject) -> None:
    gold = _gold_of(draw, predicted, [0.0, 1.0])

    assert _metric("auc", predicted, gold) == pytest.approx(_naive_auc(predicted, gold), nan_ok=True)


@given(gold=arrays.arrays(np.float64, st.integers(1, 30), elements=st.sampled_from([0.0, 1.0, 2.0])), draw=st.data())
def test_metrics_of_labels_are_those_of_plain_counting(gold: Values, draw: st.DataObject) -> None:
    predicted = _gold_of(draw, gold, [0.0, 1.0, 2.0])
    classes = sorted(set(predicted) | set(gold))

    assert _metric("accuracy", predicted, gold) == pytest.approx(
        sum(p == g for p, g in zip(predicted, gold, strict=True)) / len(gold)
    )
    assert _metric("f1", predicted, gold) == pytest.approx(_naive_f1(predicted, gold), nan_ok=True)
    assert _metric("f1_macro", predicted, gold) == pytest.approx(
        sum(_naive_f1(predicted, gold, label) for label in classes) / len(classes)
    )


@pytest.mark.parametrize("name", METRICS)
def test_a_prediction_that_is_nan_leaves_every_metric_undefined(name: str) -> None:
    assert math.isnan(_metric(name, [0.0, math.nan, 1.0, 0.0], [0.0, 1.0, 1.0, 0.0]))
    assert not math.isnan(_metric(name, [0.0, 1.0, 1.0, 0.0], [0.0, 1.0, 1.0, 0.0]))


@pytest.mark.parametrize(
    ("name", "predicted", "gold"),
    [
        ("pearson", [1.0, 1.0, 1.0], [0.0, 1.0, 2.0]),
        ("pearson", [0.1 + 0.2, 0.3, 0.3], [0.0, 1.0, 2.0]),
        ("spearman", [0.0, 1.0, 2.0], [3.0, 3.0, 3.0]),
        ("auc", [0.0, 1.0, 2.0], [1.0, 1.0, 1.0]),
        ("f1", [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]),
    ],
)
def test_what_constants_leave_undefined_is_nan(name: str, predicted: list[float], gold: list[float]) -> None:
    assert math.isnan(_metric(name, predicted, gold))


@pytest.mark.parametrize("name", METRICS)
def test_many_resamples_at_once_are_each_as_alone(name: str) -> None:
    random = np.random.default_rng(1)
    predicted = random.integers(0, 2, size=(20, 40)).astype(np.float64)
    gold = random.integers(0, 2, size=(20, 40)).astype(np.float64)

    together = metric_function(name)(predicted, gold)

    assert together.tolist() == pytest.approx([_metric(name, p, g) for p, g in zip(predicted, gold, strict=True)])


def test_equal_seeds_give_equal_resamples_and_others_do_not() -> None:
    random = np.random.default_rng(0)
    gold = random.standard_normal(100)
    sides = (gold + random.standard_normal(100), gold + random.standard_normal(100))
    metric = metric_function("pearson")

    first, again, other = (paired_resamples(metric, sides, gold, seed=seed) for seed in (3, 3, 4))

    assert len(first.candidate) == RESAMPLES >= 1000
    assert first.candidate.tolist() == again.candidate.tolist()
    assert first.candidate.tolist() != other.candidate.tolist()


def test_both_sides_are_resampled_by_the_same_rows() -> None:
    random = np.random.default_rng(0)
    gold = random.standard_normal(50)
    side = gold + random.standard_normal(50)

    drawn = paired_resamples(metric_function("pearson"), (side, side), gold, seed=0)

    assert drawn.candidate.tolist() == drawn.reference.tolist()
    interval = drawn.interval(drawn.candidate - drawn.reference)
    assert interval is not None
    assert (interval.low, interval.high) == (0.0, 0.0)


def test_the_interval_holds_the_true_difference_as_often_as_it_says() -> None:
    # Labels right with probability 0.8 and 0.7: the difference of accuracies is -0.1.
    random = np.random.default_rng(11)
    held = 0
    times, rows = 200, 150
    for seed in range(times):
        gold = random.integers(0, 2, size=rows).astype(np.float64)
        reference, candidate = (np.where(random.random(rows) < share, gold, 1 - gold) for share in (0.8, 0.7))
        drawn = paired_resamples(metric_function("accuracy"), (candidate, reference), gold, seed=seed)
        interval = drawn.interval(drawn.candidate - drawn.reference)
        assert interval is not None
        held += interval.low <= -0.1 <= interval.high

    # 95 % of 200 is 190, with a standard deviation of 3.
    assert 180 <= held <= 198


def test_an_interval_of_mostly_undefined_resamples_is_not_known() -> None:
    gold = np.array([1.0] + [0.0] * 9)
    side = np.linspace(0, 1, 10)

    drawn = paired_resamples(metric_function("auc"), (side, side), gold, seed=0)

    # A third of the resamples holds no positive row.
    assert drawn.interval(drawn.candidate - drawn.reference) is None


def test_many_rows_are_resampled_in_bounded_pieces() -> None:
    gold = np.arange(30_000, dtype=np.float64)
    sizes = []

    def metric(predicted: Values, gold: Values) -> Values:
        sizes.append(predicted.shape)
        found: Values = predicted.mean(axis=1) + gold.mean(axis=1)
        return found

    paired_resamples(metric, (gold, gold), gold, seed=0)

    assert all(resamples * rows <= 1 << 20 for resamples, rows in sizes)
    assert {rows for _, rows in sizes} == {10_000}
