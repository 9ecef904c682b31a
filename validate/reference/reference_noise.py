"""The reference's own noise, row by row: how far its outputs differ alone and in a batch, and what that excuses.

A row's limit is the reference's own difference there, if that is more. A reference that differs by far more than a
limit excuses nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from paritygate.distance import subtract
from paritygate.validate.measure.blocks import by_block
from paritygate.validate.measure.limits import Limits
from paritygate.validate.measure.profile import OutputProfile

# Where the reference differs by more than so many limits, the reference is wrong.
NOISE_FACTOR = 10.0
# Files hold no infinity.
_LARGEST = float(np.finfo(np.float64).max)


@dataclass(frozen=True, kw_only=True, slots=True)
class RowNoise:
    """The difference of the reference from itself in one row of an output.

    `max_abs_diff` is the largest float where shape or finiteness differ; `norm` is the 2-norm of the difference.
    Nothing compares with an `is_unsteady` row, a generated one to which the reference has no one answer.
    """

    max_abs_diff: float
    norm: float
    is_unsteady: bool = False


def noise_by_row(answers: Sequence[NDArray[np.generic]]) -> tuple[RowNoise, ...]:
    """Return how far several outputs of the same rows differ from the first of them, without masked values."""
    if any(answer.shape != answers[0].shape for answer in answers):
        return (RowNoise(max_abs_diff=_LARGEST, norm=_LARGEST),) * len(answers[0])
    parts = by_block(lambda rows: _noise_of_block([answer[rows] for answer in answers]), answers[0].shape)
    return tuple(noise for part in parts for noise in part)


def _noise_of_block(answers: Sequence[NDArray[np.generic]]) -> tuple[RowNoise, ...]:
    left_out = np.ma.getmaskarray(answers[0]).reshape(len(answers[0]), -1)
    first = np.asarray(answers[0]).astype(np.float64).reshape(left_out.shape)
    largest, norms = np.zeros(len(first)), np.zeros(len(first))
    for answer in answers[1:]:
        other = np.asarray(answer).astype(np.float64).reshape(first.shape)
        same = (other == first) | (np.isnan(other) & np.isnan(first)) | left_out
        with np.errstate(invalid="ignore"):
            difference = np.where(same, 0.0, np.abs(other - first))
        difference = np.where(np.isfinite(difference), difference, _LARGEST)
        largest = np.maximum(largest, difference.max(axis=1, initial=0.0))
        with np.errstate(over="ignore"):
            norms = np.maximum(norms, np.minimum(np.linalg.norm(difference, axis=1), _LARGEST))
    return tuple(RowNoise(max_abs_diff=float(a), norm=float(b)) for a, b in zip(largest, norms, strict=True))


def largest_in_limits(noise: Sequence[RowNoise], expected: NDArray[np.generic], limits: Limits) -> tuple[int, float]:
    """Return the row whose noise is the largest multiple of its limits, and that multiple; unsteady rows count 0."""
    own = np.concatenate(
        by_block(lambda rows: _limits_of_rows(expected[rows], limits).min(axis=1, initial=np.inf), expected.shape)
    )
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        ratio = np.array([row.max_abs_diff for row in noise]) / own
    ratio = np.where(np.isnan(ratio) | np.array([row.is_unsteady for row in noise]), 0.0, ratio)
    at = int(ratio.argmax())
    return at, float(ratio[at])


def rows_within(
    actual: NDArray[np.generic],
    expected: NDArray[np.generic],
    noise: Sequence[RowNoise] | None,
    *,
    limits: Limits,
    profile: OutputProfile,
) -> NDArray[np.bool_]:
    """Return which rows are within their limits, or within the reference's own noise if that is more.

    Noise of more than `NOISE_FACTOR` limits excuses nothing, and an unsteady row always passes. Rows are along axis 0
    of `actual` and `expected`, whose masked values do not count; `noise` is None for none.
    """

    def within(rows: slice) -> NDArray[np.bool_]:
        of_rows = None if noise is None else noise[rows]
        return _block_within(actual[rows], expected[rows], of_rows, limits=limits, profile=profile)

    return np.concatenate(by_block(within, expected.shape))


def _block_within(
    actual: NDArray[np.generic],
    expected: NDArray[np.generic],
    noise: Sequence[RowNoise] | None,
    *,
    limits: Limits,
    profile: OutputProfile,
) -> NDArray[np.bool_]:
    rows = len(expected)
    left_out = np.ma.getmaskarray(expected).reshape(rows, -1)

    def counting(array: NDArray[np.generic]) -> NDArray[np.float64]:
        wide: NDArray[np.float64] = np.asarray(array).astype(np.float64).reshape(left_out.shape)
        wide[left_out] = 0.0
        return wide

    wide = counting(expected)
    difference = np.abs(counting(subtract(actual, expected)))
    of_values = _limits_of_rows(expected, limits)
    noise = [RowNoise(max_abs_diff=0.0, norm=0.0)] * rows if noise is None else noise
    own = np.array([row.max_abs_diff for row in noise])
    is_sound = own <= NOISE_FACTOR * of_values.min(axis=1, initial=np.inf)
    own_norms = np.array([row.norm for row in noise])
    allowed = np.maximum(of_values, np.where(is_sound, own, 0.0)[:, None])
    norms = limits.of_rows(expected.astype(np.float64), np.maximum(np.linalg.norm(wide, axis=1), profile.row_norm))
    is_near = np.linalg.norm(difference, axis=1) <= np.maximum(norms, np.where(is_sound, own_norms, 0.0))
    # NaN is within no limit.
    is_within = (difference <= allowed).all(axis=1) & is_near
    is_accepted: NDArray[np.bool_] = is_within | np.array([row.is_unsteady for row in noise])
    return is_accepted


def _limits_of_rows(expected: NDArray[np.generic], limits: Limits) -> NDArray[np.float64]:
    wide = expected.astype(np.float64)
    limits_of_values = np.broadcast_to(limits.of_values("max_abs_diff", wide), wide.shape)
    return limits_of_values.reshape(len(wide), -1)
