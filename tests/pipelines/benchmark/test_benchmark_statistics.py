"""Percentiles, speed-ups with their intervals and costs: against theory, and against planted truth."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paritygate.pipelines.benchmark.result import Speedup
from paritygate.pipelines.benchmark.statistics import cost_per_million, latency_summary, median_ms, speedup_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

LATENCIES = st.lists(st.integers(min_value=1, max_value=10**12), min_size=1, max_size=300)
ROUNDS = st.lists(
    st.tuples(st.floats(min_value=1e-3, max_value=1e3), st.floats(min_value=1e-3, max_value=1e3)),
    min_size=2,
    max_size=12,
)
SCALES = st.floats(min_value=1e-3, max_value=1e3)


def test_percentiles_of_the_first_thousand_milliseconds() -> None:
    found = latency_summary([np.arange(1, 1002, dtype=np.int64) * 1_000_000])

    assert found == {"p50": 501.0, "p95": 951.0, "p99": 991.0, "mean": 501.0, "min": 1.0, "max": 1001.0}


def test_with_a_hundred_calls_p99_is_the_maximum() -> None:
    found = latency_summary([np.arange(1, 101, dtype=np.int64) * 1_000_000])

    assert found["p99"] == found["max"] == 100.0
    assert found["p95"] == 96.0


def test_one_call_is_all_of_its_percentiles() -> None:
    assert set(latency_summary([np.array([2_500_000])]).values()) == {2.5}


def test_p50_is_the_median_of_the_medians_of_rounds_however_many_calls_fitted_into_each() -> None:
    quick, slow = np.full(1000, 1_000_000), np.full(3, 4_000_000)

    found = latency_summary([quick, slow, slow])

    assert (found["p50"], found["p95"], found["min"]) == (4.0, 4.0, 1.0)


@given(st.lists(LATENCIES, min_size=1, max_size=5))
def test_the_tails_are_latencies_that_occurred_and_never_better_than_they_should_be(rounds: list[list[int]]) -> None:
    found = latency_summary([np.array(calls, dtype=np.int64) for calls in rounds])

    seen = {value / 1e6 for calls in rounds for value in calls}
    for name, share in (("p95", 0.95), ("p99", 0.99)):
        assert found[name] in seen
        within = [sum(value / 1e6 <= found[name] for value in calls) / len(calls) for calls in rounds]
        assert np.mean(within) >= share
    assert found["min"] <= found["p50"] <= found["p95"] <= found["p99"] <= found["max"]


def test_the_median_of_an_even_number_of_calls_is_between_the_middle_two() -> None:
    assert median_ms(np.array([1_000_000, 9_000_000, 2_000_000, 4_000_000])) == 3.0


def test_a_speed_up_is_the_ratio_of_the_medians_that_stand_beside_it() -> None:
    rng = np.random.default_rng(0)
    source, variant = ([rng.integers(1, 10**9, 5) for _ in range(7)] for _ in range(2))

    found = speedup_of(*([median_ms(calls) for calls in rounds] for rounds in (source, variant)))

    assert found.ratio == pytest.approx(latency_summary(source)["p50"] / latency_summary(variant)["p50"])
    assert found.low <= found.ratio <= found.high


def test_the_same_rounds_give_the_same_interval() -> None:
    source, variant = [3.0, 4.0, 3.5, 9.0, 3.2], [1.0, 1.5, 1.1, 1.2, 5.0]

    assert speedup_of(source, variant) == speedup_of(source, variant)


def test_one_round_of_seven_that_was_a_thousand_times_slower_leaves_the_speed_up_as_it_is() -> None:
    source, variant = [6.0, 6.1, 5.9, 6.0, 6.2, 5.8, 6.0], [2.0, 2.1, 1.9, 2.0, 2.0, 2.1, 2000.0]

    found = speedup_of(source, variant)

    assert found.ratio == 3.0
    assert found.low > 2.5
    assert found.high < 3.5


@given(ROUNDS, SCALES)
def test_a_machine_that_is_slower_throughout_has_the_same_speed_up(
    rounds: list[tuple[float, float]], scale: float
) -> None:
    source, variant = zip(*rounds, strict=True)

    once = speedup_of(source, variant)
    again = speedup_of([value * scale for value in source], [value * scale for value in variant])

    assert (again.ratio, again.low, again.high) == pytest.approx((once.ratio, once.low, once.high), rel=1e-9)


@given(ROUNDS)
def test_swapping_the_sides_gives_the_reciprocals(rounds: list[tuple[float, float]]) -> None:
    source, variant = zip(*rounds, strict=True)

    there, back = speedup_of(source, variant), speedup_of(variant, source)

    assert (back.ratio, back.low, back.high) == pytest.approx((1 / there.ratio, 1 / there.high, 1 / there.low))


def test_drift_that_hits_both_leaves_no_trace() -> None:
    drift = np.array([1.0, 1.5, 2.0, 4.0, 3.0, 1.2, 0.7])

    found = speedup_of(list(6.0 * drift), list(2.0 * drift))

    assert (found.ratio, found.low, found.high) == pytest.approx((3.0, 3.0, 3.0))


def _noise(kind: str, shape: tuple[int, ...], rng: np.random.Generator) -> NDArray[np.float64]:
    """Return what latencies are multiplied by: as on a quiet machine, or with a heavy tail."""
    if kind == "normal":
        return np.exp(rng.normal(0.0, 0.03, shape))
    return np.exp(np.clip(0.03 * rng.standard_t(1.5, shape), -6, 6))


def _simulated(truth: float, *, noise: str, rounds: int, benchmarks: int = 300) -> list[Speedup]:
    """Return the speed-ups of benchmarks in which the machine drifts for both sides alike."""
    rng = np.random.default_rng(0)
    drift = np.exp(rng.normal(0.0, 0.1, (benchmarks, rounds)))
    source, variant = (drift * _noise(noise, drift.shape, rng) for _ in range(2))
    return [speedup_of(list(truth * ours), list(theirs)) for ours, theirs in zip(source, variant, strict=True)]


@pytest.mark.parametrize("noise", ["normal", "heavy tails"])
@pytest.mark.parametrize("rounds", [2, 3, 7])
def test_the_interval_contains_the_true_ratio_in_about_95_of_100_benchmarks_even_of_few_rounds(
    noise: str, rounds: int
) -> None:
    found = _simulated(2.5, noise=noise, rounds=rounds)

    covered = sum(item.low <= 2.5 <= item.high for item in found) / len(found)
    # The plain percentile interval of the bootstrap covers half of the time with two rounds, 0.75 with three.
    assert covered >= 0.86


@pytest.mark.parametrize("noise", ["normal", "heavy tails"])
def test_a_model_against_itself_ties_in_about_95_of_100_benchmarks(noise: str) -> None:
    found = _simulated(1.0, noise=noise, rounds=7)

    assert sum(item.is_tie for item in found) / len(found) >= 0.94
    assert sum(item.is_undecided for item in found) / len(found) <= 0.1


def test_a_model_that_is_slower_by_a_fifth_does_not_tie() -> None:
    found = _simulated(1 / 1.2, noise="normal", rounds=7)

    assert sum(item.is_tie for item in found) / len(found) <= 0.05
    assert not any(item.is_undecided for item in found)


def test_heavy_tails_are_waited_out_by_more_rounds() -> None:
    found = _simulated(1 / 1.2, noise="heavy tails", rounds=30)

    assert sum(item.is_tie for item in found) / len(found) <= 0.2
    assert sum(item.is_undecided for item in found) / len(found) <= 0.02


@pytest.mark.parametrize(
    ("low", "high", "is_tie"),
    [
        (0.9, 1.2, True),
        (1.0, 1.3, True),
        (0.95, 0.99, True),
        (1.01, 1.05, True),
        (0.94, 0.99, False),
        (1.01, 1.06, False),
        (0.2, 0.5, False),
    ],
)
def test_two_tie_where_the_interval_contains_1_or_lies_within_5_percent_of_it(
    low: float, high: float, *, is_tie: bool
) -> None:
    assert Speedup(ratio=low, low=low, high=high).is_tie is is_tie


@pytest.mark.parametrize(
    ("low", "high", "is_too_wide", "is_undecided"),
    [
        (0.8, 1.59, False, False),
        (0.8, 1.6, True, True),
        (0.00271, 1.13e5, True, True),
        (0.49, 1.0, True, True),
        (1.1, 2.3, True, True),
        # It is slower, however wide the interval.
        (0.32, 0.989, True, False),
        (0.1, 0.5, True, False),
    ],
)
def test_an_interval_that_spans_a_factor_of_2_decides_only_what_is_slower_throughout(
    low: float, high: float, *, is_too_wide: bool, is_undecided: bool
) -> None:
    found = Speedup(ratio=low, low=low, high=high)

    assert (found.is_too_wide, found.is_undecided) == (is_too_wide, is_undecided)


@pytest.mark.parametrize(("source", "variant"), [([1.0], [1.0]), ([], []), ([1.0, 2.0], [1.0])])
def test_without_pairs_of_rounds_there_is_no_speed_up(source: list[float], variant: list[float]) -> None:
    with pytest.raises(ValueError, match="at least 2, as many of each"):
        speedup_of(source, variant)


def test_a_million_rows_cost_what_the_machine_costs_in_that_time() -> None:
    # 1,000 rows a second are 3.6 million an hour.
    assert cost_per_million(3.6, 1000.0) == pytest.approx(1.0)
