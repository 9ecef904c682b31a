"""A server that is measured: where it is, what asks it, which settings it has, and giving back those that it had."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from urllib.parse import urlsplit

from paritygate.errors import BackendError, ParitygateError, UsageError
from paritygate.models.endpoint import Endpoint, Protocol, parse_endpoint
from paritygate.pipelines.serving.triton.settings import Settings
from paritygate.pipelines.tuning.answers import Questions
from paritygate.pipelines.tuning.control import ModelControl, NoControl
from paritygate.pipelines.tuning.measuring import LatencyLimit, Meter
from paritygate.pipelines.tuning.request import TuneRequest
from paritygate.pipelines.tuning.server_metrics import MetricsPage
from paritygate.signature import Signature
from paritygate.validate.runners.endpoint.client import HttpClient, Pace
from paritygate.validate.runners.endpoint.descriptions import mapping_in, texts_in
from paritygate.validate.runners.endpoint.open_inference import Asked, OpenInference
from paritygate.validate.runners.endpoint.versions import no_such_version

_TRITON = "triton"
# A model may take long to load.
_LOAD_S = 300.0
# For how long a mark counts: a measurement may be four times as long as asked for, and three follow without a load.
_SPARE_S, _MEASURED_AT_ONCE = 60.0, 30.0


@dataclass(kw_only=True)
class Session:
    """A server, from the first answer to the configuration that is given back.

    Attributes:
        meter: Measures it.
        control: Lets it load settings; None where it does not let anybody choose them.
        why_not: Why it does not.
        settings: The settings that it has.
        mark_s: For how long nobody else is to tune the model after it was loaded.
        is_cached: Whether it may answer out of a cache: it is loaded without, before anything is measured.
        not_loaded: What it did not load, and why.
    """

    meter: Meter
    control: ModelControl | None
    why_not: str
    settings: Settings
    mark_s: float
    is_cached: bool = False
    not_loaded: dict[str, str] = field(default_factory=dict)

    def load(self, settings: Settings, callers: int) -> bool:
        """Let the server have settings, and answer for a moment; return whether it has them."""
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
        """Check that the server has the settings still that were measured.

        Raises:
            MeasurementError: Somebody else loaded others.
        """
        if self.control is not None:
            self.control.check_unchanged(self.settings)

    @contextmanager
    def giving_back(self, warn: Callable[[str], None]) -> Iterator[None]:
        """Give the server back what it had; where something else failed already, that is not hidden by it."""
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
    """Return where the very version of the model is on the server.

    Raises:
        UsageError: The address is none, or that of something else.
    """
    parts = urlsplit(request.url)
    if parts.scheme in {"http", "https"} and parts.netloc and "/v2/models/" not in parts.path:
        endpoint = parse_endpoint(f"{request.url.rstrip('/')}/v2/models/{name}")
    else:
        endpoint = parse_endpoint(request.url)
    if endpoint.protocol is not Protocol.OPEN_INFERENCE:
        msg = f"{request.url} uses {endpoint.protocol} (expected HTTP with the Open Inference Protocol)"
        raise UsageError(msg, hint="write for example --url http://127.0.0.1:8000")
    if endpoint.model != name:
        msg = f"{request.url} is the address of {endpoint.model!r}, and the view is that of {name!r}"
        raise UsageError(msg, hint=f"give --name {endpoint.model}, or the address of the server alone")
    base = endpoint.path.partition("/versions/")[0]
    return replace(endpoint, path=f"{base}/versions/{version}", version=str(version))


def open_session(
    request: TuneRequest, endpoint: Endpoint, questions: Questions, served: Signature, settings: Settings
) -> Session:
    """Connect, and see whether the server lets its settings be chosen.

    Args:
        request: What is asked for.
        endpoint: Where the model is.
        questions: What it is asked.
        served: Its inputs and outputs.
        settings: The settings that it is taken to have where it does not say.

    Raises:
        MeasurementError: The server does not answer.
        BackendError: It answers with an error.
    """
    # One bound for all that is sent.
    pace = Pace(request.limits, endpoint.host)
    asking = HttpClient(endpoint.host, request.limits, connections=request.most_callers, pace=pace)
    server, asked = _connected(request, endpoint, asking, questions, served)
    meter = Meter(
        server=server,
        asked=asked,
        questions=questions,
        limit=LatencyLimit(seconds=request.limit_s, percentile=request.percentile),
        outputs=frozenset(spec.name for spec in served.outputs),
    )
    if request.metrics is not None:
        meter.use = MetricsPage(request.metrics, request.limits, pace).read
    session = Session(
        meter=meter,
        control=None,
        why_not=f"it is {server.server}, and no Triton",
        settings=settings,
        # The longest that is measured without another load, with time to spare.
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
    """Return the address of a model on a server that may have no addresses of versions, as one in FastAPI has not.

    Its answers are held to the version all the same, where they say one.

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
    """Return what asks the server, and the requests; one that says nothing of its model has answered the first.

    Raises:
        MeasurementError: The server does not answer.
        BackendError: It answers with an error, as one does that speaks another protocol.
    """
    outputs = [spec for spec in served.outputs if spec.name in questions.expected[0]]
    server = None
    try:
        server = OpenInference(endpoint, request.limits, client=client)
        if server.server != _TRITON:
            server = OpenInference(_asked_at(endpoint, client), request.limits, client=client)
        asked = [server.asked(feed, outputs) for feed in questions.inputs]
        if server.signature() is None:
            server.read(server.send(asked[0]))
    except BackendError as err:
        if server is not None and server.server == _TRITON:
            raise
        msg = f"tune needs a Triton server, and {endpoint.host} does not answer as one does: {err}"
        hint = f"give --url the address of a Triton that serves {request.root}; any other server is held by compare"
        raise BackendError(msg, hint=hint) from err
    return server, asked
