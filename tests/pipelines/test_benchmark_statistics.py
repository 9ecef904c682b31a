"""Percentiles, speed-ups with their intervals and costs: against theory, and against planted truth."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paritygate.pipelines.benchmark.statistics import cost_per_million, latency_summary, median_ms, speedup_of

LATENCIES = st.lists(st.integers(min_value=1, max_value=10**12), min_size=1, max_size=300)
ROUNDS = st.lists(
    st.tuples(st.floats(min_value=1e-3, max_value=1e3), st.floats(min_value=1e-3, max_value=1e3)),
    min_size=2,
    max_size=12,
)
SCALES = st.floats(min_value=1e-3, max_value=1e3)


def test_percentiles_of_the_first_thousand_milliseconds() -> None:
    found = latency_summary(np.arange(1, 1002, dtype=np.int64) * 1_000_000)

    assert found == {"p50": 501.0, "p95": 951.0, "p99": 991.0, "mean": 501.0, "min": 1.0, "max": 1001.0}


def test_with_a_hundred_calls_p99_is_the_maximum() -> None:
    found = latency_summary(np.arange(1, 101, dtype=np.int64) * 1_000_000)

    assert found["p99"] == found["max"] == 100.0
    assert found["p95"] == 96.0


def test_one_call_is_all_of_its_percentiles() -> None:
    assert set(latency_summary(np.array([2_500_000])).values()) == {2.5}


@given(LATENCIES)
def test_percentiles_are_latencies_that_occurred_and_never_better_than_they_should_be(values: list[int]) -> None:
    found = latency_summary(np.array(values, dtype=np.int64))

    seen = {value / 1e6 for value in values}
    for name, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
        assert found[name] in seen
        assert sum(value / 1e6 <= found[name] for value in values) >= share * len(values)


def test_the_median_of_an_even_number_of_calls_is_between_the_middle_two() -> None:
    assert median_ms(np.array([1_000_000, 9_000_000, 2_000_000, 4_000_000])) == 3.0


def test_a_speed_up_is_the_geometric_mean_of_the_rounds() -> None:
    found = speedup_of([2.0, 8.0], [1.0, 1.0])

    assert found.ratio == pytest.approx(4.0)
    assert found.low < 2.0
    assert found.high > 8.0


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


def test_the_interval_contains_the_true_ratio_in_about_95_of_100_benchmarks() -> None:
    rng = np.random.default_rng(0)
    benchmarks, rounds, truth = 4000, 7, 2.5
    drift = np.exp(rng.normal(0.0, 0.5, (benchmarks, rounds)))
    source = truth * drift * np.exp(rng.normal(0.0, 0.05, (benchmarks, rounds)))
    variant = drift * np.exp(rng.normal(0.0, 0.1, (benchmarks, rounds)))

    found = [speedup_of(list(ours), list(theirs)) for ours, theirs in zip(source, variant, strict=True)]

    covered = sum(item.low <= truth <= item.high for item in found) / benchmarks
    # Three standard errors of a share of 0.95 over 4,000.
    assert covered == pytest.approx(0.95, abs=0.011)


@pytest.mark.parametrize(("source", "variant"), [([1.0], [1.0]), ([], []), ([1.0, 2.0], [1.0])])
def test_without_pairs_of_rounds_there_is_no_speed_up(source: list[float], variant: list[float]) -> None:
    with pytest.raises(ValueError, match="at least 2, as many of each"):
        speedup_of(source, variant)


def test_a_million_rows_cost_what_the_machine_costs_in_that_time() -> None:
    # 1,000 rows a second are 3.6 million an hour.
    assert cost_per_million(3.6, 1000.0) == pytest.approx(1.0)
