"""Send the requests of one server, and count what comes back: right, wrong, errors and lost ones."""

from __future__ import annotations

import contextlib
import functools
import math
import signal
import threading
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from paritygate.errors import BackendError, MeasurementError
from paritygate.pipelines.live.checking import AnswerCheck
from paritygate.pipelines.live.judge import Difference
from paritygate.pipelines.live.loops import Sent, Window, closed_loop, open_loop
from paritygate.pipelines.live.questions import Questions
from paritygate.pipelines.live.server import LoadedServer
from paritygate.signature import TensorSpec
from paritygate.validate.runners.endpoint.answer_size import reference_answered

# A server that loses so many requests in a row, and one for each caller, is gone.
_GONE_AFTER = 20
_UNREADABLE = Difference(share=math.inf, broken="the answer cannot be read")


class Outcome(str, Enum):
    """The outcome of a request: an answer, an error as the answer, or no answer."""

    ANSWERED = "answered"
    ERROR = "error"
    LOST = "lost"

    def __str__(self) -> str:
        return self.value


class Exchange(Struct, frozen=True, kw_only=True, eq=False):
    """One request and what came back."""

    number: int  # in the order in which they were sent, from 0
    which: int  # of the questions
    outcome: Outcome
    answer: Hashable | None = None  # None where it was compared at once
    difference: Difference | None = None  # None until it is compared
    why: str = ""  # there is no answer


class Failure(Struct, frozen=True, kw_only=True):
    """A request that failed; it names the place of its rows, and no values."""

    request: int  # in the order in which they were sent, from 0
    id: str  # as the server got it in the header X-Request-Id, over HTTP with the Open Inference Protocol
    kind: str  # wrong, error or lost
    rows: str
    why: str
    answer_of: str = ""  # the rows of another request that a wrong answer belongs to


class Tally(Struct, frozen=True, kw_only=True):
    """What came back in one measurement."""

    answered: int = 0
    wrong: int = 0  # answered beyond the limits, or in another form
    unreadable: int = 0  # of these, answers that cannot be read
    flips: int = 0  # rows whose answer is another, whether or not the limits explain it
    errors: int = 0
    lost: int = 0
    largest_share: float | None = 0.0  # of a limit; None where a difference has no limit
    statuses: Mapping[str, int] = msgspec.field(default_factory=dict)  # errors by their cause
    first: Failure | None = None


@dataclass(kw_only=True)
class Traffic:
    """The requests to one server."""

    server: LoadedServer
    questions: Questions
    outputs: Sequence[TensorSpec]  # those that are compared
    run: str  # the beginning of each request's id
    most: int  # requests
    sent: int = 0
    is_gone: bool = False  # the server stopped answering
    is_interrupted: bool = False  # by Ctrl-C
    _asked: Sequence[Any] = ()
    _stop: threading.Event = field(default_factory=threading.Event)
    _callers: int = 1
    _lost_in_a_row: int = 0
    _check: AnswerCheck = field(init=False)

    def __post_init__(self) -> None:
        """Make the requests."""
        self._check = AnswerCheck(self.server, self.questions)
        self._asked = [self.server.asked(feed, self.outputs) for feed in self.questions.inputs]

    @property
    def left(self) -> int:
        """How many requests may still be sent."""
        return max(0, self.most - self.sent)

    @property
    def is_over(self) -> bool:
        """Whether no more is sent, because the server is gone or the user interrupted."""
        return self.is_gone or self.is_interrupted

    def interrupt(self) -> None:
        """End the loop; its answers are kept."""
        self.is_interrupted = True
        self._stop.set()

    def closed(self, *, callers: int, seconds: float, spawn_rate: float = math.inf) -> Window[Exchange]:
        """Return the outcome of callers that wait for each answer, as far as requests are left."""
        loop = functools.partial(closed_loop, seconds=seconds, most=self.left, spawn_rate=spawn_rate)
        return self._measure(loop, callers)

    def open(
        self, times: Sequence[float], *, callers: int, give_up_s: float, end_s: float = math.inf
    ) -> Window[Exchange]:
        """Return the outcome of requests at fixed times, as far as requests are left."""
        loop = functools.partial(open_loop, times=times[: self.left], give_up_s=give_up_s, end_s=end_s)
        return self._measure(loop, callers)

    def _measure(self, loop: Callable[..., Window[Exchange]], callers: int) -> Window[Exchange]:
        # Lost requests count across loops, because a loop may be shorter than it takes to see that a server is gone.
        self._stop, self._callers = threading.Event(), callers
        self._check.begin()
        if self.is_interrupted:
            self._stop.set()
        window = loop(self.send, callers=callers, first=self.sent, stop=self._stop)
        if self.is_interrupted:
            # The rest was not sent for no fault of the server.
            window = replace(window, unsent=0)
        self.sent += window.answered
        return window

    def send(self, number: int) -> Exchange:
        """Send one request, and return what came back, never an error."""
        try:
            return self.must_answer(number)
        except (BackendError, MeasurementError) as err:
            return self._failed(number, number % len(self._asked), err)

    def must_answer(self, number: int) -> Exchange:
        """Send one request, and return the answer.

        Raises:
            MeasurementError: The server does not answer.
            BackendError: It answers with an error.
        """
        which = number % len(self._asked)
        expected = self.questions.expected[which]
        names = {spec.name for spec in self.outputs}
        with reference_answered({name: array.nbytes for name, array in expected.items()}, names):
            answer: Hashable | None = self.server.send(self._asked[which], self.id_of(number))
        self._lost_in_a_row = 0
        difference = None
        if self._check.must_check_now(self.server.size(answer)):
            # From here on each answer is compared at once, which takes time, because memory must not grow.
            difference, answer = self._difference(which, answer), None
        return Exchange(number=number, which=which, outcome=Outcome.ANSWERED, answer=answer, difference=difference)

    def _failed(self, number: int, which: int, err: BackendError | MeasurementError) -> Exchange:
        if err.status is not None or isinstance(err, BackendError):
            self._lost_in_a_row = 0
            # The server's own words may hold values.
            why = "an answer that cannot be read" if err.status is None else f"HTTP {err.status}"
            return Exchange(number=number, which=which, outcome=Outcome.ERROR, why=why)
        self._lost_in_a_row += 1
        if self._lost_in_a_row >= _GONE_AFTER + self._callers:
            self.is_gone = True
            self._stop.set()
        return Exchange(number=number, which=which, outcome=Outcome.LOST, why=err.reason or str(err))

    def id_of(self, number: int) -> str:
        """Return the id of a request, under which a server may log it."""
        return f"{self.run}-{number}"

    def _difference(self, which: int, answer: Hashable) -> Difference:
        try:
            return self._check.difference(which, answer)
        except BackendError:
            return _UNREADABLE

    def difference_of(self, exchange: Exchange) -> Difference:
        """Return how an answer differs."""
        return exchange.difference or self._difference(exchange.which, exchange.answer)

    def tally(self, sent: Sequence[Sent[Exchange]]) -> Tally:
        """Compare the answers of a measurement, and count."""
        by_outcome: dict[Outcome, list[Exchange]] = {outcome: [] for outcome in Outcome}
        for each in sent:
            by_outcome[each.answer.outcome].append(each.answer)
        answered = [(exchange, self.difference_of(exchange)) for exchange in by_outcome[Outcome.ANSWERED]]
        wrong = [pair for pair in answered if not pair[1].is_right]
        shares = [difference.share for _, difference in answered if difference is not _UNREADABLE]
        largest = max(shares, default=0.0)
        failed = [*(exchange for exchange, _ in wrong), *by_outcome[Outcome.ERROR], *by_outcome[Outcome.LOST]]
        first = min(failed, key=lambda exchange: exchange.number, default=None)
        return Tally(
            answered=len(answered),
            wrong=len(wrong),
            unreadable=len(answered) - len(shares),
            flips=sum(difference.flips for _, difference in answered),
            errors=len(by_outcome[Outcome.ERROR]),
            lost=len(by_outcome[Outcome.LOST]),
            largest_share=largest if math.isfinite(largest) else None,
            statuses=Counter(exchange.why for exchange in by_outcome[Outcome.ERROR]),
            first=None if first is None else self._failure(first),
        )

    def _failure(self, exchange: Exchange) -> Failure:
        is_wrong = exchange.outcome is Outcome.ANSWERED
        answer_of = ""
        if is_wrong and exchange.answer is not None:
            try:
                answer_of = self.questions.other_asked(exchange.which, self.server.read(exchange.answer))
            except BackendError:
                answer_of = ""
        return Failure(
            request=exchange.number,
            id=self.id_of(exchange.number),
            kind="wrong" if is_wrong else str(exchange.outcome),
            rows=self.questions.rows[exchange.which],
            why=str(self.difference_of(exchange)) if is_wrong else exchange.why,
            answer_of=answer_of,
        )


@contextlib.contextmanager
def interruptible(*traffics: Traffic) -> Iterator[None]:
    """Let the first Ctrl-C end the loops, whose answers are kept; the second one raises KeyboardInterrupt."""
    before = signal.getsignal(signal.SIGINT)
    # Where Ctrl-C is ignored, it stays so; other threads get no signals.
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return

    def interrupt(*_: object) -> None:
        for traffic in traffics:
            traffic.interrupt()
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def added(first: Tally, second: Tally) -> Tally:
    """Return the counts of two measurements together, the first one before the second."""
    shares = (first.largest_share, second.largest_share)
    counts = ("answered", "wrong", "unreadable", "flips", "errors", "lost")
    return Tally(
        **{name: getattr(first, name) + getattr(second, name) for name in counts},
        largest_share=None if None in shares else max(share for share in shares if share is not None),
        statuses=dict(sorted((Counter(first.statuses) + Counter(second.statuses)).items())),
        first=first.first or second.first,
    )
