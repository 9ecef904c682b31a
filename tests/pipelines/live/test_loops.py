"""Load: what callers wait for counts in an open loop, and every request is accounted for."""

from __future__ import annotations

import itertools
import math
import threading
import time
from types import SimpleNamespace

import pytest

from paritygate.errors import MeasurementError, UsageError
from paritygate.pipelines.live.loops import Arrivals, arrival_times, closed_loop, open_loop, percentile_of
from paritygate.pipelines.tuning.words import microseconds, whole_values


class Stalls:
    """Answers at once, but for one request that takes long, during which no other is answered either."""

    def __init__(self, number: int, seconds: float) -> None:
        self._number, self._seconds = number, seconds
        self._lock = threading.Lock()

    def __call__(self, number: int) -> int:
        with self._lock:
            if number == self._number:
                time.sleep(self._seconds)
        return number


def test_an_open_loop_counts_what_waits_and_a_closed_one_does_not() -> None:
    stall, rate = 0.5, 100.0
    closed = closed_loop(Stalls(20, stall), callers=1, seconds=stall + 0.5)
    times = arrival_times(rate, 1.5, arrivals=Arrivals.CONSTANT, seed=0)
    opened = open_loop(Stalls(20, stall), times, callers=2, give_up_s=60)

    # Half of those that were to be sent meanwhile waited for longer than half of it: 25 of 50, or more if it is slow.
    late = sum(each > stall / 2 for each in opened.latencies)
    assert late >= 20
    assert 1 <= sum(each > stall / 2 for each in closed.latencies) < late / 4
    assert percentile_of(opened.latencies, 90) > stall / 2


def test_what_an_open_loop_gives_up_counts_as_never_answered() -> None:
    def slow(number: int) -> int:
        time.sleep(0.05)
        return number

    times = arrival_times(100.0, 1.0, arrivals=Arrivals.CONSTANT, seed=0)
    window = open_loop(slow, times, callers=1, give_up_s=0.2)

    assert window.unsent > 50
    assert window.answered + window.unsent == len(window.latencies) == 100
    assert sum(window.answers.values()) == window.answered
    assert percentile_of(window.latencies, 50) == math.inf


def test_callers_of_a_closed_loop_send_together_and_no_number_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    # Nobody is answered before all are there, however late the last one starts.
    monkeypatch.setattr("paritygate.pipelines.live.loops._LONGEST", 6000.0)
    together = threading.Barrier(4, timeout=600)

    def send(number: int) -> int:
        if number < 7 + together.parties:
            together.wait()
        time.sleep(0.001)
        return number

    window = closed_loop(send, callers=4, seconds=0.1, first=7)

    assert window.answered >= together.parties
    assert sorted(window.answers) == list(range(7, 7 + window.answered))
    assert window.per_second == window.answered / window.seconds


def test_a_window_goes_on_until_there_are_enough_for_its_percentile(monkeypatch: pytest.MonkeyPatch) -> None:
    # A clock that only requests move on, so that no pause of the machine counts.
    now = [0.0]
    clock = SimpleNamespace(perf_counter=lambda: now[0], process_time=lambda: 0.0, monotonic=time.monotonic)
    monkeypatch.setattr("paritygate.pipelines.live.loops.time", clock)

    def send(number: int) -> int:
        now[0] += 1.0
        return number

    assert closed_loop(send, callers=1, seconds=10.0, least=20).answered == 20
    # And ends at four times as long.
    assert closed_loop(send, callers=1, seconds=10.0, least=1000).seconds == 40.0


def test_the_first_error_ends_all_callers() -> None:
    sent = 0

    def send(number: int) -> int:
        nonlocal sent
        sent += 1
        if number == 30:
            msg = "gone"
            raise MeasurementError(msg)
        time.sleep(0.005)
        return number

    with pytest.raises(MeasurementError, match="gone"):
        closed_loop(send, callers=3, seconds=60)
    # Without an end there would be tens of thousands.
    assert sent < 1000


def test_random_arrivals_have_the_rate_and_the_spread_of_a_poisson_process() -> None:
    times = arrival_times(200.0, 50.0, arrivals=Arrivals.POISSON, seed=1)
    gaps = [b - a for a, b in itertools.pairwise(times)]
    mean = sum(gaps) / len(gaps)
    spread = math.sqrt(sum((gap - mean) ** 2 for gap in gaps) / len(gaps))

    assert len(times) == 10_000
    # Of an exponential distribution, both are 1 / rate.
    assert mean == pytest.approx(1 / 200, rel=0.05)
    assert spread == pytest.approx(1 / 200, rel=0.1)
    assert times == arrival_times(200.0, 50.0, arrivals=Arrivals.POISSON, seed=1)


def test_random_arrivals_of_a_short_loop_have_the_rate_too() -> None:
    for seed in range(100):
        times = arrival_times(50.0, 5.0, arrivals=Arrivals.POISSON, seed=seed)
        assert len(times) == 250
        assert 4.5 < times[-1] < 5


@pytest.mark.parametrize(
    ("count", "percentile", "expected"), [(100, 99, 99), (200, 99, 198), (10, 99, 10), (100, 50, 50), (1, 50, 1)]
)
def test_a_percentile_is_the_nearest_rank(count: int, percentile: float, expected: float) -> None:
    assert percentile_of([float(each) for each in range(count, 0, -1)], percentile) == expected


def test_times_and_lists_of_the_command_line() -> None:
    assert [microseconds("--x", each) for each in ("20ms", "100us", "0.5s", "1.5 ms")] == [2e4, 100.0, 5e5, 1.5e3]
    assert microseconds("--x", "0", is_zero_allowed=True) == 0
    assert whole_values("--x", "1,2, 4") == [1, 2, 4]
    for wrong in ("20", "0", "-1ms", "ms", "1e3ms", "0ms"):
        with pytest.raises(UsageError, match="is not a time"):
            microseconds("--x", wrong)
    for wrong in ("", "0,1", "a", "1.5"):
        with pytest.raises(UsageError, match="is not a list of whole numbers"):
            whole_values("--x", wrong)
