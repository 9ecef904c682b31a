"""What `tune` is asked for, and what it came to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from paritygate.errors import ExitCode, UsageError
from paritygate.models.endpoint import EndpointLimits, limits_of
from paritygate.pipelines.serving.triton.settings import Settings
from paritygate.pipelines.tuning.load import Arrivals
from paritygate.pipelines.tuning.search import Point
from paritygate.roots import Root
from paritygate.signature import Signature
from paritygate.validate.samples.source import SampleSource

# In all, rather than a second: a server is loaded here on purpose.
DEFAULT_LIMITS = EndpointLimits(requests=1_000_000, requests_per_second=1e9)


@dataclass(frozen=True, kw_only=True, slots=True)
class TuneRequest:
    """What is searched, where, and by what.

    Attributes:
        repository: The repository of releases.
        model: The model's name there.
        which: A version, or an alias.
        root: The folder of the view.
        url: The server's address, or the model's on it.
        samples: Real inputs.
        metrics: The address of the server's page of metrics; None where it is not read.
        limit_s: The limit on latency, in seconds.
        percentile: So many percent of all answers are to be within it.
        name: The model's name on the server; that of the repository if None.
        variant: The variant that is served; the first that Triton serves if None.
        rows: Rows a request.
        max_batch_size: The values to try; powers of two up to the view's own if None.
        instances: The values to try.
        queue_delay_us: The values to try; a few that the limit leaves room for if None.
        seconds: How long one measurement takes.
        most_callers: No more callers send at once.
        arrivals: When requests of the open loop are sent.
        seed: Seed of the times of arrival.
        limits: How the server may be asked.
        time_limit_s: How long the released file may take to answer the samples.
    """

    repository: Root
    model: str
    which: int | str
    root: Path
    url: str
    samples: SampleSource
    limit_s: float
    percentile: float = 99.0
    name: str | None = None
    variant: str | None = None
    rows: int = 1
    max_batch_size: Sequence[int] | None = None
    instances: Sequence[int] = (1, 2, 4)
    queue_delay_us: Sequence[int] | None = None
    seconds: float = 2.0
    most_callers: int = 64
    arrivals: Arrivals = Arrivals.POISSON
    seed: int = 0
    metrics: str | None = None
    limits: EndpointLimits = DEFAULT_LIMITS
    time_limit_s: float = 3600.0


@dataclass(frozen=True, kw_only=True, slots=True)
class TuneResult:
    """What a search came to.

    Attributes:
        model: The model's name.
        version: The release that was measured.
        variant: Which variant of it.
        digest: The variant's digest: what the settings are of.
        signature: Its inputs and outputs, as the server has them: the settings are carried over to what has the same.
        name: The model's name on the server.
        url: Where the server was.
        server: What it calls itself.
        server_version: Its version.
        transport: In which form values were sent.
        limit_ms: The limit on latency.
        percentile: What the limit is on.
        rows: Rows a request.
        verdict: `pass`, `fail` or `inconclusive`.
        reason: Why it is no pass, in words; empty of a pass.
        before: The settings that the server had.
        settings: The settings that are best; None where none is within the limit.
        baseline: The best measurement of what the server had; None where it is not within the limit.
        best: The measurement of the best settings that decided.
        open: The measurement that confirmed it, of an open loop; None where none did.
        points: All measurements, in their order.
        not_loaded: What the server did not load, and why.
        not_chosen: Why settings could not be chosen; empty where they could.
        measurements: How many measurements were made.
        answers: How many answers were checked.
        wrong_answers: How many of them were wrong.
        machine: The machine of the client.
        measured_at: When it began, UTC, ISO 8601.
        seconds: How long it took.
        is_written: Whether the view was given other settings.
        is_loaded: Whether the server has them now.
        notes: What is to be known besides.
    """

    model: str
    version: int
    variant: str
    digest: str
    signature: Signature | None = None
    name: str
    url: str
    server: str
    server_version: str
    transport: str
    limit_ms: float
    percentile: float
    rows: int
    verdict: str
    reason: str = ""
    before: Settings
    settings: Settings | None = None
    baseline: Point | None = None
    best: Point | None = None
    open: Point | None = None
    points: tuple[Point, ...] = ()
    not_loaded: Mapping[str, str] = field(default_factory=dict)
    not_chosen: str = ""
    measurements: int = 0
    answers: int = 0
    wrong_answers: int = 0
    machine: Mapping[str, Any] = field(default_factory=dict)
    measured_at: str = ""
    seconds: float = 0.0
    is_written: bool = False
    is_loaded: bool = False
    notes: tuple[str, ...] = ()

    @property
    def exit_code(self) -> ExitCode:
        """What the command returns."""
        codes = {"pass": ExitCode.PASS, "fail": ExitCode.PARITY_FAILED}
        return codes.get(self.verdict, ExitCode.INCONCLUSIVE)


def limits_of_tune(given: Mapping[str, float]) -> EndpointLimits:
    """Return how a server may be asked, by the names of `EndpointLimits`, but for the rate.

    Raises:
        UsageError: A name is none of them, a limit is not above 0, or it is the rate.
    """
    if "requests_per_second" in given:
        msg = "endpoint limit 'requests_per_second' does not apply to tune, which measures the rate"
        raise UsageError(
            msg, hint=("limit the load with --callers, or the number of requests with --endpoint requests=N")
        )
    return limits_of({**asdict(DEFAULT_LIMITS), **given})
