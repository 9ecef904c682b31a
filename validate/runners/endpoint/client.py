"""Asks one server over HTTP: at the address given alone, no faster and no more often than is allowed."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from paritygate.backends import require_backend
from paritygate.errors import BackendError, MeasurementError
from paritygate.models.endpoint import EndpointLimits

if TYPE_CHECKING:
    import urllib3

__all__ = ["HttpClient", "Pace", "as_json", "said_in", "vanished"]

_OK, _NOT_FOUND = 200, 404
# What a proxy or a server answers while there is nobody who could answer.
_UNAVAILABLE = frozenset({429, 502, 503, 504})
_SHOWN = 300
_CONNECTIONS = 8


def vanished(host: str, reason: object) -> MeasurementError:
    """Return the error of a server that cannot be reached: that is no answer, neither a right nor a wrong one."""
    msg = f"the server at {host} does not answer: {reason}"
    return MeasurementError(
        msg, hint="check that it runs and is ready, and that the address is right; then run it again"
    )


class Pace:
    """Counts requests, and lets them wait until they may be sent."""

    def __init__(self, limits: EndpointLimits, host: str) -> None:
        self._limits = limits
        self._host = host
        self._sent = 0
        self._next = 0.0
        self._lock = threading.Lock()

    def wait(self) -> None:
        """Return when one more request may be sent.

        Raises:
            MeasurementError: As many as are allowed were sent.
        """
        with self._lock:
            if self._sent >= self._limits.requests:
                msg = f"{self._sent} requests were sent to {self._host}, and no more are allowed"
                hint = "allow more with --endpoint requests=N, or ask fewer with --probes or fewer samples"
                raise MeasurementError(msg, hint=hint)
            self._sent += 1
            at = max(self._next, time.monotonic())
            self._next = at + 1 / self._limits.requests_per_second
        time.sleep(max(0.0, at - time.monotonic()))


class HttpClient:
    """One server that is asked over HTTP; redirects are not followed, and nothing is asked twice by itself."""

    def __init__(
        self, host: str, limits: EndpointLimits, *, connections: int = _CONNECTIONS, pace: Pace | None = None
    ) -> None:
        """Make the client; nothing is sent.

        Args:
            host: Scheme, host and port.
            limits: How it may be asked.
            connections: How many requests may wait for an answer at once.
            pace: What counts its requests, together with those of other clients; one of its own if None.

        Raises:
            MissingBackendError: urllib3 is not installed.
        """
        require_backend("urllib3")
        import urllib3

        self.host = host
        self._timeout = limits.timeout_s
        self._pace = pace or Pace(limits, host)
        self._pool: urllib3.HTTPConnectionPool = urllib3.connection_from_url(
            host, maxsize=connections, block=True, retries=False, timeout=urllib3.Timeout(total=limits.timeout_s)
        )

    def get(self, path: str) -> Any:  # noqa: ANN401 - JSON data
        """Return the JSON data at a path; None where there is nothing.

        Raises:
            MeasurementError: The server does not answer.
            BackendError: It answers with an error, or with no JSON.
        """
        status, _, body = self.exchange("GET", path, None, {})
        if status == _NOT_FOUND:
            return None
        self._check(status, body)
        return as_json(body)

    def post(self, path: str, body: bytes, headers: Mapping[str, str]) -> tuple[Mapping[str, str], bytes]:
        """Return headers and body of an answer.

        Raises:
            MeasurementError: The server does not answer.
            BackendError: It answers with an error; the message names the path where there is nothing.
        """
        status, answered, content = self.exchange("POST", path, body, headers)
        if status == _NOT_FOUND:
            msg = f"the server at {self.host} has no model at {path}: {said_in(content)}"
            raise BackendError(msg, hint="check the model's name and version, and that it is loaded")
        self._check(status, content)
        return answered, content

    def exchange(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]
    ) -> tuple[int, Mapping[str, str], bytes]:
        """Return status, headers and body of an answer, whatever they say.

        Raises:
            MeasurementError: The server does not answer.
        """
        import urllib3

        self._pace.wait()
        try:
            answer = self._pool.request(method, path, body=body, headers=dict(headers), redirect=False)
        except urllib3.exceptions.NewConnectionError as err:
            raise vanished(self.host, "nothing takes connections there") from err
        except urllib3.exceptions.TimeoutError as err:
            raise vanished(self.host, f"no answer within {self._timeout:g} s (--endpoint timeout_s)") from err
        except urllib3.exceptions.HTTPError as err:
            raise vanished(self.host, err) from err
        return answer.status, answer.headers, answer.data

    def _check(self, status: int, body: bytes) -> None:
        if status == _OK:
            return
        said = said_in(body)
        if status in _UNAVAILABLE:
            raise vanished(self.host, f"HTTP {status}: {said}")
        msg = f"the server answered HTTP {status}: {said}"
        raise BackendError(msg, hint="the log of the server says more")


def as_json(body: bytes) -> Any:  # noqa: ANN401 - JSON data
    """Return a body as JSON data.

    Raises:
        BackendError: It is none.
    """
    try:
        return json.loads(body)
    except ValueError as err:
        msg = f"the server answered with what is no JSON: {said_in(body)}"
        raise BackendError(msg, hint="check that the address is that of a model") from err


def said_in(body: bytes) -> str:
    """Return in one line what a body says: its error where it has one."""
    text = body.decode(errors="replace").strip()
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if isinstance(found, dict) and isinstance(found.get("error"), str):
        text = found["error"]
    text = " ".join(text.split())
    return (text[:_SHOWN] + " ..." if len(text) > _SHOWN else text) or "nothing was said"
