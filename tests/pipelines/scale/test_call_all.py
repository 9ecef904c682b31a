"""Calls by several workers: a lost one is repeated, and an error ends all others."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future

import pytest

from paritygate.errors import LostWorkerError, UsageError
from paritygate.pipelines.scale.workers import call_all


def _lost_times(number: int) -> Callable[[], int]:
    tries = iter(range(number + 1))

    def call() -> int:
        tried = next(tries)
        if tried < number:
            msg = "gone"
            raise LostWorkerError(msg)
        return tried

    return call


class _Caller:
    """A worker that makes the call that it gets."""

    def __init__(self, stop: Callable[[], None]) -> None:
        self.stop = stop
        self.is_closed = False

    def call(self, function: Callable[[], int]) -> int:
        assert not self.is_closed
        return function()

    def close(self) -> None:
        self.is_closed = True


def _call(
    *calls: Callable[[], int],
    workers: int = 2,
    stop: Callable[[], None] = lambda: None,
    started: list[_Caller] | None = None,
    replaced: list[LostWorkerError] | None = None,
) -> dict[int, int]:
    results: dict[int, int] = {}
    all_started = [] if started is None else started

    def start() -> _Caller:
        all_started.append(_Caller(stop))
        return all_started[-1]

    def done(at: int, call: Future[int]) -> None:
        results[at] = call.result()

    try:
        call_all([[call] for call in calls], workers, start, done, [].append if replaced is None else replaced.append)
    finally:
        assert all(worker.is_closed for worker in all_started)
    return results


def test_each_result_has_the_index_of_its_call() -> None:
    assert _call(*(lambda at=at: at * at for at in range(7)), workers=3) == {at: at * at for at in range(7)}


def test_as_many_calls_run_at_once_as_there_are_workers() -> None:
    together = threading.Barrier(3, timeout=600)

    assert len(_call(*[together.wait] * 3, workers=3)) == 3


def test_a_worker_makes_one_call_after_the_other_and_a_dead_one_is_replaced() -> None:
    started: list[_Caller] = []
    _call(*[lambda: 1] * 7, workers=1, started=started)
    assert len(started) == 1
    replaced: list[LostWorkerError] = []
    _call(_lost_times(1), _lost_times(0), workers=1, started=started, replaced=replaced)
    assert (len(started), [str(err) for err in replaced]) == (3, ["gone"])


def test_a_lost_call_is_made_three_times_at_most() -> None:
    assert _call(_lost_times(2), _lost_times(0)) == {0: 2, 1: 0}
    with pytest.raises(LostWorkerError):
        _call(_lost_times(3))


def test_an_error_stops_running_calls_and_begins_no_others() -> None:
    is_begun, is_stopped = threading.Event(), threading.Event()
    later: list[int] = []

    def fail() -> int:
        is_begun.wait(600)
        msg = "wrong"
        raise UsageError(msg)

    def wait() -> int:
        is_begun.set()
        is_stopped.wait(600)
        msg = "stopped"
        raise LostWorkerError(msg)

    with pytest.raises(UsageError):
        _call(wait, fail, *[lambda: later.append(1) or 0] * 20, stop=is_stopped.set)
    # The thread that failed may have taken the next one before the others were cancelled.
    assert len(later) < 20
