"""The first rows of an output show along which axis quantities have other units."""

from __future__ import annotations

import numpy as np
import pytest

from paritygate.validate.reference.channel_axis import axis_of_units


@pytest.mark.parametrize(
    ("units", "axes", "axis"),
    [
        (np.ones((4, 8)), [1, 2], 1),
        (np.logspace(0, 1, 8)[None], [1, 2], 1),
        (np.logspace(0, 4, 8)[None], [1, 2], 2),
        # Along the likely axis they are as far apart.
        (np.logspace(0, 4, 8)[None] * np.logspace(0, 4, 4)[:, None], [1, 2], 1),
        # So many entries, with spreads that change smoothly, are places.
        (np.logspace(0, 4, 100)[None], [1, 2], 1),
        (np.hanning(200)[None], [1, 2], 1),
        # A step, as a window or a gate makes it, is one of places.
        (np.repeat([1e3, 1], 50)[None], [1, 2], 1),
        (np.repeat([1, 1e-3, 1, 1e-4], 50)[None], [1, 2], 1),
        (np.tile([1e3, 1, 1], 40)[None], [1, 2], 2),
        (np.random.default_rng(0).permutation(np.logspace(0, 4, 300))[None], [1, 2], 2),
        (np.logspace(0, 4, 8)[None], [1], 1),
        (np.logspace(0, 4, 8)[None], [], None),
        # Positions that hold rounding alone are no quantities.
        (np.array([[1, 1, 1, 1, 1, 1, 1e-7, 2e-7]]), [1, 2], 1),
        (np.array([[1, 1, 1, 1, 1, 1e-3, 1e-7, 0]]), [1, 2], 2),
    ],
)
def test_the_axis_of_units_far_apart_has_the_channels(units: np.ndarray, axes: list[int], axis: int | None) -> None:
    rows = np.random.default_rng(0).standard_normal((40, 4, units.shape[1])) * units

    whole = axis_of_units([(rows, 40)], axes)
    cut = axis_of_units([(rows[:5], 5), (rows[5:], 35)], axes)

    assert (whole, cut) == (axis, axis)


def test_other_axes_may_vary_by_batch_or_be_empty() -> None:
    units = np.logspace(0, 4, 8)
    batches = [(np.random.default_rng(length).standard_normal((4, 3, length, 8)) * units, 4) for length in (5, 0, 6)]

    assert axis_of_units(batches, [1, 3]) == 3
    assert axis_of_units(batches[1:2], [1, 3]) == 1
