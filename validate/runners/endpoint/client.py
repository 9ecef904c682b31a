"""Requests to one server over HTTP, at its address alone, within the allowed pace and number."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

from paritygate.errors import BackendError, MeasurementError, ParitygateError
from paritygate.models.endpoint import EndpointLimits
from paritygate.text import counted
from paritygate.validate.runners.endpoint.answer_size import AnswerSize, answer_size, description_size
from paritygate.validate.runners.endpoint.connection import (
    BrokenAnswerError,
    Connections,
    HttpRequest,
    NoConnectionError,
    TooLargeError,
)
from paritygate.validate.runners.endpoint.words import in_full, in_short, said_in

# Reasons why a request has no answer, as the end of a message.
NOTHING_LISTENS = "nothing takes connections there"
NO_HOST = "there is no host of this name"

_OK, _NOT_FOUND = 200, 404
# Status codes of a proxy or server that cannot answer now.
_UNAVAILABLE = frozenset({429, 502, 503, 504})
# FastAPI and its kin answer so to a body that does not fit the declared function.
_MEANINGS = {422: ", since the body that was sent is not as the server declares it"}
_HINTS = {
    422: "serve it at an address such as /predict, and name the fields that it declares in a mapping: "
    "--endpoint-json FILE, or (name, address, mapping) for a stage. Or let it take a request of the Open Inference "
    "Protocol as it comes (in FastAPI `body: dict`)"
}
_CONNECTIONS = 8


class Pace:
    """Count requests and answers, and let requests wait until they may be sent."""

    def __init__(self, limits: EndpointLimits, host: str) -> None:
        self._limits = limits
        self._host = host
        self._sent = 0
        self._answers = 0
        self._next = 0.0
        self._lock = threading.Lock()

    def wait(self) -> None:
        """Return when one more request may be sent; raise MeasurementError where no more are allowed."""
        with self._lock:
            if self._sent >= self._limits.requests:
                msg = f"{self._sent} requests were sent to {self._host}, which is the limit"
                hint = "allow more with --endpoint requests=N, or send fewer with --probes or fewer samples"
                raise MeasurementError(msg, hint=hint)
            self._sent += 1
            at = max(self._next, time.monotonic())
            self._next = at + 1 / self._limits.requests_per_second
        time.sleep(max(0.0, at - time.monotonic()))

    def count_answer(self) -> None:
        """Count one more answer of the server, of any content."""
        with self._lock:
            self._answers += 1

    def not_answered(self, reason: str, *, is_gone: bool) -> MeasurementError:
        """Return the error of a request without an answer, which is neither a correct nor a wrong one.

        `reason` ends the message. `is_gone` marks a refused or broken connection, after which nothing may run there any
        more.
        """
        what = "went away" if is_gone else "stopped answering"
        msg = f"the server at {self._host} {what} after {counted(self._answers, 'answer')}: {reason}"
        hint = (
            "look in the server's log for the reason; then run this again, or send fewer requests "
            "(--endpoint requests_per_second=N), or wait longer (--endpoint timeout_s=N)"
        )
        if not self._answers:
            msg = f"the server at {self._host} does not answer: {reason}"
            hint = "check that the server is ready and the address correct, then run this again"
        elif is_gone:
            hint = (
                "look in the logs of the server and the system for the reason, such as a crash or too little "
                "memory. Then start the server and run this again"
            )
        error = MeasurementError(msg, hint=hint)
        error.reason = reason
        return error


class HttpClient:
    """One server over HTTP; redirects are not followed.

    At most `connections` stay open while idle. A request is repeated only if the server closed a connection that was
    idle for `resent_after_s`, without an answer. `pace` may count requests together with other clients.
    """

    def __init__(
        self,
        host: str,
        limits: EndpointLimits,
        *,
        connections: int = _CONNECTIONS,
        resent_after_s: float = 0.0,
        pace: Pace | None = None,
    ) -> None:
        self.host = host
        self._limits = limits
        self._pace = pace or Pace(limits, host)
        self._connections = Connections(host, most=connections, resent_after_s=resent_after_s)

    def get(self, path: str) -> Any:  # noqa: ANN401 - JSON data
        """Return the JSON data at a path; None where there is nothing.

        MeasurementError is raised where the server does not answer, BackendError for an error, no JSON, or too large an
        answer.
        """
        status, _, body = self._exchange(HttpRequest(method="GET", path=path), description_size(self._limits))
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
            error = BackendError(msg, hint="check the model's name and version, and that the server has loaded it")
            error.status = status
            raise error
        self._check(status, content)
        return answered, content

    def exchange(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]
    ) -> tuple[int, Mapping[str, str], bytes]:
        """Return status, headers with names in lower case, and body of any answer.

        MeasurementError is raised where the server does not answer, BackendError where its answer is too large.
        """
        request = HttpRequest(method=method, path=path, body=body, headers=headers)
        return self._exchange(request, answer_size(self._limits))

    def _exchange(self, request: HttpRequest, size: AnswerSize) -> tuple[int, Mapping[str, str], bytes]:
        self._pace.wait()
        try:
            answer = self._connections.exchange(request, seconds=self._limits.timeout_s, most=size.most)
        except NoConnectionError as err:
            reason = NO_HOST if err.is_no_host else NOTHING_LISTENS
            raise self._pace.not_answered(reason, is_gone=not err.is_no_host) from err
        except TimeoutError as err:
            reason = f"no answer within {self._limits.timeout_s:g} s (--endpoint timeout_s)"
            raise self._pace.not_answered(reason, is_gone=False) from err
        except TooLargeError as err:
            self._pace.count_answer()
            raise size.exceeded() from err
        except BrokenAnswerError as err:
            raise self._pace.not_answered(str(err), is_gone=err.is_gone) from err
        if answer.status not in _UNAVAILABLE:
            self._pace.count_answer()
        return answer.status, answer.headers, answer.body

    def _check(self, status: int, body: bytes) -> None:
        if status == _OK:
            return
        reason = said_in(body)
        meaning = _MEANINGS.get(status, "")
        words = f"HTTP {status}{meaning}: {in_short(reason)}{in_full(reason)}"
        error: ParitygateError = BackendError(
            f"the server answered {words}", hint=_HINTS.get(status, "look in the server's log for the reason")
        )
        if status in _UNAVAILABLE:
            error = self._pace.not_answered(words, is_gone=False)
        error.status = status
        raise error


def as_json(body: bytes) -> Any:  # noqa: ANN401 - JSON data
    """Return a body as JSON data; raise BackendError where it is none, too deep, or has a field twice."""
    try:
        return json.loads(body, object_pairs_hook=_once)
    except _TwiceError as err:
        msg = f"the server's answer has the field {in_short(str(err))} twice (expected once)"
        raise BackendError(msg, hint="correct the server") from err
    except RecursionError as err:
        msg = "the server answered with JSON with too many levels"
        raise BackendError(msg, hint="check that the address belongs to a model") from err
    except ValueError as err:
        msg = f"the server returned invalid JSON: {in_short(said_in(body))}"
        raise BackendError(msg, hint="check that the address belongs to a model") from err


class _TwiceError(Exception):
    """An object has a field twice; the message is its name."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of JSON; of two fields of one name, Python would silently take the last."""
    fields = dict(pairs)
    if len(fields) != len(pairs):
        (name, _), *_ = Counter(name for name, _ in pairs).most_common(1)
        raise _TwiceError(repr(name))
    return fields
