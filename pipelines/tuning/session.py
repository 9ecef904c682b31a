"""Connect to a measured server, load settings into it, and restore its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from msgspec import Struct, field
from msgspec.structs import replace

from paritygate.errors import BackendError, ParitygateError, UsageError
from paritygate.models.endpoint import Endpoint, Protocol, parse_endpoint
from paritygate.pipelines.live.metrics.triton_page import MetricsPage
from paritygate.pipelines.live.questions import Questions
from paritygate.pipelines.serving.triton.settings import Settings
from paritygate.pipelines.tuning.control import ModelControl, NoControl
from paritygate.pipelines.tuning.measuring import LatencyLimit, Meter
from paritygate.pipelines.tuning.request import TuneRequest
from paritygate.signature import Signature
from paritygate.validate.runners.endpoint.client import HttpClient, Pace
from paritygate.validate.runners.endpoint.descriptions import mapping_in, texts_in
from paritygate.validate.runners.endpoint.open_inference import Asked, OpenInference
from paritygate.validate.runners.endpoint.versions import no_such_version

_TRITON = "triton"
# A model may take long to load.
_LOAD_S = 300.0
# The life of a mark: a measurement may take four times its time, and three follow without a load.
_SPARE_S, _MEASURED_AT_ONCE = 60.0, 30.0


class Session(Struct, kw_only=True):
    """A server, from the first answer to the restored configuration."""

    meter: Meter
    control: ModelControl | None  # None if the server does not let settings be chosen
    why_not: str  # the reason for that
    settings: Settings  # current ones
    mark_s: float  # how long a load keeps other tunes away
    is_cached: bool = False  # it has a cache, until a load before the first measurement
    not_loaded: dict[str, str] = field(default_factory=dict)  # reasons by settings

    def load(self, settings: Settings, callers: int) -> bool:
        """Load settings into the server, and warm it up; return whether it has them."""
        if settings == self.settings and not self.is_cached:
            return True
        if self.control is None:
            return False
        why = self.control.choose(settings, self.mark_s)
        if why:
            self.not_loaded[str(settings)] = why
            return False
        self.settings, self.is_cached = settings, False
        self.meter.warm_up(settings, callers)
        return True

    def check_unchanged(self) -> None:
        """Raise MeasurementError if somebody else loaded settings during a measurement."""
        if self.control is not None:
            self.control.check_unchanged(self.settings)

    @contextmanager
    def giving_back(self, warn: Callable[[str], None]) -> Iterator[None]:
        """Restore the server's configuration, without hiding an earlier error."""
        try:
            yield
        except BaseException:
            try:
                self._give_back()
            except ParitygateError as err:
                warn(f"warning: {err}")
            raise
        self._give_back()

    def _give_back(self) -> None:
        if self.control is not None:
            self.control.restore()


def address_of(request: TuneRequest, name: str, version: int) -> Endpoint:
    """Return the address of exactly this version on the server; raise UsageError for another kind or model."""
    parts = urlsplit(request.url)
    if parts.scheme in {"http", "https"} and parts.netloc and "/v2/models/" not in parts.path:
        endpoint = parse_endpoint(f"{request.url.rstrip('/')}/v2/models/{name}")
    else:
        endpoint = parse_endpoint(request.url)
    if endpoint.protocol is not Protocol.OPEN_INFERENCE:
        msg = f"{request.url} uses {endpoint.protocol} (expected HTTP with the Open Inference Protocol)"
        raise UsageError(msg, hint="write for example --url http://127.0.0.1:8000")
    if endpoint.model != name:
        msg = f"{request.url} is the address of {endpoint.model!r}, but the view is that of {name!r}"
        raise UsageError(msg, hint=f"give --name {endpoint.model}, or the address of the server alone")
    base = endpoint.path.partition("/versions/")[0]
    return replace(endpoint, path=f"{base}/versions/{version}", version=str(version))


def open_session(
    request: TuneRequest, endpoint: Endpoint, questions: Questions, served: Signature, settings: Settings
) -> Session:
    """Connect, and find out whether the server lets its settings be chosen.

    `settings` are assumed if the server does not report its own.

    Raises:
        MeasurementError: The server does not answer.
        BackendError: It answers with an error.
    """
    # One bound for all requests.
    pace = Pace(request.limits, endpoint.host)
    asking = HttpClient(endpoint.host, request.limits, connections=request.most_callers, pace=pace)
    server, requests = _connected(request, endpoint, asking, questions, served)
    meter = Meter(
        server=server,
        asked=requests,
        questions=questions,
        limit=LatencyLimit(seconds=request.limit_s, percentile=request.percentile),
        outputs=frozenset(spec.name for spec in served.outputs),
    )
    if request.metrics is not None:
        meter.use = MetricsPage(request.metrics, request.limits, pace).read
    session = Session(
        meter=meter,
        control=None,
        why_not=f"it is {server.server}, not Triton",
        settings=settings,
        # The longest measurement without another load, with time to spare.
        mark_s=_SPARE_S + _MEASURED_AT_ONCE * request.seconds,
    )
    if server.server != _TRITON:
        return session
    loads = replace(request.limits, timeout_s=max(_LOAD_S, request.limits.timeout_s))
    client = HttpClient(endpoint.host, loads, pace=pace)
    try:
        control = ModelControl(client, endpoint.prefix, endpoint.model, int(endpoint.version))
        meter.counts = control.counts
        control.check()
    except NoControl as err:
        return replace(session, why_not=str(err))
    return replace(session, control=control, why_not="", settings=control.settings, is_cached=control.has_cache)


def _asked_at(endpoint: Endpoint, client: HttpClient) -> Endpoint:
    """Return the address of a model, without its version on servers that lack these, such as one in FastAPI.

    If answers name a version, it must still be this one.

    Raises:
        MeasurementError: The server does not answer.
        BackendError: It answers with an error, or has other versions.
    """
    if client.get(endpoint.path) is not None:
        return endpoint
    base = replace(endpoint, path=endpoint.path.partition("/versions/")[0])
    has = texts_in(mapping_in(client.get(base.path), "what it says of the model"), "versions")
    if has and endpoint.version not in has:
        raise no_such_version(endpoint, has)
    return base


def _connected(
    request: TuneRequest, endpoint: Endpoint, client: HttpClient, questions: Questions, served: Signature
) -> tuple[OpenInference, list[Asked]]:
    """Return the client and the requests; a server without a model signature has answered the first.

    Raises:
        MeasurementError: The server does not answer.
        BackendError: It answers with an error, such as a server with another protocol.
    """
    outputs = [spec for spec in served.outputs if spec.name in questions.expected[0]]
    server = None
    try:
        server = OpenInference(endpoint, request.limits, client=client)
        if server.server != _TRITON:
            server = OpenInference(_asked_at(endpoint, client), request.limits, client=client)
        requests = [server.asked(feed, outputs) for feed in questions.inputs]
        if server.signature() is None:
            server.read(server.send(requests[0]))
    except BackendError as err:
        if server is not None and server.server == _TRITON:
            raise
        msg = f"tune needs a Triton server, but {endpoint.host} does not answer as one: {err}"
        hint = f"give --url the address of a Triton that serves {request.root}; use compare for any other server"
        raise BackendError(msg, hint=hint) from err
    return server, requests
