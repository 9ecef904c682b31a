"""Define the request and the result of `endurance`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from paritygate.errors import ExitCode
from paritygate.pipelines.live.batches import Repeats
from paritygate.pipelines.live.result import LiveRequest, Served
from paritygate.pipelines.live.slope import Trend
from paritygate.pipelines.live.traffic import Failure

DEFAULT_GROWTH = 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class EnduranceRequest(LiveRequest):
    """The request of a long load."""

    seconds: float = 300.0
    requests: int | None = None  # to send; None for as many as fit the time
    users: int = 4  # of a closed loop
    rate: float | None = None  # requests a second, in place of users
    most_growth: float = DEFAULT_GROWTH  # of the server's memory, in MiB a minute
    most_slowdown: float | None = None  # the last latency as a factor of the first; None for any
    most_batch: int = 16  # rows of the largest batch of one row repeated
    is_memory_needed: bool = True  # for a verdict


@dataclass(frozen=True, kw_only=True, slots=True)
class Period:
    """A part of a long load. Latency is in milliseconds, memory in MiB."""

    at: float  # seconds from the beginning to its middle
    first_request: int
    requests: int
    per_second: float
    p50_ms: float | None
    p99_ms: float | None
    share: float | None  # the median difference as a share of its limit; None without an answer that has one
    memory: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Drift:
    """The change of the answers' differences, as shares of their limits."""

    first: float  # the largest of the first third
    last: float  # the largest of the rest
    request: int | None  # with which the first period beyond the limit begins; None if there is no drift


@dataclass(frozen=True, kw_only=True, slots=True)
class EnduranceResult:
    """The result of a long load. Requests are named by their number and the place of their rows, not by values."""

    served: Served
    verdict: str  # pass, fail or inconclusive
    reasons: tuple[str, ...] = ()  # empty for a pass
    described_otherwise: tuple[str, ...] = ()
    requests: int = 0
    answers: int = 0
    wrong: int = 0
    flips: int = 0
    errors: int = 0
    lost: int = 0
    unsent: int = 0  # planned by the rate, and the server was too far behind
    statuses: Mapping[str, int] = field(default_factory=dict)
    largest_share: float | None = 0.0
    first_failure: Failure | None = None
    memory: Trend | None = None  # MiB
    latency: Trend | None = None  # milliseconds of p50
    drift: Drift | None = None
    batches_before: tuple[Repeats, ...] = ()
    batches_after: tuple[Repeats, ...] = ()
    periods: tuple[Period, ...] = ()
    not_watched: str = ""
    is_interrupted: bool = False  # by Ctrl-C: the result is that of what was sent until then
    notes: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def exit_code(self) -> ExitCode:
        """The exit code of the command."""
        if self.is_interrupted:
            return ExitCode.INTERRUPTED
        codes = {"pass": ExitCode.PASS, "fail": ExitCode.PARITY_FAILED}
        return codes.get(self.verdict, ExitCode.INCONCLUSIVE)
