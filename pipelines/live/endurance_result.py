"""Define the request and the result of `endurance`."""

from __future__ import annotations

from msgspec import Struct

from paritygate.pipelines.live.batches import Repeats
from paritygate.pipelines.live.result import LiveRequest, LiveResult
from paritygate.pipelines.live.slope import Trend

DEFAULT_GROWTH = 1.0


class EnduranceRequest(LiveRequest, frozen=True, kw_only=True):
    """The request of a long load."""

    seconds: float = 300.0
    requests: int | None = None  # to send; None for as many as fit the time
    users: int = 4  # of a closed loop
    rate: float | None = None  # requests a second, in place of users
    most_growth: float = DEFAULT_GROWTH  # of the server's memory, in MiB a minute
    most_slowdown: float | None = None  # the last latency as a factor of the first; None for any
    most_batch: int = 16  # rows of the largest batch of one row repeated
    is_memory_needed: bool = True  # for a verdict
    also: tuple[EnduranceRequest, ...] = ()  # other models, at the same time


class Period(Struct, frozen=True, kw_only=True):
    """A part of a long load. Latency is in milliseconds, memory in MiB."""

    at: float  # seconds from the beginning to its middle
    first_request: int
    requests: int
    per_second: float
    p50_ms: float | None
    p99_ms: float | None
    share: float | None  # the median difference as a share of its limit; None without an answer that has one
    memory: float | None
    answered: int = 0
    flips: int = 0  # rows


class Drift(Struct, frozen=True, kw_only=True):
    """The change of the answers' differences, as shares of their limits."""

    first: float  # the largest of the first third
    last: float  # the largest of the rest
    request: int | None  # with which the first period beyond the limit begins; None if there is no drift


class EnduranceResult(LiveResult, frozen=True, kw_only=True):
    """The result of a long load. With other models, `verdict` is the worst of all, and `reasons` are those of it."""

    unsent: int = 0  # planned by the rate, and the server was too far behind
    memory: Trend | None = None  # MiB
    latency: Trend | None = None  # milliseconds of p50
    drift: Drift | None = None
    batches_before: tuple[Repeats, ...] = ()
    batches_after: tuple[Repeats, ...] = ()
    periods: tuple[Period, ...] = ()
    also: tuple[EnduranceResult, ...] = ()  # of other models
