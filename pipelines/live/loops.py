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
from typing import Generic, TypeVar

from msgspec import Struct, field

from paritygate.text import StrEnum

_Answer = TypeVar("_Answer", bound=Hashable)
# A window with few answers is extended up to so many times, until they suffice for its percentile.
_LONGEST = 4.0
# The interval at which waiting reacts to Ctrl-C; and the time for callers to stop.
_LOOK_S, _LEAVE_S = 0.2, 5.0
# How late a sustained rate may be, in seconds and as a share of the time.
_LATE_S, _LATE_SHARE = 1.0, 0.1


class Arrivals(StrEnum):
    """The arrival times of an open loop: random at one rate, or at equal distances."""

    POISSON = "poisson"
    CONSTANT = "constant"


class Sent(Struct, Generic[_Answer], frozen=True, kw_only=True):
    """A request with its answer."""

    at: float  # seconds from the beginning: when it was sent, or was to be sent in an open loop
    latency: float  # seconds from then to the answer
    answer: _Answer


class Window(Struct, Generic[_Answer], frozen=True, kw_only=True):
    """The requests of one period, and their outcome."""

    sent: Sequence[Sent[_Answer]]
    seconds: float  # from the first request to the last answer
    unsent: int = 0  # open-loop requests given up, because the server was too far behind
    client_share: float = 0.0  # of one processor; near 1, the client itself is measured

    @property
    def latencies(self) -> list[float]:
        """Return seconds of each request; infinite for those that were never sent."""
        return [each.latency for each in self.sent] + [math.inf] * self.unsent

    @property
    def answers(self) -> Counter[_Answer]:
        """Return the answers with their numbers."""
        return Counter(each.answer for each in self.sent)

    @property
    def answered(self) -> int:
        """How many requests were answered."""
        return len(self.sent)

    @property
    def per_second(self) -> float:
        """Answers a second."""
        return self.answered / self.seconds if self.seconds > 0 else 0.0


class _Callers(Struct, Generic[_Answer], kw_only=True):
    """Callers in threads, which stop together: at the end, at the first error, or at a signal."""

    stop: threading.Event
    begin: float = 0.0
    spent: float = 0.0
    errors: list[BaseException] = field(default_factory=list)
    # Each caller has a list of its own, because one list would be waited for.
    sent: list[list[Sent[_Answer]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Start the clocks."""
        self.begin, self.spent = time.perf_counter(), time.process_time()

    def run(self, call: Callable[[int, list[Sent[_Answer]]], None], callers: int) -> None:
        """Run `call` in so many threads, with the number of the caller and its own list."""
        self.sent = [[] for _ in range(callers)]
        threads = [
            threading.Thread(target=self._call, args=(functools.partial(call, number, mine),), daemon=True)
            for number, mine in enumerate(self.sent)
        ]
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

    def window(self, asked: int = 0) -> Window[_Answer]:
        """Return the outcome, of so many requests that were to be sent."""
        seconds = time.perf_counter() - self.begin
        sent = tuple(itertools.chain.from_iterable(self.sent))
        return Window(
            sent=sent,
            seconds=seconds,
            unsent=max(0, asked - len(sent)),
            client_share=(time.process_time() - self.spent) / seconds if seconds > 0 else 0.0,
        )


def closed_loop(  # noqa: PLR0913 - what is sent, by how many, and how long
    send: Callable[[int], _Answer],
    *,
    callers: int,
    seconds: float,
    least: int = 1,
    most: float = math.inf,
    first: int = 0,
    spawn_rate: float = math.inf,
    stop: threading.Event | None = None,
) -> Window[_Answer]:
    """Return the outcome of callers that send again after each answer, for so many seconds.

    `send` gets the number of a request, from `first` on, and runs in several threads. For `least` answers, the time is
    extended up to four times; after `most` requests it ends. `spawn_rate` callers begin a second, and the time counts
    from when the last one does. The first error of `send` ends all, and so does `stop`.
    """
    numbers = itertools.count()
    group: _Callers[_Answer] = _Callers(stop=stop or threading.Event())
    begin, ramp = group.begin, (callers - 1) / spawn_rate
    end, latest = begin + ramp + seconds, begin + ramp + seconds * _LONGEST
    answered = itertools.count(1)
    enough = threading.Event()

    def call(caller: int, mine: list[Sent[_Answer]]) -> None:
        if group.stop.wait(caller / spawn_rate):
            return
        while not group.stop.is_set():
            sent = time.perf_counter()
            if sent >= latest or (sent >= end and enough.is_set()):
                return
            number = next(numbers)
            if number >= most:
                return
            answer = send(first + number)
            mine.append(Sent(at=sent - begin, latency=time.perf_counter() - sent, answer=answer))
            if next(answered) >= least:
                enough.set()

    group.run(call, callers)
    return group.window()


def arrival_times(rate: float, seconds: float, *, arrivals: Arrivals, seed: int) -> list[float]:
    """Return when requests are to be sent, in seconds from the beginning; ascending, at least one."""
    import numpy as np

    count = max(1, round(rate * seconds))
    if arrivals is Arrivals.CONSTANT:
        return [number / rate for number in range(count)]
    # A Poisson process that is known to send so many: without that, the rate of a short one may be a tenth lower.
    times: list[float] = np.sort(np.random.default_rng(seed).uniform(0.0, count / rate, count)).tolist()
    return times


def open_loop(  # noqa: PLR0913 - what is sent, when and by how many
    send: Callable[[int], _Answer],
    times: Sequence[float],
    *,
    callers: int,
    give_up_s: float,
    end_s: float = math.inf,
    first: int = 0,
    stop: threading.Event | None = None,
) -> Window[_Answer]:
    """Return the outcome of requests at fixed times, in seconds from the beginning.

    `send` gets the number of a request, from `first` on, and runs in several threads; its first error ends all, and so
    does `stop`. A request without a free caller is late, which counts. One that is `give_up_s` late ends the loop,
    because the queue would grow forever. After `end_s`, no more is sent.
    """
    numbers = itertools.count()
    group: _Callers[_Answer] = _Callers(stop=stop or threading.Event())

    def call(_: int, mine: list[Sent[_Answer]]) -> None:
        while not group.stop.is_set():
            number = next(numbers)
            if number >= len(times):
                return
            at = group.begin + times[number]
            now = time.perf_counter()
            if now - at > give_up_s or now - group.begin > end_s:
                group.stop.set()
                return
            if now < at and group.stop.wait(at - now):
                return
            answer = send(first + number)
            mine.append(Sent(at=times[number], latency=time.perf_counter() - at, answer=answer))

    group.run(call, callers)
    return group.window(len(times))


def most_late(seconds: float) -> float:
    """Return how late a server that keeps up with a rate may be after so many seconds."""
    return max(_LATE_S, _LATE_SHARE * seconds)


def milliseconds(seconds: float) -> float | None:
    """Return a latency in milliseconds; None for one that is infinite."""
    return seconds * 1000.0 if math.isfinite(seconds) else None


def percentile_of(latencies: Sequence[float], percentile: float) -> float:
    """Return the smallest latency that so many percent of all do not exceed; infinite of none.

    Of fewer than `100 / (100 - percentile)` it is the largest, and so never below the true one.
    """
    if not latencies:
        return math.inf
    return sorted(latencies)[max(0, math.ceil(percentile / 100 * len(latencies)) - 1)]
