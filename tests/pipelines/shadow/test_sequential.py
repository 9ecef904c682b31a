"""The sequential test: what it finds, how often it is wrong, and that requests may be taken in at once."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paritygate.pipelines.shadow.sequential import SequentialTest, Verdict

_MOST = 0.0005


def _first_rollback(rate: float, requests: int, seed: int, *, begin: int = 0) -> int | None:
    """Return after how many requests a rollback is certain, where answers change at a rate from `begin` on."""
    flips = np.flatnonzero(np.random.default_rng(seed).random(requests) < rate)
    test = SequentialTest(_MOST)
    for place in flips[flips >= begin]:
        test.add_equal(int(place) - test.requests)
        test.add(1.0)
        if test.verdict is Verdict.ROLLBACK:
            return test.requests
    return None


def test_ten_times_the_rate_is_found_within_3000_requests() -> None:
    found = [_first_rollback(0.005, 3000, seed) for seed in range(100)]

    assert sum(place is not None for place in found) >= 95


def test_a_fault_that_begins_late_is_found_soon() -> None:
    found = [_first_rollback(0.005, 26_000, seed, begin=20_000) for seed in range(20)]

    assert sum(place is not None for place in found) >= 19


def test_the_rate_that_is_allowed_is_no_false_alarm() -> None:
    found = [_first_rollback(_MOST, 50_000, seed) for seed in range(100)]

    assert sum(place is not None for place in found) <= 3


@pytest.mark.parametrize(("rate", "verdict"), [(0.0, Verdict.PROMOTE), (0.0011, Verdict.HOLD)])
def test_only_fewer_than_twice_the_rate_are_promoted(rate: float, verdict: Verdict) -> None:
    flips = np.flatnonzero(np.random.default_rng(3).random(9000) < rate)
    test = SequentialTest(_MOST)
    for place in flips:
        test.add_equal(int(place) - test.requests)
        test.add(1.0)
    test.add_equal(9000 - test.requests)

    assert test.requests == 9000
    assert test.verdict is verdict


def test_one_changed_answer_is_no_reason_for_a_rollback() -> None:
    test = SequentialTest(_MOST)
    test.add(1.0)

    assert test.verdict is Verdict.HOLD


@pytest.mark.parametrize("shares", [(), (1.0,), (0.25, 0.5), (0.0,) * 50])
def test_the_requests_until_a_promotion_are_known(shares: tuple[float, ...]) -> None:
    before, at = SequentialTest(0.01), SequentialTest(0.01)
    needed = 0
    for test in (before, at):
        for share in shares:
            test.add(share)
        needed = test.until_promoted if test is before else needed
    before.add_equal(needed - 1)
    at.add_equal(needed)

    assert (before.verdict, at.verdict) == (Verdict.HOLD, Verdict.PROMOTE)
    assert (before.until_promoted, at.until_promoted) == (1, 0)


def test_a_rollback_stays() -> None:
    test = SequentialTest(_MOST)
    for _ in range(4):
        test.add(1.0)
    assert test.verdict is Verdict.ROLLBACK

    test.add_equal(100_000)

    assert test.verdict is Verdict.ROLLBACK


def test_a_share_of_the_rows_counts_as_that_part() -> None:
    whole, parts = SequentialTest(_MOST), SequentialTest(_MOST)
    for _ in range(4):
        whole.add(1.0)
        parts.add(1e-4)

    assert (whole.verdict, parts.verdict) == (Verdict.ROLLBACK, Verdict.HOLD)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.sampled_from([0.0, 0.0, 0.0, 0.25, 1.0]), max_size=30), st.integers(0, 2500))
def test_equal_answers_may_be_taken_in_at_once(shares: list[float], equal: int) -> None:
    one_by_one, at_once = SequentialTest(0.01), SequentialTest(0.01)
    for test in (one_by_one, at_once):
        for share in shares:
            test.add(share)
    at_once.add_equal(equal)
    for _ in range(equal):
        one_by_one.add_equal(1)

    assert at_once.requests == one_by_one.requests == len(shares) + equal
    assert at_once.verdict is one_by_one.verdict
