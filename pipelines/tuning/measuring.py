"""Make one measurement: send requests for a while, check every output, and compute a few figures."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from msgspec import Struct

from paritygate.pipelines.live.checking import AnswerCheck
from paritygate.pipelines.live.loops import (
    Arrivals,
    Window,
    arrival_times,
    closed_loop,
    milliseconds,
    open_loop,
    percentile_of,
)
from paritygate.pipelines.live.metrics.server_counts import ServerCounts
from paritygate.pipelines.live.metrics.triton_page import MachineUse
from paritygate.pipelines.live.questions import Questions
from paritygate.pipelines.serving.triton.settings import Settings
from paritygate.pipelines.tuning.search import Point
from paritygate.validate.runners.endpoint.answer_size import reference_answered
from paritygate.validate.runners.endpoint.open_inference import Answer, Asked, OpenInference

# Before each measurement, for the work of the first calls.
_WARM_UP_S = 0.3
_FIRST_LOOK = 32
# An open loop ends when it is so many limits, and at least so many seconds, behind.
_BEHIND, _BEHIND_S = 20, 2.0


class WrongAnswer(Exception):  # noqa: N818 - a result, and no error
    """The server's outputs differ from those of the released file."""

    def __init__(self, wrong: str, settings: Settings | None, count: int) -> None:
        super().__init__(wrong)
        self.settings = settings
        self.count = count


class LatencyLimit(Struct, frozen=True, kw_only=True):
    """The limit: so many percent of all answers take no longer than this."""

    seconds: float
    percentile: float = 99.0

    @property
    def least(self) -> int:
        """The fewest answers whose percentile is not simply the largest."""
        return math.ceil(100 / (100 - self.percentile))


@dataclass(kw_only=True)
class Meter:
    """Measures a server."""

    server: OpenInference
    asked: Sequence[Asked]  # the requests
    questions: Questions  # their inputs and expected outputs
    limit: LatencyLimit
    outputs: Collection[str]  # all those of the server
    counts: Callable[[], ServerCounts | None] = lambda: None  # returns the server's counts, if any
    use: Callable[[], MachineUse | None] = lambda: None  # returns the use of the server's machine, if known
    answers: int = 0  # checked ones
    measurements: int = 0  # without warm-ups
    _next: int = 0
    _now: Settings | None = None
    _check: AnswerCheck = field(init=False)

    def __post_init__(self) -> None:
        self._check = AnswerCheck(self.server, self.questions)

    def look(self, settings: Settings) -> None:
        """Send some requests once, one after the other, before any load; raise WrongAnswer for a wrong output."""
        self._now = settings
        for number in range(min(_FIRST_LOOK, len(self.asked))):
            wrong = self._wrong_in(self._send(number))
            self.answers += 1
            self._raise([(wrong, 1)])

    def warm_up(self, settings: Settings, callers: int) -> None:
        """Send requests for a moment; raise WrongAnswer for a wrong output."""
        self._now = settings
        self._checked(closed_loop(self._send, callers=callers, seconds=_WARM_UP_S, first=self._next))

    def closed(self, settings: Settings, callers: int, seconds: float) -> Point:
        """Measure with callers that wait for their answers.

        Raises:
            WrongAnswer: An output is wrong.
            MeasurementError: The server does not answer.
            BackendError: It answers with an error.
        """
        self._now, before = settings, self.counts()
        window = closed_loop(self._send, callers=callers, seconds=seconds, least=self.limit.least, first=self._next)
        return self._point(window, settings, callers=callers, before=before)

    def open(  # noqa: PLR0913 - what is sent, when and for how long
        self, settings: Settings, rate: float, seconds: float, *, callers: int, arrivals: Arrivals, seed: int
    ) -> Point:
        """Measure with requests that are sent at a rate, whatever the server does; raise errors as `closed`."""
        self._now, before = settings, self.counts()
        least = max(seconds, self.limit.least / rate)
        window = open_loop(
            self._send,
            arrival_times(rate, least, arrivals=arrivals, seed=seed),
            callers=callers,
            give_up_s=max(_BEHIND * self.limit.seconds, _BEHIND_S),
            first=self._next,
        )
        return self._point(window, settings, callers=callers, before=before, rate=rate)

    def _send(self, number: int) -> tuple[int, Answer | None]:
        which = number % len(self.asked)
        expected = self.questions.expected[which]
        with reference_answered({name: array.nbytes for name, array in expected.items()}, self.outputs):
            answer = self.server.send(self.asked[which])
        if not self._check.must_check_now(len(answer.content)):
            return which, answer
        # From here on each answer is checked at once, which takes time, because memory must not grow.
        wrong = self._wrong_in((which, answer))
        self._raise([(wrong, 1)])
        return which, None

    def _checked(self, window: Window[tuple[int, Answer | None]]) -> None:
        self._next += window.answered
        self.answers += window.answered
        self._check.begin()
        self._raise([(self._wrong_in(numbered), times) for numbered, times in window.answers.items()])

    def _raise(self, found: Sequence[tuple[str, int]]) -> None:
        """Raise WrongAnswer for messages that are not empty, each with its number."""
        wrong = [(words, times) for words, times in found if words]
        if wrong:
            raise WrongAnswer(wrong[0][0], self._now, sum(times for _, times in wrong))

    def _wrong_in(self, found: tuple[int, Answer | None]) -> str:
        which, answer = found
        if answer is None:
            return ""
        difference = self._check.difference(which, answer)
        return "" if difference.is_right else f"{self.questions.rows[which]}: {difference}"

    def _point(
        self,
        window: Window[tuple[int, Answer | None]],
        settings: Settings,
        *,
        callers: int,
        before: ServerCounts | None,
        rate: float | None = None,
    ) -> Point:
        # While its figures are still of this load.
        use = self.use()
        after = self.counts()
        self.measurements += 1
        self._checked(window)
        counted = None if before is None or after is None else after.since(before)
        at_limit = percentile_of(window.latencies, self.limit.percentile)
        mean = sum(window.latencies) / len(window.latencies) if window.latencies else math.inf
        return Point(
            settings=settings,
            loop="closed" if rate is None else "open",
            callers=callers,
            rate=rate,
            requests=window.answered,
            unsent=window.unsent,
            seconds=window.seconds,
            rows_per_s=window.per_second * self.questions.rows_each,
            mean_ms=milliseconds(mean),
            p50_ms=milliseconds(percentile_of(window.latencies, 50.0)),
            limit_ms=milliseconds(at_limit),
            rows_per_call=None if counted is None else counted.rows_per_call,
            queue_ms=None if counted is None else counted.queue_ms,
            compute_ms=None if counted is None else counted.compute_ms,
            cache_hits=0 if counted is None else counted.cache_hits,
            use=use,
            client_share=window.client_share,
            is_within=at_limit <= self.limit.seconds,
        )
