"""Asks one server over HTTP: at the address given alone, no faster and no more often than is allowed."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from paritygate.backends import require_backend
from paritygate.errors import BackendError, MeasurementError
from paritygate.models.endpoint import EndpointLimits
from paritygate.text import counted, one_line
from paritygate.validate.runners.endpoint.words import in_full, in_short, said_in

if TYPE_CHECKING:
    import urllib3

__all__ = ["CLOSED", "NOTHING_LISTENS", "NO_HOST", "HttpClient", "Pace", "as_json"]

# Why a request has no answer, in words that end a sentence.
NOTHING_LISTENS = "nothing takes connections there"
NO_HOST = "there is no host of this name"
CLOSED = "it closed the connection without an answer"

_OK, _NOT_FOUND = 200, 404
# What a proxy or a server answers while there is nobody who could answer.
_UNAVAILABLE = frozenset({429, 502, 503, 504})
# FastAPI, and what is built on it, answers so to a body that is not as its function declares it.
_MEANINGS = {422: ", since the body that was sent is not as the server declares it"}
_HINTS = {
    422: "in a file of --endpoint-json, name the fields that it declares; without one, let it take a request of the "
    "Open Inference Protocol as it comes (in FastAPI `body: dict`), or serve it at an address such as /predict and "
    "name its fields with --endpoint-json FILE"
}
_CONNECTIONS = 8


class Pace:
    """Counts requests and answers, and lets requests wait until they may be sent."""

    def __init__(self, limits: EndpointLimits, host: str) -> None:
        self._limits = limits
        self._host = host
        self._sent = 0
        self._answers = 0
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

    def count_answer(self) -> None:
        """Count one more answer of the server, whatever it says."""
        with self._lock:
            self._answers += 1

    def not_answered(self, reason: str, *, is_gone: bool) -> MeasurementError:
        """Return the error of a request without an answer: that is neither a right answer nor a wrong one.

        Args:
            reason: Why there is none, in words that end a sentence.
            is_gone: Whether the connection was refused or broken, so that nothing may run there any more.
        """
        if not self._answers:
            msg = f"the server at {self._host} does not answer: {reason}"
            return MeasurementError(
                msg, hint="check that it runs and is ready, and that the address is right; then run it again"
            )
        what = "went away" if is_gone else "stopped answering"
        msg = f"the server at {self._host} {what} after {counted(self._answers, 'answer')}: {reason}"
        if is_gone:
            hint = (
                "the address is right: see in the server's log, or in the system's, why it ended (a crash, too little "
                "memory, a restart); start it again, and run this again"
            )
        else:
            hint = (
                "see in the server's log what it waits for; run this again when it is free, or ask it more slowly "
                "(--endpoint requests_per_second=N) or with more time for an answer (--endpoint timeout_s=N)"
            )
        return MeasurementError(msg, hint=hint)


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
            msg = f"the server at {self.host} has no model at {path}: {in_short(said_in(content))}"
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
        except urllib3.exceptions.NameResolutionError as err:
            raise self._pace.not_answered(NO_HOST, is_gone=False) from err
        except urllib3.exceptions.NewConnectionError as err:
            raise self._pace.not_answered(NOTHING_LISTENS, is_gone=True) from err
        except urllib3.exceptions.TimeoutError as err:
            reason = f"no answer within {self._timeout:g} s (--endpoint timeout_s)"
            raise self._pace.not_answered(reason, is_gone=False) from err
        except urllib3.exceptions.HTTPError as err:
            raise self._pace.not_answered(_why_broken(err), is_gone=True) from err
        if answer.status not in _UNAVAILABLE:
            self._pace.count_answer()
        return answer.status, answer.headers, answer.data

    def _check(self, status: int, body: bytes) -> None:
        if status == _OK:
            return
        said = said_in(body)
        meaning = _MEANINGS.get(status, "")
        words = f"HTTP {status}{meaning}: {in_short(said)}{in_full(said)}"
        if status in _UNAVAILABLE:
            raise self._pace.not_answered(words, is_gone=False)
        msg = f"the server answered {words}"
        raise BackendError(msg, hint=_HINTS.get(status, "the log of the server says more"))


def _why_broken(err: Exception) -> str:
    """Return in words why a request that was sent has no answer, such as of a server that was killed meanwhile."""
    # urllib3 packs the error of the connection into its own, as the last of several arguments.
    inner = err
    while inner.args and isinstance(inner.args[-1], Exception):
        inner = inner.args[-1]
    if isinstance(inner, http.client.IncompleteRead):
        return "it closed the connection in the middle of an answer"
    if isinstance(inner, ConnectionError):
        return CLOSED
    return one_line(f"{type(inner).__name__}: {inner}")


def as_json(body: bytes) -> Any:  # noqa: ANN401 - JSON data
    """Return a body as JSON data.

    Raises:
        BackendError: It is none.
    """
    try:
        return json.loads(body)
    except ValueError as err:
        msg = f"the server answered with what is no JSON: {in_short(said_in(body))}"
        raise BackendError(msg, hint="check that the address is that of a model") from err
