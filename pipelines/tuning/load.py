"""Send requests to a server in two ways, and measure the time of every answer.

In a closed loop, each caller sends its next request after its answer. So the load falls when the server slows down,
which hides waiting. In an open loop, requests have fixed times, whatever the server does. Latency counts from that
time, so that all waiting counts, here and there.
"""

from __future__ import annotations

import functools
import itertools
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from paritygate.text import StrEnum

_Answer = TypeVar("_Answer", bound=Hashable)
# A window with few answers is extended up to so many times, until they suffice for its percentile.
_LONGEST = 4.0
# The interval at which waiting reacts to Ctrl-C; and the time for callers to stop.
_LOOK_S, _LEAVE_S = 0.2, 5.0


class Arrivals(StrEnum):
    """The arrival times of an open loop: random at one rate, or at equal distances."""

    POISSON = "poisson"
    CONSTANT = "constant"


@dataclass(frozen=True, kw_only=True, slots=True)
class Window(Generic[_Answer]):
    """The requests of one period, and their outcome."""

    latencies: Sequence[float]  # seconds; infinite for requests that were never sent
    seconds: float  # from the first request to the last answer
    answers: Counter[_Answer]  # with their numbers; equal ones are kept once
    unsent: int = 0  # open-loop requests given up, because the server was too far behind
    client_share: float = 0.0  # of one processor; near 1, the client itself is measured

    @property
    def answered(self) -> int:
        """How many requests were answered."""
        return len(self.latencies) - self.unsent

    @property
    def per_second(self) -> float:
        """Answers a second."""
        return self.answered / self.seconds if self.seconds > 0 else 0.0


@dataclass(kw_only=True)
class _Callers:
    """Callers in threads, which stop together: at the end, at the first error, or at a signal."""

    stop: threading.Event = field(default_factory=threading.Event)
    errors: list[BaseException] = field(default_factory=list)

    def run(self, calls: Sequence[Callable[[], None]]) -> None:
        threads = [threading.Thread(target=self._call, args=(call,), daemon=True) for call in calls]
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                while thread.is_alive():
                    thread.join(_LOOK_S)
        except BaseException:
            self.stop.set()
            end = time.monotonic() + _LEAVE_S
            for thread in threads:
                if thread.is_alive():
                    thread.join(max(0.0, end - time.monotonic()))
            raise
        if self.errors:
            raise self.errors[0]

    def _call(self, call: Callable[[], None]) -> None:
        try:
            call()
        except BaseException as err:  # noqa: BLE001 - it is raised again where the callers were started
            self.errors.append(err)
            self.stop.set()


def closed_loop(
    send: Callable[[int], _Answer], *, callers: int, seconds: float, least: int = 1, first: int = 0
) -> Window[_Answer]:
    """Return the outcome of callers that send again after each answer, for so many seconds.

    `send` gets the number of a request, from `first` on, and runs in several threads. For `least` answers, the time is
    extended up to four times. The first error of `send` ends all.
    """
    numbers = itertools.count(first)
    results: list[_Found[_Answer]] = [_Found() for _ in range(callers)]
    group = _Callers()
    begin, spent = time.perf_counter(), time.process_time()
    end, latest = begin + seconds, begin + seconds * _LONGEST
    answered = itertools.count(1)
    enough = threading.Event()

    def call(mine: _Found[_Answer]) -> None:
        while not group.stop.is_set():
            sent = time.perf_counter()
            if sent >= latest or (sent >= end and enough.is_set()):
                return
            answer = send(next(numbers))
            mine.latencies.append(time.perf_counter() - sent)
            mine.answers[answer] += 1
            if next(answered) >= least:
                enough.set()

    group.run([functools.partial(call, mine) for mine in results])
    return _window(results, begin, spent)


def arrival_times(rate: float, seconds: float, *, arrivals: Arrivals, seed: int) -> list[float]:
    """Return when requests are to be sent, in seconds from the beginning; ascending, at least one."""
    import numpy as np

    count = max(1, round(rate * seconds))
    if arrivals is Arrivals.CONSTANT:
        return [number / rate for number in range(count)]
    times: list[float] = np.cumsum(np.random.default_rng(seed).exponential(1 / rate, count)).tolist()
    return times


def open_loop(
    send: Callable[[int], _Answer], times: Sequence[float], *, callers: int, give_up_s: float, first: int = 0
) -> Window[_Answer]:
    """Return the outcome of requests at fixed times, in seconds from the beginning.

    `send` gets the number of a request, from `first` on, and runs in several threads; its first error ends all. A
    request without a free caller is late, which counts. One that is `give_up_s` late ends the loop, because the queue
    would grow forever.
    """
    numbers = itertools.count()
    results: list[_Found[_Answer]] = [_Found() for _ in range(callers)]
    group = _Callers()
    begin, spent = time.perf_counter(), time.process_time()

    def call(mine: _Found[_Answer]) -> None:
        while not group.stop.is_set():
            number = next(numbers)
            if number >= len(times):
                return
            at = begin + times[number]
            now = time.perf_counter()
            if now - at > give_up_s:
                group.stop.set()
                return
            if now < at and group.stop.wait(at - now):
                return
            answer = send(first + number)
            mine.latencies.append(time.perf_counter() - at)
            mine.answers[answer] += 1

    group.run([functools.partial(call, mine) for mine in results])
    window = _window(results, begin, spent)
    unsent = len(times) - len(window.latencies)
    return replace(window, latencies=(*window.latencies, *itertools.repeat(math.inf, unsent)), unsent=unsent)


@dataclass(kw_only=True, slots=True)
class _Found(Generic[_Answer]):
    latencies: list[float] = field(default_factory=list)
    answers: Counter[_Answer] = field(default_factory=Counter)


def _window(found: Sequence[_Found[_Answer]], begin: float, spent: float) -> Window[_Answer]:
    seconds = time.perf_counter() - begin
    answers: Counter[_Answer] = Counter()
    for each in found:
        answers.update(each.answers)
    return Window(
        latencies=tuple(itertools.chain.from_iterable(each.latencies for each in found)),
        seconds=seconds,
        answers=answers,
        client_share=(time.process_time() - spent) / seconds if seconds > 0 else 0.0,
    )


def percentile_of(latencies: Sequence[float], percentile: float) -> float:
    """Return the smallest latency that so many percent of all do not exceed; infinite of none.

    Of fewer than `100 / (100 - percentile)` it is the largest, and so never below the true one.
    """
    if not latencies:
        return math.inf
    return sorted(latencies)[max(0, math.ceil(percentile / 100 * len(latencies)) - 1)]
