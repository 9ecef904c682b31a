"""Sends requests to a server in two ways, and takes the time of every answer.

Closed loop: as many callers as are asked for, each of which sends its next request when it has its answer. So the
load falls where the server slows down, and what waits is not seen. Open loop: requests are sent at times that were
drawn before, whatever the server does, and the latency of each is counted from the time it was to be sent at, so that
what waits counts, be it here or there.
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
from enum import Enum
from typing import Generic, TypeVar

_Answer = TypeVar("_Answer", bound=Hashable)
# A window of few answers goes on up to so many times as long, until there are enough for its percentile.
_LONGEST = 4.0
# While they wait, Ctrl-C is heard; and how long callers may take to notice that all is over.
_LOOK_S, _LEAVE_S = 0.2, 5.0


class Arrivals(str, Enum):
    """When requests of an open loop are sent: at random times of one rate, or at equal distances."""

    POISSON = "poisson"
    CONSTANT = "constant"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, kw_only=True, slots=True)
class Window(Generic[_Answer]):
    """What was sent in one stretch of time, and what came of it.

    Attributes:
        latencies: Seconds of each answer; infinite for what was to be sent and never was.
        seconds: From the first request to the last answer.
        answers: Each answer that was given, and how often: alike ones are kept once.
        unsent: How many requests of an open loop were given up, since the server was too far behind.
        client_share: The share of one processor that this process took: near 1, it is itself what is measured.
    """

    latencies: Sequence[float]
    seconds: float
    answers: Counter[_Answer]
    unsent: int = 0
    client_share: float = 0.0

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
    """Callers in threads, which end together: at the end, at the first error, or at a signal."""

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
    """Return what callers found, each of which sends again when it was answered.

    Args:
        send: Sends the request of a number and returns its answer; called from several threads at once.
        callers: How many there are.
        seconds: How long.
        least: So many answers are waited for, up to four times as long.
        first: The number of the first request.

    Raises:
        ParitygateError: As `send`; the first one ends all.
    """
    numbers = itertools.count(first)
    found: list[_Found[_Answer]] = [_Found() for _ in range(callers)]
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

    group.run([functools.partial(call, mine) for mine in found])
    return _window(found, begin, spent)


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
    """Return what came of requests that were to be sent at these times.

    Args:
        send: Sends the request of a number and returns its answer; called from several threads at once.
        times: When each is to be sent, in seconds from the beginning.
        callers: How many may wait for an answer at once; a request that finds none free is late, which counts.
        give_up_s: A request that would be sent so much too late is not sent, nor is any after it: the server does not
            keep up, and the queue would grow for as long as one looks.
        first: The number of the first request.

    Raises:
        ParitygateError: As `send`; the first one ends all.
    """
    numbers = itertools.count()
    found: list[_Found[_Answer]] = [_Found() for _ in range(callers)]
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

    group.run([functools.partial(call, mine) for mine in found])
    window = _window(found, begin, spent)
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

    Of fewer than `100 / (100 - percentile)` it is the largest: never less than the true one would show.
    """
    if not latencies:
        return math.inf
    return sorted(latencies)[max(0, math.ceil(percentile / 100 * len(latencies)) - 1)]
