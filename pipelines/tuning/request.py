"""Define the request and the result of `tune`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from paritygate.errors import ExitCode
from paritygate.models.endpoint import EndpointLimits
from paritygate.pipelines.live.loops import Arrivals
from paritygate.pipelines.live.result import DEFAULT_LIMITS
from paritygate.pipelines.serving.triton.settings import Settings
from paritygate.pipelines.tuning.search import Point
from paritygate.roots import Root
from paritygate.signature import Signature
from paritygate.validate.samples.source import SampleSource


class TuneRequest(Struct, frozen=True, kw_only=True):
    """The request of a search."""

    repository: Root
    model: str  # its name in the repository
    which: int | str  # a version, or an alias
    root: Path  # the folder of the view
    url: str  # of the server, or of the model on it
    samples: SampleSource
    limit_s: float  # on latency
    percentile: float = 99.0  # of answers within the limit
    name: str | None = None  # on the server; None for `model`
    variant: str | None = None  # None for the first that Triton serves
    rows: int = 1  # a request
    max_batch_size: Sequence[int] | None = None  # values to try; None: powers of two up to the view's
    instances: Sequence[int] = (1, 2, 4)  # values to try
    queue_delay_us: Sequence[int] | None = None  # values to try; None: a few that fit the limit
    seconds: float = 2.0  # of one measurement
    most_callers: int = 64  # at once
    arrivals: Arrivals = Arrivals.POISSON  # of the open loop
    seed: int = 0
    metrics: str | None = None  # the address of the server's page of metrics
    limits: EndpointLimits = DEFAULT_LIMITS
    time_limit_s: float = 3600.0  # for the released file on the samples


class TuneResult(Struct, frozen=True, kw_only=True):
    """The result of a search."""

    model: str
    version: int
    variant: str
    digest: str  # of the variant, which the settings are for
    signature: Signature | None = None  # under the server's names; settings carry over to equal ones
    name: str  # on the server
    url: str
    server: str  # its own name
    server_version: str
    transport: str  # the form of the values
    limit_ms: float
    percentile: float
    rows: int  # a request
    verdict: str  # pass, fail or inconclusive
    reason: str = ""  # empty for a pass
    before: Settings  # of the server
    settings: Settings | None = None  # the best within the limit
    baseline: Point | None = None  # the best of the server's own settings within the limit
    best: Point | None = None  # the decisive one of the best settings
    open: Point | None = None  # confirmation by an open loop
    points: tuple[Point, ...] = ()  # all, in their order
    not_loaded: Mapping[str, str] = field(default_factory=dict)  # reasons by settings
    not_chosen: str = ""  # why settings could not be chosen
    measurements: int = 0
    answers: int = 0  # checked ones
    wrong_answers: int = 0
    machine: Mapping[str, Any] = field(default_factory=dict)  # of the client
    measured_at: str = ""  # the start, UTC, ISO 8601
    seconds: float = 0.0
    is_written: bool = False  # the view has new settings
    is_loaded: bool = False  # the server has them
    notes: tuple[str, ...] = ()

    @property
    def exit_code(self) -> ExitCode:
        """The exit code of the command."""
        codes = {"pass": ExitCode.PASS, "fail": ExitCode.PARITY_FAILED}
        return codes.get(self.verdict, ExitCode.INCONCLUSIVE)
