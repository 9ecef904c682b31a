"""Define the request and the result of `load`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct, field
from msgspec.structs import asdict

from paritygate.errors import ExitCode, UsageError
from paritygate.models.endpoint import EndpointLimits, limits_of
from paritygate.models.json_mapping import JsonMapping
from paritygate.models.source import ModelRef
from paritygate.pipelines.live.loops import Arrivals
from paritygate.pipelines.live.metrics.server_counts import ServerCounts
from paritygate.pipelines.live.metrics.triton_page import MachineUse
from paritygate.pipelines.live.traffic import Failure
from paritygate.roots import Root
from paritygate.validate.samples.source import SampleSource

# Limits in total instead of one a second, because the server is loaded on purpose.
DEFAULT_LIMITS = EndpointLimits(requests=1_000_000, requests_per_second=1e9)
DEFAULT_MOST_S = 600.0


class LiveRequest(Struct, frozen=True, kw_only=True):
    """The server, the release that it is compared with, and the limits on the requests to it."""

    repository: Root
    url: str  # of the model on the server
    model: str
    which: int | str  # a version, or an alias
    variant: str | None = None  # None for the preferred one
    samples: SampleSource
    reference: ModelRef | None = None  # whose answers are right, in place of the released file's
    rows: int = 1  # a request
    mapping: JsonMapping | None = None  # of a server of no known protocol
    host: str | None = None  # another machine that may be loaded
    pid: int | None = None  # of the server; None to find it by its port
    limits: EndpointLimits = DEFAULT_LIMITS
    most_s: float = DEFAULT_MOST_S  # of the load
    time_limit_s: float = 3600.0  # for the released file on the samples


class LoadRequest(LiveRequest, frozen=True, kw_only=True):
    """The request of a load."""

    users: Sequence[int] = ()  # of closed loops, one after the other
    rates: Sequence[float] = ()  # requests a second of open loops, one after the other
    spawn_rate: float | None = None  # users that begin a second; None for all at once
    seconds: float = 5.0  # of each loop
    arrivals: Arrivals = Arrivals.POISSON
    seed: int = 0
    most_callers: int = 64  # at once, in an open loop
    limit_s: float | None = None  # on the 99th percentile of latency
    server_metrics: str | None = None  # the address of a Triton server's page of metrics
    stress_s: float = 0.0  # how long twice the highest sustained rate is sent; 0 for not at all

    @property
    def planned_s(self) -> float:
        """How long the load takes; what is sent under stress is awaited for as long again."""
        ramps = sum((users - 1) / self.spawn_rate for users in self.users) if self.spawn_rate else 0.0
        return ramps + self.seconds * (len(self.users) + len(self.rates)) + 2 * self.stress_s


class Step(Struct, frozen=True, kw_only=True):
    """One loop. Latency is in milliseconds, and None if a request was lost or never sent; memory is in MiB."""

    loop: str  # closed or open
    users: int  # sending at once, or the most of an open loop
    rate: float | None = None  # requests a second of an open loop
    is_stress: bool = False
    requests: int  # sent
    answered: int
    wrong: int
    flips: int
    errors: int
    lost: int
    unsent: int = 0  # because the server was too far behind
    seconds: float
    per_second: float  # answered requests
    rows_per_second: float
    mean_ms: float | None
    p50_ms: float | None
    p95_ms: float | None
    p99_ms: float | None
    largest_share: float | None  # difference as a share of its limit; None where it has no limit
    cpu: float | None = None  # processors that the server used
    memory: float | None = None  # of the server, the most
    client_share: float = 0.0  # of one processor that this client used
    server: ServerCounts | None = None  # by the server's own page of metrics, and so is the use of its machine
    machine: MachineUse | None = None
    why_not: str = ""  # the load is not sustained

    @property
    def is_sustained(self) -> bool:
        """Whether the server keeps up with the load, and all of its answers are right."""
        return not self.why_not


class Served(Struct, frozen=True, kw_only=True):
    """What was loaded, and by which release it is judged."""

    model: str
    version: int
    variant: str
    digest: str  # of the variant
    reference: str  # whose answers are right, in place of the variant's; empty for these
    url: str
    server: str  # its own name
    server_version: str
    transport: str  # the form of the values
    machine: Mapping[str, Any] = field(default_factory=dict)  # of the client
    measured_at: str = ""  # the start, UTC, ISO 8601


class LiveResult(Struct, frozen=True, kw_only=True):
    """The result of requests to a server. They are named by their number and the place of their rows, not by values."""

    served: Served
    verdict: str  # pass, fail or inconclusive
    reasons: tuple[str, ...] = ()  # empty for a pass
    described_otherwise: tuple[str, ...] = ()  # how the server's description differs from the release
    requests: int = 0
    answers: int = 0
    wrong: int = 0
    unreadable: int = 0  # of the wrong ones, those that cannot be read
    flips: int = 0
    errors: int = 0
    lost: int = 0
    statuses: Mapping[str, int] = field(default_factory=dict)  # errors by their cause
    largest_share: float | None = 0.0
    first_failure: Failure | None = None
    left_out: tuple[str, ...] = ()  # loops that a limit left no room for
    not_watched: str = ""  # why there is no CPU and memory
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


class LoadResult(LiveResult, frozen=True, kw_only=True):
    """The result of a load; it is inconclusive only if it was interrupted and nothing failed."""

    rows: int  # a request
    questions: int  # different requests
    is_wrong_without_load: bool = False  # one request at a time
    steps: tuple[Step, ...] = ()
    highest_rate: float | None = None  # answers a second of the best sustained step
    is_right_after_stress: bool | None = None  # None without stress


def limits_of_load(given: Mapping[str, float]) -> EndpointLimits:
    """Return limits on requests by the names of `EndpointLimits`, except the rate.

    Raises:
        UsageError: A name is unknown or the rate, or a limit is not above 0.
    """
    if "requests_per_second" in given:
        msg = "endpoint limit 'requests_per_second' does not apply here, because the command chooses the rate"
        raise UsageError(msg, hint="limit the number of requests with --endpoint requests=N")
    return limits_of({**asdict(DEFAULT_LIMITS), **given})
