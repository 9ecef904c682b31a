"""What is drawn of an output: counts and maxima are exact, and any cut into batches, grid or not, gives the same."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from paritygate.batch import Batch
from paritygate.codec import from_data, to_data
from paritygate.precision import Precision
from paritygate.validate.measure.decisions import Decision, Rule
from paritygate.validate.measure.figures import CELLS, FIRST_OCTAVE, Drawing
from paritygate.validate.measure.histogram import Histogram
from paritygate.validate.measure.limits import limits_for
from paritygate.validate.measure.measurement import ComparisonPlan, Measurement, OutputComparison
from paritygate.validate.measure.plot_data import Grid, Maxima, empty_sketch
from paritygate.validate.measure.profile import profile_outputs
from paritygate.validate.measure.tolerance import DEFAULT_TOLERANCES

Floats = NDArray[np.float64]

_CUTS = st.lists(st.integers(0, 400), max_size=5)
_NUMBERS = st.floats(0, 1e6, width=32) | st.just(math.inf)


def _parts(count: int, cuts: Sequence[int]) -> list[slice]:
    edges = [0, *sorted(cut % (count + 1) for cut in cuts), count]
    return [slice(first, last) for first, last in itertools.pairwise(edges)]


@given(st.lists(st.tuples(st.integers(0, 5000), _NUMBERS), min_size=1, max_size=200), _CUTS)
def test_maxima_are_exact_and_the_same_for_any_cut(found: list[tuple[int, float]], cuts: list[int]) -> None:
    positions = np.array([at for at, _ in found])
    numbers = np.array([number for _, number in found])
    streamed = Maxima(most=8)
    for part in _parts(len(found), cuts):
        streamed.add(positions[part], numbers[part])

    width = next(2**power for power in range(20) if positions.max() // 2**power < 8)
    wanted = np.full(positions.max() // width + 1, -np.inf)
    for at, number in found:
        wanted[at // width] = max(wanted[at // width], number)
    assert streamed.width == width
    assert streamed.largest.tolist() == wanted.tolist()


@given(
    hnp.arrays(np.float64, 40, elements=st.floats(-3, 3)),
    hnp.arrays(np.float64, 40, elements=st.floats(-9, 9) | st.sampled_from([math.nan, math.inf, -math.inf, -2.0, 2.0])),
    _CUTS,
)
def test_a_grid_counts_every_value_in_its_own_cell(expected: Floats, actual: Floats, cuts: list[int]) -> None:
    grid = Grid(low=-2.0, high=2.0)
    for part in _parts(40, cuts):
        grid.add(actual[part], expected[part])

    wanted = np.zeros((CELLS, CELLS + 2), dtype=int)
    not_finite = 0
    for x, y in zip(expected, actual, strict=True):
        if not -2 <= x <= 2:
            continue
        if not math.isfinite(y):
            not_finite += 1
            continue
        across = min(CELLS - 1, int((x + 2) // (4 / CELLS)))
        up = 0 if y < -2 else CELLS + 1 if y > 2 else min(CELLS - 1, int((y + 2) // (4 / CELLS))) + 1
        wanted[across, up] += 1
    assert grid.values.tolist() == wanted.tolist()
    assert grid.not_finite == not_finite


@given(hnp.arrays(np.float32, 60, elements=st.floats(0, 2.0**100, width=32)))
def test_octaves_count_every_difference_between_its_powers_of_two(magnitudes: NDArray[np.float32]) -> None:
    histogram = Histogram()
    histogram.add(magnitudes.astype(np.float64))
    counts = histogram.octaves()

    assert counts.sum() == magnitudes.size
    for at in np.flatnonzero(counts):
        low = 0.0 if at == 0 else 2.0 ** (FIRST_OCTAVE + int(at) - 1)
        high = 2.0 ** (FIRST_OCTAVE + int(at))
        assert counts[at] == np.count_nonzero((magnitudes >= low) & (magnitudes < high))


def _measured(
    actual: NDArray[np.float32],
    expected: NDArray[np.float32],
    *,
    cuts: Sequence[int] = (),
    decision: Decision | None = None,
    inputs: dict[str, NDArray[np.generic]] | None = None,
    passes: int = 1,
) -> Measurement:
    profile = profile_outputs("y", [(expected, len(expected))], axis=None, dtype="float32")
    plan = ComparisonPlan(
        profiles={"y": profile},
        limits={"y": limits_for(DEFAULT_TOLERANCES[Precision.FP32], profile)},
        decisions={} if decision is None else {"y": decision},
    )
    comparison = OutputComparison(plan, is_drawn=True)
    given_inputs = {"x": expected} if inputs is None else inputs
    for _ in range(passes):
        for part in _parts(len(expected), cuts):
            if part.start == part.stop:
                continue
            batch = Batch(
                inputs={name: array[part] for name, array in given_inputs.items()},
                ids=[f"r{row}" for row in range(part.start, part.stop)],
            )
            comparison.add(batch, {"y": actual[part]}, {"y": expected[part]})
        comparison.end_pass()
    return comparison.finish()


def _drawn(measured: Measurement) -> Drawing:
    return measured.drawings["y"]


def _noise(rows: int, columns: int, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal((rows, columns)).astype(np.float32)


@pytest.mark.parametrize("cuts", [(), (1,), (100, 150, 299)])
@pytest.mark.parametrize("passes", [1, 3])
def test_a_comparison_draws_the_same_however_it_is_cut_and_repeated(cuts: tuple[int, ...], passes: int) -> None:
    expected = _noise(300, 3)
    actual = (expected + _noise(300, 3, seed=1) * np.float32(1e-4)).astype(np.float32)
    rule = Decision(output="y", rule=Rule.THRESHOLD, threshold=0.0)

    found = _drawn(_measured(actual, expected, cuts=cuts, decision=rule, passes=passes))

    difference = np.abs(actual.astype(np.float64) - expected)
    assert found == _drawn(_measured(actual, expected, decision=rule))
    assert found.equal + sum(found.counts) == difference.size
    assert 2.0**found.first_exponent <= difference[difference > 0].min() < 2.0 ** (found.first_exponent + 1)
    assert found.by_row is not None
    assert found.by_row.width == 4
    assert len(found.by_row.largest) == 75
    assert found.grid is not None
    assert sum(int(cell.split(",")[2]) for cell in found.grid.cells.split()) == 900


def test_one_row_far_off_is_seen_in_every_drawing() -> None:
    expected = np.abs(_noise(640, 1)) + 1
    actual = expected.copy()
    actual[321] = -50.0
    mask = np.ones((640, 8), dtype=np.int64)
    mask[321, 5:] = 0
    rule = Decision(output="y", rule=Rule.THRESHOLD, threshold=0.5)

    found = _drawn(_measured(actual, expected, decision=rule, inputs={"attention_mask": mask}))

    assert (found.equal, found.beyond, sum(found.counts)) == (639, 1, 1)
    assert 2.0**found.first_exponent <= 51 < 2.0 ** (found.first_exponent + len(found.counts)) * 2
    assert found.by_row is not None
    assert found.by_row.width == 8
    assert [at for at, largest in enumerate(found.by_row.largest) if largest] == [40]
    assert found.by_length is not None
    assert [at for at, largest in enumerate(found.by_length.largest) if largest is not None] == [5, 8]
    assert (found.by_length.largest[5] or 0) > 1
    assert found.by_length.largest[8] == 0
    assert found.boundary == 0.5
    assert found.grid is not None
    # Below the range, where nothing else is.
    (flip,) = found.grid.flips.split()
    assert flip.split(",")[1:] == ["0", "1"]
    assert [cell for cell in found.grid.cells.split() if cell.split(",")[1] == "0"] == [flip]


def test_a_class_chosen_otherwise_is_marked_at_the_score_of_the_class_that_was_right() -> None:
    expected = np.zeros((4, 3), dtype=np.float32)
    expected[:, 1] = 4.0
    expected[:, 2] = [0, 1, 2, 3]
    actual = expected.copy()
    actual[3, 1] = 1.0

    found = _drawn(_measured(actual, expected, decision=Decision(output="y", rule=Rule.ARGMAX)))

    assert found.boundary is None
    assert found.grid is not None
    (flip,) = found.grid.flips.split()
    x, y, count = map(int, flip.split(","))
    cell = (found.grid.high - found.grid.low) / found.grid.size
    assert count == 1
    assert found.grid.low + x * cell <= 4.0 <= found.grid.low + (x + 1) * cell
    assert found.grid.low + (y - 1) * cell <= 1.0 <= found.grid.low + y * cell


def test_a_row_that_is_not_finite_is_no_number_and_is_kept() -> None:
    expected = _noise(5, 2)
    actual = expected.copy()
    actual[2, 0] = np.nan

    found = _drawn(_measured(actual, expected))

    assert found.by_row is not None
    assert found.by_row.largest == [0, 0, None, 0, 0]
    assert found.by_row.not_finite == [2]
    assert found.grid is not None
    assert found.grid.not_finite == 1


def test_what_is_drawn_stays_small_whatever_is_answered() -> None:

    from paritygate.files import write_json_atomically  # noqa: F401 - what evidence is written by

    # Answers that have nothing to do with the reference fill the whole grid.
    found = _drawn(_measured(_noise(20_000, 4, seed=5), _noise(20_000, 4)))

    assert found.grid is not None
    assert found.grid.size < CELLS
    assert sum(int(cell.split(",")[2]) for cell in found.grid.cells.split()) == 80_000
    assert len(json.dumps(to_data(found), indent=2)) < 20_000


@pytest.mark.parametrize("value", [0.0, 7.5, -1e30])
def test_an_answer_that_is_the_same_all_over_has_a_range(value: float) -> None:
    expected = np.full((6, 1), value, dtype=np.float32)

    found = _drawn(_measured(expected, expected))

    assert found.equal == 6
    assert found.grid is not None
    assert found.grid.low < value < found.grid.high


def test_a_recording_without_a_range_draws_no_grid() -> None:
    profile = profile_outputs("y", [(_noise(4, 1), 4)], axis=None, dtype="float32")

    assert empty_sketch(profile).grid is not None
    assert empty_sketch(replace(profile, low=None, high=None)).grid is None


@pytest.mark.parametrize(
    ("part", "change"),
    [
        ("grid", {"cells": "1,2,3; 4"}),
        ("grid", {"cells": "64,1,1"}),
        ("grid", {"flips": "1,66,1"}),
        ("grid", {"cells": "1,1,0"}),
        ("grid", {"low": 3.0, "high": 3.0}),
        ("grid", {"size": 0}),
        ("grid", {"size": 1000}),
        ("by_row", {"width": 0}),
        ("by_row", {"not_finite": [99]}),
        ("by_row", {"largest": [-1.0]}),
        ("by_row", {"largest": [1.0] * 1000}),
        (None, {"first_exponent": 4000}),
        (None, {"counts": [1, -1]}),
        (None, {"beyond": -1}),
    ],
)
def test_what_is_no_drawing_is_not_read_as_one(part: str | None, change: dict[str, Any]) -> None:
    data = to_data(_drawn(_measured(_noise(9, 1, seed=3), _noise(9, 1))))
    assert from_data(Drawing, data) == _drawn(_measured(_noise(9, 1, seed=3), _noise(9, 1)))
    (data if part is None else data[part]).update(change)

    with pytest.raises(ValueError, match="the drawing of"):
        from_data(Drawing, data)
