"""Show the figures of a long command to Prometheus, on the loopback; no id and no value of a request is in them."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from paritygate.backends import install_command
from paritygate.errors import MissingBackendError, UsageError
from paritygate.pipelines.release.repository.inspect import show
from paritygate.roots import Root
from paritygate.text import echo
from paritygate.validate.measure.bounds import mismatch_rate_upper_95

# Rules for alerts on these figures.
ALERTS = Path(__file__).with_name("alerts.yaml")
_MS = 1000.0
# Prometheus asks once a minute if it is not told otherwise; the verdict comes last.
_LAST_READ_S = 60.0


# Prometheus keeps it in a mapping.
class Metrics(Struct, kw_only=True, eq=False):
    """The figures; another thread reads them."""

    command: str
    model: str = ""
    released: datetime | None = None  # the time of the evidence
    requests: int | None = None  # captured; None for a command that judges
    verdict: str = "running"
    rows: int = 0  # answered
    flips: int = 0  # of them
    latency: dict[str, float] = field(default_factory=dict)  # seconds, by quantile
    was_read: threading.Event = field(default_factory=threading.Event)  # with the verdict

    def add(self, rows: int, flips: int, p50_ms: float | None = None, p99_ms: float | None = None) -> None:
        """Add answered rows, and how many of them changed; latencies replace those before."""
        self.rows, self.flips = self.rows + rows, self.flips + flips
        found = {"0.5": p50_ms, "0.99": p99_ms}
        self.latency = {quantile: each / _MS for quantile, each in found.items() if each is not None}

    def collect(self) -> Iterator[Any]:
        """Yield the figures as prometheus-client has them."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        labels, of = ["command", "model"], [self.command, self.model]

        def gauge(name: str, about: str, found: dict[str, float], label: str = "") -> GaugeMetricFamily:
            family = GaugeMetricFamily(f"paritygate_{name}", about, labels=[*labels, *([label] if label else [])])
            for key, value in found.items():
                family.add_metric([*of, *([key] if label else [])], value)
            return family

        if self.requests is not None:
            counts = {"captured_requests": ("Captured requests.", self.requests)}
        else:
            counts = {"rows": ("Answered rows.", self.rows), "flips": ("Changed rows.", self.flips)}
        for name, (about, count) in counts.items():
            counter = CounterMetricFamily(f"paritygate_{name}", about, labels=labels)
            counter.add_metric(of, count)
            yield counter
        if self.requests is None:
            bound = {"": mismatch_rate_upper_95(self.flips, self.rows)}
            yield gauge("flip_rate_bound", "95 % upper bound on the share of changed rows.", bound)
            yield gauge("verdict", "1 for the current verdict.", {self.verdict: 1.0}, "verdict")
        if self.released is not None:
            age = {"": time.time() - self.released.timestamp()}
            yield gauge("evidence_age_seconds", "Time since the release was made.", age)
        if self.latency:
            yield gauge("latency_seconds", "Latency of the last loop.", self.latency, "quantile")


@contextlib.contextmanager
def served(metrics: Metrics, port: int | None) -> Iterator[Metrics]:
    """Serve the figures at a port of 127.0.0.1 if one is given, until somebody reads the verdict, a minute at most.

    Raises:
        MissingBackendError: prometheus-client is not installed.
        UsageError: Nothing can listen at the port.
    """
    if port is None:
        yield metrics
        return
    try:
        from prometheus_client import CollectorRegistry, make_wsgi_app, start_http_server
    except ImportError as err:
        msg = "--metrics needs prometheus-client, which is not installed"
        raise MissingBackendError(msg, hint="install it with", command=install_command("metrics")) from err
    registry = CollectorRegistry(auto_describe=False)
    registry.register(metrics)
    try:
        server, thread = start_http_server(port, addr="127.0.0.1", registry=registry)
    except OSError as err:
        msg = f"nothing can listen at 127.0.0.1:{port}: {err.strerror}"
        raise UsageError(msg, hint="name another port with --metrics") from err
    page = make_wsgi_app(registry)

    def app(environ: Any, start_response: Any) -> Iterator[bytes]:  # noqa: ANN401 - as WSGI has them
        is_last = metrics.verdict != "running"
        yield from page(environ, start_response)
        # From here on, the page is sent.
        if is_last:
            metrics.was_read.set()

    server.set_app(app)
    try:
        yield metrics
        if metrics.verdict != "running":
            echo(f"waiting until the verdict is read at 127.0.0.1:{port}, {_LAST_READ_S:g} s at most", err=True)
            with contextlib.suppress(KeyboardInterrupt):
                metrics.was_read.wait(_LAST_READ_S)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextlib.contextmanager
def shown_to_prometheus(
    command: str, repository: Root, model: str, which: int | str, port: int | None
) -> Iterator[Metrics]:
    """Serve the figures of a command that judges by a release; raises as `served` and `show`."""
    metrics = Metrics(command=command, model=model)
    if port is not None:
        metrics.released = datetime.fromisoformat(show(repository, model, which).manifest["created"])
    with served(metrics, port):
        yield metrics
