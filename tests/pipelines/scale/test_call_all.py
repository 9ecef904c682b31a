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


def _call(*calls: Callable[[], int], workers: int = 2, stop: Callable[[], None] = lambda: None) -> dict[int, int]:
    results: dict[int, int] = {}

    def done(at: int, call: Future[int]) -> None:
        results[at] = call.result()

    call_all(calls, workers, done=done, stop=stop)
    return results


def test_each_result_has_the_index_of_its_call() -> None:
    assert _call(*(lambda at=at: at * at for at in range(7)), workers=3) == {at: at * at for at in range(7)}


def test_as_many_calls_run_at_once_as_there_are_workers() -> None:
    together = threading.Barrier(3, timeout=600)

    assert len(_call(*[together.wait] * 3, workers=3)) == 3


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
