"""Rows that are each scaled by a factor of their own, as where a normalisation at the end is missing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from paritygate.validate.causes.cause import Case
from paritygate.validate.measure.check import NAMED, Cause
from paritygate.validate.words.sentence import say

Vector = NDArray[np.float64]

# Of fewer values, or rows, chance looks alike.
_LEAST_VALUES, _LEAST_ROWS = 3, 3
# A factor explains a row if it leaves less than this part of its squared difference, and of its squares.
_UNEXPLAINED = 1e-3
# Rounding in half precision, squared, as a part of a row's squares.
_ROUNDING = 1e-6
# Factors differ if the largest is this many times the smallest, and directions if one is so far from the first.
_APART = 1.01
_TURNED = 0.01


def find(case: Case) -> Iterator[Cause]:
    """Yield each failed output whose rows, or the vectors along its last axis, have factors of their own."""
    for name in sorted(case.outputs & case.result.limits.keys()):
        rows = [
            (np.asarray(row.actual[name][0], np.float64), np.asarray(row.expected[name][0], np.float64))
            for row in (*case.chosen, *case.others)
            if row.actual is not None and _fits(row.actual.get(name), row.expected[name])
        ]
        whole = [(actual.ravel(), expected.ravel()) for actual, expected in rows]
        wide = [[side.reshape(-1, side.shape[-1]) for side in row] for row in rows if row[0].ndim > 1]
        vectors = [pair for row in wide for pair in zip(*row, strict=True)]
        factors = _factors(whole) or _factors(vectors)
        if factors:
            words = say("cause.row_factors", output=name, low=min(factors), high=max(factors))
            yield Cause(kind="row_factors", outcome=NAMED, words=words, rows=len(rows))


def _fits(actual: NDArray[np.generic] | None, expected: NDArray[np.generic]) -> bool:
    is_float = expected.dtype.kind == "f" and expected.ndim > 1
    return actual is not None and is_float and actual.shape == expected.shape


def _factors(pairs: Sequence[tuple[Vector, Vector]]) -> list[float]:
    """Return the factor of each row; empty where one is not explained by it, or all have one factor or direction."""
    pairs = [(actual, expected) for actual, expected in pairs if actual.any() or expected.any()]
    if len(pairs) < _LEAST_ROWS or pairs[0][0].size < _LEAST_VALUES or not all(np.isfinite(a).all() for a, _ in pairs):
        return []
    factors = []
    for actual, expected in pairs:
        squares = float(expected @ expected)
        factor = float(actual @ expected) / squares if squares else 0.0
        left = actual - factor * expected
        bar = min(float(np.sum((actual - expected) ** 2)), factor**2 * squares)
        # A factor near 0 explains what hardly follows the reference.
        if factor <= 0 or float(left @ left) > _UNEXPLAINED * bar + _ROUNDING * squares:
            return []
        factors.append(factor)
    return factors if max(factors) > _APART * min(factors) and not _is_one_direction(pairs) else []


def _is_one_direction(pairs: Sequence[tuple[Vector, Vector]]) -> bool:
    """Return whether all rows of the reference are multiples of one, which explains any output of that form."""
    units = np.stack([expected / np.linalg.norm(expected) for _, expected in pairs])
    return bool(((units @ units[0]) ** 2 > 1 - _TURNED).all())
