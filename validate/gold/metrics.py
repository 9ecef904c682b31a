"""Metrics of predictions against gold, each over many resamples at once.

Every function takes arrays of shape `(resamples, rows)` and returns one number a resample. It is NaN where the metric
is not defined: for a constant, one class alone, or values that are not finite.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Metric = Callable[[NDArray[np.float64], NDArray[np.float64]], NDArray[np.float64]]

# A spread this small beside the values is their rounding.
_ROUNDING = 1e-13


def metric_function(name: str) -> Metric:
    """Return the metric of this name in `METRICS`."""
    return {
        "pearson": _pearson,
        "spearman": _spearman,
        "accuracy": _accuracy,
        "f1": _f1,
        "f1_macro": _f1_macro,
        "auc": _auc,
    }[name]


def _pearson(predicted: NDArray[np.float64], gold: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the correlation of Pearson (1895): sum(dx dy) / sqrt(sum(dx^2) sum(dy^2)), dx and dy less their means."""
    with np.errstate(invalid="ignore", over="ignore"):
        first, second = (values - values.mean(axis=1, keepdims=True) for values in (predicted, gold))
        norms = [np.sqrt(np.einsum("rn,rn->r", values, values)) for values in (first, second)]
        product = np.einsum("rn,rn->r", first, second)
    is_constant = np.zeros(len(predicted), dtype=bool)
    for values, norm in zip((predicted, gold), norms, strict=True):
        is_constant |= ~(norm > _ROUNDING * np.abs(values).max(axis=1, initial=0.0) * np.sqrt(values.shape[1]))
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        correlation: NDArray[np.float64] = np.where(
            is_constant, np.nan, np.clip(product / norms[0] / norms[1], -1.0, 1.0)
        )
    return correlation


def _spearman(predicted: NDArray[np.float64], gold: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the rank correlation of Spearman (1904): Pearson's of the ranks, where ties get their mean rank."""
    is_broken = np.isnan(predicted).any(axis=1)
    return np.where(is_broken, np.nan, _pearson(_ranks(predicted), _ranks(gold)))


def _ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    from scipy.stats import rankdata

    ranks: NDArray[np.float64] = rankdata(values, axis=1)
    return ranks


def _accuracy(predicted: NDArray[np.float64], gold: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the share of rows whose label is gold's."""
    share: NDArray[np.float64] = np.where(np.isnan(predicted).any(axis=1), np.nan, (predicted == gold).mean(axis=1))
    return share


def _f1_of_class(predicted: NDArray[np.float64], gold: NDArray[np.float64], label: float) -> NDArray[np.float64]:
    is_predicted, is_gold = predicted == label, gold == label
    hits = (is_predicted & is_gold).sum(axis=1)
    total = is_predicted.sum(axis=1) + is_gold.sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        score: NDArray[np.float64] = 2 * hits / total
    return np.where(np.isnan(predicted).any(axis=1), np.nan, score)


def _f1(predicted: NDArray[np.float64], gold: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return F1 of the positive class, label 1: 2 tp / (2 tp + fp + fn); NaN where nothing is positive on either side.

    Source: van Rijsbergen (1979), effectiveness measure with equal weights of precision and recall.
    """
    return _f1_of_class(predicted, gold, 1.0)


def _f1_macro(predicted: NDArray[np.float64], gold: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the plain mean of F1 over the classes that are in gold or predicted.

    Source: Opitz and Burst (2019), "Macro F1 and Macro F1": the average of F1 scores, not F1 of averages.
    """
    total = np.zeros(len(predicted))
    classes = np.zeros(len(predicted))
    for label in np.union1d(predicted[~np.isnan(predicted)], gold):
        of_class = _f1_of_class(predicted, gold, float(label))
        # A class that a resample does not hold is none of its classes.
        is_there = (predicted == label).any(axis=1) | (gold == label).any(axis=1)
        total += np.where(is_there, of_class, 0.0)
        classes += is_there
    with np.errstate(invalid="ignore", divide="ignore"):
        mean: NDArray[np.float64] = total / classes
    return np.where(np.isnan(predicted).any(axis=1), np.nan, mean)


def _auc(predicted: NDArray[np.float64], gold: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the area under the ROC curve: how often a positive row scores above a negative one, ties as a half.

    Source: Hanley and McNeil (1982): the statistic of Mann and Whitney over the product of the two counts.
    """
    is_positive = gold == 1
    positives = is_positive.sum(axis=1)
    negatives = gold.shape[1] - positives
    ranks = np.where(is_positive, _ranks(predicted), 0.0).sum(axis=1)
    is_broken = np.isnan(predicted).any(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        area: NDArray[np.float64] = (ranks - positives * (positives + 1) / 2) / (positives * negatives)
    return np.where(is_broken | (positives == 0) | (negatives == 0), np.nan, area)
