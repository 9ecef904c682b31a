"""Where most values lie is found for all channels at once, as it would be for each channel alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from paritygate.validate.measure.robust_scale import BULK_SHARE, NORMAL_REACH, bulk_of, repeated_fills

if TYPE_CHECKING:
    from numpy.typing import NDArray

_VALUES = st.one_of(
    st.sampled_from([0.0, -0.0, 1.0, -1e9, 1e30, np.nan, np.inf, -np.inf]),
    st.floats(min_value=-1e6, max_value=1e6, allow_nan=False),
)
_CHANNELS = arrays(np.float64, array_shapes(min_dims=2, max_dims=2, min_side=0, max_side=9), elements=_VALUES)


def _alone(row: NDArray[np.float64], fills: tuple[float, ...]) -> tuple[float, float]:
    """Return center and spread of one channel, as the docstring of `bulk_of` says it."""
    kept = row[np.isfinite(row) & ~np.isin(row, fills)]
    if not kept.size:
        return 0.0, 0.0
    center = float(np.median(kept))
    sizes = np.abs(kept - center)
    moved = sizes[sizes > 0]
    if not moved.size:
        return center, 0.0
    near = sizes[sizes <= 1000 * max(1.0, float(np.median(moved)))]
    return center, float(np.quantile(near, BULK_SHARE, method="lower")) / NORMAL_REACH


@given(_CHANNELS, st.sampled_from([(), (-1e9,), (0.0, 1e30)]))
def test_all_channels_at_once_are_each_alone(values: NDArray[np.float64], fills: tuple[float, ...]) -> None:
    bulk = bulk_of(values, fills)
    center, spread = bulk.center, bulk.spread

    alone = [_alone(row, fills) for row in values]
    assert center.tolist() == [item[0] for item in alone]
    assert spread.tolist() == [item[1] for item in alone]


def test_more_channels_than_are_sorted_at_once_keep_their_order() -> None:
    values = np.arange(3000, dtype=np.float64)[:, None] + np.random.default_rng(0).normal(size=(3000, 200))

    bulk = bulk_of(values, ())
    center, spread = bulk.center, bulk.spread

    assert np.allclose(center, np.arange(3000), atol=0.5)
    assert np.allclose(spread, 1.0, atol=0.3)


def test_a_constant_far_from_all_else_is_a_fill_value_of_its_channel_alone() -> None:
    values = np.random.default_rng(0).normal(size=(3, 400))
    values[1, ::2] = -1e9
    # Once is not a constant, and 900 is not far.
    values[2, 0], values[0, ::2] = 5e8, 900.0

    assert repeated_fills(values, ()) == (-1e9,)
